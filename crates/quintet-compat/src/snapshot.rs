//! The snapshot object of a program, and the reference that read options keep.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use quintet::Snapshot;

use crate::{boundary::Reference, status::Status};

/// A snapshot that the program releases, or a reference to that of a transaction.
pub type SnapshotObject = Reference<SnapshotCell>;

/// Where a snapshot is. A transaction replaces it when it begins again.
#[derive(Debug, Default)]
pub struct SnapshotCell(Mutex<Option<Arc<Snapshot>>>);

impl SnapshotCell {
    /// Makes a cell with a snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self(Mutex::new(Some(Arc::new(snapshot))))
    }

    /// Replaces the snapshot.
    pub fn set(&self, snapshot: Option<Snapshot>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = snapshot.map(Arc::new);
    }

    /// Returns the snapshot.
    pub fn get(&self) -> Option<Arc<Snapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The snapshot that read options name. None: the present state.
#[derive(Clone, Debug, Default)]
pub struct SnapshotReference(Option<Weak<Snapshot>>);

impl SnapshotReference {
    /// Returns a reference to the snapshot of an object. It does not keep the snapshot.
    pub fn to(object: Option<&SnapshotObject>) -> Self {
        let snapshot = object.and_then(Reference::get).and_then(SnapshotCell::get);
        Self(snapshot.map(|snapshot| Arc::downgrade(&snapshot)))
    }

    /// Returns the snapshot to read. Fails if it was released.
    pub fn get(&self) -> Result<Option<Arc<Snapshot>>, Status> {
        let released = || Status::invalid("the snapshot of the read options was released");
        self.0.as_ref().map(|weak| weak.upgrade().ok_or_else(released)).transpose()
    }
}
