//! The transactions of a database that have a name.
//!
//! Locks: the map is locked only for a lookup or a change.

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use quintet_compat::status::Status;

/// Size of the longest name of a transaction in bytes, as RocksDB has it.
const NAME_BYTES_MAX: usize = 512;
/// A transaction. The module of transactions knows its type.
pub type NamedObject = dyn Any + Send + Sync;

/// The transactions that have a name.
#[derive(Debug, Default)]
pub struct NamedTransactions(Mutex<Named>);

#[derive(Debug, Default)]
struct Named {
    all: BTreeMap<Vec<u8>, Weak<NamedObject>>,
    /// A prepared transaction stays, with its locks, until it is committed or rolled back.
    prepared: BTreeMap<Vec<u8>, Arc<NamedObject>>,
}

impl NamedTransactions {
    fn lock(&self) -> MutexGuard<'_, Named> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a transaction. Fails if the name is unsuitable or in use.
    pub fn add(&self, name: &[u8], transaction: &Arc<NamedObject>) -> Result<(), Status> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let message = "Transaction name length must be between 1 and 512 chars.";
            return Err(Status::invalid(message));
        }
        let mut named = self.lock();
        named.all.retain(|_, other| other.strong_count() > 0);
        if named.all.contains_key(name) || named.prepared.contains_key(name) {
            return Err(Status::invalid("Transaction name must be unique."));
        }
        named.all.insert(name.to_vec(), Arc::downgrade(transaction));
        Ok(())
    }

    /// Keeps a transaction that is prepared.
    pub fn prepare(&self, name: &[u8], transaction: Arc<NamedObject>) {
        self.lock().prepared.insert(name.to_vec(), transaction);
    }

    /// Returns the transactions that are prepared.
    pub fn prepared(&self) -> Vec<Arc<NamedObject>> {
        self.lock().prepared.values().cloned().collect()
    }

    /// Removes a transaction that has ended.
    pub fn remove(&self, name: &[u8]) {
        let mut named = self.lock();
        named.all.remove(name);
        named.prepared.remove(name);
    }
}
