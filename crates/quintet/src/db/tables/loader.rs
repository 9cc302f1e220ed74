//! The loader of tables: it opens a table's engine in the directory of the table's number.

use std::{collections::HashMap, io, sync::Arc};

use super::{host::DatabaseHost, state::TableState};
use crate::{
    Error, Result,
    contract::{Context, Host},
    db::catalog::{
        Catalog,
        tree::{CatalogTree, TableNode},
    },
    engine::AnyEngine,
    io::{Dir, Env},
    util::{budget::Budget, codec::KeyHash},
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
}

impl TableLoader {
    /// Opens the engines of all tables of the catalog, and returns the tables by number.
    pub(crate) fn load_all(&self, catalog: &Catalog) -> Result<HashMap<u64, Arc<TableState>>> {
        let mut tables = HashMap::new();
        for (id, node) in catalog.with_tree(CatalogTree::open_tables) {
            let state = self.load(id, &node)?;
            if state.persisted() < node.complete {
                let what = format!(
                    "the files are complete to LSN {}, the catalog says {}: missing or older",
                    state.persisted(),
                    node.complete
                );
                return Err(Error::corruption(format!("tables/{id}"), 0, what));
            }
            tables.insert(id, Arc::new(state));
        }
        Ok(tables)
    }

    /// Opens a table's engine in the directory of its number.
    pub(crate) fn load(&self, id: u64, node: &TableNode) -> Result<TableState> {
        let name = id.to_string();
        let dir = self.tables_dir.open_dir(&name, false).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::corruption(format!("tables/{name}"), 0, "the directory is missing")
            }
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
        Ok(TableState::new(id, options.kind(), hash, engine, lsn, node.types.clone()))
    }
}
