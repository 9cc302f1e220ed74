//! The loader of tables: it opens a table's engine in the directory of the table's number.

mod absent_dir;

use std::{
    collections::HashSet,
    io,
    sync::{Arc, Weak},
};

use absent_dir::AbsentDir;

use super::{host::DatabaseHost, state::TableState};
use crate::{
    Error, Result,
    contract::{Context, Host},
    db::{
        catalog::{
            Catalog,
            tree::{CatalogTree, TableNode},
        },
        merge::MergeOperators,
    },
    engine::AnyEngine,
    io::{Dir, Env},
    util::{
        budget::{Budget, Reclaimable},
        codec::{KeyHash, Lsn},
        mutant::mutant,
        sync::{Mutex, lock},
    },
};

/// Opens the engines of tables.
#[derive(Debug)]
pub(crate) struct TableLoader {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) tables_dir: Arc<dyn Dir>,
    pub(crate) database_id: [u8; 16],
    pub(crate) budget: Arc<Budget>,
    pub(crate) host: Arc<DatabaseHost>,
    pub(crate) read_only: bool,
    pub(crate) merge_operators: MergeOperators,
    pub(crate) directories: DirectorySync,
}

/// Whether the names of all tables' directories are durable.
///
/// Creating a table does not sync its directory's name: all entries of the table are in the log
/// until its first checkpoint is in the catalog. The sync precedes that edit.
#[derive(Debug, Default)]
pub(crate) struct DirectorySync(Mutex<DirectorySyncState>);

#[derive(Debug, Default)]
enum DirectorySyncState {
    /// Some name may be new, also one that a killed process has created.
    #[default]
    Unsynced,
    Synced,
}

impl TableLoader {
    /// Creates the directory of a new table, or opens it.
    pub(super) fn create_directory(&self, name: &str) -> io::Result<Arc<dyn Dir>> {
        let dir = self.tables_dir.open_dir(name, true)?;
        let mut state = lock(&self.directories.0);
        if matches!(*state, DirectorySyncState::Synced) {
            *state = DirectorySyncState::Unsynced;
        }
        Ok(dir)
    }

    /// Makes the names of all tables' directories durable. A failed sync is final: the caller lets
    /// the database take no more writes.
    pub(crate) fn sync_directories(&self) -> Result<()> {
        let mut state = lock(&self.directories.0);
        if matches!(*state, DirectorySyncState::Unsynced) {
            let synced = mutant!(TableDirectoryUnsynced: Ok(()), else self.tables_dir.sync());
            synced.map_err(|error| Error::io("sync tables", error))?;
            *state = DirectorySyncState::Synced;
        }
        Ok(())
    }

    /// Opens the directory of a table. A table without a checkpoint in the catalog has no files
    /// that matter, so its directory may be missing after a power loss.
    fn open_directory(&self, id: u64, complete: Lsn) -> Result<Arc<dyn Dir>> {
        let name = id.to_string();
        let io_error = |error| Error::io(format!("open tables/{name}"), error);
        match self.tables_dir.open_dir(&name, false) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(error)),
            Err(_) if complete > Lsn(0) => Err(missing(id)),
            Err(_) if self.read_only => {
                Ok(Arc::new(AbsentDir::new(self.tables_dir.path().join(name))))
            }
            Err(_) => self.create_directory(&name).map_err(io_error),
            Ok(dir) => Ok(dir),
        }
    }

    /// Fails with [`Error::Corruption`] if the directory of a table with a checkpoint is missing.
    pub(crate) fn check_directories(&self, catalog: &Catalog) -> Result<()> {
        let entries = self.tables_dir.list().map_err(|error| Error::io("list tables", error))?;
        let names: HashSet<_> = entries.into_iter().map(|entry| entry.name).collect();
        let lost = |tree: &CatalogTree| {
            let ids = tree.table_ids();
            ids.into_iter().find(|id| {
                let is_complete = tree.table(*id).is_some_and(|node| node.complete > Lsn(0));
                is_complete && !names.contains(&id.to_string())
            })
        };
        catalog.with_tree(lost).map_or(Ok(()), |id| Err(missing(id)))
    }

    /// Opens a table's engine in the directory of its number, and lets the budget reclaim its
    /// memory. Fails with [`Error::Corruption`] if the directory is missing, or if its files are
    /// complete to less than the catalog says.
    pub(crate) fn load(&self, id: u64, node: &TableNode) -> Result<Arc<TableState>> {
        let name = id.to_string();
        let dir = self.open_directory(id, node.complete)?;
        let options = node.record.options()?;
        let hash = KeyHash::new(node.record.seed);
        let context = Context {
            env: Arc::clone(&self.env),
            dir,
            database_id: self.database_id,
            table_id: id,
            hash,
            budget: Arc::clone(&self.budget),
            host: Arc::clone(&self.host) as Arc<dyn Host>,
            read_only: self.read_only,
            complete: node.complete,
        };
        let (engine, lsn) = AnyEngine::open(&options, context)?;
        if lsn < node.complete {
            let what = format!(
                "the files are complete to LSN {lsn}, the catalog says {}: missing or older",
                node.complete
            );
            return Err(Error::corruption(format!("tables/{name}"), 0, what));
        }
        let merge = options.merge_operator().map(|name| self.merge_operators.find(name));
        let optional = (node.types.clone(), merge);
        let table = Arc::new(TableState::new(id, options.kind(), hash, engine, lsn, optional));
        self.budget.register_reclaimable(Arc::downgrade(&table) as Weak<dyn Reclaimable>);
        Ok(table)
    }
}

fn missing(id: u64) -> Error {
    Error::corruption(format!("tables/{id}"), 0, "the directory is missing")
}
