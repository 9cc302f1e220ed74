//! Column families: handles, creation and removal.

use std::sync::Arc;

use quintet_compat::{
    boundary::{Allocated, AllocatedList, Out, Text, give, required},
    export_fallible,
    status::Status,
    store::{DEFAULT_FAMILY, Store},
};

use crate::{
    core::{Core, Db, Family, path},
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

/// Creates a column family of any kind of database.
pub fn create(
    core: &Core,
    options: Option<&DatabaseOptions>,
    name: Text,
) -> Result<Option<Box<FamilyHandle>>, Status> {
    let options = required(options, "options")?;
    Ok(Some(Box::new(FamilyHandle::new(core.create_family(&name.text()?, options)?))))
}

export_fallible! {
    /// Creates a column family. Its options choose the engine of the table.
    pub fn rocksdb_create_column_family(
        db: Option<&Db>, options: Option<&DatabaseOptions>, name: Text,
    ) -> Option<Box<FamilyHandle>>, None, {
        create(&required(db, "the database")?.core, options, name)
    }

    /// Drops a column family. Reads through its handles fail from then on.
    pub fn rocksdb_drop_column_family(db: Option<&Db>, handle: Option<&FamilyHandle>) {
        let (db, family) = (required(db, "the database")?, family_of(handle)?);
        if family.name == DEFAULT_FAMILY {
            return Err(Status::invalid("Can't drop default column family"));
        }
        db.core.store.drop_family(&family.name)
    }

    /// Returns the names of the column families of a database that is not open, to be released by
    /// `rocksdb_list_column_families_destroy`.
    pub fn rocksdb_list_column_families(
        _options: Option<&DatabaseOptions>, name: Text, count: Out<'_, usize>,
    ) -> AllocatedList, AllocatedList::NULL, {
        let names = Store::families_in(path(&name)?)?;
        give(count, names.len());
        Ok(AllocatedList::copy(&names))
    }
}

quintet_compat::export! {
    /// Releases a list of names.
    pub fn rocksdb_list_column_families_destroy(names: AllocatedList, count: usize) {
        names.free(count);
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
