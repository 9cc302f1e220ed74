//! Opening and closing databases.

use std::{ffi::c_int, sync::Arc, time::Duration};

use quintet_compat::{
    boundary::{Array, Bytes, OutArray, Text, required},
    destroy, export, export_fallible,
    status::Status,
    store::{DEFAULT_FAMILY, Store},
};

use crate::{
    core::{Access, Core, Db, Family, NewFamily},
    families::{FamilyHandle, ttl},
    options::database::DatabaseOptions,
};

/// Opens a database with the default column family only.
pub fn open_default(
    options: Option<&DatabaseOptions>,
    name: Text,
    ttl: Option<Duration>,
    access: Access,
) -> Result<Arc<Core>, Status> {
    let options = required(options, "options")?;
    let families = [NewFamily { name: DEFAULT_FAMILY.to_owned(), options, ttl }];
    Ok(Core::open(name, options, &families, access)?.0)
}

/// The column families that a program opens.
#[derive(Debug)]
pub struct FamilyArguments<'a> {
    /// Their number.
    pub count: i32,
    /// Their names.
    pub names: Array<Text>,
    /// Their options.
    pub options: Array<Option<&'a DatabaseOptions>>,
    /// How long their values are kept in seconds. `None`: until they are deleted.
    pub ttls: Option<Array<c_int>>,
    /// Where their handles are written.
    pub handles: OutArray<Option<Box<FamilyHandle>>>,
}

/// Opens a database with column families, and writes their handles.
pub fn open_families(
    options: Option<&DatabaseOptions>,
    name: Text,
    arguments: FamilyArguments<'_>,
    access: Access,
) -> Result<Arc<Core>, Status> {
    open_prepared(options, name, arguments, access, |_, _| Ok(()))
}

/// Opens a database with column families, prepares them, and writes their handles. Closes it if
/// that fails.
fn open_prepared(
    options: Option<&DatabaseOptions>,
    name: Text,
    arguments: FamilyArguments<'_>,
    access: Access,
    prepare: impl FnOnce(&Core, &[Arc<Family>]) -> Result<(), Status>,
) -> Result<Arc<Core>, Status> {
    let FamilyArguments { count, names, options: family_options, ttls, mut handles } = arguments;
    let options = required(options, "options")?;
    let count = usize::try_from(count).map_err(|_| Status::invalid("the count is negative"))?;
    let (names, family_options) = (names.items(count)?, family_options.items(count)?);
    let handles = handles.items(count)?;
    let mut families = Vec::with_capacity(count);
    let ttls = ttls.as_ref().map(|ttls| ttls.items(count)).transpose()?;
    for (index, (name, family)) in names.iter().zip(family_options).enumerate() {
        let options = required(*family, "options of a column family")?;
        let ttl = ttls.and_then(|ttls| ttls.get(index)).and_then(|seconds| ttl(*seconds));
        families.push(NewFamily { name: name.text()?, options, ttl });
    }
    if !families.iter().any(|new| new.name == DEFAULT_FAMILY) {
        return Err(Status::invalid("Default column family not specified"));
    }
    let (core, opened): (_, Vec<Arc<Family>>) = Core::open(name, options, &families, access)?;
    if let Err(status) = prepare(&core, &opened) {
        // The first failure counts.
        let _ = core.store.close();
        return Err(status);
    }
    for (handle, family) in handles.iter_mut().zip(opened) {
        handle.write(Some(Box::new(FamilyHandle::new(family))));
    }
    Ok(core)
}

/// Removes the versions that are newer than a timestamp from the families with timestamps. An empty
/// timestamp removes nothing.
fn trim(core: &Core, families: &[Arc<Family>], newest: &[u8]) -> Result<(), Status> {
    let with_timestamps: Vec<_> = families.iter().filter(|f| f.history.is_some()).collect();
    if newest.is_empty() || with_timestamps.is_empty() {
        return Ok(());
    }
    for family in with_timestamps {
        family.trim_newer(newest)?;
    }
    Ok(core.store.database.sync()?)
}

export_fallible! {
    /// Opens a database that has the default column family only.
    pub fn rocksdb_open(
        options: Option<&DatabaseOptions>, name: Text,
    ) -> Option<Box<Db>>, None, {
        Ok(Some(Box::new(Db::new(open_default(options, name, None, Access::Write)?))))
    }

    /// Opens the default column family of a database for reading.
    pub fn rocksdb_open_for_read_only(
        options: Option<&DatabaseOptions>, name: Text, _error_if_wal_file_exists: u8,
    ) -> Option<Box<Db>>, None, {
        Ok(Some(Box::new(Db::new(open_default(options, name, None, Access::Read)?))))
    }

    /// Opens a database with all its column families.
    pub fn rocksdb_open_column_families(
        options: Option<&DatabaseOptions>, name: Text, count: i32, names: Array<Text>,
        family_options: Array<Option<&DatabaseOptions>>,
        handles: OutArray<Option<Box<FamilyHandle>>>,
    ) -> Option<Box<Db>>, None, {
        let arguments =
            FamilyArguments { count, names, options: family_options, ttls: None, handles };
        Ok(Some(Box::new(Db::new(open_families(options, name, arguments, Access::Write)?))))
    }

    /// Opens a database with all its column families, and removes the versions that are newer than
    /// a timestamp from those with timestamps. A call that fails may be repeated.
    pub fn rocksdb_open_and_trim_history(
        options: Option<&DatabaseOptions>, name: Text, count: i32, names: Array<Text>,
        family_options: Array<Option<&DatabaseOptions>>,
        handles: OutArray<Option<Box<FamilyHandle>>>, newest: Bytes, newest_size: usize,
    ) -> Option<Box<Db>>, None, {
        let arguments =
            FamilyArguments { count, names, options: family_options, ttls: None, handles };
        let newest = newest.items(newest_size)?;
        let core = open_prepared(options, name, arguments, Access::Write, |core, families| {
            trim(core, families, newest)
        })?;
        Ok(Some(Box::new(Db::new(core))))
    }

    /// Opens a database that has the default column family only. Values that are written expire
    /// after `seconds`, unless that is zero or less.
    pub fn rocksdb_open_with_ttl(
        options: Option<&DatabaseOptions>, name: Text, seconds: c_int,
    ) -> Option<Box<Db>>, None, {
        Ok(Some(Box::new(Db::new(open_default(options, name, ttl(seconds), Access::Write)?))))
    }

    /// Opens a database with all its column families, each with a time after which values that
    /// are written expire.
    pub fn rocksdb_open_column_families_with_ttl(
        options: Option<&DatabaseOptions>, name: Text, count: i32, names: Array<Text>,
        family_options: Array<Option<&DatabaseOptions>>,
        handles: OutArray<Option<Box<FamilyHandle>>>, ttls: Array<c_int>,
    ) -> Option<Box<Db>>, None, {
        let ttls = Some(ttls);
        let arguments = FamilyArguments { count, names, options: family_options, ttls, handles };
        Ok(Some(Box::new(Db::new(open_families(options, name, arguments, Access::Write)?))))
    }

    /// Opens some column families of a database for reading.
    pub fn rocksdb_open_for_read_only_column_families(
        options: Option<&DatabaseOptions>, name: Text, count: i32, names: Array<Text>,
        family_options: Array<Option<&DatabaseOptions>>,
        handles: OutArray<Option<Box<FamilyHandle>>>, _error_if_wal_file_exists: u8,
    ) -> Option<Box<Db>>, None, {
        let arguments =
            FamilyArguments { count, names, options: family_options, ttls: None, handles };
        Ok(Some(Box::new(Db::new(open_families(options, name, arguments, Access::Read)?))))
    }

    /// Opens the default column family of a database as a secondary instance. The directory of the
    /// secondary instance is not used.
    pub fn rocksdb_open_as_secondary(
        options: Option<&DatabaseOptions>, name: Text, _secondary: Text,
    ) -> Option<Box<Db>>, None, {
        Ok(Some(Box::new(Db::new(open_default(options, name, None, Access::Secondary)?))))
    }

    /// Opens some column families of a database as a secondary instance. The directory of the
    /// secondary instance is not used.
    pub fn rocksdb_open_as_secondary_column_families(
        options: Option<&DatabaseOptions>, name: Text, _secondary: Text, count: i32,
        names: Array<Text>, family_options: Array<Option<&DatabaseOptions>>,
        handles: OutArray<Option<Box<FamilyHandle>>>,
    ) -> Option<Box<Db>>, None, {
        let arguments =
            FamilyArguments { count, names, options: family_options, ttls: None, handles };
        Ok(Some(Box::new(Db::new(open_families(options, name, arguments, Access::Secondary)?))))
    }

    /// Moves what a secondary instance reads forward to the present state of the primary one.
    pub fn rocksdb_try_catch_up_with_primary(db: Option<&Db>) {
        required(db, "the database")?.core.catch_up()
    }

    /// Removes a database. Does nothing if there is none. Fails if it is open.
    pub fn rocksdb_destroy_db(options: Option<&DatabaseOptions>, name: Text) {
        destroy::destroy(&DatabaseOptions::environment_of(options).path(name)?)
    }

    /// Checks every file and entry of a database. Fails if one is damaged; nothing is removed.
    pub fn rocksdb_repair_db(options: Option<&DatabaseOptions>, name: Text) {
        let path = DatabaseOptions::environment_of(options).path(name)?;
        Store::repair(&path, &required(options, "options")?.options())
    }
}

export! {
    /// Closes a database.
    pub fn rocksdb_close(db: Option<Box<Db>>) {
        if let Some(db) = db {
            db.close();
        }
    }
}
