//! Wrong code of planted bugs.

use std::sync::Arc;

use super::{run::VersionRun, store::VersionStore, version_key::VersionKey};
use crate::util::{codec::Lsn, sync::lock};

/// `SnapshotReadsNewestVersion`: the LSN of the newest version instead of the snapshot's.
pub(super) fn newest(store: &VersionStore, key: &VersionKey, lsn: Lsn) -> Lsn {
    let runs = store.runs.load();
    let mut newest = lsn;
    let has_since = |run: &VersionRun, lsn| run.has_since(key, lsn).is_ok_and(|has| has);
    while runs.iter().any(|run| has_since(run, Lsn(newest.0 + 1))) {
        newest.0 += 1;
    }
    newest
}

/// `SpillLeavesGap`: the segments leave the list before the file is in it.
pub(super) fn replace_in_two_steps(
    store: &VersionStore,
    old: &[VersionRun],
    new: Vec<VersionRun>,
) -> bool {
    let is_replaced = store.replace(old, Vec::new());
    crate::util::sync::yield_now();
    let _rotation = lock(&store.rotation);
    let rest = store.runs.load_full();
    store.runs.store(Arc::new(new.into_iter().chain(rest.iter().cloned()).collect()));
    is_replaced
}
