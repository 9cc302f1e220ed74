//! The snapshot object of a program, and the reference that read options keep.

use std::sync::{Arc, Weak};

use quintet::Snapshot;

use crate::status::Status;

/// A snapshot that the program releases.
#[derive(Debug)]
pub struct SnapshotObject(Arc<Snapshot>);

impl SnapshotObject {
    /// Makes the object of a snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self(Arc::new(snapshot))
    }

    /// Returns the snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.0
    }

    /// Returns a reference for read options. It does not keep the snapshot.
    pub fn share(&self) -> SnapshotReference {
        SnapshotReference(Some(Arc::downgrade(&self.0)))
    }
}

/// The snapshot that read options name. None: the present state.
#[derive(Clone, Debug, Default)]
pub struct SnapshotReference(Option<Weak<Snapshot>>);

impl SnapshotReference {
    /// Returns the snapshot to read. Fails if it was released.
    pub fn get(&self) -> Result<Option<Arc<Snapshot>>, Status> {
        let released = || Status::invalid("the snapshot of the read options was released");
        self.0.as_ref().map(|weak| weak.upgrade().ok_or_else(released)).transpose()
    }
}
