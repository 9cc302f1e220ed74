//! The loader of tables: it opens a table's engine in the directory of the table's number.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, Weak},
};

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
        codec::KeyHash,
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
}

impl TableLoader {
    /// Fails with [`Error::Corruption`] if the directory of a table is missing.
    pub(crate) fn check_directories(&self, catalog: &Catalog) -> Result<()> {
        let entries = self.tables_dir.list().map_err(|error| Error::io("list tables", error))?;
        let names: HashSet<_> = entries.into_iter().map(|entry| entry.name).collect();
        let ids = catalog.with_tree(CatalogTree::table_ids);
        match ids.iter().find(|id| !names.contains(&id.to_string())) {
            Some(id) => Err(missing(*id)),
            None => Ok(()),
        }
    }

    /// Opens a table's engine in the directory of its number, and lets the budget reclaim its
    /// memory. Fails with [`Error::Corruption`] if the directory is missing, or if its files are
    /// complete to less than the catalog says.
    pub(crate) fn load(&self, id: u64, node: &TableNode) -> Result<Arc<TableState>> {
        let name = id.to_string();
        let dir = self.tables_dir.open_dir(&name, false).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing(id),
            _ => Error::io(format!("open tables/{name}"), error),
        })?;
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
