//! The stores whose databases can be imported.

use std::{fmt, path::Path};

use crate::arguments::StoreArgs;

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// `RocksDB`
    RocksDb,
    /// `LevelDB`
    LevelDb,
}

impl StoreKind {
    /// Returns the database that `import` reads, if it is not a file.
    pub fn of_arguments(arguments: &StoreArgs) -> Option<(Self, &Path)> {
        let rocksdb = arguments.rocksdb.as_deref().map(|dir| (Self::RocksDb, dir));
        rocksdb.or_else(|| arguments.leveldb.as_deref().map(|dir| (Self::LevelDb, dir)))
    }

    /// Returns the option of `import` for this store.
    pub const fn option(self) -> &'static str {
        match self {
            Self::RocksDb => "--rocksdb",
            Self::LevelDb => "--leveldb",
        }
    }

    /// Returns the name of the library's file without a version.
    pub const fn library_file(self) -> &'static str {
        match self {
            Self::RocksDb => "librocksdb.so",
            Self::LevelDb => "libleveldb.so",
        }
    }

    /// Returns the library's package in Debian 12.
    pub const fn package(self) -> &'static str {
        match self {
            Self::RocksDb => "librocksdb7.8",
            Self::LevelDb => "libleveldb1d",
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RocksDb => "RocksDB",
            Self::LevelDb => "LevelDB",
        })
    }
}
