//! Wrong code of planted bugs.

use super::{store::VersionStore, version_key::VersionKey};
use crate::util::codec::Lsn;

/// `SnapshotReadsNewestVersion`: the LSN of the newest version instead of the snapshot's.
pub(super) fn newest(store: &VersionStore, key: &VersionKey, lsn: Lsn) -> Lsn {
    let segments = store.segments.load();
    let mut newest = lsn;
    while segments.iter().any(|segment| segment.has_since(key, Lsn(newest.0 + 1))) {
        newest.0 += 1;
    }
    newest
}
