//! Secondary instances: databases that are read beside the instance that writes them.
//!
//! A directory is open for writing in one place. So a secondary instance of a database that this
//! process writes shares it, and reads a snapshot that the program replaces. If no process writes
//! the database, a secondary instance is a read-only database. It fails if another process does.
//!
//! Invariant: a secondary instance never writes. A shared database would accept writes, so each
//! function that writes asks [`check_writable`] first.
//!
//! Locks: `snapshot` is held only for a copy or a replacement.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use quintet::{Snapshot, Table};
use quintet_compat::{
    status::Status,
    store::{OpenRequest, Store},
};

/// What a program may do with a database.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Read and write.
    Write,
    /// Read.
    Read,
    /// Read what a primary instance has written, as of a moment that the program moves forward.
    Secondary,
}

/// What the reads of a secondary instance show.
#[derive(Debug)]
pub struct Moment {
    snapshot: RwLock<Snapshot>,
}

impl Moment {
    /// Returns the snapshot.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the snapshot.
    pub fn replace(&self, snapshot: Snapshot) {
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}

/// A database, the tables of the requested families, and what reads show.
type Opened = (Store, Vec<Table>, Option<Arc<Moment>>);

/// Opens a database, or shares one that is open.
pub fn open(path: &Path, request: &OpenRequest, access: Access) -> Result<Opened, Status> {
    if access == Access::Secondary
        && let Some((store, tables)) = Store::opened(path, request)?
    {
        let snapshot = RwLock::new(store.database.snapshot()?);
        return Ok((store, tables, Some(Arc::new(Moment { snapshot }))));
    }
    let (store, tables) = Store::open(path, request)?;
    Ok((store, tables, None))
}

/// Fails in a secondary instance.
pub fn check_writable(moment: Option<&Arc<Moment>>) -> Result<(), Status> {
    match moment {
        None => Ok(()),
        Some(_) => Err(Status::unsupported("Not supported operation in secondary mode.")),
    }
}
