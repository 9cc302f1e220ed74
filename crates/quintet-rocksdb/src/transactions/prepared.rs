//! The table of transactions that are prepared.
//!
//! The key of an entry is the name of the transaction. The value:
//!
//! | size | name |
//! |---|---|
//! | 4 | number of column families, little-endian |
//! | | for each: its number (4), the size of its name (4), its name |
//! | | the batch, which names column families by these numbers |
//!
//! An entry is written when a transaction is prepared, and synced. The commit removes it atomically
//! with its writes. A column family that was dropped meanwhile is skipped.

use std::collections::{BTreeMap, BTreeSet};

use quintet::{Cursor, DeleteOptions, Durability, EngineKind, PutOptions, Table, TableOptions};
use quintet_compat::{
    operations::{Action, Operations, Record},
    status::Status,
    store::{PREPARED, found},
};

use crate::core::Core;

/// Number of entries that are read at a time.
const SCAN_ENTRIES: usize = 64;

fn open_table(core: &Core) -> Result<Table, Status> {
    let options = TableOptions::new(EngineKind::Naive);
    Ok(core.store.database.open_or_create_table(PREPARED, options)?)
}

/// Stores the operations of a transaction durably.
pub fn store(core: &Core, name: &[u8], batch: &Operations) -> Result<(), Status> {
    batch.check()?;
    let mut ids = BTreeSet::new();
    for record in batch.records() {
        ids.insert(record?.family);
    }
    let families = core.families();
    let mut entry = Vec::new();
    put_number(&mut entry, ids.len())?;
    for id in ids {
        let family = usize::try_from(id).ok().and_then(|id| families.get(id));
        let family = family.ok_or_else(|| Status::invalid("there is no such column family"))?;
        entry.extend_from_slice(&id.to_le_bytes());
        put_number(&mut entry, family.name.len())?;
        entry.extend_from_slice(family.name.as_bytes());
    }
    entry.extend_from_slice(batch.bytes());
    let options = PutOptions::new().if_absent().durability(Durability::Sync);
    if open_table(core)?.put_with(name, entry, options)? {
        return Ok(());
    }
    Err(Status::invalid("a prepared transaction has the name; open the database for transactions"))
}

fn put_number(bytes: &mut Vec<u8>, number: usize) -> Result<(), Status> {
    let number = u32::try_from(number).map_err(|_| Status::invalid("the name is too long"))?;
    bytes.extend_from_slice(&number.to_le_bytes());
    Ok(())
}

/// Commits the operations of a transaction, and removes its entry with them.
pub fn commit(
    core: &Core,
    durability: Durability,
    batch: &Operations,
    name: &[u8],
) -> Result<(), Status> {
    let table = open_table(core)?;
    core.write_and_delete(durability, batch, Some((&table, name)))
}

/// Removes the entry of a transaction durably.
pub fn remove(core: &Core, name: &[u8]) -> Result<(), Status> {
    let options = DeleteOptions::new().durability(Durability::Sync);
    open_table(core)?.delete_with(name, options)?;
    Ok(())
}

/// Calls `begin` with the name and the operations of each transaction that was prepared when the
/// database was closed.
pub fn recover(
    core: &Core,
    begin: impl Fn(&[u8], &Operations) -> Result<(), Status>,
) -> Result<(), Status> {
    let Some(table) = found(core.store.database.table(PREPARED))? else { return Ok(()) };
    let snapshot = core.store.database.snapshot()?;
    let mut cursor = Cursor::START;
    loop {
        let (entries, next) = snapshot.scan(&table, &cursor, SCAN_ENTRIES)?;
        for (name, entry) in &entries {
            let damaged = || Status::corruption("an entry of a prepared transaction is damaged");
            let batch = decode(core, entry).ok_or_else(damaged)?;
            begin(name, &batch)?;
        }
        if next == Cursor::START {
            return Ok(());
        }
        cursor = next;
    }
}

/// Returns the next number of an entry.
fn take_number(entry: &mut &[u8]) -> Option<u32> {
    let (number, rest) = entry.split_first_chunk()?;
    *entry = rest;
    Some(u32::from_le_bytes(*number))
}

/// Returns the batch of an entry, with the numbers that the column families have now.
fn decode(core: &Core, mut entry: &[u8]) -> Option<Operations> {
    let families = core.families();
    let mut ids = BTreeMap::new();
    for _ in 0..take_number(&mut entry)? {
        let id = take_number(&mut entry)?;
        let size = usize::try_from(take_number(&mut entry)?).ok()?;
        let (name, rest) = entry.split_at_checked(size)?;
        entry = rest;
        let family = families.iter().find(|family| family.name.as_bytes() == name);
        ids.insert(id, family.map(|family| family.id));
    }
    let stored = Operations::from_bytes(entry);
    stored.check().ok()?;
    let mut batch = Operations::default();
    for record in stored.records() {
        let record = record.ok()?;
        match (record.action, ids.get(&record.family)?) {
            (Action::LogData, _) | (_, None) => {}
            (_, Some(family)) => batch.add(Record { family: *family, ..record }),
        }
    }
    Some(batch)
}
