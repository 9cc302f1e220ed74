//! Operations on files and directories, with failures as programs see them.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use crate::status::{Code, Status};

/// Returns the failure of an operation on a file.
pub fn failed(path: &Path, error: &io::Error) -> Status {
    Status::new(Code::Io, format!("{}: {error}", path.display()))
}

/// Makes the names in a directory durable.
pub fn sync_directory(path: &Path) -> Result<(), Status> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| failed(path, &error))
}

/// Renames a file or a directory durably.
pub fn rename(from: &Path, to: &Path) -> Result<(), Status> {
    fs::rename(from, to).map_err(|error| failed(to, &error))?;
    to.parent().map_or(Ok(()), sync_directory)
}
