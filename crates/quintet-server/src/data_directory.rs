//! The directory of the database.

use std::{fs, path::Path};

use crate::config::{StartFailure, refuse};

/// Creates the directory for this user only, or checks that no other user can write to it.
pub(crate) fn prepare_directory(dir: &Path) -> Result<(), StartFailure> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    match fs::metadata(dir) {
        Ok(found) if !found.is_dir() => refuse(format!("{} is not a directory", dir.display())),
        Ok(found) if found.permissions().mode() & 0o022 != 0 => {
            refuse(format!("other users can write to {}; run `chmod go-w` on it", dir.display()))
        }
        Ok(_) => Ok(()),
        Err(_) => fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|error| StartFailure(format!("cannot create {}: {error}", dir.display()))),
    }
}
