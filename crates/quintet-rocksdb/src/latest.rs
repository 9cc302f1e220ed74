//! The options with which a database was opened last.
//!
//! RocksDB keeps them in a file. Here a table keeps its own engine and sizes, but no other option.
//! So each column family has the default options.

use quintet_compat::{
    boundary::{AllocatedArray, AllocatedList, Out, ProgramArray, ProgramList, Text, give},
    export, export_fallible,
    status::{Code, Status},
    store::Store,
};

use crate::{
    objects::{Cache, Env},
    options::database::DatabaseOptions,
};

/// Options of column families as an array of the program.
type FamilyOptions = AllocatedArray<Option<Box<DatabaseOptions>>>;

fn no_memory() -> Status {
    Status::new(Code::TryAgain, "there is no memory for the options")
}

export_fallible! {
    /// Stores the names of the column families, the default one first, and the default options for
    /// each of them and for the database, all with the given cache. A failure stores nulls.
    pub fn rocksdb_load_latest_options(
        name: Text, env: Option<&Env>, _ignores_unknown: u8, cache: Option<&Cache>,
        options: Out<'_, Option<Box<DatabaseOptions>>>, count: Out<'_, usize>,
        names: Out<'_, AllocatedList>, family_options: Out<'_, FamilyOptions>,
    ) {
        let environment = Env::environment(env);
        let families = environment.path(name).and_then(|path| Store::families_in(&path));
        let latest = || Box::new(DatabaseOptions::cached(cache).of_environment(&environment));
        let size = families.as_ref().map_or(0, Vec::len);
        let (list, array) = match &families {
            Ok(families) => {
                let each = families.iter().map(|_| Some(latest()));
                (AllocatedList::copy(families), AllocatedArray::of(each.collect()))
            }
            Err(_) => (AllocatedList::NULL, AllocatedArray::NULL),
        };
        let has_memory = size == 0 || !(list.is_null() || array.is_null());
        give(count, size);
        give(options, families.as_ref().ok().map(|_| latest()));
        give(names, list);
        give(family_options, array);
        families?;
        if has_memory { Ok(()) } else { Err(no_memory()) }
    }
}

export! {
    /// Frees the results of `rocksdb_load_latest_options`.
    pub fn rocksdb_load_latest_options_destroy(
        options: Option<Box<DatabaseOptions>>, names: ProgramList,
        family_options: ProgramArray<Option<Box<DatabaseOptions>>>, count: usize,
    ) {
        drop(options);
        names.free(count);
        family_options.free(count);
    }
}
