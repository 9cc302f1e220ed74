//! A workload of several threads whose outcome can be checked after any crash.
//!
//! Each thread has a *lane*: commits numbered from 0, one after the other, each a batch over four
//! tables. After a crash each lane must hold a prefix of its commits, each whole, in all tables.
//! One more lane changes names: it creates, renames and drops tables.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use quintet::{Cursor, Database, Durability, EngineKind, Options, Result, TableOptions};

use crate::random::mix;

/// The tables that every commit writes to: a batch meets several engines.
const TABLES: [&str; 4] = ["first", "deep/down/second", "deep/third", "fourth"];
/// Every fifth commit also removes the entry that the commit two before it wrote.
const REMOVES_EVERY: u64 = 5;
const REMOVES_BACK: u64 = 2;
const VALUE_BYTES_MAX: u64 = 3000;

/// Small segments and snapshots, so that rotation, persisting and pruning are frequent.
pub fn options() -> Options {
    Options::new().memory_budget(256 << 20).segment_bytes(256 << 10).recovery_budget(1 << 20)
}

/// An open database with the lanes' tables.
#[derive(Clone)]
pub struct Lanes {
    db: Database,
    tables: Arc<[quintet::Table]>,
}

fn key(lane: u64, number: u64) -> Vec<u8> {
    // Both ends agree: a trie of bytes of keys has the keys of a lane on few paths.
    format!("{lane}-ends--{number:08}--sdne-{lane}").into_bytes()
}

fn value(lane: u64, number: u64) -> Vec<u8> {
    let seed = mix(lane << 40 | number);
    // Most are small.
    let longest = if seed.is_multiple_of(8) { VALUE_BYTES_MAX } else { 60 };
    (0..seed % longest).map(|place| (mix(seed ^ place) >> 8).to_le_bytes()[0]).collect()
}

fn removed_by(number: u64) -> Option<u64> {
    (number % REMOVES_EVERY == REMOVES_EVERY - 1).then(|| number - REMOVES_BACK)
}

impl Lanes {
    /// Opens the tables, and creates missing ones. `more` are further tables.
    pub fn new(db: &Database, more: &[(String, TableOptions)]) -> Result<Self> {
        let naive = TableOptions::new(EngineKind::Naive).set("snapshot_bytes", "262144");
        let hashlog = TableOptions::new(EngineKind::HashLog)
            .set("chunk_bytes", "65536")
            .set("mutable_chunks", "2");
        let trie = TableOptions::new(EngineKind::Trie)
            .set("region_bytes", "65536")
            .set("journal_bytes", "131072")
            .set("cut_bytes", "131072")
            .set("sluggishness", "2");
        let chained =
            trie.clone().set("layout", "chain").set("sluggishness", "4").set("hash", "none");
        let [first, second, third, fourth] = TABLES;
        let tables = [(first, naive), (second, hashlog), (third, trie), (fourth, chained)];
        let more = more.iter().map(|(name, options)| (&**name, options.clone()));
        let tables = tables.into_iter().chain(more);
        let tables = tables.map(|(name, options)| db.open_or_create_table(name, &options));
        Ok(Self { db: db.clone(), tables: tables.collect::<Result<_>>()? })
    }

    /// Does commit `number` of a lane.
    pub fn commit(&self, lane: u64, number: u64, durability: Durability) -> Result<()> {
        let mut batch = self.db.batch();
        for table in &*self.tables {
            batch.put(table, key(lane, number), value(lane, number));
            if let Some(removed) = removed_by(number) {
                batch.delete(table, key(lane, removed));
            }
        }
        batch.commit_with(durability)
    }

    /// Returns the number of commits found of each lane; an error if one is found in part.
    pub fn found(&self, lanes: u64) -> Result<Vec<u64>, String> {
        let mut counts = Vec::new();
        for table in &*self.tables {
            let entries = entries(table).map_err(|error| format!("read: {error}"))?;
            let found = (0..lanes).map(|lane| found_in(&entries, lane));
            counts.push(found.collect::<Result<Vec<u64>, String>>()?);
            let known: u64 = counts.last().unwrap().iter().map(|count| expected(*count)).sum();
            if u64::try_from(entries.len()).unwrap() != known {
                return Err(format!("{} entries, {known} were written", entries.len()));
            }
        }
        if counts.iter().any(|count| *count != counts[0]) {
            return Err(format!("batches are torn: {counts:?}"));
        }
        Ok(counts.swap_remove(0))
    }
}

/// Returns the number of entries after the first `count` commits.
fn expected(count: u64) -> u64 {
    count - count / REMOVES_EVERY
}

fn entries(table: &quintet::Table) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut cursor = Cursor::default();
    loop {
        let (entries, next) = table.scan(&cursor, 1000)?;
        found.extend(entries.into_iter().map(|(key, value)| (key.clone(), value.to_vec())));
        if next.is_start() {
            return Ok(found);
        }
        cursor = next;
    }
}

fn found_in(entries: &BTreeMap<Vec<u8>, Vec<u8>>, lane: u64) -> Result<u64, String> {
    let prefix = format!("{lane}-").into_bytes();
    let last = entries.keys().rev().find(|key| key.starts_with(&prefix));
    let Some(last) = last else { return Ok(0) };
    let digits = last[prefix.len()..].split(|byte| *byte == b'-').nth(2).unwrap();
    let count = std::str::from_utf8(digits).unwrap().parse::<u64>().unwrap() + 1;
    let gone: BTreeSet<u64> = (0..count).filter_map(removed_by).collect();
    for number in 0..count {
        let stored = entries.get(&key(lane, number));
        let expected = (!gone.contains(&number)).then(|| value(lane, number));
        if stored != expected.as_ref() {
            let sizes = (stored.map(Vec::len), expected.map(|value| value.len()));
            return Err(format!("lane {lane}, commit {number} of {count}: bytes {sizes:?}"));
        }
    }
    Ok(count)
}

/// Does change `number` of names: creates a table, renames it into a directory, drops the one
/// before.
pub fn change_names(db: &Database, number: u64) -> Result<()> {
    let (round, step) = (number / 3, number % 3);
    let (made, kept) = (format!("names/new-{round}"), format!("names/kept/number-{round}"));
    match step {
        0 => db.create_table(&made, TableOptions::new(EngineKind::Naive)).map(drop),
        1 => {
            // A crash may repeat it.
            db.table(&made)?.put("round", round.to_string())?;
            db.rename(&made, &kept)
        }
        _ if round == 0 => Ok(()),
        _ => db.drop_table(&format!("names/kept/number-{}", round - 1)),
    }
}

fn names_after(number: u64) -> Vec<String> {
    let mut names = BTreeSet::new();
    for number in 0..number {
        let round = number / 3;
        let made = format!("names/new-{round}");
        let kept = |round| format!("names/kept/number-{round}");
        let _ = match number % 3 {
            0 => names.insert(made),
            1 => names.remove(&made) && names.insert(kept(round)),
            _ => round > 0 && names.remove(&kept(round - 1)),
        };
    }
    names.into_iter().collect()
}

/// Returns the number of changes of names found: `acknowledged` or one more.
pub fn found_names(db: &Database, acknowledged: u64) -> Result<u64, String> {
    let tables = db.tables().into_iter().map(|info| info.name);
    let found: Vec<String> = tables.filter(|name| name.starts_with("names/")).collect();
    let done =
        [acknowledged, acknowledged + 1].into_iter().find(|done| names_after(*done) == found);
    let Some(done) = done else {
        return Err(format!("after {acknowledged} changes of names: {found:?}"));
    };
    for name in found {
        let table = db.table(&name).map_err(|error| format!("{name}: {error}"))?;
        let round = name.rsplit('-').next().unwrap().to_owned();
        let value = table.get("round").map_err(|error| format!("{name}: {error}"))?;
        // The one that was just made may not have its entry yet.
        let newest = name.starts_with("names/new-");
        if value.as_deref() != Some(round.as_bytes()) && !(newest && value.is_none()) {
            return Err(format!("{name} holds {value:?}"));
        }
    }
    Ok(done)
}
