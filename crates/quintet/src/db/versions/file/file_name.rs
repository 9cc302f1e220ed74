//! The name of a file of versions. Dropping it removes the file.

use std::sync::Arc;

use crate::io::{Dir, process::OwnerProcess};

/// The name of the directory in that of the database.
pub(super) const VERSIONS_NAME: &str = "versions";

/// The name of a file. See the module head.
#[derive(Debug)]
pub(super) struct FileName {
    dir: Arc<dyn Dir>,
    pub(super) name: String,
    owner: OwnerProcess,
}

impl FileName {
    /// Returns the name of a file in `dir` that this process has created.
    pub(super) fn new(dir: &Arc<dyn Dir>, name: String) -> Self {
        Self { dir: Arc::clone(dir), name, owner: OwnerProcess::this_process() }
    }
}

impl Drop for FileName {
    fn drop(&mut self) {
        // A forked child must not remove the files of its parent.
        if !self.owner.is_forked() {
            let _ = self.dir.remove(&self.name);
        }
    }
}
