//! A limit of memory for a process and the page cache that it fills: a control group.
//!
//! Both versions of the interface are known: version 1 (`memory.limit_in_bytes`) where its memory
//! controller is mounted, else version 2 (`memory.max`). Needs the right to make groups (root). A
//! group is removed when its [`Group`] is dropped.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use quintet_bench::failure::{Failure, Outcome};
use rustix::fs::{Advice, fadvise};

const VERSION_1: &str = "/sys/fs/cgroup/memory";
const VERSION_2: &str = "/sys/fs/cgroup";

/// A control group with a limit of memory.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
}

impl Group {
    /// Makes a group whose processes together may use `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Outcome<Self> {
        let (root, limit) = if Path::new(VERSION_1).join("memory.limit_in_bytes").exists() {
            (VERSION_1, "memory.limit_in_bytes")
        } else {
            (VERSION_2, "memory.max")
        };
        let dir = Path::new(root).join(format!("quintet-compare-{}", std::process::id()));
        Self::make(&dir, limit, limit_bytes).map_err(|error| {
            Failure::Failed(format!(
                "a limit of memory needs the right to make a control group in {root}: {error}"
            ))
        })
    }

    fn make(dir: &Path, limit: &str, limit_bytes: u64) -> io::Result<Self> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // From here on the group is removed, whatever happens.
        let group = Self { dir: dir.to_path_buf() };
        fs::write(dir.join(limit), limit_bytes.to_string())?;
        Ok(group)
    }

    /// Puts a process into the group.
    pub fn add(&self, process: u32) -> Outcome {
        let path = self.dir.join("cgroup.procs");
        fs::write(&path, process.to_string()).map_err(|error| Failure::io(path.display(), &error))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // An empty group that stays behind limits nobody.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Takes all files below `dir` out of the page cache, so that whoever reads them next is charged
/// for them: a page counts for the group of whoever brought it in.
pub fn forget_cached(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget_cached(&entry.path())?;
        } else {
            let file = fs::File::open(entry.path())?;
            // Pages that are still to be written stay.
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
