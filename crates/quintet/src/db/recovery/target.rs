//! The tables that the log is replayed into. A table is opened at the first record that the catalog
//! does not record as complete, so opening a database reads no table that needs no record.

use std::{collections::HashMap, sync::Arc};

use crate::{
    Error, Result,
    db::{
        catalog::{
            Catalog,
            tree::{CatalogTree, TableNode},
        },
        tables::{loader::TableLoader, state::TableState},
    },
    util::{codec::Lsn, sync::OnceLock},
};

/// The tables of a catalog, some of them open.
pub(super) struct ReplayTarget<'a> {
    tables: HashMap<u64, ReplayTable>,
    loader: &'a TableLoader,
    /// The first number that no table ever had.
    next_id: u64,
    index: Option<Arc<TableState>>,
}

/// A table that the log is replayed into.
pub(super) struct ReplayTable {
    pub(super) id: u64,
    node: TableNode,
    state: OnceLock<Arc<TableState>>,
}

impl ReplayTable {
    /// Returns the LSN that the table's files are complete to, as far as it is known.
    pub(super) fn complete(&self) -> Lsn {
        self.state.get().map_or(self.node.complete, |state| state.persisted())
    }

    /// Returns the table if it is open.
    pub(super) fn state(&self) -> Option<&TableState> {
        self.state.get().map(|state| &**state)
    }
}

impl<'a> ReplayTarget<'a> {
    /// Returns the tables of `catalog`. Opens only the expiry index, which every replayed value
    /// that expires needs.
    pub(super) fn new(catalog: &Catalog, loader: &'a TableLoader) -> Result<Self> {
        let tables = catalog.with_tree(|tree| {
            let table = |id| {
                let node = tree.table(id)?.clone();
                Some((id, ReplayTable { id, node, state: OnceLock::new() }))
            };
            tree.table_ids().into_iter().filter_map(table).collect()
        });
        let next_id = catalog.with_tree(CatalogTree::next_id);
        let mut target = Self { tables, loader, next_id, index: None };
        let index = catalog.with_tree(CatalogTree::expiry_index);
        if let Some(table) = index.and_then(|id| target.tables.get(&id)) {
            target.open(table)?;
            target.index = table.state.get().cloned();
        }
        Ok(target)
    }

    /// Returns whether there ever was a table with a number.
    pub(super) fn had(&self, id: u64) -> bool {
        id < self.next_id
    }

    /// Returns the table with a number. `None`: it was dropped.
    pub(super) fn find(&self, id: u64) -> Option<&ReplayTable> {
        self.tables.get(&id)
    }

    /// Opens a table if it is not open.
    pub(super) fn open<'t>(&self, table: &'t ReplayTable) -> Result<&'t TableState> {
        if table.state.get().is_none() {
            let state = self.loader.load(table.id, &table.node)?;
            let _ = table.state.set(state);
        }
        table.state().ok_or(Error::Closed)
    }

    /// Returns the expiry index.
    pub(super) fn index(&self) -> Option<&TableState> {
        self.index.as_deref()
    }

    /// Returns whether an engine lacks memory and cannot write to its files yet.
    pub(super) fn lacks_memory(&self) -> bool {
        self.loader.host.lacks_replay_memory()
    }

    /// Returns the tables that are open.
    pub(super) fn open_tables(&self) -> impl Iterator<Item = &TableState> {
        self.tables.values().filter_map(ReplayTable::state)
    }

    /// Returns all tables.
    pub(super) fn tables(&self) -> impl Iterator<Item = &ReplayTable> {
        self.tables.values()
    }

    /// Returns the open tables by number, and the expiry index.
    pub(super) fn into_open_tables(
        self,
    ) -> (HashMap<u64, Arc<TableState>>, Option<Arc<TableState>>) {
        let open = |(id, table): (u64, ReplayTable)| Some((id, table.state.get().cloned()?));
        (self.tables.into_iter().filter_map(open).collect(), self.index)
    }
}
