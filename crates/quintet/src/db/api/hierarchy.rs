//! Tables as a hierarchy: the content of directories, and the default options of tables in them.

use super::{
    database::{Database, TableInfo},
    table::Table,
};
use crate::{
    Error, Result,
    contract::{EngineKind, TableOptions},
    db::catalog::{
        edit::TableDefaults,
        paths::{NodeKind, ResolvedPath},
        tree::check_path,
    },
    engine::check_table_options,
};

/// Checks the path of a new table, as [`Database::create_table`] does. Needs no database.
///
/// Fails with [`Error::Limit`] if a name or the depth is outside its limits.
pub fn check_table_path(path: &str) -> Result<()> {
    check_path(path)
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The name, without the directory's path.
    pub name: String,
    /// The kind of the name.
    pub kind: ChildKind,
}

/// The kind of a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildKind {
    /// A directory: more names are below it.
    Directory,
    /// A table of this engine.
    Table(EngineKind),
    /// A directory of another database.
    Mount,
}

impl Database {
    /// Returns the content of the directory `path` (empty: the root), by name. Mounts are followed.
    ///
    /// Fails with [`Error::NoSuchTable`] if there is no such directory, and with [`Error::Mount`]
    /// if it is behind a mount that cannot be opened.
    pub fn children(&self, path: &str) -> Result<Vec<Child>> {
        let core = &self.session.core;
        core.tables.check_open()?;
        if let ResolvedPath::Mount(mount) = core.tables.resolve(path) {
            return self.open_mount(&mount)?.children(&mount.target_path());
        }
        let missing = || Error::NoSuchTable { name: path.to_owned() };
        let children =
            core.tables.catalog.with_tree(|tree| tree.children_of(path)).ok_or_else(missing)?;
        let child = |(name, kind, id)| {
            let kind = match kind {
                NodeKind::Directory => ChildKind::Directory,
                NodeKind::Table => ChildKind::Table(core.tables.kind_of(id)?),
                NodeKind::Mount => ChildKind::Mount,
            };
            Some(Child { name, kind })
        };
        Ok(children.into_iter().filter_map(child).collect())
    }

    /// Returns every table at or below `path` (empty: all), by path, including those behind mounts.
    ///
    /// Fails with [`Error::NoSuchTable`] if the path is neither a table nor a directory, and with
    /// [`Error::Mount`] for a mount that cannot be opened.
    pub fn walk(&self, path: &str) -> Result<Vec<TableInfo>> {
        let core = &self.session.core;
        core.tables.check_open()?;
        if let ResolvedPath::Mount(mount) = core.tables.resolve(path) {
            let target = self.open_mount(&mount)?;
            let mut found = target.walk(&mount.target_path())?;
            for table in &mut found {
                table.name = mount.shown_path(&table.name);
            }
            return Ok(found);
        }
        let mut found = if path.is_empty() { self.tables() } else { self.tables_in(path)? };
        for (name, _) in core.tables.catalog.with_tree(|tree| tree.mounts_below(path)) {
            match self.walk(&name) {
                // The mounted directory has no tables yet.
                Err(Error::NoSuchTable { .. }) => {}
                below => found.extend(below?),
            }
        }
        found.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(found)
    }

    /// Sets the options of tables that [`Database::create_default_table`] creates in the directory
    /// `path` (empty: the root) and below; `None` removes them. A directory with options exists
    /// although it is empty. Durable when the call returns.
    ///
    /// Fails with [`Error::TableExists`] if the path is a table, with [`Error::NoSuchTable`] if
    /// options are removed from a missing directory, and as [`Database::create_table`] for invalid
    /// options. A refused call changes nothing.
    pub fn set_default_options(&self, path: &str, options: Option<&TableOptions>) -> Result<()> {
        let core = &self.session.core;
        core.tables.prepare_edit()?;
        if let ResolvedPath::Mount(mount) = core.tables.resolve(path) {
            let target = self.open_mount(&mount)?;
            return target.set_default_options(&mount.target_path(), options);
        }
        if !path.is_empty() {
            check_path(path)?;
        }
        if let Some(options) = options {
            check_table_options(options)?;
        }
        core.tables.catalog.set_defaults(path, options.map(TableDefaults::new))?;
        core.tables.report_edits();
        Ok(())
    }

    /// Returns the default options of a table created at `path`: those of the nearest directory
    /// above it that has some.
    pub fn default_options(&self, path: &str) -> Result<Option<TableOptions>> {
        let core = &self.session.core;
        core.tables.check_open()?;
        if let ResolvedPath::Mount(mount) = core.tables.resolve(path) {
            return self.open_mount(&mount)?.default_options(&mount.target_path());
        }
        core.tables
            .catalog
            .with_tree(|tree| tree.defaults_at(path).map(TableDefaults::options))
            .transpose()
    }

    /// Creates a table with the default options of its directory. Otherwise as
    /// [`Database::create_table`]. Fails with [`Error::InvalidOption`] if no directory above it has
    /// default options.
    pub fn create_default_table(&self, path: &str) -> Result<Table> {
        let options = self.default_options(path)?.ok_or_else(|| Error::InvalidOption {
            name: "engine".to_owned(),
            what: format!(
                "no directory above {path:?} has default options; name an engine (--engine)"
            ),
        })?;
        self.create_table(path, options)
    }
}
