//! Wrong code of the planted bugs of replay.

use super::target::{ReplayTable, ReplayTarget};
use crate::{contract::Op, db::encoding::envelope::Envelope, util::codec::Lsn};

/// Returns the newest LSN that any table is complete to.
pub(super) fn newest_complete(target: &ReplayTarget<'_>) -> Lsn {
    target.tables().map(ReplayTable::complete).max().unwrap_or_default()
}

/// Removes the expiries of values.
pub(super) fn remove_expiries(ops: &mut [(Lsn, Op<'_>)]) {
    for (_, op) in ops {
        *op = without_expiry(*op);
    }
}

/// Returns a put without the expiry of its value, whose type tag stays; other operations as they
/// are. Replay passes the envelope in `body`.
pub(super) fn without_expiry(op: Op<'_>) -> Op<'_> {
    let Op::Put { key, head: b"", body } = op else { return op };
    let Some((envelope, start)) = Envelope::decode(body) else { return op };
    if envelope.expires_at.is_none() {
        return op;
    }
    // The tag is the last byte of the envelope.
    let (head, kept): (&[u8], _) = match envelope.type_tag {
        Some(_) => (&[Envelope::TAGGED], start - 1),
        None => (&[Envelope::PLAIN], start),
    };
    Op::Put { key, head, body: body.get(kept..).unwrap_or(&[]) }
}
