//! The directory of a run, which is removed at its end.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{self, Child},
    thread,
    time::Duration,
};

use super::launch::{self, Role};
use crate::failure::{Failure, Outcome};

/// Maximum number of attempts of the remover. An interrupted run may still create files for a
/// moment; the attempts cover 5 seconds.
const REMOVE_TRIES: u32 = 100;
const REMOVE_PAUSE: Duration = Duration::from_millis(50);

/// A directory that this process created and removes when the value is dropped.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    /// Process that removes the directory if this process is killed.
    remover: Option<Child>,
}

impl ScratchDir {
    /// Creates the directory `PREFIX-PROCESS` in `base`.
    pub fn new(base: &Path, prefix: &str) -> Outcome<Self> {
        let path = base.join(format!("{prefix}-{}", process::id()));
        fs::create_dir(&path).map_err(|error| Failure::io(path.display(), &error))?;
        Ok(Self { path, remover: None })
    }

    /// Takes over the directory of this name in `base`, or creates it. Removes what an earlier run
    /// left in it.
    pub fn claim(base: &Path, name: &str) -> Outcome<Self> {
        let path = base.join(name);
        let doing = |error: io::Error| Failure::io(path.display(), &error);
        fs::create_dir_all(&path).map_err(doing)?;
        let scratch = Self { path, remover: None };
        scratch.empty()?;
        Ok(scratch)
    }

    /// Removes everything in the directory.
    pub fn empty(&self) -> Outcome {
        let doing = |error: io::Error| Failure::io(self.path.display(), &error);
        // The process that removed it for an earlier run may have come late.
        fs::create_dir_all(&self.path).map_err(doing)?;
        for entry in fs::read_dir(&self.path).map_err(doing)? {
            let path = entry.map_err(doing)?.path();
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(|error| Failure::io(path.display(), &error))?;
        }
        Ok(())
    }

    /// Starts a process that removes the directory if this process is killed. It has its own
    /// process group, so an interrupt from the terminal does not reach it.
    pub fn remove_when_killed(&mut self) -> Outcome {
        let mut remover = launch::spawn(Role::Remover, None)?;
        launch::send(&mut remover, &self.path)?;
        self.remover = Some(remover);
        Ok(())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // A directory that cannot be removed remains in the directory that the user named.
        let _ = fs::remove_dir_all(&self.path);
        if let Some(remover) = &mut self.remover {
            drop(remover.stdin.take());
            let _ = remover.wait();
        }
    }
}

/// Waits for the end of standard input, which is the end of the parent, and removes `dir`.
pub(super) fn remove_at_end(dir: &Path) -> Outcome {
    io::copy(&mut io::stdin(), &mut io::sink())?;
    let mut outcome = Ok(());
    for _ in 0..REMOVE_TRIES {
        outcome = match fs::remove_dir_all(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            outcome => outcome,
        };
        thread::sleep(REMOVE_PAUSE);
    }
    outcome.map_err(|error| Failure::io(dir.display(), &error))
}
