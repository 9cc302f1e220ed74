//! Copies one moment of a database to a new directory.
//!
//! Why: checkpoints and backups of a database that is written to.
//!
//! How: a snapshot is copied entry by entry, with expiries, to a database in `TARGET.tmp`, which is
//! renamed when it is complete and durable. So the target exists whole or not at all. It costs a
//! read and a write of all entries, and keeps what writers replace meanwhile, as any snapshot does.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use quintet::{
    Cursor, EngineKind, Key, LoadOptions, Options, PutOptions, Snapshot, Table, TableOptions, Value,
};

use crate::{
    destroy,
    engines::{MERGE_OPERATOR, TableRequest, is_ordered, set_options, without_merges},
    files::rename,
    status::{Code, Status},
    store::{META, PREPARED, Store, found, table_name},
};

/// Number of entries of a table without key order that are read at a time.
const SCAN_ENTRIES: usize = 1000;
/// Number of times that a moment is tried: column families change rarely.
const MOMENT_ATTEMPTS: usize = 100;

/// Copies the present state of a database to a directory that does not exist. `request` returns
/// what the table of a column family is asked for; its engine is that of the copied one.
pub fn copy(
    store: &Store,
    target: &Path,
    request: impl Fn(&str) -> TableRequest,
) -> Result<(), Status> {
    if fs::symlink_metadata(target).is_ok() {
        return Err(Status::invalid(format!("{}: Directory exists", target.display())));
    }
    let mut unfinished = target.as_os_str().to_owned();
    unfinished.push(".tmp");
    let unfinished = PathBuf::from(unfinished);
    destroy::destroy(&unfinished)?;
    let options = without_merges(Options::new());
    let copied = options.open(&unfinished).map_err(Status::from).and_then(|database| {
        let tables = copy_tables(store, &Store::from(database.clone()), request);
        tables.and(database.close().map_err(Status::from))
    });
    match copied.and_then(|()| rename(&unfinished, target)) {
        Ok(()) => Ok(()),
        Err(status) => {
            // The first failure counts.
            let _ = destroy::destroy(&unfinished);
            Err(status)
        }
    }
}

/// Returns a snapshot, and the tables of the column families that existed at its moment.
fn moment(store: &Store) -> Result<(Vec<(String, Table)>, Snapshot), Status> {
    for _ in 0..MOMENT_ATTEMPTS {
        let names = store.families()?;
        let mut tables = Vec::new();
        for name in &names {
            // A handle can be read in the snapshot if the family is dropped after that.
            if let Some(table) = store.find(name)? {
                tables.push((name.clone(), table));
            }
        }
        let snapshot = store.database.snapshot()?;
        if store.families()? == names && tables.len() == names.len() {
            return Ok((tables, snapshot));
        }
    }
    Err(Status::new(Code::TryAgain, "column families are created or dropped all the time"))
}

fn copy_tables(
    from: &Store,
    to: &Store,
    request: impl Fn(&str) -> TableRequest,
) -> Result<(), Status> {
    let (tables, snapshot) = moment(from)?;
    for (name, table) in tables {
        let options = TableOptions::new(table.kind()).merge(MERGE_OPERATOR);
        let options = set_options(options, table.kind(), &request(&name));
        copy_table(&snapshot, &table, &to.database.create_table(&table_name(&name), options)?)?;
    }
    for name in [META, PREPARED] {
        if let Some(table) = found(from.database.table(name))? {
            let options = TableOptions::new(EngineKind::Naive);
            copy_table(&snapshot, &table, &to.database.create_table(name, options)?)?;
        }
    }
    Ok(())
}

/// Returns the options of the put of a copy. `None`: the value has expired.
fn put_options(value: &Value) -> Option<PutOptions> {
    let mut options = PutOptions::new();
    if let Some(tag) = value.type_tag() {
        options = options.type_tag(tag);
    }
    match value.expires_at() {
        None => Some(options),
        Some(time) if time <= SystemTime::now() => None,
        Some(time) => Some(options.expires_at(time)),
    }
}

/// Stores a copy of an entry, unless it expires meanwhile.
fn put(value: &Value, put: impl FnOnce(PutOptions) -> quintet::Result<()>) -> Result<(), Status> {
    let Some(options) = put_options(value) else { return Ok(()) };
    match put(options) {
        Err(_) if put_options(value).is_none() => Ok(()),
        stored => Ok(stored?),
    }
}

fn copy_table(snapshot: &Snapshot, from: &Table, to: &Table) -> Result<(), Status> {
    if is_ordered(from.kind()) {
        let mut loader = to.sorted_loader(LoadOptions::new())?;
        for entry in snapshot.range(from, ..)? {
            let (key, value): (Key, Value) = entry?;
            put(&value, |options| loader.put_with(&key, &value, options))?;
        }
        loader.commit()?;
        return Ok(());
    }
    let mut cursor = Cursor::START;
    loop {
        let (entries, next) = snapshot.scan(from, &cursor, SCAN_ENTRIES)?;
        for (key, value) in &entries {
            put(value, |options| to.put_with(key, value, options).map(drop))?;
        }
        if next == Cursor::START {
            return Ok(());
        }
        cursor = next;
    }
}
