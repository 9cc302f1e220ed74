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

/// Returns a put without the expiry of its value; other operations as they are.
pub(super) fn without_expiry(op: Op<'_>) -> Op<'_> {
    let Op::Put { key, body, .. } = op else { return op };
    let start = Envelope::decode(body).map_or(0, |(_, start)| start);
    let body = body.get(start..).unwrap_or(&[]);
    Op::Put { key, head: &[Envelope::PLAIN], body }
}
