//! Wrong code of planted bugs.

use crate::db::{core::Core, versions::SnapshotState};

/// `SnapshotJudgesExpiryNow`: the time at which a value is judged.
pub(super) fn now(core: &Core, _snapshot: &SnapshotState) -> u64 {
    core.host.clock.now()
}
