//! Describes the index in a pool as text, for `inspect`.

use std::sync::Arc;

use super::{fast_fair::FairTree, run_records::RunRecords, update_log::UpdateLog};
use crate::{
    Result,
    engine::slm::pool::roots::TREE,
    pmem::{Pool, is_link, target},
    util::format::LineSink,
};

/// Passes a description of the runs, the log of updates and the tree to `say`. Fails with
/// `Corruption` at the first part that is damaged. The pool must be a copy.
pub(in crate::engine::slm::pool) fn describe(
    pool: &Arc<Pool>,
    say: &mut LineSink<'_>,
) -> Result<()> {
    let (_, list) = RunRecords::open(pool)?;
    say(&format!("runs: {}", list.runs.len()));
    for run in &list.runs {
        let (number, bytes, live) = (run.number, run.file_bytes, run.live);
        if !say(&format!("  run {number}: {bytes} bytes, {live} live entries")) {
            return Ok(());
        }
    }
    let (_, pending) = UpdateLog::open(pool)?;
    let updates = pending.map_or(0, |batch| batch.updates.len());
    say(&format!("log of index updates: {updates} updates of an interrupted batch"));
    let word = pool.root(TREE);
    if !is_link(word) || word == 0 {
        return Err(pool.damage(Pool::root_at(TREE), "the link to the index is damaged"));
    }
    // Without keys to repair: opening completes an interrupted change, a description does not.
    let shape = FairTree::open_at(pool, target(word), &[])?.shape()?;
    say(&format!("index: height {}, {} nodes, {} entries", shape.levels, shape.nodes, shape.keys));
    Ok(())
}
