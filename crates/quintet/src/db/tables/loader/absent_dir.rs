//! [`AbsentDir`]: a directory that does not exist, for readers.
//!
//! The directory of a new table may be lost with the power, and a database that is opened read-only
//! must not create it. The table has no files then, which is what this directory shows.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::io::{Dir, DirEntry, File, LockGuard, Open};

/// An empty directory that refuses changes.
#[derive(Debug)]
pub(super) struct AbsentDir {
    path: PathBuf,
}

impl AbsentDir {
    /// Stands for the directory at `path`.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

fn absent<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotFound.into())
}

impl Dir for AbsentDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, _name: &str, _how: Open) -> io::Result<Arc<dyn File>> {
        absent()
    }

    fn open_dir(&self, _name: &str, _create: bool) -> io::Result<Arc<dyn Dir>> {
        absent()
    }

    fn list(&self) -> io::Result<Vec<DirEntry>> {
        Ok(Vec::new())
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        absent()
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        absent()
    }

    fn remove_dir(&self, _name: &str) -> io::Result<()> {
        absent()
    }

    fn sync(&self) -> io::Result<()> {
        absent()
    }

    fn lock(&self, _name: &str, _exclusive: bool) -> io::Result<Box<dyn LockGuard>> {
        absent()
    }
}
