//! `quintet import --rdb` and `quintet export --rdb`: all keys from and to a dump file of Redis.
//!
//! Both work on the directory of a server that does not run; the store's lock sees to that.

use std::{
    io::{BufRead, Write},
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use quintet::{Cursor, Durability, Error, Options};

use crate::{
    command::transfer::{SaveFailure, save, type_of},
    config::{StartFailure, refuse},
    data_directory::prepare_directory,
    failure::Fail,
    loading::Loader,
    rdb::{FileWriter, VERSION_MAX, VERSION_WRITTEN},
    spec::REDIS_VERSION,
    store::{
        Changes, DEFAULT_NAMESPACE, DatabaseId, Databases, Engines, Namespace, Store, Stripes,
        Tables, Unit, now_millis,
    },
};

/// Keys that are read at a time, with their heads.
const PAGE: usize = 64;
/// Most names of namespaces in a message.
const SHOWN_NAMES: usize = 20;

/// What an import has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Keys imported.
    pub keys: u64,
    /// Keys that had expired, which are not imported.
    pub expired: u64,
    /// Libraries of functions, which are not imported.
    pub functions: u64,
    /// Values and other data of modules, which are not imported.
    pub modules: u64,
}

/// What an export has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportSummary {
    /// Keys written.
    pub keys: u64,
    /// Keys that had expired, which are not written.
    pub expired: u64,
}

fn explain(dir: &Path, fail: &Fail) -> StartFailure {
    StartFailure(format!("{}: {}", dir.display(), fail.text()))
}

fn open(dir: &Path, memory_budget: Option<u64>) -> Result<Store, StartFailure> {
    let failed =
        |error: Error| StartFailure(format!("cannot open the database {}: {error}", dir.display()));
    let mut options = Options::new().durability(Durability::Buffered);
    if let Some(bytes) = memory_budget {
        options = options.memory_budget(bytes);
    }
    let database = options.open(dir).map_err(failed)?;
    let databases = Databases::open(database, Engines::default()).map_err(failed)?;
    Ok(Store { databases, stripes: Stripes::new(), changes: Changes::default() })
}

fn close(dir: &Path, store: &Store) -> Result<(), StartFailure> {
    let database = store.databases.database();
    let closed = database.sync().and_then(|()| database.close());
    closed.map_err(|error| explain(dir, &error.into()))
}

/// Imports all keys of a dump file into a namespace of the directory `dir`; without a name, into
/// `default`. Both are created if they are missing. `name` names the source in messages.
///
/// The import takes effect as a whole: until its end a server refuses the directory, and the next
/// import into this namespace begins anew. Keys of other namespaces stay. All keys are on disk when
/// it returns. Fails if the namespace has keys already, if an import into another one did not end,
/// if a server uses the directory, and if the dump is malformed.
pub fn import_rdb(
    dir: &Path,
    namespace: Option<&str>,
    mut source: impl BufRead,
    name: &str,
    memory_budget: Option<u64>,
) -> Result<ImportSummary, StartFailure> {
    let start = source.fill_buf();
    let start = start.map_err(|error| StartFailure(format!("cannot read {name}: {error}")))?;
    if !start.starts_with(b"REDIS") {
        return refuse(format!("{name} is no dump of Redis: it does not begin with REDIS"));
    }
    prepare_directory(dir)?;
    let store = open(dir, memory_budget)?;
    if store.databases.master().map_err(|fail| explain(dir, &fail))?.is_some() {
        let dir = dir.display();
        return refuse(format!("{dir} is of a replica; end that with REPLICAOF NO ONE"));
    }
    let namespace = empty_namespace(dir, &store, namespace.unwrap_or(DEFAULT_NAMESPACE))?;
    let what = match namespace.name() {
        DEFAULT_NAMESPACE => format!("the import of {name}"),
        own => format!("the import of {name} into the namespace {own:?}"),
    };
    let loader = Loader::begin(&store, &what, namespace.id());
    let loader = loader.map_err(|fail| explain(dir, &fail))?;
    let found = loader.load(source, None).map_err(|failure| {
        StartFailure(format!(
            "{name}: {failure}. {} has a part of it now, which no server uses; import again, or \
             remove the directory",
            dir.display()
        ))
    })?;
    close(dir, &store)?;
    Ok(ImportSummary {
        keys: found.summary.keys,
        expired: found.expired,
        functions: found.summary.functions,
        modules: found.summary.module_values + found.summary.module_records,
    })
}

/// The namespace for an import, which is made if it is missing. Fails if it has keys that are not a
/// part of an import that did not end, and if there is such an import into another namespace.
fn empty_namespace(dir: &Path, store: &Store, name: &str) -> Result<Arc<Namespace>, StartFailure> {
    let explain = |fail: Fail| explain(dir, &fail);
    let databases = &store.databases;
    let found = databases.enter(name).map_err(explain)?;
    if let Some(unfinished) = databases.loading().map_err(explain)? {
        let id = databases.loading_namespace().map_err(explain)?;
        return match found {
            Some(found) if found.id() == id => Ok(found),
            _ => refuse(format!(
                "{unfinished} into {} did not end; run it again before an import into another \
                 namespace, or remove the directory",
                dir.display()
            )),
        };
    }
    let Some(found) = found else {
        databases.add_namespace(name).map_err(explain)?;
        let new = databases.enter(name).map_err(explain)?;
        return new.ok_or_else(|| explain(Fail::NO_NAMESPACE));
    };
    let (count, dir) = (databases.key_count(found.id()), dir.display());
    match name {
        _ if count == 0 => Ok(found),
        DEFAULT_NAMESPACE => refuse(format!(
            "{dir} has {count} keys; import a dump into a directory without keys, or into another \
             namespace"
        )),
        _ => refuse(format!(
            "the namespace {name:?} of {dir} has {count} keys; import a dump into one without keys"
        )),
    }
}

/// Exports all keys of a namespace of the directory `dir` as a dump file; without a name, those of
/// `default`. Redis from 7.0 on loads it, and from 7.4 on if fields of hashes expire. `target`
/// should be buffered. `tick` is called after each key with the number of all keys.
///
/// Fails if a server uses the directory, if it has no such namespace, and if the target refuses
/// bytes.
pub fn export_rdb(
    dir: &Path,
    namespace: Option<&str>,
    target: impl Write,
    memory_budget: Option<u64>,
    mut tick: impl FnMut(u64),
) -> Result<ExportSummary, StartFailure> {
    if !dir.is_dir() {
        return refuse(format!("{} is not a directory", dir.display()));
    }
    let store = open(dir, memory_budget)?;
    refuse_unfinished(dir, &store)?;
    let name = namespace.unwrap_or(DEFAULT_NAMESPACE);
    let found = store.databases.enter(name).map_err(|fail| explain(dir, &fail))?;
    let Some(namespace) = found else {
        let names = store.databases.namespace_names();
        let known = names.iter().take(SHOWN_NAMES).cloned().collect::<Vec<_>>().join(", ");
        let more = if names.len() > SHOWN_NAMES { " and more" } else { "" };
        let dir = dir.display();
        return refuse(format!("{dir} has no namespace {name:?}; it has {known}{more}"));
    };
    let mut summary = ExportSummary::default();
    let total = store.databases.key_count(namespace.id());
    let written = write_all(&store, &namespace, target, &mut summary, &mut || tick(total));
    written.map_err(|failure| match failure {
        SaveFailure::Io(error) => StartFailure(format!("cannot write the dump: {error}")),
        SaveFailure::Store(fail) => explain(dir, &fail),
    })?;
    close(dir, &store)?;
    Ok(summary)
}

/// Fails if an import into the directory has not ended.
pub(crate) fn refuse_unfinished(dir: &Path, store: &Store) -> Result<(), StartFailure> {
    match store.databases.loading().map_err(|fail| explain(dir, &fail))? {
        None => Ok(()),
        Some(name) => refuse(format!(
            "{name} into {} did not end; run it again, or remove the directory",
            dir.display()
        )),
    }
}

fn write_all(
    store: &Store,
    namespace: &Namespace,
    target: impl Write,
    summary: &mut ExportSummary,
    tick: &mut dyn FnMut(),
) -> Result<(), SaveFailure> {
    let aux = [("redis-ver", REDIS_VERSION), ("redis-bits", "64")];
    // Redis 7.0 loads no file that has fields with expiries.
    let mut version = VERSION_WRITTEN;
    let databases = || DatabaseId::all_of(namespace.id());
    for tables in databases().filter_map(|own| store.databases.get(own)) {
        if tables.has_field_expiries()? {
            version = VERSION_MAX;
        }
    }
    let mut file = FileWriter::begin(target, version, &aux)?;
    for database in databases() {
        let Some(tables) = store.databases.get(database) else { continue };
        let count = tables.count.load(Ordering::Acquire);
        if let Ok(count) = u64::try_from(count)
            && count > 0
        {
            file.select(database.index(), count, tables.expiring().min(count))?;
            write_database(store, database, &tables, &mut file, summary, tick)?;
        }
    }
    file.finish()?;
    Ok(())
}

fn write_database<W: Write>(
    store: &Store,
    database: DatabaseId,
    tables: &Tables,
    file: &mut FileWriter<W>,
    summary: &mut ExportSummary,
    tick: &mut dyn FnMut(),
) -> Result<(), SaveFailure> {
    let mut unit = Unit::new(store, now_millis());
    // A scan of the table itself may return a key twice, which Redis would refuse.
    let snapshot = store.databases.database().snapshot().map_err(Fail::from)?;
    let mut cursor = Cursor::START;
    loop {
        let page = snapshot.scan(&tables.keys, &cursor, PAGE).map_err(Fail::from)?;
        let (entries, next) = page;
        for (key, _) in entries {
            unit.lock_one(database, &key);
            match unit.head(database, &key)?.map(|head| (type_of(head), head.expiry)) {
                None => summary.expired += 1,
                Some((kind, expiry)) => {
                    file.key(&key, kind, expiry)?;
                    save(&mut unit, database, &key, &mut file.output)?;
                    summary.keys += 1;
                }
            }
            // Nothing has changed: this releases the lock and the memory.
            unit.discard();
            tick();
        }
        if next.is_start() {
            return Ok(());
        }
        cursor = next;
    }
}
