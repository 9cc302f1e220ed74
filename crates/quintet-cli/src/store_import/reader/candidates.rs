//! The files that may be the library of a store.
//!
//! The system's loader finds a name without a version only if the package for developers is
//! installed. So the names with a version in the usual directories follow, the newest first.

use std::{
    cmp::Reverse,
    env,
    path::{Path, PathBuf},
};

use crate::store_import::kind::StoreKind;

/// Directories of libraries that most distributions use.
const DIRECTORIES: [&str; 5] =
    ["/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64", "/lib64"];

/// Returns the files to try, in this order. The first is a name for the system's loader.
pub fn candidates(kind: StoreKind) -> Vec<PathBuf> {
    let plain = kind.library_file();
    let mut files = vec![PathBuf::from(plain)];
    files.extend(directories().iter().flat_map(|directory| versions(directory, plain)));
    files
}

/// Returns the directories that are searched, for the message of a failure.
pub fn directories() -> Vec<PathBuf> {
    let path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    // An empty part of the variable is the working directory, which only the loader uses.
    let mut directories: Vec<_> =
        env::split_paths(&path).filter(|directory| directory.is_absolute()).collect();
    // Debian has a directory for each processor.
    directories.push(PathBuf::from(format!("/usr/lib/{}-linux-gnu", env::consts::ARCH)));
    directories.extend(DIRECTORIES.map(PathBuf::from));
    directories
}

/// Returns the libraries of a directory that have a version, the newest first.
fn versions(directory: &Path, plain: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        if let Some(version) = name.strip_prefix(plain).and_then(|rest| rest.strip_prefix('.')) {
            let numbers: Option<Vec<u32>> =
                version.split('.').map(|number| number.parse().ok()).collect();
            found.extend(numbers.map(|numbers| (Reverse(numbers), directory.join(&name))));
        }
    }
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let names = ["librocksdb.so.7.8", "librocksdb.so.10.2", "librocksdb.so.7.8.3"];
        for name in names.iter().chain(&["librocksdb.so", "librocksdb.so.old", "librocksdb.a"]) {
            std::fs::write(directory.path().join(name), "").expect("a file");
        }
        let found = versions(directory.path(), "librocksdb.so");
        let expected = [1, 2, 0].map(|index| directory.path().join(names[index]));
        assert_eq!(found, expected);
        assert_eq!(versions(Path::new("/nowhere"), "librocksdb.so"), Vec::<PathBuf>::new());
    }
}
