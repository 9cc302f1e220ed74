//! Directories, their children and default options, and mounts in the tree.
//!
//! A mount is a leaf of this tree. Everything below it belongs to another database, see
//! `db::api::session`.

#![deny(clippy::indexing_slicing)]

use super::{
    edit::{CatalogChange, MountRecord, TableDefaults},
    tree::{CatalogNode, CatalogTree, NodeContent, ROOT},
};
use crate::{Error, Result};

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedPath {
    /// This database: a node, or nothing.
    Local,
    /// A mount, or a path through it.
    Mount(MountedPath),
}

/// A path to or through a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountedPath {
    /// The mount's node.
    pub(crate) id: u64,
    /// The mount's path.
    pub(crate) path: String,
    /// The mounted target.
    pub(crate) record: MountRecord,
    /// The remaining path; empty: the mount itself.
    pub(crate) remainder: String,
}

impl MountedPath {
    /// Returns the path in the mounted database.
    pub(crate) fn target_path(&self) -> String {
        join(&self.record.subtree, &self.remainder)
    }

    /// Converts a path of the mounted database to a path of the database that mounts it.
    pub(crate) fn shown_path(&self, path: &str) -> String {
        let below = path.strip_prefix(&self.record.subtree).unwrap_or(path);
        join(&self.path, below.trim_start_matches('/'))
    }
}

fn join(above: &str, below: &str) -> String {
    match (above.is_empty(), below.is_empty()) {
        (true, _) => below.to_owned(),
        (_, true) => above.to_owned(),
        (false, false) => format!("{above}/{below}"),
    }
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// A directory.
    Directory,
    /// A table.
    Table,
    /// A mount.
    Mount,
}

impl CatalogTree {
    fn content(&self, id: u64) -> Option<&NodeContent> {
        self.nodes.get(&id).map(|node| &node.content)
    }

    pub(super) fn is_directory(&self, id: u64) -> bool {
        matches!(self.content(id), Some(NodeContent::Directory(_)))
    }

    /// Returns the directory, table or mount at `path`; the empty path is the root.
    fn find_any(&self, path: &str) -> Option<u64> {
        if path.is_empty() { Some(ROOT) } else { self.find(path) }
    }

    /// Returns whether `path` leads to or through a mount.
    pub(crate) fn resolve(&self, path: &str) -> ResolvedPath {
        let mut id = ROOT;
        let mut end = 0;
        for name in path.split('/') {
            let Some(NodeContent::Directory(directory)) = self.content(id) else { break };
            let Some(child) = directory.children.get(name) else { break };
            id = *child;
            end += name.len();
            if let Some(NodeContent::Mount(record)) = self.content(id) {
                let (above, rest) = path.split_at_checked(end).unwrap_or((path, ""));
                return ResolvedPath::Mount(MountedPath {
                    id,
                    path: above.to_owned(),
                    record: MountRecord::clone(record),
                    remainder: rest.strip_prefix('/').unwrap_or(rest).to_owned(),
                });
            }
            end += 1;
        }
        ResolvedPath::Local
    }

    /// Returns the names in a directory with their kinds and numbers, by name. `None`: there is no
    /// such directory.
    pub(crate) fn children_of(&self, path: &str) -> Option<Vec<(String, NodeKind, u64)>> {
        let Some(NodeContent::Directory(directory)) = self.content(self.find_any(path)?) else {
            return None;
        };
        let kind = |id| match self.content(id)? {
            NodeContent::Directory(_) => Some(NodeKind::Directory),
            NodeContent::Table(_) => Some(NodeKind::Table),
            NodeContent::Mount(_) => Some(NodeKind::Mount),
        };
        let children = directory.children.iter();
        Some(children.filter_map(|(name, id)| Some((name.clone(), kind(*id)?, *id))).collect())
    }

    /// Returns every mount at or below `path`, by path.
    pub(crate) fn mounts_below(&self, path: &str) -> Vec<(String, MountRecord)> {
        let Some(top) = self.find_any(path) else { return Vec::new() };
        let mut mounts: Vec<_> = self
            .below(top)
            .into_iter()
            .filter_map(|id| match self.nodes.get(&id) {
                Some(CatalogNode { content: NodeContent::Mount(record), .. }) => {
                    Some((self.path(id)?, MountRecord::clone(record)))
                }
                _ => None,
            })
            .collect();
        mounts.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        mounts
    }

    pub(super) fn own_defaults(&self, id: u64) -> Option<&TableDefaults> {
        match self.content(id)? {
            NodeContent::Directory(directory) => directory.defaults.as_deref(),
            NodeContent::Table(_) | NodeContent::Mount(_) => None,
        }
    }

    /// Returns the default options of the nearest directory at or above `path` that has some.
    pub(crate) fn defaults_at(&self, path: &str) -> Option<&TableDefaults> {
        let mut id = ROOT;
        let mut found = self.own_defaults(id);
        for name in path.split('/') {
            let Some(NodeContent::Directory(directory)) = self.content(id) else { break };
            let Some(child) = directory.children.get(name) else { break };
            id = *child;
            found = self.own_defaults(id).or(found);
        }
        found
    }

    /// Returns the edit that sets the default options of a directory (and creates it if it is
    /// missing), or removes them.
    pub(crate) fn plan_defaults(
        &self,
        path: &str,
        defaults: Option<TableDefaults>,
    ) -> Result<Vec<CatalogChange>> {
        let Some(id) = self.find_any(path) else {
            if defaults.is_none() {
                return Err(Error::NoSuchTable { name: path.to_owned() });
            }
            let (mut changes, parent, id, name) = self.plan_parents(path)?;
            changes.push(CatalogChange::AddDirectory { id, parent, name: name.to_owned() });
            changes.push(CatalogChange::Defaults { id, defaults });
            return Ok(changes);
        };
        let Some(NodeContent::Directory(directory)) = self.content(id) else {
            return Err(Error::TableExists { name: path.to_owned() });
        };
        if defaults.is_none() && directory.children.is_empty() && id != ROOT {
            return Ok(self.plan_remove(id));
        }
        Ok(vec![CatalogChange::Defaults { id, defaults }])
    }

    /// Returns the edit that creates a mount.
    pub(crate) fn plan_mount(&self, path: &str, mount: MountRecord) -> Result<Vec<CatalogChange>> {
        let (mut changes, parent, id, name) = self.plan_parents(path)?;
        changes.push(CatalogChange::AddMount { id, parent, name: name.to_owned(), mount });
        Ok(changes)
    }
}
