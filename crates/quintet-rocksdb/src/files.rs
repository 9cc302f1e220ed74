//! Files of column families, as RocksDB describes its own.
//!
//! How: an engine has files of several kinds, which the interface does not know. So each column
//! family that has files shows as one file of level 0, with their size, all its entries, and its
//! first and last key.

use std::{
    ffi::{CString, c_int},
    sync::Arc,
};

use quintet_compat::{
    boundary::{Allocated, Out, Text, View, give},
    export, keys,
    status::Status,
    store::table_name,
    timestamps,
};

use crate::{
    core::{Core, Db, Family},
    families::{FamilyHandle, family_of},
};

/// `rocksdb_sst_file_metadata_t`: the files of a column family.
#[derive(Clone, Debug)]
pub struct FileInfo {
    family: CString,
    name: CString,
    size: u64,
    entries: u64,
    smallest: Vec<u8>,
    largest: Vec<u8>,
}

/// `rocksdb_livefiles_t`.
#[derive(Debug)]
pub struct LiveFiles(Vec<FileInfo>);

/// `rocksdb_column_family_metadata_t`, and `rocksdb_level_metadata_t` of its only level.
#[derive(Clone, Debug)]
pub struct FamilyFiles {
    name: String,
    files: Arc<[FileInfo]>,
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Returns the key of a stored form, with its timestamp if it has one.
fn shown_key(family: &Family, stored: &[u8]) -> Result<Vec<u8>, Status> {
    Ok(match &family.history {
        Some(history) => history.order.joined(&timestamps::version(stored)?),
        None => keys::key(stored).to_vec(),
    })
}

/// Returns the files of a family. `None`: it has none with entries.
fn files_of(family: &Family) -> Result<Option<FileInfo>, Status> {
    let stats = family.table.stats()?;
    if stats.file_bytes == 0 {
        return Ok(None);
    }
    let ends = (family.table.first()?, family.table.last()?);
    let (Some((smallest, _)), Some((largest, _))) = ends else { return Ok(None) };
    Ok(Some(FileInfo {
        family: text(&family.name),
        name: text(&format!("/{}", table_name(&family.name))),
        size: stats.file_bytes,
        entries: stats.keys,
        smallest: shown_key(family, &smallest)?,
        largest: shown_key(family, &largest)?,
    }))
}

fn live_files(core: &Core) -> LiveFiles {
    // A family that was dropped has no files.
    let families = core.families();
    let files = families.iter().filter_map(|family| files_of(family).ok().flatten());
    LiveFiles(files.collect())
}

fn metadata(family: Result<&Arc<Family>, Status>) -> Option<Box<FamilyFiles>> {
    let family = family.ok()?;
    let files = files_of(family).ok()?.into_iter().collect();
    Some(Box::new(FamilyFiles { name: family.name.clone(), files }))
}

fn file(files: Option<&LiveFiles>, index: c_int) -> Option<&FileInfo> {
    files?.0.get(usize::try_from(index).ok()?)
}

fn total(files: Option<&FamilyFiles>) -> u64 {
    files.map_or(0, |files| files.files.iter().map(|file| file.size).sum())
}

/// Returns the address of a key, and stores its size.
fn view(key: Option<&Vec<u8>>, size: Out<'_, usize>) -> View {
    give(size, key.map_or(0, Vec::len));
    key.map_or(View::NULL, |key| View::of(key))
}

/// Returns a copy of a key, and stores its size.
fn copied(key: Option<&Vec<u8>>, size: Out<'_, usize>) -> Allocated {
    give(size, key.map_or(0, Vec::len));
    key.map_or(Allocated::NULL, |key| Allocated::copy(key))
}

export! {
    /// Does nothing: a file here has all entries of its column family, and RocksDB's callers mean
    /// some of them. To delete entries, use `rocksdb_delete_range_cf` or
    /// `rocksdb_delete_file_in_range_cf`.
    pub fn rocksdb_delete_file(_db: Option<&Db>, _name: Text) {}

    /// Returns the files of all column families that are open.
    pub fn rocksdb_livefiles(db: Option<&Db>) -> Option<Box<LiveFiles>>, None, {
        db.map(|db| Box::new(live_files(&db.core)))
    }

    /// Returns the number of files.
    pub fn rocksdb_livefiles_count(files: Option<&LiveFiles>) -> c_int, 0, {
        files.map_or(0, |files| c_int::try_from(files.0.len()).unwrap_or(c_int::MAX))
    }

    /// Returns the column family of a file, valid as long as the list.
    pub fn rocksdb_livefiles_column_family_name(
        files: Option<&LiveFiles>, index: c_int,
    ) -> View, View::NULL, {
        file(files, index).map_or(View::NULL, |file| View::of(file.family.as_bytes_with_nul()))
    }

    /// Returns the name of a file: that of its table. It is valid as long as the list.
    pub fn rocksdb_livefiles_name(
        files: Option<&LiveFiles>, index: c_int,
    ) -> View, View::NULL, {
        file(files, index).map_or(View::NULL, |file| View::of(file.name.as_bytes_with_nul()))
    }

    /// Returns 0, the level of all files.
    pub fn rocksdb_livefiles_level(_files: Option<&LiveFiles>, _index: c_int) -> c_int, 0, {
        0
    }

    /// Returns the size of a file in bytes.
    pub fn rocksdb_livefiles_size(files: Option<&LiveFiles>, index: c_int) -> usize, 0, {
        file(files, index).map_or(0, |file| usize::try_from(file.size).unwrap_or(usize::MAX))
    }

    /// Returns the smallest key, valid as long as the list.
    pub fn rocksdb_livefiles_smallestkey(
        files: Option<&LiveFiles>, index: c_int, size: Out<'_, usize>,
    ) -> View, View::NULL, {
        view(file(files, index).map(|file| &file.smallest), size)
    }

    /// Returns the largest key, valid as long as the list.
    pub fn rocksdb_livefiles_largestkey(
        files: Option<&LiveFiles>, index: c_int, size: Out<'_, usize>,
    ) -> View, View::NULL, {
        view(file(files, index).map(|file| &file.largest), size)
    }

    /// Returns the number of entries.
    pub fn rocksdb_livefiles_entries(files: Option<&LiveFiles>, index: c_int) -> u64, 0, {
        file(files, index).map_or(0, |file| file.entries)
    }

    /// Returns 0: a delete is no entry.
    pub fn rocksdb_livefiles_deletions(_files: Option<&LiveFiles>, _index: c_int) -> u64, 0, {
        0
    }

    /// Frees a list of files.
    pub fn rocksdb_livefiles_destroy(files: Option<Box<LiveFiles>>) {
        drop(files);
    }

    /// Returns the files of the default column family.
    pub fn rocksdb_get_column_family_metadata(
        db: Option<&Db>,
    ) -> Option<Box<FamilyFiles>>, None, {
        metadata(db?.core.default_family())
    }

    /// Returns the files of a column family.
    pub fn rocksdb_get_column_family_metadata_cf(
        _db: Option<&Db>, family: Option<&FamilyHandle>,
    ) -> Option<Box<FamilyFiles>>, None, {
        metadata(family_of(family))
    }

    /// Frees what `rocksdb_get_column_family_metadata` returned.
    pub fn rocksdb_column_family_metadata_destroy(files: Option<Box<FamilyFiles>>) {
        drop(files);
    }

    /// Returns the size of all files in bytes.
    pub fn rocksdb_column_family_metadata_get_size(files: Option<&FamilyFiles>) -> u64, 0, {
        total(files)
    }

    /// Returns the number of files.
    pub fn rocksdb_column_family_metadata_get_file_count(
        files: Option<&FamilyFiles>,
    ) -> usize, 0, {
        files.map_or(0, |files| files.files.len())
    }

    /// Returns the name of the column family, to be released by `rocksdb_free`.
    pub fn rocksdb_column_family_metadata_get_name(
        files: Option<&FamilyFiles>,
    ) -> Allocated, Allocated::NULL, {
        files.map_or(Allocated::NULL, |files| Allocated::copy(files.name.as_bytes()))
    }

    /// Returns 1: all files are of one level.
    pub fn rocksdb_column_family_metadata_get_level_count(
        files: Option<&FamilyFiles>,
    ) -> usize, 0, {
        usize::from(files.is_some())
    }

    /// Returns the files of a level.
    pub fn rocksdb_column_family_metadata_get_level_metadata(
        files: Option<&FamilyFiles>, level: usize,
    ) -> Option<Box<FamilyFiles>>, None, {
        files.filter(|_| level == 0).map(|files| Box::new(files.clone()))
    }

    /// Frees what `rocksdb_column_family_metadata_get_level_metadata` returned.
    pub fn rocksdb_level_metadata_destroy(files: Option<Box<FamilyFiles>>) {
        drop(files);
    }

    /// Returns 0, the only level.
    pub fn rocksdb_level_metadata_get_level(_files: Option<&FamilyFiles>) -> c_int, 0, {
        0
    }

    /// Returns the size of the files of a level in bytes.
    pub fn rocksdb_level_metadata_get_size(files: Option<&FamilyFiles>) -> u64, 0, {
        total(files)
    }

    /// Returns the number of files of a level.
    pub fn rocksdb_level_metadata_get_file_count(files: Option<&FamilyFiles>) -> usize, 0, {
        files.map_or(0, |files| files.files.len())
    }

    /// Returns a file of a level.
    pub fn rocksdb_level_metadata_get_sst_file_metadata(
        files: Option<&FamilyFiles>, index: usize,
    ) -> Option<Box<FileInfo>>, None, {
        files?.files.get(index).cloned().map(Box::new)
    }

    /// Frees what `rocksdb_level_metadata_get_sst_file_metadata` returned.
    pub fn rocksdb_sst_file_metadata_destroy(file: Option<Box<FileInfo>>) {
        drop(file);
    }

    /// Returns the name of a file, to be released by `rocksdb_free`.
    pub fn rocksdb_sst_file_metadata_get_relative_filename(
        file: Option<&FileInfo>,
    ) -> Allocated, Allocated::NULL, {
        file.map_or(Allocated::NULL, |file| Allocated::copy(file.name.as_bytes()))
    }

    /// Returns the size of a file in bytes.
    pub fn rocksdb_sst_file_metadata_get_size(file: Option<&FileInfo>) -> u64, 0, {
        file.map_or(0, |file| file.size)
    }

    /// Returns the smallest key, to be released by `rocksdb_free`.
    pub fn rocksdb_sst_file_metadata_get_smallestkey(
        file: Option<&FileInfo>, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        copied(file.map(|file| &file.smallest), size)
    }

    /// Returns the largest key, to be released by `rocksdb_free`.
    pub fn rocksdb_sst_file_metadata_get_largestkey(
        file: Option<&FileInfo>, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        copied(file.map(|file| &file.largest), size)
    }
}
