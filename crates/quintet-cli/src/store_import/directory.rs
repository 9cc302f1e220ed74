//! The directory of a database of another store: what it holds, and its lock.
//!
//! Both stores lock the file `LOCK` for writing (`fcntl`) while a program has the database open. An
//! import locks it for reading. It fails if a program has the database open; a program that opens
//! it during the import fails.
//! The lock ends when this process closes any handle of the file, so nothing else opens it.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, fcntl_lock},
    process::{Flock, FlockType, fcntl_getlk},
};

use super::kind::StoreKind;
use crate::{
    context::is_database,
    failure::{Failure, Outcome},
};

/// The file that names the current manifest.
const CURRENT: &str = "CURRENT";
const LOCK: &str = "LOCK";
/// Bytes of a file of options that are read.
const OPTIONS_BYTES_MAX: u64 = 4 << 20;

/// Checks that `dir` holds a database of this store, as far as the names of its files tell.
pub fn check(kind: StoreKind, dir: &Path) -> Outcome {
    let shown = dir.display();
    let fail = |what: String| Err(Failure::Failed(format!("{shown} {what}")));
    if dir.is_file() {
        return fail("is a file; a database is a directory".to_owned());
    }
    if !dir.exists() {
        return fail("does not exist".to_owned());
    }
    if is_database(dir) {
        return fail(
            "is a Quintet database; `quintet export` and `quintet import` copy a table".to_owned(),
        );
    }
    if !dir.join(CURRENT).exists() {
        return fail(format!("is not a {kind} database: it has no file {CURRENT}"));
    }
    let names = file_names(dir)?;
    let has = |extension| names.iter().any(|name| has_extension(name, extension));
    let is_rocksdb = names.iter().any(|name| name == "IDENTITY" || name.starts_with("OPTIONS-"));
    let found = match kind {
        StoreKind::LevelDb if is_rocksdb => StoreKind::RocksDb,
        StoreKind::RocksDb if !is_rocksdb && (has("ldb") || !has("sst")) => StoreKind::LevelDb,
        _ => return Ok(()),
    };
    fail(format!("is a {found} database, not one of {kind}; use {}", found.option()))
}

/// Returns the names of the files that are text. Those of both stores are ASCII.
pub fn file_names(dir: &Path) -> Outcome<Vec<String>> {
    let explain = |error| Failure::io(dir.display(), &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(explain)? {
        names.extend(entry.map_err(explain)?.file_name().into_string().ok());
    }
    Ok(names)
}

/// Returns whether a name has an extension. Those of both stores are in lower case.
pub fn has_extension(name: &str, extension: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, found)| found == extension)
}

/// Locks a database for reading. Returns the lock; `None` if the directory has no file for it, as
/// a copy may have. Fails if a program has the database open.
pub fn lock(dir: &Path) -> Outcome<Option<File>> {
    let path = dir.join(LOCK);
    let explain = |error: std::io::Error| Failure::io(path.display(), &error);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(explain(error)),
    };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
            let wanted = Flock::from(FlockType::ReadLock);
            let holder = fcntl_getlk(&file, &wanted).ok().flatten().and_then(|lock| lock.pid);
            let holder = match holder {
                Some(id) => format!("process {}", id.as_raw_pid()),
                None => "another process".to_owned(),
            };
            let shown = dir.display();
            Err(Failure::Failed(format!("{shown}: {holder} has the database open; close it first")))
        }
        Err(error) => Err(explain(error.into())),
    }
}

/// Returns the directory of the log of a `RocksDB` database, if it is another one.
///
/// Its file of options names the directory, as it was when the database was open. A database that
/// was moved has its log where it is now.
pub fn wal_directory(dir: &Path) -> Outcome<Option<PathBuf>> {
    let names = file_names(dir)?;
    if names.iter().any(|name| has_extension(name, "log")) {
        return Ok(None);
    }
    let number = |name: &String| name.strip_prefix("OPTIONS-")?.parse::<u64>().ok();
    let newest = names.iter().filter_map(|name| Some((number(name)?, name))).max();
    let Some((_, newest)) = newest else { return Ok(None) };
    let path = dir.join(newest);
    let explain = |error| Failure::io(path.display(), &error);
    let mut text = Vec::new();
    let file = File::open(&path).map_err(explain)?;
    file.take(OPTIONS_BYTES_MAX).read_to_end(&mut text).map_err(explain)?;
    let text = String::from_utf8_lossy(&text);
    let setting = text.lines().find_map(|line| line.trim().strip_prefix("wal_dir="));
    Ok(setting.map(PathBuf::from).filter(|wal| wal.is_absolute() && wal.is_dir() && wal != dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_options_name_the_directory_of_the_log() {
        let parent = tempfile::tempdir().expect("a directory");
        let (dir, wal) = (parent.path().join("db"), parent.path().join("wal"));
        fs::create_dir(&dir).expect("a directory");
        fs::create_dir(&wal).expect("a directory");
        let write = |name: &str, wal: &Path| {
            let text = format!("[DBOptions]\n  wal_dir={}\n  x=1\n", wal.display());
            fs::write(dir.join(name), text).expect("a file");
        };
        assert_eq!(wal_directory(&dir).expect("a directory"), None);
        write("OPTIONS-000009", &dir.join("gone"));
        assert_eq!(wal_directory(&dir).expect("a directory"), None);
        write("OPTIONS-000010", &wal);
        assert_eq!(wal_directory(&dir).expect("a directory"), Some(wal.clone()));
        write("OPTIONS-000011", &dir);
        assert_eq!(wal_directory(&dir).expect("a directory"), None);
        write("OPTIONS-000012", &wal);
        fs::write(dir.join("000003.log"), "").expect("a file");
        assert_eq!(wal_directory(&dir).expect("a directory"), None);
    }
}
