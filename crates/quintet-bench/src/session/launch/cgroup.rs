//! Control groups: a memory limit for a process and for its page cache.
//!
//! The code supports both versions of the interface: version 1 (`memory.limit_in_bytes`) if its
//! memory controller is mounted, else version 2 (`memory.max`). Creating a group needs root rights.
//! A group is removed when its [`ControlGroup`] is dropped.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{Advice, fadvise};

use crate::failure::{Failure, Outcome};

const VERSION_1: &str = "/sys/fs/cgroup/memory";
const VERSION_2: &str = "/sys/fs/cgroup";

/// A control group with a memory limit.
#[derive(Debug)]
pub struct ControlGroup {
    dir: PathBuf,
}

impl ControlGroup {
    /// Creates a group whose processes together may use `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Outcome<Self> {
        let (root, limit) = if Path::new(VERSION_1).join("memory.limit_in_bytes").exists() {
            (VERSION_1, "memory.limit_in_bytes")
        } else {
            (VERSION_2, "memory.max")
        };
        let dir = Path::new(root).join(format!("quintet-compare-{}", std::process::id()));
        Self::create(&dir, limit, limit_bytes).map_err(|error| {
            Failure::Failed(format!(
                "a memory limit needs the right to create a control group in {root}: {error}"
            ))
        })
    }

    fn create(dir: &Path, limit: &str, limit_bytes: u64) -> io::Result<Self> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // From here on, a drop removes the group.
        let group = Self { dir: dir.to_path_buf() };
        fs::write(dir.join(limit), limit_bytes.to_string())?;
        Ok(group)
    }

    /// Adds a process to the group.
    pub fn add(&self, process: u32) -> Outcome {
        let path = self.dir.join("cgroup.procs");
        fs::write(&path, process.to_string()).map_err(|error| Failure::io(path.display(), &error))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // An empty group that remains has no effect.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Drops all files below `dir` from the page cache. The kernel charges a cached page to the group
/// of the process that read it first, so the next reader is charged for these files.
pub fn drop_page_cache(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            drop_page_cache(&entry.path())?;
        } else {
            let file = fs::File::open(entry.path())?;
            // The kernel keeps dirty pages.
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
