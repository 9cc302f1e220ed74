//! Wrong code of planted bugs. See [`crate::util::mutant`].

use super::Naive;
use crate::util::sync::lock;

/// `SnapshotRemovesOldFirst`: removes the newest checkpoint before its successor is durable.
pub(super) fn remove_newest(naive: &Naive) {
    if let Some(old) = &lock(&naive.newest).name {
        let _ = naive.context.dir.remove(old);
    }
}
