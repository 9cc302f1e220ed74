//! Change feeds: the commits of a database in their order, read from the log.
//!
//! Why: a search index, a cache or another database follows the tables without reading them again.
//! The log has each commit once, whatever the engines.
//!
//! How: [`ChangeFeed`] reads the records of the log behind its position ([`LogReader`]) and decodes
//! their operations ([`CommittedChanges`]). Names of tables come from the catalog at the moment of
//! the read. That a table was created or cleared is in the log too ([`TableBegin`]), as long as a
//! feed is open or the log is retained.
//!
//! Invariants:
//! - A feed returns each commit at or behind its position once, whole, in the order of the log.
//! - Unless asked otherwise, it returns no commit that a power loss can undo.
//! - The log is kept from its position on, up to a bound.
//!
//! Locks: the feed's reader, held while it reads a file and while it waits for a running edit of
//! the catalog; then the catalog.
//!
//! [`TableBegin`]: crate::db::encoding::table_begin::TableBegin

mod commit;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::{borrow::Borrow, fmt, ops::Range, sync::Arc, time::Duration};

pub use self::commit::{Change, CommittedChanges, TableChange};

use self::commit::ShownTables;
use super::{
    database::Database,
    session::{Session, refuse},
};
use crate::{
    Result,
    db::{catalog::paths::ResolvedPath, core::Core},
    io::process::ProcessArc,
    util::{
        codec::Lsn,
        mutant::mutant,
        sync::{Mutex, lock, park_timeout},
    },
    wal::LogReader,
};

/// A feed that waits looks for new commits after these pauses, the shorter first.
const PAUSE_MIN: Duration = Duration::from_micros(250);
const PAUSE_MAX: Duration = Duration::from_millis(8);

/// Options of a change feed.
#[derive(Clone, Debug, Default)]
pub struct ChangeFeedOptions {
    paths: Option<Vec<String>>,
    unsynced: bool,
}

impl ChangeFeedOptions {
    /// Returns the default options: the durable commits of all tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a table, or a directory with all tables below it. Without any, the feed returns changes
    /// of all tables. A table counts by the path that it has when the commit is read.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.paths.get_or_insert_default().push(path.into());
        self
    }

    /// Also returns commits that are not durable yet (default `false`). They come as soon as they
    /// are visible to reads, and not up to
    /// [`sync_interval`](crate::Options::sync_interval) later. A power loss may undo them.
    #[must_use]
    pub fn unsynced(mut self, unsynced: bool) -> Self {
        self.unsynced = unsynced;
        self
    }
}

/// The commits of a database in their order, from a position of the log on.
/// [`Database::changes`] opens it.
///
/// [`ChangeFeed::next_commit`] returns one commit after the other, and `None` at the present end;
/// [`ChangeFeed::wait`] waits for the next one. Threads that share a feed get each commit once.
///
/// A program stores [`ChangeFeed::position`] with what it has done, and can continue there later,
/// also after the database was opened again. [`log_retention`](crate::Options::log_retention) must
/// cover what was written meanwhile; otherwise it fails with [`Error::ChangesLost`]. An open feed
/// keeps the log from its position on, but not more than 1 GiB (or `log_retention`), and on a full
/// disk nothing.
///
/// It shows puts, also the results of merges and updates; deletes, also of expired values when they
/// are removed; deletes of ranges; and tables that begin empty ([`TableChange::Begin`]). It does
/// not show drops and renames, changes of tables that were dropped before the commit was read, and
/// tables behind a mount. Nor does it show a sorted load that began earlier and bypasses the log.
///
/// Cost: a commit that is written costs nothing more. Reading costs a read of the file for 256 KiB
/// of log, mostly from the page cache, and an allocation for each commit.
///
/// [`Error::ChangesLost`]: crate::Error::ChangesLost
///
/// ```no_run
/// # fn main() -> quintet::Result<()> {
/// use quintet::{ChangeFeedOptions, TableChange};
/// # let db = quintet::Database::open("data")?;
/// let feed = db.changes(db.log_range().end, ChangeFeedOptions::new().path("app"))?;
/// let snapshot = db.snapshot()?; // what there was before, and perhaps some of the feed
/// for commit in feed.commits() {
///     for change in commit?.iter() {
///         match change.change {
///             TableChange::Put { key, .. } => println!("{} {key:?} put", change.table),
///             TableChange::Delete { key } => println!("{} {key:?} deleted", change.table),
///             other => println!("{} {other:?}", change.table),
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct ChangeFeed {
    session: ProcessArc<Session>,
    options: ChangeFeedOptions,
    reader: ProcessArc<Mutex<LogReader>>,
}

impl fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeFeed").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens a feed of the commits that begin at or behind a position: that of an earlier feed
    /// ([`ChangeFeed::position`]), or an end of [`Database::log_range`]. To copy tables and follow
    /// them, open the feed at the end first, then take a snapshot, and apply all that the feed
    /// returns to the copy of the snapshot.
    ///
    /// A position is valid as long as a feed was open or the log retained without a break.
    /// Otherwise the log may lack that a table was cleared or dropped, or a sorted load that
    /// bypassed it. Within one opening of the database, the feed fails then. Another opening does
    /// not know that.
    ///
    /// Fails with [`Error::ChangesLost`] if the log does not have the position. Fails with
    /// [`Error::NoSuchTable`] if a path of the options is neither a table nor a directory, and
    /// with [`Error::Mount`] if it is behind a mount. Fails with [`Error::Closed`] and
    /// [`Error::Forked`].
    ///
    /// [`Error::ChangesLost`]: crate::Error::ChangesLost
    /// [`Error::NoSuchTable`]: crate::Error::NoSuchTable
    /// [`Error::Mount`]: crate::Error::Mount
    /// [`Error::Closed`]: crate::Error::Closed
    /// [`Error::Forked`]: crate::Error::Forked
    pub fn changes(
        &self,
        from: Lsn,
        options: impl Borrow<ChangeFeedOptions>,
    ) -> Result<ChangeFeed> {
        let core = &self.session.core;
        core.tables.check_open()?;
        let options = options.borrow().clone();
        for path in options.paths.iter().flatten() {
            if let ResolvedPath::Mount(mount) = core.tables.resolve(path) {
                return Err(refuse(&mount.path, "its changes are in a feed of the database there"));
            }
            core.tables.catalog.with_tree(|tree| tree.find_existing(path).map(drop))?;
        }
        let reader = LogReader::new(&core.log, from);
        // What is being created or cleared without a record is complete then.
        core.tables.catalog.await_edit();
        reader.check()?;
        let reader = ProcessArc::new(Arc::new(Mutex::new(reader)));
        Ok(ChangeFeed { session: self.session.clone(), options, reader })
    }

    /// Returns the first position of the log that a change feed can begin at, and the present end.
    /// Both are 0 in a forked child. Writes a record of a few bytes if a table was cleared or
    /// dropped without one, and nothing was written since.
    pub fn log_range(&self) -> Range<Lsn> {
        let core = &self.session.core;
        if core.tables.is_forked() {
            return Lsn(0)..Lsn(0);
        }
        // Without it, a feed cannot begin: an error of the separator comes from there.
        let _ = core.tables.separate_unlogged();
        core.log.readable_from()..core.log.end()
    }
}

impl ChangeFeed {
    /// Returns the next commit with changes of the chosen tables. `None`: there is none yet.
    ///
    /// Fails with [`Error::ChangesLost`] if the log there was removed, because the feed was too far
    /// behind or the disk full; with [`Error::Corruption`], [`Error::Io`], [`Error::Closed`] and
    /// [`Error::Forked`].
    ///
    /// [`Error::ChangesLost`]: crate::Error::ChangesLost
    /// [`Error::Corruption`]: crate::Error::Corruption
    /// [`Error::Io`]: crate::Error::Io
    /// [`Error::Closed`]: crate::Error::Closed
    /// [`Error::Forked`]: crate::Error::Forked
    pub fn next_commit(&self) -> Result<Option<CommittedChanges>> {
        let core = &self.session.core;
        core.tables.check_open()?;
        let mut reader = lock(&**self.reader);
        let end = self.visible_end(core);
        while let Some(commit) = reader.next(end)? {
            let lsn = commit.lsn;
            match ShownTables::of(core, &commit, self.options.paths.as_deref()) {
                Ok(shown) if shown.is_empty() => {}
                Ok(shown) => return Ok(Some(CommittedChanges::new(&commit, shown))),
                Err(error) => {
                    reader.return_to(lsn);
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Returns the commits up to the present end. Later, another call returns those that follow.
    pub fn commits(&self) -> impl Iterator<Item = Result<CommittedChanges>> {
        std::iter::from_fn(|| self.next_commit().transpose())
    }

    /// Same as [`ChangeFeed::next_commit`], but waits up to `timeout` for a commit.
    pub fn wait(&self, timeout: Duration) -> Result<Option<CommittedChanges>> {
        let (mut waited, mut pause) = (Duration::ZERO, PAUSE_MIN);
        loop {
            let next = self.next_commit()?;
            if next.is_some() || waited >= timeout {
                return Ok(next);
            }
            let time = pause.min(timeout.saturating_sub(waited));
            park_timeout(time);
            waited += time;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Returns the position behind the commits that were returned or left out. A feed that begins
    /// there continues with the next one. 0 in a forked child.
    pub fn position(&self) -> Lsn {
        if self.session.core.tables.is_forked() { Lsn(0) } else { lock(&**self.reader).position() }
    }

    /// Returns the end of the commits that may be returned.
    fn visible_end(&self, core: &Core) -> Lsn {
        let applied = core.log.applied();
        if self.options.unsynced {
            return applied;
        }
        mutant!(FeedShowsUnsynced: applied, else applied.min(core.log.durable()))
    }
}
