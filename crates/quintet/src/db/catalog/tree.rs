//! The tree of names in memory.
//!
//! Nodes have numbers that are never reused. A node stores its parent and its name there, so moving
//! or removing a subtree changes one node. A directory exists as long as it has children or default
//! options.
//!
//! The expiry index is a table outside the tree: it has a number, and for messages a name that no
//! table can have, but no directory lists it. It is created with the first value that expires and
//! stays.
//!
//! Invariants: the root is number 0; the parent of every other node, except the expiry index, is a
//! directory that lists it; there are no cycles; numbers are below `next_id`.
//! [`CatalogTree::apply`] refuses a change that would break one, because its bytes may be damaged.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashMap};

use super::{
    edit::{CatalogChange, MountRecord, Progress, TableDefaults, TableDefinition},
    mutants,
};
use crate::{
    Error, Result,
    db::limits::{NAME_BYTES_MAX, NAME_DEPTH_MAX},
    util::{codec::Lsn, mutant::mutant, types::TableTypes},
};

/// The number of the root directory.
pub(super) const ROOT: u64 = 0;
/// The expiry index's name, for messages.
pub(crate) const EXPIRY_INDEX_NAME: &str = ".expiry";

#[derive(Debug)]
pub(super) struct CatalogNode {
    parent: u64,
    name: String,
    pub(super) content: NodeContent,
}

#[derive(Debug)]
pub(super) enum NodeContent {
    Directory(Directory),
    Table(Box<TableNode>),
    Mount(Box<MountRecord>),
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) children: BTreeMap<String, u64>,
    pub(super) defaults: Option<Box<TableDefaults>>,
}

/// The catalog's record of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableNode {
    pub(crate) record: TableDefinition,
    /// The LSN that the files were complete to when it was last recorded.
    pub(crate) complete: Lsn,
    /// The types of keys and values, if they are fixed.
    pub(crate) types: Option<TableTypes>,
}

/// The names, the tables' records and the log's bounds.
#[derive(Debug)]
pub(crate) struct CatalogTree {
    pub(super) nodes: HashMap<u64, CatalogNode>,
    next_id: u64,
    expiry_index: Option<u64>,
    pub(crate) log_start: Lsn,
    pub(crate) log_durable: Lsn,
}

/// Why a change is impossible.
pub(crate) type Refusal = &'static str;

impl Default for CatalogTree {
    fn default() -> Self {
        let content = NodeContent::Directory(Directory::default());
        let root = CatalogNode { parent: ROOT, name: String::new(), content };
        Self {
            nodes: HashMap::from([(ROOT, root)]),
            next_id: ROOT + 1,
            expiry_index: None,
            log_start: Lsn(0),
            log_durable: Lsn(0),
        }
    }
}

impl CatalogTree {
    /// Returns the first number that was never used.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Returns whether there ever was a table or a directory.
    pub(crate) fn had_nodes(&self) -> bool {
        self.next_id > ROOT + 1
    }

    /// Applies a change.
    pub(crate) fn apply(&mut self, change: &CatalogChange) -> Result<(), Refusal> {
        match change {
            CatalogChange::AddDirectory { id, parent, name } => {
                self.add(*id, *parent, name, NodeContent::Directory(Directory::default()))
            }
            CatalogChange::AddTable { id, parent, name, table } => {
                let node = TableNode { record: table.clone(), complete: Lsn(0), types: None };
                self.add(*id, *parent, name, NodeContent::Table(Box::new(node)))
            }
            CatalogChange::Move { id, parent, name } => self.relocate(*id, *parent, name),
            CatalogChange::Remove { id } => self.remove(*id),
            CatalogChange::Progress(progress) => {
                self.progress(progress);
                Ok(())
            }
            CatalogChange::Types { id, types } => {
                match self.nodes.get_mut(id).map(|node| &mut node.content) {
                    Some(NodeContent::Table(table)) if table.types.is_none() => {
                        table.types = Some(types.clone());
                        Ok(())
                    }
                    Some(NodeContent::Table(_)) => Err("a table's types are fixed twice"),
                    _ => Err("a change fixes the types of a node that is no table"),
                }
            }
            CatalogChange::AddMount { id, parent, name, mount } => {
                self.add(*id, *parent, name, NodeContent::Mount(Box::new(mount.clone())))
            }
            CatalogChange::AddExpiryIndex { id, table } => self.add_expiry_index(*id, table),
            CatalogChange::Defaults { id, defaults } => {
                self.directory(*id)?.defaults = defaults.clone().map(Box::new);
                Ok(())
            }
            CatalogChange::NextId { id } => {
                self.next_id = self.next_id.max(*id);
                Ok(())
            }
        }
    }

    fn directory(&mut self, id: u64) -> Result<&mut Directory, Refusal> {
        match self.nodes.get_mut(&id).map(|node| &mut node.content) {
            Some(NodeContent::Directory(directory)) => Ok(directory),
            _ => Err("a change needs a directory, and its node is none"),
        }
    }

    fn children(&mut self, id: u64) -> Result<&mut BTreeMap<String, u64>, Refusal> {
        Ok(&mut self.directory(id)?.children)
    }

    fn attach(&mut self, id: u64, parent: u64, name: &str) -> Result<(), Refusal> {
        check_component(name).map_err(|_| "a name is outside its limits")?;
        let children = self.children(parent)?;
        if children.contains_key(name) {
            return Err("two nodes have one name");
        }
        children.insert(name.to_owned(), id);
        Ok(())
    }

    fn add(
        &mut self,
        id: u64,
        parent: u64,
        name: &str,
        content: NodeContent,
    ) -> Result<(), Refusal> {
        if self.nodes.contains_key(&id) || id == u64::MAX {
            return Err("a node's number is used twice");
        }
        self.attach(id, parent, name)?;
        self.nodes.insert(id, CatalogNode { parent, name: name.to_owned(), content });
        self.next_id = self.next_id.max(id + 1);
        Ok(())
    }

    fn add_expiry_index(&mut self, id: u64, table: &TableDefinition) -> Result<(), Refusal> {
        if self.expiry_index.is_some() {
            return Err("there are two expiry indexes");
        }
        if self.nodes.contains_key(&id) || id == u64::MAX {
            return Err("a node's number is used twice");
        }
        let table = TableNode { record: table.clone(), complete: Lsn(0), types: None };
        let (name, content) = (EXPIRY_INDEX_NAME.to_owned(), NodeContent::Table(Box::new(table)));
        self.nodes.insert(id, CatalogNode { parent: ROOT, name, content });
        self.next_id = self.next_id.max(id + 1);
        self.expiry_index = Some(id);
        Ok(())
    }

    fn detach(&mut self, id: u64) -> Result<(), Refusal> {
        if id == ROOT {
            return Err("the root does not move");
        }
        let node = self.nodes.get(&id).ok_or("a change names a node that does not exist")?;
        let (parent, name) = (node.parent, node.name.clone());
        self.children(parent)?.remove(&name);
        Ok(())
    }

    fn relocate(&mut self, id: u64, parent: u64, name: &str) -> Result<(), Refusal> {
        if self.lineage(parent).any(|ancestor| ancestor == id) {
            return Err("a directory would move into itself");
        }
        self.children(parent)?;
        self.detach(id)?;
        self.attach(id, parent, name)?;
        if let Some(node) = self.nodes.get_mut(&id) {
            node.parent = parent;
            name.clone_into(&mut node.name);
        }
        Ok(())
    }

    fn remove(&mut self, id: u64) -> Result<(), Refusal> {
        self.detach(id)?;
        for id in self.below(id) {
            self.nodes.remove(&id);
        }
        mutant!(CatalogReusesTableId => self.next_id = mutants::id_after(self.nodes.keys()));
        Ok(())
    }

    fn progress(&mut self, progress: &Progress) {
        self.log_start = self.log_start.max(progress.log_start);
        self.log_durable = self.log_durable.max(progress.log_durable);
        for (id, lsn) in &progress.tables {
            if let Some(CatalogNode { content: NodeContent::Table(table), .. }) =
                self.nodes.get_mut(id)
            {
                table.complete = table.complete.max(*lsn);
            }
        }
    }

    /// Returns a node and its ancestors, without the root.
    fn lineage(&self, id: u64) -> impl Iterator<Item = u64> {
        let mut next = id;
        std::iter::from_fn(move || {
            let id = next;
            next = self.nodes.get(&id).filter(|_| id != ROOT)?.parent;
            Some(id)
        })
    }

    /// Returns a node and all nodes below it, parents first.
    pub(super) fn below(&self, id: u64) -> Vec<u64> {
        let mut found = vec![id];
        let mut next = 0;
        while let Some(id) = found.get(next).copied() {
            next += 1;
            if let Some(CatalogNode { content: NodeContent::Directory(directory), .. }) =
                self.nodes.get(&id)
            {
                found.extend(directory.children.values());
            }
        }
        found
    }

    /// Returns the node at `path`.
    pub(crate) fn find(&self, path: &str) -> Option<u64> {
        path.split('/').try_fold(ROOT, |id, name| match &self.nodes.get(&id)?.content {
            NodeContent::Directory(directory) => directory.children.get(name).copied(),
            NodeContent::Table(_) | NodeContent::Mount(_) => None,
        })
    }

    /// Returns the table at `path`.
    pub(crate) fn find_table(&self, path: &str) -> Option<u64> {
        self.find(path).filter(|id| self.table(*id).is_some())
    }

    /// Returns a table's record.
    pub(crate) fn table(&self, id: u64) -> Option<&TableNode> {
        match &self.nodes.get(&id)?.content {
            NodeContent::Table(table) => Some(table),
            NodeContent::Directory(_) | NodeContent::Mount(_) => None,
        }
    }

    /// Returns the number of the expiry index, if it exists.
    pub(crate) fn expiry_index(&self) -> Option<u64> {
        self.expiry_index
    }

    /// Returns the edit that creates the expiry index, and its number.
    pub(crate) fn plan_expiry_index(&self, table: TableDefinition) -> (Vec<CatalogChange>, u64) {
        if let Some(id) = self.expiry_index {
            return (Vec::new(), id);
        }
        let id = self.next_id;
        (vec![CatalogChange::AddExpiryIndex { id, table }], id)
    }

    /// Returns the path of a node.
    pub(crate) fn path(&self, id: u64) -> Option<String> {
        let mut names: Vec<_> = self
            .lineage(id)
            .filter_map(|id| self.nodes.get(&id))
            .map(|node| node.name.as_str())
            .collect();
        names.reverse();
        (!names.is_empty()).then(|| names.join("/"))
    }

    /// Returns every table at or below a node, with its path, sorted by path.
    pub(crate) fn tables_below(&self, id: u64) -> Vec<(String, u64)> {
        let mut tables: Vec<_> = self
            .below(id)
            .into_iter()
            .filter(|id| self.table(*id).is_some())
            .filter_map(|id| Some((self.path(id)?, id)))
            .collect();
        tables.sort_unstable();
        tables
    }

    /// Returns every table with its path, sorted by path.
    pub(crate) fn tables(&self) -> Vec<(String, u64)> {
        self.tables_below(ROOT)
    }

    /// Returns the number of tables, without the expiry index.
    pub(crate) fn table_count(&self) -> usize {
        let is_table = |node: &&CatalogNode| matches!(node.content, NodeContent::Table(_));
        let tables = self.nodes.values().filter(is_table).count();
        tables - usize::from(self.expiry_index.is_some())
    }

    /// Returns the changes that create the missing directories above the last component of `path`,
    /// then the parent, number and name of a new node there. Numbers start at `next_id`.
    pub(super) fn plan_parents<'a>(
        &self,
        path: &'a str,
    ) -> Result<(Vec<CatalogChange>, u64, u64, &'a str)> {
        check_path(path)?;
        let (above, last) = path.rsplit_once('/').unwrap_or(("", path));
        let (mut changes, mut parent, mut next_id) = (Vec::new(), ROOT, self.next_id);
        for name in above.split('/').filter(|name| !name.is_empty()) {
            match self.nodes.get(&parent).map(|node| &node.content) {
                Some(NodeContent::Table(_) | NodeContent::Mount(_)) => {
                    let name = self.path(parent).unwrap_or_default();
                    return Err(Error::TableExists { name });
                }
                Some(NodeContent::Directory(directory))
                    if directory.children.contains_key(name) =>
                {
                    parent = directory.children.get(name).copied().unwrap_or(ROOT);
                }
                _ => {
                    let id = next_id;
                    next_id += 1;
                    changes.push(CatalogChange::AddDirectory { id, parent, name: name.to_owned() });
                    parent = id;
                }
            }
        }
        if self.find(above).is_some_and(|id| !self.is_directory(id)) {
            return Err(Error::TableExists { name: above.to_owned() });
        }
        if self.find(path).is_some() {
            return Err(Error::TableExists { name: path.to_owned() });
        }
        Ok((changes, parent, next_id, last))
    }

    /// Returns the edit that creates a table, and the table's number.
    pub(crate) fn plan_create(
        &self,
        path: &str,
        table: TableDefinition,
        types: Option<TableTypes>,
    ) -> Result<(Vec<CatalogChange>, u64)> {
        let (mut changes, parent, id, name) = self.plan_parents(path)?;
        changes.push(CatalogChange::AddTable { id, parent, name: name.to_owned(), table });
        changes.extend(types.map(|types| CatalogChange::Types { id, types }));
        Ok((changes, id))
    }

    /// Returns the edit that moves a table or a directory to another path.
    pub(crate) fn plan_rename(&self, from: &str, to: &str) -> Result<Vec<CatalogChange>> {
        let id = self.find_existing(from)?;
        let (mut changes, parent, _, name) = self.plan_parents(to)?;
        if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            let what = format!("{from:?} cannot be moved into itself ({to:?})");
            return Err(Error::Limit { what });
        }
        let (depth_from, depth_to) = (depth(from), depth(to));
        if depth_to > depth_from {
            let deepest = self
                .below(id)
                .into_iter()
                .map(|id| self.lineage(id).count())
                .max()
                .unwrap_or(depth_from);
            check_depth(to, deepest + depth_to - depth_from)?;
        }
        // Directories that become empty are removed, except those that contain the new path.
        let entered = match changes.first() {
            Some(CatalogChange::AddDirectory { parent, .. }) => *parent,
            _ => parent,
        };
        let kept: Vec<u64> = self.lineage(entered).collect();
        changes.push(CatalogChange::Move { id, parent, name: name.to_owned() });
        changes.extend(self.emptied_by(id, &kept));
        Ok(changes)
    }

    /// Returns the edit that replaces a table by an empty one with the same name, options and
    /// types. Returns its number and its node with it. `None`: there is no such table.
    pub(super) fn plan_clear(&self, id: u64) -> Option<(Vec<CatalogChange>, (u64, TableNode))> {
        let node = self.nodes.get(&id)?;
        let table = self.table(id)?;
        let (next, record, types) = (self.next_id, table.record.clone(), table.types.clone());
        let (parent, name) = (node.parent, node.name.clone());
        let add = CatalogChange::AddTable { id: next, parent, name, table: record.clone() };
        let mut changes = vec![CatalogChange::Remove { id }, add];
        let fixed = types.clone().map(|types| CatalogChange::Types { id: next, types });
        mutant!(ClearForgetsTypes: (), else changes.extend(fixed));
        Some((changes, (next, TableNode { record, complete: Lsn(0), types })))
    }

    /// Returns the edit that removes a node and everything below it.
    pub(crate) fn plan_remove(&self, id: u64) -> Vec<CatalogChange> {
        let emptied = self.emptied_by(id, &[]);
        if emptied.is_some() {
            emptied.into_iter().collect()
        } else {
            vec![CatalogChange::Remove { id }]
        }
    }

    /// Returns the removal of the highest directory that holds nothing but `id` and is not in
    /// `kept`.
    pub(super) fn emptied_by(&self, id: u64, kept: &[u64]) -> Option<CatalogChange> {
        let emptied = self
            .lineage(id)
            .skip(1)
            .take_while(|ancestor| {
                let alone = match self.nodes.get(ancestor).map(|node| &node.content) {
                    Some(NodeContent::Directory(directory)) => {
                        directory.children.len() == 1 && directory.defaults.is_none()
                    }
                    _ => false,
                };
                alone && !kept.contains(ancestor)
            })
            .last()?;
        Some(CatalogChange::Remove { id: emptied })
    }

    /// Returns the node at `path`, or [`Error::NoSuchTable`].
    pub(crate) fn find_existing(&self, path: &str) -> Result<u64> {
        self.find(path).ok_or_else(|| Error::NoSuchTable { name: path.to_owned() })
    }

    /// Returns the changes that build this tree, parents first.
    pub(crate) fn dump(&self) -> Vec<CatalogChange> {
        let mut changes = vec![CatalogChange::NextId { id: self.next_id }];
        if let Some(defaults) = self.own_defaults(ROOT).cloned() {
            changes.push(CatalogChange::Defaults { id: ROOT, defaults: Some(defaults) });
        }
        let mut progress = Progress {
            log_start: self.log_start,
            log_durable: self.log_durable,
            tables: Vec::new(),
        };
        for id in self.below(ROOT).into_iter().skip(1).chain(self.expiry_index) {
            let Some(node) = self.nodes.get(&id) else { continue };
            let (parent, name) = (node.parent, node.name.clone());
            match &node.content {
                NodeContent::Directory(directory) => {
                    changes.push(CatalogChange::AddDirectory { id, parent, name });
                    let defaults = directory.defaults.as_deref().cloned();
                    changes.extend(
                        defaults.map(|it| CatalogChange::Defaults { id, defaults: Some(it) }),
                    );
                }
                NodeContent::Mount(mount) => {
                    let mount = MountRecord::clone(mount);
                    changes.push(CatalogChange::AddMount { id, parent, name, mount });
                }
                NodeContent::Table(table) if self.expiry_index == Some(id) => {
                    progress.tables.push((id, table.complete));
                    changes.push(CatalogChange::AddExpiryIndex { id, table: table.record.clone() });
                }
                NodeContent::Table(table) => {
                    progress.tables.push((id, table.complete));
                    let types = table.types.clone();
                    let table = table.record.clone();
                    changes.push(CatalogChange::AddTable { id, parent, name, table });
                    changes.extend(types.map(|types| CatalogChange::Types { id, types }));
                }
            }
        }
        changes.push(CatalogChange::Progress(progress));
        changes
    }
}

fn depth(path: &str) -> usize {
    path.split('/').count()
}

fn check_depth(path: &str, depth: usize) -> Result<()> {
    if depth <= NAME_DEPTH_MAX {
        return Ok(());
    }
    let what = format!("{path:?} is {depth} names deep; paths have at most {NAME_DEPTH_MAX}");
    Err(Error::Limit { what })
}

/// Fails with [`Error::Limit`] if a component or the depth of a path is outside its limits.
pub(crate) fn check_path(path: &str) -> Result<()> {
    check_depth(path, depth(path))?;
    path.split('/').try_for_each(check_component)
}

fn check_component(name: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let sized = (1..=NAME_BYTES_MAX).contains(&name.len());
    if sized && !name.starts_with('.') && name.bytes().all(allowed) {
        return Ok(());
    }
    let what = format!(
        "{name:?} is not a name: each name of a path has 1 to {NAME_BYTES_MAX} of the characters \
         A-Z a-z 0-9 _ . - and does not start with a dot"
    );
    Err(Error::Limit { what })
}
