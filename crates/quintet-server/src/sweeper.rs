//! Removes expired keys and the elements of dead versions in the background.

use quintet::Durability;

use crate::{
    failure::Done,
    store::{DATABASES, DEAD_VERSIONS, EXPIRIES, Store, Tables, Unit, expiry_entry, now_millis},
};

/// Keys or elements that one step removes from a database.
const STEP_MAX: usize = 512;

/// Removes expired keys and dead elements.
#[derive(Debug)]
pub(crate) struct Sweeper;

impl Sweeper {
    /// Does one step for each database; `removes_expired` says whether keys expire
    /// here. Returns the number of expired keys that it removed, and
    /// whether more is due.
    pub(crate) fn step(store: &Store, removes_expired: bool) -> Done<(usize, bool)> {
        let mut expired = 0;
        let mut is_more = false;
        for database in 0..DATABASES {
            let Some(tables) = store.databases.get(database) else { continue };
            let keys =
                if removes_expired { expired_keys(&tables, now_millis())? } else { Vec::new() };
            is_more |= keys.len() >= STEP_MAX;
            for (time, key) in keys {
                expired += usize::from(expire(store, database, &tables, time, &key)?);
            }
            is_more |= remove_dead(store, &tables)?;
        }
        Ok((expired, is_more))
    }
}

/// Keys that have expired, each with the time under which it is listed.
fn expired_keys(tables: &Tables, now: u64) -> Done<Vec<(u64, Vec<u8>)>> {
    let end = [EXPIRIES.as_slice(), &now.saturating_add(1).to_be_bytes()].concat();
    let mut found = Vec::new();
    tables.elements.visit(EXPIRIES.to_vec()..end, |name, _| {
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
fn expire(store: &Store, database: u8, tables: &Tables, time: u64, key: &[u8]) -> Done<bool> {
    let mut unit = Unit::new(store, now_millis());
    unit.lock(database, std::iter::once(key));
    if unit.remove_expired(database, key)? {
        unit.commit(Durability::Buffered)?;
        return Ok(true);
    }
    // The key lives, was removed, or has another expiry, which has an entry of its own.
    let is_listed = unit.head(database, key)?.is_some_and(|head| head.expiry == Some(time));
    if !is_listed {
        tables.elements.delete(expiry_entry(time, key))?;
    }
    Ok(false)
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
