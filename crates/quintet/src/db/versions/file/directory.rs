//! The directory of the files of versions. It exists while versions are in files.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use crate::{
    Error, Result,
    io::{Dir, Open},
    lsm::block_cache::BlockCache,
    util::{
        budget::Budget,
        mutant::mutant,
        sync::{AtomicU64, Ordering},
    },
};

use super::{
    block::BLOCK_BYTES,
    file_name::{FileName, VERSIONS_NAME},
    writer::VersionFileWriter,
};

/// The cache of blocks has at most the budget divided by this. It takes only memory that is free.
const CACHE_SHARE: u64 = 8;
/// The number that the cache has in place of a table's, which start at 1.
const NO_TABLE: u64 = 0;

/// The open directory and the cache of its blocks.
#[derive(Debug)]
struct OpenDirectory {
    dir: Arc<dyn Dir>,
    cache: Arc<BlockCache>,
}

/// The directory. See the module head.
#[derive(Debug)]
pub(in crate::db::versions) struct VersionDirectory {
    database: Arc<dyn Dir>,
    budget: Arc<Budget>,
    /// Unknown to those who choose keys and values.
    secret: u64,
    open: OnceLock<OpenDirectory>,
    /// The number of the last file.
    number: AtomicU64,
}

impl VersionDirectory {
    /// Returns the directory of the database in `database`. Nothing is created yet.
    pub(in crate::db::versions) fn new(
        database: &Arc<dyn Dir>,
        budget: &Arc<Budget>,
        secret: u64,
    ) -> Self {
        Self {
            database: Arc::clone(database),
            budget: Arc::clone(budget),
            secret,
            open: OnceLock::new(),
            number: AtomicU64::new(0),
        }
    }

    /// Creates the directory when the first file is written. Callers come one at a time.
    fn opened(&self) -> Result<&OpenDirectory> {
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        let dir = self.database.open_dir(VERSIONS_NAME, true);
        let dir = dir.map_err(|error| Error::io(format!("create {VERSIONS_NAME}"), error))?;
        let bytes = if cfg!(model) { 0 } else { self.budget.limit() / CACHE_SHARE };
        let shape = (bytes, BLOCK_BYTES);
        let cache = BlockCache::new(shape, self.secret, (&self.budget, NO_TABLE));
        let cache = cache.map_err(|error| Error::address_space("a cache", error))?;
        let cache = Arc::new(cache);
        let reclaimable = Arc::downgrade(&cache);
        self.budget.register_reclaimable(reclaimable);
        Ok(self.open.get_or_init(|| OpenDirectory { dir, cache }))
    }

    /// Creates a file for up to `versions` versions.
    pub(in crate::db::versions) fn create(&self, versions: u64) -> Result<VersionFileWriter> {
        let OpenDirectory { dir, cache } = self.opened()?;
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("{number}.versions");
        let file = dir.open(&name, Open::CREATE);
        let file =
            file.map_err(|error| Error::io(format!("create {VERSIONS_NAME}/{name}"), error))?;
        let name = FileName::new(dir, name);
        Ok(VersionFileWriter::new((name, file, number), versions, (cache, &self.budget)))
    }

    /// Removes the directory and what is in it. No snapshot is open.
    pub(in crate::db::versions) fn remove(&self) {
        if self.open.get().is_some() {
            // What is left is removed when the database is opened.
            let _ = remove_versions(&self.database);
        }
    }
}

/// Removes the files of versions that a crash has left in the directory of a database.
pub(crate) fn remove_versions(database: &Arc<dyn Dir>) -> io::Result<()> {
    mutant!(VersionFilesStay => return Ok(()));
    let dir = match database.open_dir(VERSIONS_NAME, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        dir => dir?,
    };
    for entry in dir.list()? {
        dir.remove(&entry.name)?;
    }
    database.remove_dir(VERSIONS_NAME)
}
