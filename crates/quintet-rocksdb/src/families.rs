//! Column families: handles, creation and removal.

use std::{ffi::c_int, sync::Arc, time::Duration};

use quintet_compat::{
    boundary::{Allocated, AllocatedList, Out, ProgramList, Text, give, required},
    export_fallible,
    status::{Code, Status},
    store::{DEFAULT_FAMILY, Store},
};

use crate::{
    core::{Core, Db, Family, NewFamily},
    options::database::DatabaseOptions,
};

/// `rocksdb_column_family_handle_t`.
#[derive(Debug)]
pub struct FamilyHandle {
    /// The family.
    pub family: Arc<Family>,
}

impl FamilyHandle {
    /// Makes the handle of a family.
    pub fn new(family: Arc<Family>) -> Self {
        Self { family }
    }
}

/// Returns the family of a handle.
pub fn family_of(handle: Option<&FamilyHandle>) -> Result<&Arc<Family>, Status> {
    Ok(&required(handle, "the column family")?.family)
}

/// Returns the time for which values are kept. Zero and less: until they are deleted.
pub fn ttl(seconds: c_int) -> Option<Duration> {
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

/// Creates a column family of any kind of database.
pub fn create(
    core: &Core,
    options: Option<&DatabaseOptions>,
    name: Text,
    ttl: Option<Duration>,
) -> Result<Option<Box<FamilyHandle>>, Status> {
    let new = NewFamily { name: name.text()?, options: required(options, "options")?, ttl };
    Ok(Some(Box::new(FamilyHandle::new(core.create_family(&new)?))))
}

export_fallible! {
    /// Creates a column family. Its options choose the engine of the table.
    pub fn rocksdb_create_column_family(
        db: Option<&Db>, options: Option<&DatabaseOptions>, name: Text,
    ) -> Option<Box<FamilyHandle>>, None, {
        create(&required(db, "the database")?.core, options, name, None)
    }

    /// Creates a column family. Values that are written expire after `seconds`, unless that is zero
    /// or less.
    pub fn rocksdb_create_column_family_with_ttl(
        db: Option<&Db>, options: Option<&DatabaseOptions>, name: Text, seconds: c_int,
    ) -> Option<Box<FamilyHandle>>, None, {
        create(&required(db, "the database")?.core, options, name, ttl(seconds))
    }

    /// Drops a column family. Reads through its handles fail from then on.
    pub fn rocksdb_drop_column_family(db: Option<&Db>, handle: Option<&FamilyHandle>) {
        let (db, family) = (required(db, "the database")?, family_of(handle)?);
        if family.name == DEFAULT_FAMILY {
            return Err(Status::invalid("Can't drop default column family"));
        }
        db.core.check_writable()?;
        db.core.store.drop_family(&family.name)
    }

    /// Returns the names of the column families of a database that is not open, to be released by
    /// `rocksdb_list_column_families_destroy`.
    pub fn rocksdb_list_column_families(
        options: Option<&DatabaseOptions>, name: Text, count: Out<'_, usize>,
    ) -> AllocatedList, AllocatedList::NULL, {
        let names = Store::families_in(&DatabaseOptions::environment_of(options).path(name)?)?;
        let list = AllocatedList::copy(&names);
        if list.is_null() {
            return Err(Status::new(Code::TryAgain, "there is no memory for the names"));
        }
        give(count, names.len());
        Ok(list)
    }
}

quintet_compat::export! {
    /// Releases a list of names.
    pub fn rocksdb_list_column_families_destroy(names: ProgramList, count: usize) {
        names.free(count);
    }

    /// Returns a new handle of the default column family. RocksDB has this function since 8.6.
    pub fn rocksdb_get_default_column_family_handle(
        db: Option<&Db>,
    ) -> Option<Box<FamilyHandle>>, None, {
        let family = db.and_then(|db| db.core.default_family().ok())?;
        Some(Box::new(FamilyHandle::new(Arc::clone(family))))
    }

    /// Frees a handle of a column family.
    pub fn rocksdb_column_family_handle_destroy(handle: Option<Box<FamilyHandle>>) {
        drop(handle);
    }

    /// Returns the number of a column family, which another open of the database may change.
    pub fn rocksdb_column_family_handle_get_id(handle: Option<&FamilyHandle>) -> u32, 0, {
        handle.map_or(0, |handle| handle.family.id)
    }

    /// Returns the name of a column family, to be released by `rocksdb_free`.
    pub fn rocksdb_column_family_handle_get_name(
        handle: Option<&FamilyHandle>, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let name = handle.map(|handle| handle.family.name.as_bytes());
        give(size, name.map_or(0, <[u8]>::len));
        name.map_or(Allocated::NULL, Allocated::copy)
    }
}
