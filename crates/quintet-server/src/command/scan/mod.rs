//! The key space: `SCAN`, `KEYS`, `RANDOMKEY`, `DBSIZE`, `FLUSHALL` and the like.
//!
//! A cursor of `SCAN` is a number. The position that it stands for is kept by the server, because
//! positions of tables can be longer than a number. The server keeps the last 4,096 positions.

use std::sync::atomic::Ordering;

use quintet::Cursor;

use super::{
    call::{Call, commands},
    generic::parse_database,
};
use crate::{
    failure::{Done, Fail},
    glob,
    number::parse_u64,
    spec::{Group, Keys},
    store::{DatabaseId, Pages, split},
};

commands! { Group::Generic;
    "keys" 2 [READ KEYSPACE DANGEROUS] Keys::None, keys, "1.0.0",
        "Returns all key names that match a pattern.";
    "randomkey" 1 [READ KEYSPACE] Keys::None, randomkey, "1.0.0",
        "Returns a random key name from the database.";
    "scan" -2 [READ KEYSPACE] Keys::None, scan, "2.8.0", "Iterates over the key names in the \
     database.";
}

/// Rows of the group *server* that concern the key space.
pub(super) mod server_rows {
    use super::{Group, Keys, commands, dbsize, flushall, flushdb, swapdb};

    commands! { Group::Server;
        "dbsize" 1 [READ FAST KEYSPACE] Keys::None, dbsize, "1.0.0",
            "Returns the number of keys in the database.";
        "flushall" -1 [WRITE KEYSPACE LOCK_ALL DANGEROUS] Keys::None, flushall, "1.0.0",
            "Removes all keys from all databases.";
        "flushdb" -1 [WRITE KEYSPACE LOCK_ALL DANGEROUS] Keys::None, flushdb, "1.0.0",
            "Remove all keys from the current database.";
        "swapdb" 3 [WRITE FAST KEYSPACE LOCK_ALL DANGEROUS] Keys::None, swapdb, "4.0.0",
            "Swaps two Redis databases.";
    }
}

/// The position of a cursor is no longer known.
pub(super) const EXPIRED_CURSOR: Fail =
    Fail::new("ERR invalid cursor: it is too old or unknown; begin the scan again with 0");

/// Most elements that one call of `SCAN` or its relatives visits, whatever its `COUNT`. They take
/// some milliseconds.
pub(super) const SCANNED_MAX: usize = 10_000;
/// Bytes of elements after which one call ends, with a cursor for the next.
pub(super) const SCANNED_BYTES: usize = 1 << 20;
/// Bytes of patterns and names that are compared between two looks at the clock.
pub(super) const COMPARED_BYTES: usize = 4096;

/// Whether a head is of a key that has not expired.
fn is_live(head: &[u8], now: u64) -> bool {
    split(head).is_some_and(|(_, expiry, ..)| expiry.is_none_or(|expiry| expiry > now))
}

/// Fails for a pattern that is too long.
pub(super) fn check_pattern(pattern: &[u8]) -> Done {
    if pattern.len() > glob::PATTERN_BYTES_MAX {
        let max = glob::PATTERN_BYTES_MAX;
        return Err(Fail::with(format!("ERR the pattern is too long; the limit is {max} bytes")));
    }
    Ok(())
}

impl Call<'_, '_> {
    /// Whether a name matches a pattern. Fails if the time of the command is over: a long pattern
    /// takes time in proportion to the pattern and to the name.
    fn matches(&self, pattern: &[u8], name: &[u8]) -> Done<bool> {
        if pattern.len().saturating_mul(name.len()) > COMPARED_BYTES {
            self.look()?;
        }
        Ok(glob::matches(pattern, name))
    }
}

fn keys(call: &mut Call<'_, '_>) -> Done {
    let (database, pattern, now) = (call.database(), call.args.at(1), call.unit.now);
    check_pattern(pattern)?;
    let changed: std::collections::HashMap<Vec<u8>, bool> = call
        .unit
        .changed_keys(database)
        .map(|(key, head)| (key.to_vec(), head.is_some()))
        .collect();
    let mut found = Vec::new();
    if let Some(tables) = call.unit.tables(database) {
        let mut seen = std::collections::HashSet::new();
        let mut pages = Pages::new(&tables.keys, Cursor::START);
        while let Some((entries, _)) = pages.next(usize::MAX)? {
            call.look()?;
            for (key, head) in entries {
                let is_match = call.matches(pattern, &key)? && is_live(&head, now);
                // A scan may return a key twice.
                if is_match && !changed.contains_key::<[u8]>(&key) && seen.insert(key.clone()) {
                    call.hold(2 * key.len())?;
                    found.push(key.clone());
                }
            }
        }
    }
    let own =
        changed.into_iter().filter(|(key, is_present)| *is_present && glob::matches(pattern, key));
    found.extend(own.map(|(key, _)| key));
    call.reply.array(found.len());
    for key in found {
        call.reply.bulk(&key);
    }
    Ok(())
}

/// Options of `SCAN` and its relatives.
pub(super) struct ScanOptions<'a> {
    pub(super) pattern: Option<&'a [u8]>,
    /// At most [`SCANNED_MAX`].
    pub(super) count: usize,
    pub(super) kind: Option<Vec<u8>>,
}

/// Parses `MATCH`, `COUNT` and, if allowed, `TYPE` from argument `at`.
pub(super) fn parse_options<'c>(
    call: &Call<'c, '_>,
    mut at: usize,
    has_type: bool,
) -> Done<ScanOptions<'c>> {
    let mut options = ScanOptions { pattern: None, count: 10, kind: None };
    while at < call.args.len() {
        if at + 1 >= call.args.len() {
            return Err(Fail::SYNTAX);
        }
        let value = call.args.at(at + 1);
        if call.args.is(at, "match") {
            check_pattern(value)?;
            options.pattern = Some(value);
        } else if call.args.is(at, "count") {
            let count = call.integer(at + 1)?;
            options.count =
                usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Fail::SYNTAX)?;
            options.count = options.count.min(SCANNED_MAX);
        } else if has_type && call.args.is(at, "type") {
            options.kind = Some(value.to_ascii_lowercase());
        } else {
            return Err(Fail::SYNTAX);
        }
        at += 2;
    }
    Ok(options)
}

/// Parses a cursor of a client.
pub(super) fn parse_cursor(text: &[u8]) -> Done<u64> {
    parse_u64(text).ok_or(Fail::new("ERR invalid cursor"))
}

fn scan(call: &mut Call<'_, '_>) -> Done {
    let (database, now) = (call.database(), call.unit.now);
    let number = parse_cursor(call.args.at(1))?;
    let options = parse_options(call, 2, true)?;
    let position = call.server.cursors.get(number).ok_or(EXPIRED_CURSOR)?;
    let mut found = Vec::new();
    let mut next = Cursor::START;
    if let Some(tables) = call.unit.tables(database) {
        let mut pages = Pages::new(&tables.keys, Cursor(position));
        let (mut visited, mut visited_bytes) = (0, 0);
        while visited < options.count && visited_bytes < SCANNED_BYTES {
            let Some((entries, bytes)) = pages.next(options.count - visited)? else { break };
            visited += entries.len().max(1);
            visited_bytes += bytes;
            for (key, head) in entries {
                let is_kind = options.kind.as_ref().is_none_or(|kind| {
                    split(&head).is_some_and(|(own, ..)| own.name().as_bytes() == kind)
                });
                let is_match = match options.pattern {
                    Some(pattern) => call.matches(pattern, &key)?,
                    None => true,
                };
                if is_kind && is_match && is_live(&head, now) {
                    found.push(key.clone());
                }
            }
        }
        next = pages.cursor;
    }
    let cursor = if next.is_start() { 0 } else { call.server.cursors.put(next.0) };
    call.reply.array(2);
    call.reply.text(&cursor.to_string());
    call.reply.array(found.len());
    for key in found {
        call.reply.bulk(&key);
    }
    Ok(())
}

fn randomkey(call: &mut Call<'_, '_>) -> Done {
    let (database, now) = (call.database(), call.unit.now);
    let own = call.unit.changed_keys(database).find(|(_, head)| head.is_some());
    let own = own.map(|(key, _)| key.to_vec());
    if own.is_some() {
        call.reply.optional(own.as_deref());
        return Ok(());
    }
    let Some(tables) = call.unit.tables(database) else {
        call.reply.null();
        return Ok(());
    };
    // Skips pages of a scan at random: cheap, but keys of the first pages are more likely.
    let skipped = call.server.random() % 8;
    let mut pages = Pages::new(&tables.keys, Cursor::START);
    let (mut candidates, mut page) = (Vec::new(), 0);
    while let Some((entries, _)) = pages.next(64)? {
        call.look()?;
        let live: Vec<Vec<u8>> = entries
            .into_iter()
            .filter(|(_, head)| is_live(head, now))
            .map(|(key, _)| key.clone())
            .collect();
        if !live.is_empty() {
            candidates = live;
        }
        if page >= skipped && !candidates.is_empty() {
            break;
        }
        page += 1;
    }
    let chosen = usize::try_from(call.server.random()).unwrap_or(0) % candidates.len().max(1);
    call.reply.optional(candidates.get(chosen).map(Vec::as_slice));
    Ok(())
}

fn dbsize(call: &mut Call<'_, '_>) -> Done {
    let database = call.database();
    let stored =
        call.unit.tables(database).map_or(0, |tables| tables.count.load(Ordering::Acquire));
    let count = stored + call.unit.added_keys(database);
    call.reply.integer(count);
    Ok(())
}

fn check_flush(call: &Call<'_, '_>) -> Done {
    let is_mode = call.args.is(1, "async") || call.args.is(1, "sync");
    if call.args.len() > 2 || (call.args.len() == 2 && !is_mode) {
        return Err(Fail::SYNTAX);
    }
    Ok(())
}

fn flushdb(call: &mut Call<'_, '_>) -> Done {
    check_flush(call)?;
    let database = call.database();
    clear(call, std::iter::once(database))
}

fn flushall(call: &mut Call<'_, '_>) -> Done {
    check_flush(call)?;
    let namespace = call.database().namespace();
    clear(call, DatabaseId::all_of(namespace))
}

fn clear(call: &mut Call<'_, '_>, databases: impl Iterator<Item = DatabaseId>) -> Done {
    for database in databases {
        call.unit.flush(database)?;
    }
    call.reply.ok();
    Ok(())
}

fn swapdb(call: &mut Call<'_, '_>) -> Done {
    let parse = |text: &[u8], which: &str| {
        let fail = || Fail::with(format!("ERR invalid {which} DB index"));
        crate::number::parse_i64(text).ok_or_else(fail)?;
        parse_database(text)
    };
    let own = call.database();
    let one = own.sibling(parse(call.args.at(1), "first")?);
    let other = own.sibling(parse(call.args.at(2), "second")?);
    call.unit.swap(one, other)?;
    call.reply.ok();
    Ok(())
}
