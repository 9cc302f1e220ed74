//! The catalog: the names, options and persisted LSNs of tables, and the bounds of the log.
//!
//! One append-only file of checksummed edits ([`file`], [`edit`]) is replayed into a tree of names
//! ([`tree`]) when the database is opened, and rewritten when it is mostly dead. Names change
//! rarely and must never be half changed. Each edit is one synced append, so creating a table, or
//! renaming or dropping a whole subtree, is one disk write, whatever its size.
//!
//! Invariants:
//! - An edit takes effect in memory only after it is durable.
//! - A catalog is created, and replaced, by a synced temporary file and a rename.
//! - Edits are in sequence; the first incomplete one ends the catalog. If the recorded length says
//!   that more edits follow, the catalog is damaged. Otherwise it is the torn end of an edit that
//!   never took effect, and is cut off when the database is opened for writing.
//! - After a failed sync no further edit is accepted, because it is unknown whether the last one
//!   is durable.
//!
//! Threads: any. The file's lock serialises edits; readers of the tree wait only for the change in
//! memory, never for the disk. Lock order: `ARCHITECTURE.md`.
//!
//! The file `catalog`:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QUINTCAT` |
//! | 8 | 4 | version | 1 |
//! | 12 | 4 | | zero |
//! | 16 | 16 | database id | random; in the head of every file of the database |
//! | 32 | 4 | crc | CRC32C of bytes 0 to 31 |
//! | 512 | 20 | length, first | next sequence (8), past the last edit (8), CRC32C of database id and both (4) |
//! | 1024 | 20 | length, second | the same. After an edit's sync the older or torn one of both is written; the next sync makes it durable |
//! | 4096 | | edits | back to back; zeros may follow, which later edits overwrite |
//!
//! Each edit:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | length | bytes of body, 1 to 2^26 |
//! | 4 | 4 | crc | CRC32C of database id, the edit's offset (8), sequence (8), length (8) and body |
//! | 8 | 8 | sequence | one more than the edit before |
//! | 16 | | body | changes, see [`edit`] |

pub(crate) mod edit;
mod file;
mod mutants;
pub(crate) mod paths;
pub(crate) mod tree;

use std::sync::Arc;

use edit::{CatalogChange, MountRecord, Progress, TableDefaults, TableDefinition};
use file::CatalogFile;

pub(crate) use file::{NAME, UNFINISHED_NAME};
use paths::ResolvedPath;
use tree::{CatalogTree, TableNode};

use crate::{
    Error, Result,
    io::{Dir, Open},
    util::{
        codec::Lsn,
        mutant::mutant,
        report::Report,
        sync::{AtomicU64, Mutex, OnceLock, Ordering, RwLock, lock, read, write},
        types::TableTypes,
    },
};

/// The open catalog.
#[derive(Debug)]
pub(crate) struct Catalog {
    dir: Arc<dyn Dir>,
    database_id: [u8; 16],
    read_only: bool,
    /// `None` in a database opened for reading only, and after closing.
    file: Mutex<Option<CatalogFile>>,
    /// Size in bytes of the head and the edits when the catalog was opened.
    opened_bytes: u64,
    tree: RwLock<CatalogTree>,
    /// Number of durable edits since the database was created.
    edits: AtomicU64,
    /// The first failed sync.
    failure: OnceLock<String>,
}

impl Catalog {
    /// Creates the catalog of a new database. Durable when the call returns.
    pub(crate) fn create(dir: &Arc<dyn Dir>, database_id: [u8; 16]) -> Result<Self> {
        let tree = CatalogTree::default();
        let file = CatalogFile::create(dir, database_id, 0, &tree.dump())?;
        Ok(Self {
            dir: Arc::clone(dir),
            database_id,
            read_only: false,
            edits: AtomicU64::new(file.sequence()),
            failure: OnceLock::new(),
            opened_bytes: file.bytes(),
            file: Mutex::new(Some(file)),
            tree: RwLock::new(tree),
        })
    }

    /// Opens the catalog in `dir`; `None` if there is none.
    pub(crate) fn open(dir: &Arc<dyn Dir>, read_only: bool) -> Result<Option<Self>> {
        let Some((contents, tree)) = load(dir)? else { return Ok(None) };
        let file = if read_only {
            None
        } else {
            Some(CatalogFile::resume(dir, &contents, CatalogFile::size_of(&tree.dump()))?)
        };
        Ok(Some(Self {
            dir: Arc::clone(dir),
            database_id: contents.database_id,
            read_only,
            file: Mutex::new(file),
            opened_bytes: contents.file_bytes,
            tree: RwLock::new(tree),
            edits: AtomicU64::new(contents.next_sequence),
            failure: OnceLock::new(),
        }))
    }

    /// Returns the identity of the database.
    pub(crate) fn database_id(&self) -> [u8; 16] {
        self.database_id
    }

    /// Returns the number of durable edits since the database was created.
    pub(crate) fn edits(&self) -> u64 {
        self.edits.load(Ordering::Acquire)
    }

    /// Calls `read_tree` with the tree of names, under its read lock.
    pub(crate) fn with_tree<T>(&self, read_tree: impl FnOnce(&CatalogTree) -> T) -> T {
        read_tree(&read(&self.tree))
    }

    /// Creates a table and its missing directories. `prepare` receives the table's number and runs
    /// before the edit.
    pub(crate) fn create_table(
        &self,
        path: &str,
        record: TableDefinition,
        types: Option<TableTypes>,
        prepare: impl FnOnce(u64) -> Result<()>,
    ) -> Result<u64> {
        self.edit(|tree| {
            let (changes, id) = tree.plan_create(path, record, types)?;
            prepare(id)?;
            Ok((changes, id))
        })
    }

    /// Creates the expiry index. `prepare` receives its number and runs before the edit.
    pub(crate) fn create_expiry_index(
        &self,
        record: TableDefinition,
        prepare: impl FnOnce(u64) -> Result<()>,
    ) -> Result<u64> {
        self.edit(|tree| {
            let (changes, id) = tree.plan_expiry_index(record);
            // An index that exists keeps its directory.
            if !changes.is_empty() {
                prepare(id)?;
            }
            Ok((changes, id))
        })
    }

    /// Replaces a table by an empty one with the same name, options and types. `prepare` receives
    /// its number and its node, and runs before the edit. `then` runs after the edit is durable,
    /// and before any thread can find the new table. Returns the number; `None` if there is no
    /// such table.
    pub(crate) fn clear_table(
        &self,
        id: u64,
        prepare: impl FnOnce(u64, &TableNode) -> Result<()>,
        then: impl FnOnce(),
    ) -> Result<Option<u64>> {
        let plan = |tree: &CatalogTree| {
            let Some((changes, (next, node))) = tree.plan_clear(id) else {
                return Ok((Vec::new(), None));
            };
            prepare(next, &node)?;
            Ok((changes, Some(next)))
        };
        self.edit_and_then(plan, then)
    }

    /// Moves a table or a directory to another path.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.edit(|tree| {
            // A rename to the same path does nothing if the path exists.
            if from == to {
                return tree.find_existing(from).map(|_| (Vec::new(), ()));
            }
            Ok((tree.plan_rename(from, to)?, ()))
        })
    }

    /// Fixes the types of an untyped table, unless `prepare` fails.
    pub(crate) fn fix_types(
        &self,
        id: u64,
        types: &TableTypes,
        prepare: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.edit(|tree| match tree.table(id) {
            Some(TableNode { types: None, .. }) => {
                prepare()?;
                Ok((vec![CatalogChange::Types { id, types: types.clone() }], ()))
            }
            _ => Ok((Vec::new(), ())),
        })
    }

    /// Sets or removes the default options of tables created in a directory.
    pub(crate) fn set_defaults(&self, path: &str, defaults: Option<TableDefaults>) -> Result<()> {
        self.edit(|tree| Ok((tree.plan_defaults(path, defaults)?, ())))
    }

    /// Creates a mount.
    pub(crate) fn mount(&self, path: &str, mount: MountRecord) -> Result<()> {
        self.edit(|tree| Ok((tree.plan_mount(path, mount)?, ())))
    }

    /// Removes the mount at `path` and returns its number.
    pub(crate) fn unmount(&self, path: &str) -> Result<u64> {
        self.edit(|tree| match tree.resolve(path) {
            ResolvedPath::Mount(mount) if mount.remainder.is_empty() => {
                Ok((tree.plan_remove(mount.id), mount.id))
            }
            _ => Err(Error::NoSuchTable { name: path.to_owned() }),
        })
    }

    /// Removes the node at `path` (with `table_only`, only a table) and returns the removed tables.
    pub(crate) fn remove(&self, path: &str, table_only: bool) -> Result<Vec<(String, u64)>> {
        self.edit(|tree| {
            let id = tree.find_existing(path)?;
            if table_only && tree.table(id).is_none() {
                return Err(Error::NoSuchTable { name: path.to_owned() });
            }
            Ok((tree.plan_remove(id), tree.tables_below(id)))
        })
    }

    /// Records how far tables and log are persisted. Tables that were dropped meanwhile are
    /// skipped.
    pub(crate) fn progress(&self, mut progress: Progress) -> Result<()> {
        self.edit(|tree| {
            progress.tables.retain(|(id, _)| tree.table(*id).is_some());
            mutant!(CatalogForgetsWatermark => progress.log_durable = Lsn(0));
            Ok((vec![CatalogChange::Progress(progress)], ()))
        })
    }

    /// Makes the recorded length durable, and refuses later edits, because another process may open
    /// the file next.
    pub(crate) fn close(&self) -> Result<()> {
        lock(&self.file).take().map_or(Ok(()), |mut file| file.sync())
    }

    /// Returns the file's size in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        lock(&self.file).as_ref().map_or(self.opened_bytes, CatalogFile::bytes)
    }

    /// Plans an edit, makes it durable, and then applies it to the tree.
    fn edit<T>(
        &self,
        plan: impl FnOnce(&CatalogTree) -> Result<(Vec<CatalogChange>, T)>,
    ) -> Result<T> {
        self.edit_and_then(plan, || ())
    }

    /// Waits for the edit that is under way, if there is one.
    pub(crate) fn await_edit(&self) {
        drop(lock(&self.file));
    }

    /// As [`Catalog::edit`]. Calls `then` while the tree changes and is locked.
    fn edit_and_then<T>(
        &self,
        plan: impl FnOnce(&CatalogTree) -> Result<(Vec<CatalogChange>, T)>,
        then: impl FnOnce(),
    ) -> Result<T> {
        let mut file = lock(&self.file);
        let refusal = if self.read_only { Error::ReadOnly } else { Error::Closed };
        let file = file.as_mut().ok_or(refusal)?;
        let (changes, answer) = plan(&read(&self.tree))?;
        if changes.is_empty() {
            return Ok(answer);
        }
        let mut then = Some(then);
        mutant!(ClearShowsEarly => then.take().map_or((), |then| then()));
        let appended = file.append(&changes);
        self.keep_failure(file);
        appended?;
        self.edits.store(file.sequence(), Ordering::Release);
        {
            let mut tree = write(&self.tree);
            for change in &changes {
                if let Err(what) = tree.apply(change) {
                    debug_assert!(false, "the catalog planned an edit that it refuses: {what}");
                }
            }
            if let Some(then) = then.take() {
                then();
            }
        }
        if file.wants_rewrite() {
            // The edit is durable. A failed rewrite is tried again with a later edit.
            let _ = file.rewrite(&read(&self.tree).dump());
            self.keep_failure(file);
        }
        Ok(answer)
    }

    /// Refuses later edits, because it is unknown whether names that the catalog counts on are
    /// durable.
    pub(crate) fn fail(&self, error: &Error) {
        if let Some(file) = lock(&self.file).as_mut() {
            file.fail(error);
            self.keep_failure(file);
        }
    }

    fn keep_failure(&self, file: &CatalogFile) {
        if let Some(reason) = file.failure() {
            let _ = self.failure.set(reason.to_owned());
        }
    }

    /// Returns why edits are refused, if a sync failed. It is then unknown whether the last edit is
    /// durable, so no write that depends on it may be acknowledged, for example to a table that a
    /// failed drop may have removed.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Reads the file again and compares it with the tree in memory.
    pub(crate) fn check(&self, report: &mut Report) -> Result<()> {
        // No edit may come between reading the file and comparing.
        let _file = lock(&self.file);
        match load(&self.dir) {
            Ok(Some((contents, tree))) => {
                report.checked_bytes += contents.file_bytes;
                if tree.dump() != read(&self.tree).dump() {
                    report.add(NAME, 0, "the file differs from the open catalog");
                }
                Ok(())
            }
            Ok(None) => {
                report.add(NAME, 0, "the file is missing");
                Ok(())
            }
            Err(Error::Corruption { file, offset, what }) => {
                report.add(file, offset, what);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

fn load(dir: &Arc<dyn Dir>) -> Result<Option<(file::CatalogContents, CatalogTree)>> {
    let file = match dir.open(NAME, Open::READ) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(format!("open {NAME}"), error)),
    };
    let contents = file::read(&*file)?;
    let tree = replay(&contents)?;
    Ok(Some((contents, tree)))
}

fn replay(contents: &file::CatalogContents) -> Result<CatalogTree> {
    let mut tree = CatalogTree::default();
    for (offset, changes) in &contents.edits {
        for change in changes {
            tree.apply(change).map_err(|what| Error::corruption(NAME, *offset, what))?;
        }
    }
    Ok(tree)
}

/// Describes a catalog's bytes for tools and fuzzing: a line for each change, with its offset.
pub(crate) fn describe(bytes: &[u8]) -> Result<Vec<(u64, String)>> {
    let contents = file::parse(bytes)?;
    replay(&contents)?;
    let lines = contents.edits.iter().flat_map(|(offset, changes)| {
        changes.iter().map(move |change| (*offset, change.to_string()))
    });
    Ok(lines.collect())
}

impl CatalogTree {
    /// Returns the number of every table, in order, with the expiry index.
    pub(crate) fn table_ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> =
            self.nodes.keys().copied().filter(|id| self.table(*id).is_some()).collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the start of the log and the LSN below which it is durable.
    pub(crate) fn log_bounds(&self) -> (Lsn, Lsn) {
        (self.log_start, self.log_durable)
    }
}

#[cfg(test)]
mod tests;
