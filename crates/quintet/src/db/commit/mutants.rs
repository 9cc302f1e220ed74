//! Wrong code of the planted bugs of the commit path.

use crate::{
    Result,
    contract::Op,
    db::{
        core::{Core, condition::Condition},
        encoding::operations::{Frame, Ops},
        tables::state::TableState,
    },
    io::process::ProcessArc,
    util::sync::yield_now,
    wal::Appended,
};

/// Checks the condition before the stripe is held, with time for other writers between. It is not
/// checked again, whether it held or not.
pub(super) fn holds_early(
    core: &Core,
    table: &TableState,
    op: &Op<'_>,
    condition: Condition,
) -> Result<bool> {
    let holds = core.holds_until(table, op, condition)?.is_some();
    (0..100).for_each(|_| yield_now());
    Ok(holds)
}

/// Logs and applies each operation of a batch as one record.
pub(super) fn log_split<'a>(
    core: &Core,
    operations: impl Iterator<Item = (&'a ProcessArc<TableState>, Op<'a>)>,
) -> Result<(Appended, Result<()>)> {
    let end = core.log.end();
    let mut last = Appended { lsn: end, end, wants_preparation: false };
    for (table, op) in operations {
        let frame = Frame::new(table.id, &op);
        let mut ticket = core.log.begin()?;
        last = ticket.append(&frame.pieces(&op))?;
        core.apply(table, last, &op)?;
        core.expiry.add(table, last, &op, None)?;
    }
    Ok((last, Ok(())))
}

/// Returns the first operation of a batch's body.
pub(super) fn first_operation(body: &[u8]) -> &[u8] {
    let mut operations = Ops::new(body);
    let _first = operations.next();
    body.get(..body.len() - operations.remaining_bytes()).unwrap_or(body)
}
