//! Wrong code of the planted bugs of transactions.

use super::handle::Transaction;
use crate::{db::versions::SnapshotState, io::process::ProcessArc};

/// Gives the snapshot of the first attempt that has one to every later attempt.
pub(super) fn keep_snapshot(
    transaction: &mut Transaction,
    kept: &mut Option<ProcessArc<SnapshotState>>,
) {
    let reads = &mut transaction.state.get_mut().reads;
    if let Some(kept) = kept {
        reads.replace_snapshot(kept.clone());
    } else {
        *kept = reads.shared_snapshot();
    }
}
