//! Adds, finds, opens and removes namespaces. `namespaces.rs` has the layout and the locks.

use std::sync::{Arc, atomic::Ordering};

use quintet::Error;

use super::{
    database_id::DatabaseId,
    namespaces::{
        DEFAULT_NAMESPACE, DROPPED, IDLE_SWEEPS_MAX, LAST_ID_KEY, NAMES, NAMESPACES_MAX, NO_ID,
        Namespace, directory, entries, is_namespace_name, lock,
    },
    tables::Databases,
};
use crate::failure::{Done, Fail};

impl Databases {
    /// The namespace `default`.
    pub(crate) fn default_namespace(&self) -> Arc<Namespace> {
        self.namespaces.default.clone()
    }

    /// The names of all namespaces, `default` first.
    pub(crate) fn namespace_names(&self) -> Vec<String> {
        let catalogue = self.namespaces.read();
        let own = catalogue.ids.keys().cloned();
        std::iter::once(DEFAULT_NAMESPACE.to_owned()).chain(own).collect()
    }

    /// A namespace by its name, with its tables open. `None` if there is none.
    ///
    /// Cost: the first call opens the tables of the namespace, up to 32. Fails with the failure of
    /// the store.
    pub(crate) fn enter(&self, name: &str) -> Done<Option<Arc<Namespace>>> {
        if name == DEFAULT_NAMESPACE {
            return Ok(Some(self.default_namespace()));
        }
        let found = {
            let catalogue = self.namespaces.read();
            catalogue.ids.get(name).and_then(|id| catalogue.namespaces.get(id)).cloned()
        };
        let Some(found) = found else { return Ok(None) };
        self.load_namespace(&found)?;
        // It may have been removed meanwhile.
        Ok(Some(found).filter(|found| !found.is_dropped()))
    }

    /// Adds a namespace. It is on disk afterwards. Creates no table.
    pub(crate) fn add_namespace(&self, name: &str) -> Done {
        if !is_namespace_name(name.as_bytes()) {
            return Err(Fail::BAD_NAMESPACE);
        }
        let mut last = lock(&self.namespaces.changing);
        {
            let catalogue = self.namespaces.read();
            if name == DEFAULT_NAMESPACE || catalogue.ids.contains_key(name) {
                return Err(Fail::new("ERR the namespace exists already"));
            }
            if catalogue.ids.len() >= NAMESPACES_MAX {
                return Err(Fail::with(format!(
                    "ERR there are {NAMESPACES_MAX} namespaces, which is the limit; remove one \
                     with NAMESPACE DEL"
                )));
            }
        }
        let id = Some(*last + 1).filter(|id| *id < NO_ID);
        let id = id.ok_or(Fail::new("ERR all ids of namespaces have been used"))?;
        let mut batch = self.database().batch();
        batch.put(self.meta(), format!("{NAMES}{name}"), id.to_le_bytes());
        batch.put(self.meta(), LAST_ID_KEY, id.to_le_bytes());
        batch.commit()?;
        // After a failed sync the store takes no writes, so the id is not given twice.
        *last = id;
        self.database().sync()?;
        let mut catalogue = self.namespaces.write();
        catalogue.namespaces.insert(id, Arc::new(Namespace::new(id, name)));
        catalogue.ids.insert(name.to_owned(), id);
        Ok(())
    }

    /// Removes a namespace with all its keys. Returns its id, or `None` if there is none. The
    /// removal is on disk afterwards. The caller must hold all stripes.
    ///
    /// Cost: independent of the number of keys. The tables are dropped after the removal; the next
    /// start drops them if that fails or the process ends before.
    pub(crate) fn remove_namespace(&self, name: &str) -> Done<Option<u32>> {
        let _last = lock(&self.namespaces.changing);
        let Some(id) = self.namespaces.read().ids.get(name).copied() else { return Ok(None) };
        let mut batch = self.database().batch();
        batch.delete(self.meta(), format!("{NAMES}{name}"));
        batch.delete(self.meta(), format!("order/{id}"));
        batch.put(self.meta(), format!("{DROPPED}{id}"), "");
        batch.commit()?;
        self.database().sync()?;
        let removed = {
            let mut catalogue = self.namespaces.write();
            catalogue.ids.remove(name);
            catalogue.namespaces.remove(&id)
        };
        if let Some(removed) = removed {
            // No connection opens tables afterwards, which could make one of them anew.
            let _is_loaded = lock(&removed.is_loaded);
            removed.is_dropped.store(true, Ordering::Release);
            for index in DatabaseId::all_of(0).map(DatabaseId::index) {
                self.replace(&removed, index, None);
            }
        }
        if let Err(error) = self.drop_tables(id) {
            tracing::error!(%error, name, "the tables of the namespace stay until the next start");
        }
        Ok(Some(id))
    }

    fn drop_tables(&self, id: u32) -> Result<(), Error> {
        match self.database().drop_tree(&directory(id)) {
            Ok(()) | Err(Error::NoSuchTable { .. }) => {}
            Err(error) => return Err(error),
        }
        self.meta().delete(format!("{DROPPED}{id}"))?;
        Ok(())
    }

    /// Drops the tables of namespaces whose removal did not end.
    pub(super) fn end_removals(&self) -> Result<(), Error> {
        for (id, _) in entries(self.meta(), DROPPED)? {
            if let Ok(id) = id.parse() {
                self.drop_tables(id)?;
            }
        }
        Ok(())
    }

    /// Opens the tables of a namespace that exist, unless they are open or it is removed.
    pub(super) fn load_namespace(&self, namespace: &Namespace) -> Result<(), Error> {
        let mut is_loaded = lock(&namespace.is_loaded);
        if !*is_loaded && !namespace.is_dropped() {
            self.open_tables(namespace)?;
            *is_loaded = true;
        }
        Ok(())
    }

    /// Number of namespaces beside `default`, and of those that are in use.
    pub(crate) fn namespace_counts(&self) -> (usize, usize) {
        let catalogue = self.namespaces.read();
        let is_used = |own: &&Arc<Namespace>| Arc::strong_count(own) > 1;
        (catalogue.ids.len(), catalogue.namespaces.values().filter(is_used).count())
    }

    /// The ids of the namespaces whose tables are open, `default` first. Waits for none that opens.
    pub(crate) fn loaded_namespaces(&self) -> Vec<u32> {
        let catalogue = self.namespaces.read();
        let is_loaded =
            |own: &&Arc<Namespace>| own.is_loaded.try_lock().is_ok_and(|is_loaded| *is_loaded);
        let mut ids: Vec<u32> =
            catalogue.namespaces.values().filter(is_loaded).map(|own| own.id()).collect();
        ids.sort_unstable();
        ids.insert(0, 0);
        ids
    }

    /// Counts a sweep of the namespaces that no connection is in. Returns whether
    /// [`Self::unload_namespaces`] has something to do.
    pub(crate) fn count_idle_sweep(&self) -> bool {
        let catalogue = self.namespaces.read();
        let mut is_due = false;
        for own in catalogue.namespaces.values() {
            let is_loaded = own.is_loaded.try_lock().is_ok_and(|is_loaded| *is_loaded);
            if Arc::strong_count(own) == 1 && is_loaded {
                is_due |= own.idle_sweeps.fetch_add(1, Ordering::Relaxed) >= IDLE_SWEEPS_MAX;
            } else {
                own.idle_sweeps.store(0, Ordering::Relaxed);
            }
        }
        is_due
    }

    /// Drops the handles of tables of namespaces that no connection has been in for a while. The
    /// caller must hold all stripes.
    pub(crate) fn unload_namespaces(&self) {
        // No connection enters one meanwhile: that needs the lock to find it.
        let catalogue = self.namespaces.write();
        for own in catalogue.namespaces.values().filter(|own| Arc::strong_count(own) == 1) {
            let mut is_loaded = lock(&own.is_loaded);
            if *is_loaded && own.idle_sweeps.load(Ordering::Relaxed) >= IDLE_SWEEPS_MAX {
                *is_loaded = false;
                own.idle_sweeps.store(0, Ordering::Relaxed);
                for index in DatabaseId::all_of(0).map(DatabaseId::index) {
                    self.replace(own, index, None);
                }
            }
        }
    }
}
