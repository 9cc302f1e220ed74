//! A directory in which `LevelDB` opens a database without a change to the original.
//!
//! Problem: `LevelDB` has no read-only mode. Opening a database replays its log into new tables,
//! writes a new manifest, removes files that are no longer needed, and may compact tables.
//! How: it opens a directory of our own. The tables there are hard links: `LevelDB` reads tables
//! and removes their names, and never writes to one that exists. All other files are small copies.
//!
//! A link is called `N.sst`. `LevelDB` reads a table `N.ldb`, or `N.sst` if that is missing, and
//! creates only `N.ldb`. So a new table never replaces the content of a link, even if a file of the
//! same number was left over.
//!
//! Layout: the directory is beside the database, so that links are possible. Its name is
//! `.NAME.quintet-import-` and the number of this process. If it cannot be created there, it is in
//! the directory for temporary files. Tables that cannot be linked are copied.

use std::{
    env, fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process,
};

use super::directory::file_names;
use crate::failure::{Failure, Outcome};

/// The directory. It is removed when this value is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Bytes of tables that could not be linked.
    pub copied_bytes: u64,
}

impl Scratch {
    /// Creates the directory for a database.
    pub fn new(source: &Path) -> Outcome<Self> {
        let source =
            source.canonicalize().map_err(|error| Failure::io(source.display(), &error))?;
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let name = format!(".{name}.quintet-import-{}", process::id());
        let beside = source.parent().unwrap_or(&source).join(&name);
        let path = if create(&beside).is_ok() {
            beside
        } else {
            let elsewhere = env::temp_dir().join(&name);
            create(&elsewhere).map_err(|error| Failure::io(elsewhere.display(), &error))?;
            elsewhere
        };
        let mut scratch = Self { path, copied_bytes: 0 };
        scratch.fill(&source)?;
        Ok(scratch)
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn fill(&mut self, source: &Path) -> Outcome {
        let mut names = file_names(source)?;
        // `N.ldb` precedes an `N.sst` that was left over.
        names.sort();
        for name in names {
            let from = source.join(&name);
            let explain = |error| Failure::io(from.display(), &error);
            if let Some(number) = table_number(&name) {
                let to = self.path.join(format!("{number}.sst"));
                if !to.exists() {
                    self.copied_bytes += link(&from, &to).map_err(explain)?;
                }
            } else if name == "CURRENT" || name.starts_with("MANIFEST-") || is_log(&name) {
                fs::copy(&from, self.path.join(&name)).map_err(explain)?;
            }
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is a directory of links; the next import has another name.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn create(path: &Path) -> io::Result<()> {
    // The copies have the entries of a database that others may not be allowed to read.
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Links a table, or copies it. Returns the bytes that were copied.
fn link(from: &Path, to: &Path) -> io::Result<u64> {
    // A link to a symbolic link would be relative to another directory.
    let is_file = fs::symlink_metadata(from)?.is_file();
    if is_file && fs::hard_link(from, to).is_ok() {
        return Ok(0);
    }
    fs::copy(from, to)
}

/// Returns the number of a table, with its zeros.
fn table_number(name: &str) -> Option<&str> {
    let number = name.strip_suffix(".ldb").or_else(|| name.strip_suffix(".sst"))?;
    is_number(number).then_some(number)
}

fn is_log(name: &str) -> bool {
    name.strip_suffix(".log").is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn tables_are_links_and_other_files_copies() {
        let parent = tempfile::tempdir().expect("a directory");
        let source = parent.path().join("db");
        fs::create_dir(&source).expect("a directory");
        let names = ["CURRENT", "LOCK", "LOG", "MANIFEST-000002", "000003.log", "000005.ldb"];
        for name in names.iter().chain(&["000005.sst", "000007.sst", "x.ldb"]) {
            fs::write(source.join(name), name).expect("a file");
        }
        let scratch = Scratch::new(&source).expect("a directory");
        assert_eq!(scratch.copied_bytes, 0);
        let path = scratch.path().to_owned();
        assert_eq!(path.parent(), Some(parent.path().canonicalize().expect("a path").as_path()));
        let mut found = file_names(&path).expect("names");
        found.sort();
        let expected = ["000003.log", "000005.sst", "000007.sst", "CURRENT", "MANIFEST-000002"];
        assert_eq!(found, expected);
        let inode = |path: PathBuf| fs::metadata(path).expect("a file").ino();
        assert_eq!(inode(path.join("000005.sst")), inode(source.join("000005.ldb")));
        assert_ne!(inode(path.join("CURRENT")), inode(source.join("CURRENT")));
        drop(scratch);
        assert!(!path.exists());
        assert!(source.join("000005.ldb").exists());
        // A link to a symbolic link would lead nowhere.
        std::os::unix::fs::symlink("000005.ldb", source.join("000009.ldb")).expect("a link");
        let scratch = Scratch::new(&source).expect("a directory");
        assert_eq!(scratch.copied_bytes, 10);
        assert_eq!(fs::read(scratch.path().join("000009.sst")).expect("a file"), b"000005.ldb");
    }
}
