//! Wrong code of planted bugs. See [`crate::util::mutant`].

use std::sync::Arc;

use crate::io::Dir;

/// `SnapshotRemovesOldFirst`: removes the newest checkpoint before its successor is durable.
pub(super) fn remove_newest(dir: &Arc<dyn Dir>, name: Option<&str>) {
    if let Some(name) = name {
        let _ = dir.remove(name);
    }
}
