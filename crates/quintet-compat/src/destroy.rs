//! Removes the files of a database.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
};

use crate::{
    files::failed,
    status::{Code, Status},
    store::CATALOG,
};

/// The file that is locked while a database is open. It has no content.
pub const LOCK: &str = "LOCK";
/// The file that keeps disk space for a full disk, and has no data.
pub const RESERVE: &str = "reserve";
/// What a database has in its directory, in the order in which it is removed. The catalog is
/// after the data, so an interrupted removal can be repeated.
const NAMES: [&str; 8] =
    [RESERVE, "versions", "log", "tables", "catalog.tmp", CATALOG, RESTORING, LOCK];
/// The file that is there while a backup is restored: without a catalog, a part of a database.
pub const RESTORING: &str = "restoring";

fn locked(path: &Path) -> Status {
    let path = path.join(LOCK);
    Status::new(Code::Io, format!("lock {}: already held: the database is open", path.display()))
}

/// Removes the database in a directory, and the directory if it is empty then. Other files stay.
/// Does nothing if there is no database. Fails if the database is open.
pub fn destroy(path: &Path) -> Result<(), Status> {
    if !path.join(CATALOG).exists() && !path.join(RESTORING).exists() {
        return Ok(());
    }
    let lock = path.join(LOCK);
    let file = File::options().read(true).append(true).create(true).open(&lock);
    let file = file.map_err(|error| failed(&lock, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked(path)),
        Err(TryLockError::Error(error)) => return Err(failed(&lock, &error)),
    }
    for name in NAMES {
        let entry = path.join(name);
        let removed = match fs::symlink_metadata(&entry) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&entry),
            Ok(_) => fs::remove_file(&entry),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&entry, &error));
            }
            _ => {}
        }
    }
    // Fails if the program has files of its own there, which is no error.
    let _ = fs::remove_dir(path);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_database_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let database = quintet::Database::open(&path).expect("a database");
        let options = quintet::TableOptions::new(quintet::EngineKind::Slm);
        let table = database.create_table("t", options).expect("a table");
        // So much that it keeps disk space for a full disk.
        for number in 0..2_000_u64 {
            table.put(number.to_be_bytes(), vec![1; 1_000]).expect("an entry");
        }
        database.persist().expect("a checkpoint");
        assert!(database.stats().space_reserve_bytes > 0);
        drop((table, database));
        destroy(&path).expect("it is removed");
        assert!(!path.exists());
    }
}
