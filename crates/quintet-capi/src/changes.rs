//! Change feeds: the commits of a database in their order, each change by change.
//!
//! How: a feed keeps the commit that it returned last. Its changes are copied once to one block of
//! memory, which the slices of the program name until the feed moves.

use std::{ops::Range, sync::Mutex, time::Duration};

use quintet::{ChangeFeed, CommittedChanges, Database, Lsn, TableChange, TypeTag};

use crate::{
    boundary::{Out, View, export, give, required},
    failure::{Code, Failure},
    handles::Handle,
    options::{self, OptionList},
    table::exclusive,
};

/// What was changed in a table.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The table was created or cleared: it is empty here.
    Begin = 0,
    /// A key got a value.
    Put = 1,
    /// A key was deleted, or its expired value was removed. It may have had no value.
    Delete = 2,
    /// The keys of a range were deleted.
    DeleteRange = 3,
}

/// One change of a commit. Fields that a kind does not have are absent or 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// What was changed.
    pub kind: ChangeKind,
    /// The path of the table when the commit was read.
    pub table: View,
    /// The number of the table. A table that is cleared, or created again, has another one.
    pub table_number: u64,
    /// The key; of a range, its first key.
    pub key: View,
    /// The value; of a range, the first key behind it, and empty if there is none.
    pub value: View,
    /// When the value expires, in milliseconds since 1970. 0: never.
    pub expires_at_ms: u64,
    /// The type of the value, such as `"u64"`. Absent: none. Valid until the program ends.
    pub type_tag: View,
}

/// A feed. One thread at a time uses it.
#[derive(Debug)]
pub struct FeedHandle(Mutex<FeedState>);

#[derive(Debug)]
struct FeedState {
    feed: ChangeFeed,
    /// The commit that the program sees.
    current: Option<Commit>,
}

/// A commit, whose changes are read one by one.
#[derive(Debug)]
struct Commit {
    lsn: Lsn,
    end: Lsn,
    /// Names, keys and values.
    bytes: Vec<u8>,
    changes: Vec<StoredChange>,
    /// Number of changes that the program has read.
    read: usize,
}

/// A change, with ranges of [`Commit::bytes`].
#[derive(Clone, Debug)]
struct StoredChange {
    kind: ChangeKind,
    table: Range<usize>,
    table_number: u64,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    expires_at_ms: u64,
    type_tag: Option<TypeTag>,
}

impl Commit {
    /// Copies a commit. Fails with `Other` if it has a change that the interface cannot show.
    fn new(commit: &CommittedChanges) -> Result<Self, Failure> {
        let (lsn, end) = (commit.lsn(), commit.end());
        let mut copy = Self { lsn, end, bytes: Vec::new(), changes: Vec::new(), read: 0 };
        for change in commit.iter() {
            let number = change.table_number;
            let last = copy.changes.last().filter(|last| last.table_number == number);
            let table = last.map(|last| last.table.clone());
            let table = table.unwrap_or_else(|| copy.store(change.table.as_bytes()));
            let mut stored = StoredChange {
                kind: ChangeKind::Begin,
                table,
                table_number: number,
                key: None,
                value: None,
                expires_at_ms: 0,
                type_tag: None,
            };
            match change.change {
                TableChange::Begin => {}
                TableChange::Put { key, value, expires_at_unix_millis, type_tag } => {
                    stored.kind = ChangeKind::Put;
                    (stored.key, stored.value) = (Some(copy.store(key)), Some(copy.store(value)));
                    stored.expires_at_ms = expires_at_unix_millis.unwrap_or(0);
                    stored.type_tag = type_tag;
                }
                TableChange::Delete { key } => {
                    stored.kind = ChangeKind::Delete;
                    stored.key = Some(copy.store(key));
                }
                TableChange::DeleteRange { start, end } => {
                    stored.kind = ChangeKind::DeleteRange;
                    (stored.key, stored.value) = (Some(copy.store(start)), Some(copy.store(end)));
                }
                other => return Err(Failure::new(Code::Other, format!("the change {other:?}"))),
            }
            copy.changes.push(stored);
        }
        Ok(copy)
    }

    fn store(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn view(&self, range: Option<&Range<usize>>) -> View {
        let bytes = range.and_then(|range| self.bytes.get(range.clone()));
        bytes.map_or(View::NONE, View::of)
    }

    /// Returns the next change. `None`: the program has read all of them.
    fn next(&mut self) -> Option<Change> {
        let stored = self.changes.get(self.read)?;
        let change = Change {
            kind: stored.kind,
            table: self.view(Some(&stored.table)),
            table_number: stored.table_number,
            key: self.view(stored.key.as_ref()),
            value: self.view(stored.value.as_ref()),
            expires_at_ms: stored.expires_at_ms,
            type_tag: stored.type_tag.map_or(View::NONE, |tag| View::of(tag.name().as_bytes())),
        };
        self.read += 1;
        Some(change)
    }
}

/// Moves a feed to the commit that `next` returns.
fn advance(
    feed: Handle<FeedHandle>,
    found: Out<'_, bool>,
    next: impl FnOnce(&ChangeFeed) -> quintet::Result<Option<CommittedChanges>>,
) -> Result<(), Failure> {
    let found = required(found, "found")?;
    let feed = feed.get()?;
    let state = &mut *exclusive(&feed.0)?;
    state.current = None;
    state.current = next(&state.feed)?.as_ref().map(Commit::new).transpose()?;
    found.write(state.current.is_some());
    Ok(())
}

export! {
    /// Opens a feed of the commits at and behind position `from` of the log, at no commit. The
    /// position is the `end` of `quintet_feed_commit`, that of `quintet_feed_position`, or one of
    /// `quintet_log_range`. To copy tables and follow them, open the feed at the end first, then
    /// take a snapshot, and apply all that the feed returns to the copy of the snapshot. `options`
    /// may be null; see `quintet_options_new`.
    ///
    /// An open feed keeps the log from its position on, but not more than 1 GiB or option
    /// `"log_retention"` of the database, and on a full disk nothing. It shows no tables behind a
    /// mount, no drops and no renames.
    ///
    /// Errors: `QUINTET_CHANGES_LOST` if the log does not have the position,
    /// `QUINTET_NO_SUCH_TABLE` if a path is neither a table nor a directory,
    /// `QUINTET_INVALID_OPTION`, `QUINTET_CLOSED`.
    pub fn quintet_feed_new(
        database: Handle<Database>, from: u64, options: Handle<OptionList>,
        feed: Out<Handle<FeedHandle>>,
    ) {
        let (database, out) = (database.get()?, required(feed, "feed")?);
        let feed = database.changes(Lsn(from), options::of_feed(options)?)?;
        out.write(Handle::new(FeedHandle(Mutex::new(FeedState { feed, current: None })))?);
        Ok(())
    }

    /// Moves a feed to the next commit with changes of its tables. Does not wait: `found` gets
    /// false if there is none yet, and a later call may find one. Slices of the commit before are
    /// not valid any more. After an error the feed is at no commit.
    ///
    /// Errors: `QUINTET_CHANGES_LOST` if the log there was removed, because the feed was too far
    /// behind or the disk full; `QUINTET_CLOSED`, `QUINTET_IO`, `QUINTET_CORRUPTION`.
    pub fn quintet_feed_next(feed: Handle<FeedHandle>, found: Out<bool>) {
        advance(feed, found, ChangeFeed::next_commit)
    }

    /// Same as `quintet_feed_next`, but waits up to `timeout_ms` milliseconds for a commit. If the
    /// database is closed meanwhile, the call fails.
    ///
    /// Errors: those of `quintet_feed_next`.
    pub fn quintet_feed_wait(feed: Handle<FeedHandle>, timeout_ms: u64, found: Out<bool>) {
        advance(feed, found, |feed| feed.wait(Duration::from_millis(timeout_ms)))
    }

    /// Stores the LSN of the commit at which a feed is, and the position behind it. A feed that
    /// begins at `end` continues with the next commit. Results may be null. `found` gets false, and
    /// both are 0, if the feed is at no commit.
    ///
    /// Errors: those of every function.
    pub fn quintet_feed_commit(
        feed: Handle<FeedHandle>, lsn: Out<u64>, end: Out<u64>, found: Out<bool>,
    ) {
        let feed = feed.get()?;
        let state = exclusive(&feed.0)?;
        give(found, state.current.is_some());
        give(lsn, state.current.as_ref().map_or(0, |commit| commit.lsn.0));
        give(end, state.current.as_ref().map_or(0, |commit| commit.end.0));
        Ok(())
    }

    /// Stores the next change of the commit at which a feed is. `found` gets false after the last
    /// one, and if the feed is at no commit; `change` is not written then. Its slices are valid
    /// until the feed moves to another commit or is freed.
    ///
    /// Errors: those of every function.
    pub fn quintet_feed_change(feed: Handle<FeedHandle>, change: Out<Change>, found: Out<bool>) {
        let (out, found) = (required(change, "change")?, required(found, "found")?);
        let feed = feed.get()?;
        let change = exclusive(&feed.0)?.current.as_mut().and_then(Commit::next);
        found.write(change.is_some());
        if let Some(change) = change {
            out.write(change);
        }
        Ok(())
    }

    /// Stores the position of a feed: behind the commits that it returned or left out. A feed that
    /// begins there continues with the next one. 0 in a forked child.
    ///
    /// Errors: those of every function.
    pub fn quintet_feed_position(feed: Handle<FeedHandle>, position: Out<u64>) {
        let out = required(position, "position")?;
        let feed = feed.get()?;
        out.write(exclusive(&feed.0)?.feed.position().0);
        Ok(())
    }

    /// Frees a feed and its commit. The log is not kept for it any more. Null is allowed.
    ///
    /// Errors: those of every function.
    pub fn quintet_feed_free(feed: Handle<FeedHandle>) {
        feed.free().map(drop)
    }

    /// Stores the first position of the log at which a feed can begin, and the present end. Results
    /// may be null. Both are 0 in a forked child.
    ///
    /// Errors: those of every function.
    pub fn quintet_log_range(database: Handle<Database>, start: Out<u64>, end: Out<u64>) {
        let range = database.get()?.log_range();
        give(start, range.start.0);
        give(end, range.end.0);
        Ok(())
    }
}
