//! The backup engine: numbered copies of databases in a directory.
//!
//! How: a backup is a database of its own, `ID`, which [`Core::copy`] writes while the program goes
//! on. So each backup is whole: nothing is shared with others, and a backup reads and writes all
//! entries. Restoring copies its files.
//!
//! # Layout
//!
//! | name | content |
//! |---|---|
//! | `ID` | the database |
//! | `ID.meta` | a line with the time in seconds since 1970, the number of files, and their bytes |
//!
//! Invariant: a directory without `ID.meta` is no backup. The file is written last, and removed
//! first.
//!
//! Locks: one operation of an engine runs at a time.

mod functions;

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use quintet::Options;
use quintet_compat::{
    boundary::Text,
    destroy::{LOCK, RESERVE, RESTORING, destroy},
    files::{failed, rename, sync_directory},
    status::{Code, Status},
    store::{CATALOG, Store},
};

use crate::{core::Core, environment::Environment};

/// The end of the names of descriptions.
const META: &str = ".meta";

/// `rocksdb_backup_engine_t`.
#[derive(Debug)]
pub struct BackupEngine {
    directory: PathBuf,
    /// Keeps the directory, if it is in memory.
    _of_backups: Environment,
    of_databases: Environment,
    turn: Mutex<()>,
}

/// A backup.
#[derive(Clone, Copy, Debug)]
pub struct Backup {
    /// Its number, from 1.
    pub id: u32,
    /// When it was made, in seconds since 1970.
    pub timestamp: i64,
    /// Number of its files.
    pub files: u32,
    /// Size of its files in bytes.
    pub bytes: u64,
}

/// The contents of a directory: paths from there.
#[derive(Debug, Default)]
struct Listing {
    /// Directories, each after that above it. A database has empty ones too.
    directories: Vec<PathBuf>,
    /// Files without the lock and the reserve, and their sizes in bytes.
    files: Vec<(PathBuf, u64)>,
}

impl Listing {
    fn of(directory: &Path) -> Result<Self, Status> {
        let mut listing = Self::default();
        listing.add(directory, Path::new(""))?;
        Ok(listing)
    }

    fn add(&mut self, directory: &Path, below: &Path) -> Result<(), Status> {
        let path = directory.join(below);
        let entries = fs::read_dir(&path).map_err(|error| failed(&path, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| failed(&path, &error))?;
            let metadata = entry.metadata().map_err(|error| failed(&path, &error))?;
            let name = below.join(entry.file_name());
            if metadata.is_dir() {
                self.directories.push(name.clone());
                self.add(directory, &name)?;
            } else if entry.file_name() != LOCK && entry.file_name() != RESERVE {
                self.files.push((name, metadata.len()));
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Copies a file durably.
fn copy_file(source: &Path, target: &Path) -> Result<(), Status> {
    let copied = fs::copy(source, target).and_then(|_| File::open(target)?.sync_all());
    copied.map_err(|error| failed(target, &error))?;
    target.parent().map_or(Ok(()), sync_directory)
}

impl BackupEngine {
    /// Opens a directory of backups, and makes it if it is missing. Restored databases are in
    /// `of_databases`. `destroys_old`: removes the
    /// backups that are there.
    pub fn open(
        directory: &Path,
        of_backups: Environment,
        of_databases: Environment,
        destroys_old: bool,
    ) -> Result<Self, Status> {
        let directory = of_backups.place(directory)?;
        fs::create_dir_all(&directory).map_err(|error| failed(&directory, &error))?;
        let turn = Mutex::new(());
        let engine = Self { directory, _of_backups: of_backups, of_databases, turn };
        if destroys_old {
            engine.purge(0)?;
        }
        Ok(engine)
    }

    fn database(&self, id: u32) -> PathBuf {
        self.directory.join(id.to_string())
    }

    fn meta(&self, id: u32) -> PathBuf {
        self.directory.join(format!("{id}{META}"))
    }

    /// Returns the numbers of entries of the directory whose names end with `end`.
    fn ids(&self, end: &str) -> Result<Vec<u32>, Status> {
        let listing = fs::read_dir(&self.directory);
        let mut ids = Vec::new();
        for entry in listing.map_err(|error| failed(&self.directory, &error))? {
            let name = entry.map_err(|error| failed(&self.directory, &error))?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(end));
            ids.extend(id.and_then(|id| id.parse::<u32>().ok()));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    fn read(&self, id: u32) -> Result<Backup, Status> {
        let path = self.meta(id);
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        let damaged = || Status::corruption(format!("{}: is damaged", path.display()));
        let mut numbers = text.split_whitespace();
        let mut next = || numbers.next().ok_or_else(damaged);
        Ok(Backup {
            id,
            timestamp: next()?.parse().map_err(|_| damaged())?,
            files: next()?.parse().map_err(|_| damaged())?,
            bytes: next()?.parse().map_err(|_| damaged())?,
        })
    }

    /// Returns the backups, oldest first.
    pub fn backups(&self) -> Result<Vec<Backup>, Status> {
        self.ids(META)?.into_iter().map(|id| self.read(id)).collect()
    }

    fn find(&self, id: u32) -> Result<Backup, Status> {
        if self.ids(META)?.contains(&id) {
            return self.read(id);
        }
        Err(Status::new(Code::NotFound, "Backup not found"))
    }

    /// Makes a backup of the present state of a database.
    pub fn create(&self, core: &Core) -> Result<(), Status> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let finished = self.ids(META)?;
        // A directory without its description is of an operation that did not end.
        let started = self.ids("")?;
        for id in started.iter().filter(|id| !finished.contains(id)) {
            destroy(&self.database(*id))?;
        }
        let last = started.last().max(finished.last()).copied().unwrap_or_default();
        let id =
            last.checked_add(1).ok_or_else(|| Status::invalid("there are too many backups"))?;
        core.copy(&self.database(id))?;
        let listing = Listing::of(&self.database(id))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = format!("{} {} {}\n", now.as_secs(), listing.files.len(), listing.bytes());
        let unfinished = self.directory.join(format!("{id}{META}.tmp"));
        let written = File::create(&unfinished).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| failed(&unfinished, &error))?;
        rename(&unfinished, &self.meta(id))
    }

    /// Removes all backups but the `count` newest.
    pub fn purge(&self, count: usize) -> Result<(), Status> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = self.ids(META)?;
        for id in ids.iter().take(ids.len().saturating_sub(count)) {
            let meta = self.meta(*id);
            fs::remove_file(&meta).map_err(|error| failed(&meta, &error))?;
            sync_directory(&self.directory)?;
            destroy(&self.database(*id))?;
        }
        Ok(())
    }

    /// Fails if files of a backup are missing or have another size, or if one is damaged.
    pub fn verify(&self, id: u32) -> Result<(), Status> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (backup, listing) = (self.find(id)?, Listing::of(&self.database(id))?);
        let (files, bytes) = (listing.files.len(), listing.bytes());
        if usize::try_from(backup.files).ok() != Some(files) || backup.bytes != bytes {
            return Err(Status::corruption(format!(
                "backup {id}: {files} files of {bytes} bytes, not {} of {}",
                backup.files, backup.bytes
            )));
        }
        Store::repair(&self.database(id), &Options::new().read_only(true))
    }

    /// Replaces the database in a directory by a backup. `None`: by the newest one. Fails if the
    /// database is open.
    pub fn restore(&self, id: Option<u32>, target: Text) -> Result<(), Status> {
        let target = &self.of_databases.path(target)?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || Status::new(Code::NotFound, "there is no backup");
        let id = id.or(self.ids(META)?.last().copied()).ok_or_else(none)?;
        self.find(id)?;
        destroy(target)?;
        let source = self.database(id);
        let Listing { directories, mut files } = Listing::of(&source)?;
        fs::create_dir_all(target).map_err(|error| failed(target, &error))?;
        // A restore that was interrupted is removed by the next one.
        let marker = target.join(RESTORING);
        let created = File::create(&marker).and_then(|file| file.sync_all());
        created.map_err(|error| failed(&marker, &error))?;
        sync_directory(target)?;
        for name in directories {
            let directory = target.join(name);
            fs::create_dir(&directory).map_err(|error| failed(&directory, &error))?;
        }
        // Without the catalog there is no database, so it is the last.
        files.sort_by_key(|(name, _)| name.as_path() == Path::new(CATALOG));
        for (name, _) in &files {
            copy_file(&source.join(name), &target.join(name))?;
        }
        fs::remove_file(&marker).map_err(|error| failed(&marker, &error))?;
        sync_directory(target)?;
        target.parent().map_or(Ok(()), sync_directory)
    }
}
