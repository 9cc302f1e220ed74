//! Removes expired keys, expired fields of hashes, and the elements of dead versions in the
//! background.

use quintet::Durability;

use crate::{
    failure::Done,
    store::{
        DEAD_VERSIONS, DatabaseId, EXPIRIES, FIELD_EXPIRIES, Store, Tables, Unit, expiry_entry,
        field_expiry_entry,
    },
};

/// Keys, fields or elements that one step removes from a database.
const STEP_MAX: usize = 512;

/// Removes expired keys and dead elements.
#[derive(Debug)]
pub(crate) struct Sweeper;

/// What a step has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Expired keys.
    pub(crate) keys: usize,
    /// Expired fields of hashes.
    pub(crate) fields: usize,
    /// Whether more is due.
    pub(crate) is_more: bool,
}

impl Sweeper {
    /// Does one step for each database of the namespaces whose tables are open. Removes what
    /// expired until `now`, in milliseconds since 1970; with `None` nothing expires here.
    pub(crate) fn step(store: &Store, now: Option<u64>) -> Done<Swept> {
        let mut swept = Swept::default();
        let databases = &store.databases;
        for database in databases.loaded_namespaces().into_iter().flat_map(DatabaseId::all_of) {
            let Some(tables) = databases.get(database) else { continue };
            match Self::sweep(store, database, &tables, now, &mut swept) {
                // The namespace was removed meanwhile.
                Err(_) if databases.get(database).is_none() => {}
                result => result?,
            }
        }
        if databases.count_idle_sweep() {
            let mut unit = Unit::new(store, now.unwrap_or(0));
            unit.lock_all();
            databases.unload_namespaces();
        }
        Ok(swept)
    }

    fn sweep(
        store: &Store,
        database: DatabaseId,
        tables: &Tables,
        now: Option<u64>,
        swept: &mut Swept,
    ) -> Done {
        if let Some(now) = now {
            let keys = listed(tables, EXPIRIES, now)?;
            swept.is_more |= keys.len() >= STEP_MAX;
            for (time, key) in keys {
                swept.keys += usize::from(expire(store, (database, time, now), &key)?);
            }
            expire_fields(store, tables, (database, now), swept)?;
        }
        swept.is_more |= remove_dead(store, tables)?;
        Ok(())
    }
}

/// Keys that are listed until `now`, each with its time.
fn listed(tables: &Tables, list: [u8; 8], now: u64) -> Done<Vec<(u64, Vec<u8>)>> {
    let end = [list.as_slice(), &now.saturating_add(1).to_be_bytes()].concat();
    let mut found = Vec::new();
    tables.elements.visit(list.to_vec()..end, |name, _| {
        if let Some((time, key)) = name.get(8..).and_then(|rest| rest.split_first_chunk::<8>()) {
            found.push((u64::from_be_bytes(*time), key.to_vec()));
        }
        if found.len() >= STEP_MAX {
            std::ops::ControlFlow::Break(())
        } else {
            std::ops::ControlFlow::Continue(())
        }
    })?;
    Ok(found)
}

/// Removes a key if it has expired, and the entry that lists it. Returns whether it had expired.
fn expire(store: &Store, (database, time, now): (DatabaseId, u64, u64), key: &[u8]) -> Done<bool> {
    let mut unit = Unit::new(store, now);
    unit.lock(database, std::iter::once(key));
    if unit.remove_expired(database, key)? {
        unit.commit(Durability::Buffered)?;
        return Ok(true);
    }
    // The key lives, was removed, or has another expiry, which has an entry of its own.
    let is_listed = unit.head(database, key)?.is_some_and(|head| head.expiry == Some(time));
    // The database may have other tables since the list was read.
    if let Some(tables) = unit.tables(database).filter(|_| !is_listed) {
        tables.elements.delete(expiry_entry(time, key))?;
    }
    Ok(false)
}

/// Removes expired fields of a database, all together as many as a step may.
fn expire_fields(
    store: &Store,
    tables: &Tables,
    (database, now): (DatabaseId, u64),
    swept: &mut Swept,
) -> Done {
    let hashes = listed(tables, FIELD_EXPIRIES, now)?;
    swept.is_more |= hashes.len() >= STEP_MAX;
    let mut left = STEP_MAX;
    for (time, key) in hashes {
        let mut unit = Unit::new(store, now);
        unit.lock(database, std::iter::once(key.as_slice()));
        let removed = unit.remove_expired_fields(database, &key, left)?;
        if removed > 0 {
            unit.commit(Durability::Buffered)?;
            swept.fields += removed;
            left = left.saturating_sub(removed);
            if left == 0 {
                swept.is_more = true;
                break;
            }
        } else if !unit.is_listed_by_field(database, &key, time)? {
            // The key was removed, or its first field expires later, which has an entry of its own.
            if let Some(tables) = unit.tables(database) {
                tables.elements.delete(field_expiry_entry(time, &key))?;
            }
        }
    }
    Ok(())
}

/// Removes elements of the first dead version. Returns whether there is more.
fn remove_dead(store: &Store, tables: &Tables) -> Done<bool> {
    let mut version = None;
    let end = [DEAD_VERSIONS.as_slice(), &[0xff; 9]].concat();
    tables.elements.visit(DEAD_VERSIONS.to_vec()..end, |name, _| {
        version = name.get(8..16).and_then(<[u8]>::first_chunk::<8>).copied();
        std::ops::ControlFlow::Break(())
    })?;
    let Some(version) = version else { return Ok(false) };
    let start = u64::from_be_bytes(version);
    let mut names = Vec::new();
    let range = version.to_vec()..start.saturating_add(1).to_be_bytes().to_vec();
    tables.elements.visit(range, |name, _| {
        names.push(name.to_vec());
        if names.len() >= STEP_MAX {
            std::ops::ControlFlow::Break(())
        } else {
            std::ops::ControlFlow::Continue(())
        }
    })?;
    let mut batch = store.databases.database().batch();
    for name in &names {
        batch.delete(&tables.elements, name);
    }
    if names.len() < STEP_MAX {
        batch.delete(&tables.elements, [DEAD_VERSIONS, version].concat());
    }
    batch.commit_with(Durability::Buffered)?;
    Ok(true)
}
