//! The `trie` engine: groups of its journal (words of the trie, and the state) and regions of
//! records, of arbitrary bytes.

use quintet::testing::engine::MaintenanceMode;
use std::{path::Path, sync::OnceLock};

use quintet::{
    Result,
    testing::{
        codec::{Lsn, crc32c, crc32c_append},
        disk::{Env, sim::SimEnv},
        engine::{
            Cursor, Engine, EngineKind, MemoryWait, MultiGetSink, Op, TableOptions, trie::Trie,
        },
        report::Report,
    },
};

use super::{
    desk::{self, damaged, overlay, placed},
    explains_itself,
};

const DATABASE_ID: [u8; 16] = *b"fuzz-trie.......";
const DATA: &str = "/table/data";
const BLOCK_BYTES: usize = 4096;
const GROUP_HEAD_BYTES: usize = 88;
const UNIT_BYTES: usize = 16;
/// Life of the only region, which the checksums of its records begin with.
const LIFE: u64 = 1;
const KEYS: u64 = 200;

/// How keys lead to their records.
#[derive(Clone, Copy)]
enum Paths {
    /// By a hash.
    Hashed,
    /// By their bytes, which agree: all keys are below a switched node.
    Switched,
}

fn open(env: &SimEnv, paths: Paths) -> Result<(Trie, Lsn)> {
    let context = desk::context(env, DATABASE_ID);
    let options = TableOptions::new(EngineKind::Trie)
        .set("region_bytes", "65536")
        .set("journal_bytes", "65536")
        .set("fanout", "64")
        .set("sluggishness", "2");
    let options = match paths {
        Paths::Hashed => options,
        Paths::Switched => options.set("hash", "none"),
    };
    Trie::open(&options, context)
}

fn key(number: u64, paths: Paths) -> String {
    match paths {
        Paths::Hashed => format!("key-{number}"),
        Paths::Switched => format!("same-end{number}dne-emas"),
    }
}

/// A closed table of one region and one group, with the journal's name.
fn base(paths: Paths) -> &'static (SimEnv, String) {
    static BASES: [OnceLock<(SimEnv, String)>; 2] = [OnceLock::new(), OnceLock::new()];
    let [hashed, switched] = &BASES;
    let base = match paths {
        Paths::Hashed => hashed,
        Paths::Switched => switched,
    };
    base.get_or_init(|| {
        let env = SimEnv::new(1);
        let (table, _) = open(&env, paths).expect("a new table");
        for number in 0..KEYS {
            // One value is large enough for an extent.
            let body = vec![7; if number == 60 { 20_000 } else { 40 }];
            let key = key(number, paths);
            let op = Op::Put { key: key.as_bytes(), head: b"", body: &body };
            table.admit(&op, &MemoryWait::default()).expect("room");
            table.apply(Lsn(number), &op).expect("room");
        }
        table.checkpoint(Lsn(KEYS)).expect("room");
        drop(table);
        let dir = env.open_dir(Path::new("/table"), false).expect("a folder");
        let files = dir.list().expect("a sound disk");
        let journal = files.into_iter().find(|file| file.name.starts_with("redo-"));
        (env, format!("/table/{}", journal.expect("a journal").name))
    })
}

fn contents(name: &str, paths: Paths) -> Vec<u8> {
    base(paths).0.contents(name).expect("a file of the base")
}

fn word(bytes: &[u8], at: usize) -> usize {
    let word = u64::from_le_bytes(*bytes[at..].first_chunk().expect("a whole word"));
    usize::try_from(word).expect("a small file")
}

/// Opens the base with a file replaced, and uses the table if that succeeds.
fn open_with(name: &str, bytes: Vec<u8>, paths: Paths) {
    let table = match open(&damaged(&base(paths).0, name, bytes), paths) {
        Ok((table, _)) => table,
        Err(error) => return explains_itself(&error),
    };
    let mut report = Report::default();
    if let Err(error) = table.check(&mut report) {
        explains_itself(&error);
    }
    for number in (0..KEYS).step_by(7) {
        if let Err(error) = table.get(key(number, paths).as_bytes()) {
            explains_itself(&error);
        }
    }
    let keys: Vec<String> = (0..KEYS).step_by(3).map(|number| key(number, paths)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    if let Err(error) = table.multi_get(&keys, MultiGetSink::Append(&mut Vec::new())) {
        explains_itself(&error);
    }
    let mut cursor = Cursor::START;
    loop {
        match table.scan(&cursor, 50) {
            Ok((_, next)) if next.is_start() => break,
            Ok((_, next)) => cursor = next,
            Err(error) => {
                explains_itself(&error);
                break;
            }
        }
    }
    for number in (0..KEYS).step_by(40) {
        let key = key(number, paths);
        let put = Op::Put { key: key.as_bytes(), head: b"", body: b"later" };
        let delete = Op::Delete { key: key.as_bytes() };
        let op = if number % 80 == 0 { put } else { delete };
        let outcome = table
            .admit(&op, &MemoryWait::default())
            .and_then(|()| table.apply(Lsn(KEYS + number), &op));
        if let Err(error) = outcome {
            explains_itself(&error);
        }
    }
    if let Err(error) =
        table.checkpoint(Lsn(KEYS * 2)).and_then(|_| table.maintain(MaintenanceMode::Step))
    {
        explains_itself(&error);
    }
}

/// The journal with the input laid over the patches of its last group, from the front (words of the
/// trie) or the back (the state), as the first byte says, and the checksums made right. The second
/// bit of that byte chooses a table with a switched subtree.
pub(super) fn group(input: &[u8]) {
    let Some((kind, input)) = input.split_first() else { return };
    let paths = if kind & 2 == 0 { Paths::Hashed } else { Paths::Switched };
    let (_, name) = base(paths);
    let mut bytes = contents(name, paths);
    let mut at = 0;
    // The last group that there is.
    loop {
        let next = (at + GROUP_HEAD_BYTES + word(&bytes, at + 64)).next_multiple_of(BLOCK_BYTES);
        if bytes.get(next..next + 8) != Some(b"QREDOGRP") {
            break;
        }
        at = next;
    }
    let size = word(&bytes, at + 64);
    let patches = &mut bytes[at + GROUP_HEAD_BYTES..at + GROUP_HEAD_BYTES + size];
    let from = if kind % 2 == 0 { 0 } else { patches.len().saturating_sub(200) };
    overlay(&mut patches[from..], input);
    let crc = crc32c(patches).to_le_bytes();
    bytes[at + 80..at + 84].copy_from_slice(&crc);
    let head = &mut bytes[at..at + GROUP_HEAD_BYTES];
    head[12..16].fill(0);
    let crc = crc32c(head).to_le_bytes();
    head[12..16].copy_from_slice(&crc);
    open_with(name, bytes, paths);
}

/// The data with the input laid over records, and their checksums made right where they still
/// end within the region.
pub(super) fn records(input: &[u8]) {
    let mut bytes = contents(DATA, Paths::Hashed);
    let region = &mut bytes[BLOCK_BYTES..];
    overlay(region, input);
    let mut unit = 1;
    while let Some(head) = region.get(unit * UNIT_BYTES..).and_then(|rest| rest.first_chunk::<16>())
    {
        let key_bytes = usize::from(u16::from_le_bytes([head[4], head[5]]));
        let value_bytes = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let whole = 16 + key_bytes + usize::try_from(value_bytes).unwrap_or(usize::MAX / 4);
        let units = whole.div_ceil(UNIT_BYTES);
        let Some(record) = region.get_mut(unit * UNIT_BYTES..(unit + units) * UNIT_BYTES) else {
            break;
        };
        let place = [LIFE, u64::try_from(unit).expect("small")].map(u64::to_le_bytes).concat();
        let crc = crc32c_append(crc32c(&place), &record[4..]).to_le_bytes();
        record[..4].copy_from_slice(&crc);
        unit += units;
    }
    open_with(DATA, bytes, Paths::Hashed);
}

pub(super) fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let group = |kind: u8, place, bytes: &[u8]| [&[kind][..], &placed(place, bytes)].concat();
    vec![
        ("trie_group", "untouched", vec![0]),
        ("trie_group", "words", group(0, 100, &[0, 0, 0, 0, 0xff, 0xf0, 0xff, 0xff])),
        ("trie_group", "a_link_to_itself", group(0, 40, &[128, 0, 0, 0, 0x7f, 2])),
        ("trie_group", "another_place", group(0, 1, &[0xff, 0xff, 0x7f])),
        ("trie_group", "state", group(1, 150, &[0xff, 0xff, 0xff, 0x7f])),
        ("trie_group", "state_of_extents", group(1, 190, &[1, 0x80, 0x20])),
        ("trie_group", "switched_untouched", vec![2]),
        ("trie_group", "switched_words", group(2, 100, &[0, 0, 0, 0, 0xff, 0x64, 0, 0])),
        ("trie_group", "switched_state", group(3, 150, &[0xff, 0xff, 0xff, 0x7f])),
        ("trie_records", "untouched", Vec::new()),
        ("trie_records", "key_size", placed(16 + 4, &[0xff, 0xff])),
        ("trie_records", "value_size", placed(16 + 8, &[0xff, 0xff, 0xff, 0x7f])),
        ("trie_records", "an_extent_that_is_none", placed(16 + 6, &[2])),
        ("trie_records", "another_key", placed(16 + 20, b"XX")),
    ]
}
