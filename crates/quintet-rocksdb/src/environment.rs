//! Where the files of databases are: on disk, or in memory.
//!
//! RocksDB's environment in memory is a separate file system. Our engines read and write files.
//! So such an environment is a separate directory on the memory file system of the machine, and
//! the paths of the program are below it. It is removed with the last object that uses it: the
//! environment, options, databases, backup engines and writers of files.
//!
//! # Layout
//!
//! | name | content |
//! |---|---|
//! | `quintet-mem-PID-TIME-N` | the directory, which only its user may read |
//! | `quintet-mem-PID-TIME-N/owner` | no content. It is locked while the environment exists |
//! | `quintet-mem-PID-TIME-N/files` | the files, under their absolute paths |
//!
//! Invariant: `owner` has its name only while it is locked, or after its process has ended. So a
//! new environment removes the directories whose `owner` it can lock: a process was killed.

use std::{
    env,
    ffi::OsStr,
    fs::{self, DirBuilder, File},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _},
    },
    path::{Component, Path, PathBuf, absolute},
    process,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use quintet_compat::{boundary::Text, files::failed, status::Status};

/// The environment variable that names another directory than [`MEMORY`].
const VARIABLE: &str = "QUINTET_MEMORY_DIRECTORY";
/// The memory file system of Linux that each user may write to.
const MEMORY: &str = "/dev/shm";
/// The start of the names of directories.
const PREFIX: &str = "quintet-mem-";
/// The file that is locked while an environment exists.
const OWNER: &str = "owner";
/// The directory of the files of databases.
const FILES: &str = "files";
/// Permissions of a directory: for its user only.
const MODE: u32 = 0o700;

/// Where the files of databases are.
#[derive(Clone, Debug, Default)]
pub struct Environment(Option<Result<Arc<MemoryDirectory>, Status>>);

/// The directory of an environment in memory. It is removed when this is dropped.
#[derive(Debug)]
struct MemoryDirectory {
    path: PathBuf,
    /// A child after `fork` removes nothing.
    process: u32,
    /// Holds the lock.
    _owner: File,
}

impl Drop for MemoryDirectory {
    fn drop(&mut self) {
        if self.process == process::id() {
            // A directory that stays is removed by the next environment.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Creates a directory for its user only.
fn create(path: &Path) -> Result<(), Status> {
    DirBuilder::new().mode(MODE).create(path).map_err(|error| failed(path, &error))
}

/// Removes the directories of processes that have ended. `own` is of the same user.
fn remove_abandoned(base: &Path, own: &Path) -> io::Result<()> {
    let user = fs::metadata(own)?.uid();
    for entry in fs::read_dir(base)?.filter_map(Result::ok) {
        let path = entry.path();
        let is_named = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        // The metadata is not that of the target of a link.
        let is_own = |found: fs::Metadata| found.is_dir() && found.uid() == user;
        if path == own || !is_named || !entry.metadata().is_ok_and(is_own) {
            continue;
        }
        let Ok(owner) = File::open(path.join(OWNER)) else { continue };
        if owner.try_lock().is_ok() {
            // Another process may remove it too.
            let _ = fs::remove_dir_all(&path);
        }
    }
    Ok(())
}

impl MemoryDirectory {
    fn new() -> Result<Self, Status> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let base = env::var_os(VARIABLE).map_or_else(|| PathBuf::from(MEMORY), PathBuf::from);
        if !base.is_dir() {
            return Err(Status::unsupported(format!(
                "{}: there is no memory file system; {VARIABLE} names another directory",
                base.display()
            )));
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let process = process::id();
        let path = base.join(format!("{PREFIX}{process}-{time}-{number}"));
        create(&path)?;
        let (unlocked, owner) = (path.join("owner.tmp"), path.join(OWNER));
        let locked = File::create(&unlocked).and_then(|file| {
            file.lock()?;
            fs::rename(&unlocked, &owner)?;
            Ok(file)
        });
        let made = locked.map_err(|error| failed(&owner, &error)).and_then(|file| {
            create(&path.join(FILES))?;
            Ok(file)
        });
        match made {
            Ok(file) => {
                // Memory of other processes is no condition of this environment.
                let _ = remove_abandoned(&base, &path);
                Ok(Self { path, process, _owner: file })
            }
            Err(status) => {
                // The first failure counts.
                let _ = fs::remove_dir_all(&path);
                Err(status)
            }
        }
    }

    /// Returns where a path of the program is, and makes the directory above it.
    fn path(&self, path: &Path) -> Result<PathBuf, Status> {
        let full = absolute(path).map_err(|error| failed(path, &error))?;
        let mut below = PathBuf::new();
        for component in full.components() {
            match component {
                Component::Normal(name) => below.push(name),
                Component::ParentDir => {
                    below.pop();
                }
                _ => {}
            }
        }
        let found = self.path.join(FILES).join(below);
        if let Some(above) = found.parent() {
            fs::create_dir_all(above).map_err(|error| failed(above, &error))?;
        }
        Ok(found)
    }
}

impl Environment {
    /// Makes an environment in memory. If that fails, so does each use of a path.
    pub fn in_memory() -> Self {
        Self(Some(MemoryDirectory::new().map(Arc::new)))
    }

    /// Returns where the path of a text is.
    pub fn path(&self, name: Text) -> Result<PathBuf, Status> {
        self.place(Path::new(OsStr::from_bytes(name.bytes()?)))
    }

    /// Returns where a path of the program is.
    pub fn place(&self, path: &Path) -> Result<PathBuf, Status> {
        match &self.0 {
            None => Ok(path.to_path_buf()),
            Some(directory) => directory.as_ref().map_err(Status::clone)?.path(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_directory() {
        let directory = MemoryDirectory::new().expect("a directory");
        let files = directory.path.join(FILES);
        for path in ["/a/b", "//a/./b", "/../a/b", "/a/c/../b", "/../../../a/b"] {
            assert_eq!(directory.path(Path::new(path)).expect("a path"), files.join("a/b"));
        }
        assert_eq!(directory.path(Path::new("/..")).expect("a path"), files);
        assert!(directory.path(Path::new("x")).expect("a path").starts_with(files));
        directory.path(Path::new("")).expect_err("no path");
        assert_eq!(fs::metadata(&directory.path).expect("it is there").mode() & 0o777, MODE);
        let path = directory.path.clone();
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn directories_of_processes_that_were_killed_are_removed() {
        let base = tempfile::tempdir().expect("a directory");
        let make = |name: &str| {
            let path = base.path().join(name);
            create(&path).expect("it is made");
            path
        };
        let (own, live) = (make("quintet-mem-1-1-1"), make("quintet-mem-2-1-1"));
        let (dead, other) = (make("quintet-mem-3-1-1"), make("another"));
        let starting = make("quintet-mem-4-1-1");
        for path in [&live, &dead, &other] {
            File::create(path.join(OWNER)).expect("a file");
        }
        let owner = File::open(live.join(OWNER)).expect("a file");
        owner.lock().expect("a lock");
        remove_abandoned(base.path(), &own).expect("it is listed");
        assert!(own.exists() && live.exists() && other.exists() && starting.exists());
        assert!(!dead.exists());
    }
}
