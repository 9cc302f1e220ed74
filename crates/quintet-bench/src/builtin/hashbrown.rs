//! `hashbrown`: a hash map of boxed keys and values behind one reader-writer lock.
//!
//! It is the simple solution that a store must beat. Nothing is durable. A value of unchanged size
//! is overwritten in place.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{
    failure::Outcome,
    numbers::to_u64,
    store::{EachEntry, EachFound, Store, StoreStats, unordered},
};

type Map = hashbrown::HashMap<Box<[u8]>, Box<[u8]>>;

/// A hash map behind a lock. See the module head.
#[derive(Debug, Default)]
pub struct Hashbrown {
    map: RwLock<Map>,
}

impl Hashbrown {
    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn insert(map: &mut Map, key: &[u8], value: &[u8]) {
    match map.get_mut(key) {
        Some(old) if old.len() == value.len() => old.copy_from_slice(value),
        Some(old) => *old = value.into(),
        None => drop(map.insert(key.into(), value.into())),
    }
}

impl Store for Hashbrown {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        value.clear();
        let map = self.read();
        let found = map.get(key);
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut EachFound<'_>) -> Outcome {
        let map = self.read();
        for (index, key) in keys.iter().enumerate() {
            each(index, map.get(*key).map(AsRef::as_ref));
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        insert(&mut self.write(), key, value);
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        self.write().remove(key);
        Ok(())
    }

    fn batch(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        let mut map = self.write();
        for (key, value) in entries {
            insert(&mut map, key, value);
        }
        Ok(())
    }

    fn range(&self, _: &[u8], _: usize, _: &mut EachEntry<'_>) -> Outcome<usize> {
        Err(unordered("hashbrown"))
    }

    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        let map = self.read();
        for (key, value) in map.iter() {
            each(key, value);
        }
        Ok(to_u64(map.len()))
    }

    fn sync(&self) -> Outcome {
        Ok(())
    }

    fn stats(&self) -> StoreStats {
        let map = self.read();
        let live = map.iter().map(|(key, value)| to_u64(key.len() + value.len())).sum();
        let index = to_u64(map.allocation_size());
        StoreStats {
            keys: Some(to_u64(map.len())),
            live_bytes: Some(live),
            memory_bytes: Some(live + index),
            index_bytes: Some(index),
            ..StoreStats::default()
        }
    }

    fn close(self: Box<Self>) -> Outcome {
        Ok(())
    }
}
