//! The `hashlog` engine: chunks, entries, manifests and index checkpoints of arbitrary bytes.

use quintet::testing::engine::MaintenanceMode;
use quintet::testing::engine::MultiGetSink;
use std::sync::OnceLock;

use quintet::{
    Result,
    testing::{
        codec::Lsn,
        disk::sim::{Damage, SimEnv},
        engine::{
            Cursor, Engine, EngineKind, MemoryWait, Op, PendingWork, TableOptions, hashlog::HashLog,
        },
        report::Report,
    },
};

use super::{
    desk::{self, TABLE_ID},
    explains_itself,
    fix::{self, Input},
};

const DATABASE_ID: [u8; 16] = *b"fuzz-hashlog....";
const DATA: &str = "/table/data-00000000";
const MANIFEST: &str = "/table/manifest-00000001";
const CHUNK_BYTES: u64 = 16 << 10;
/// LSN above all entries of the base.
const LSN: u64 = 1 << 20;

fn open(env: &SimEnv) -> Result<(HashLog, Lsn)> {
    let context = desk::context(env, DATABASE_ID);
    let options = TableOptions::new(EngineKind::HashLog)
        .set("chunk_bytes", CHUNK_BYTES.to_string())
        .set("mutable_chunks", "2");
    HashLog::open(&options, context)
}

/// A closed table: a chunk with entries of each kind, two publications.
fn base() -> &'static SimEnv {
    static BASE: OnceLock<SimEnv> = OnceLock::new();
    BASE.get_or_init(|| {
        let env = SimEnv::new(1);
        let (table, _) = open(&env).expect("a new table");
        let mut lsn = 0;
        let mut apply = |op: &Op<'_>| {
            lsn += 8;
            table.admit(op, &MemoryWait::default()).expect("room");
            table.apply(Lsn(lsn), op).expect("room");
        };
        for key in ["a", "key", "another key", "expiring"] {
            let body = if key == "expiring" { &b"E"[..] } else { b"a value" };
            apply(&Op::Put { key: key.as_bytes(), head: b"", body });
        }
        let (long, large) = ([b'k'; 300], vec![b'v'; 6_000]);
        apply(&Op::Put { key: &long, head: b"", body: b"of a long key" });
        apply(&Op::Put { key: b"large", head: b"", body: &large });
        table.checkpoint(Lsn(100)).expect("room");
        apply(&Op::Delete { key: b"a" });
        apply(&Op::Put { key: b"key", head: b"", body: b"another value of another size" });
        table.checkpoint(Lsn(200)).expect("room");
        drop(table);
        env
    })
}

fn contents(name: &str) -> Vec<u8> {
    base().contents(name).expect("a file of the base")
}

/// Opens the base with one or both of its files replaced, and uses the table if that succeeds.
fn open_with(files: &[(&str, Vec<u8>)]) {
    let env = base().kill();
    for (name, bytes) in files {
        env.damage(name, &Damage::Replace(bytes.clone())).expect("a file of the base");
    }
    let table = match open(&env) {
        Ok((table, _)) => table,
        Err(error) => return explains_itself(&error),
    };
    let mut report = Report::default();
    if let Err(error) = table.check(&mut report) {
        explains_itself(&error);
    }
    let before = scan(&table);
    let sound = report.is_sound() && before.is_ok();
    if !use_table(&table) || !sound {
        return;
    }
    drop(table);
    let (again, _) = open(&env).expect("what was sound and published opens again");
    let mut expected = before.expect("scanned");
    expected.retain(|(key, value)| *key != b"added" && value.first() != Some(&b'E'));
    expected.push((b"added".to_vec(), b"later".to_vec()));
    expected.sort_unstable();
    let mut found = scan(&again).expect("a sound table");
    found.retain(|(_, value)| value.first() != Some(&b'E'));
    assert!(found == expected, "another content after publishing and opening again");
}

/// Reads, writes, publishes and compacts; returns whether all of that succeeded.
fn use_table(table: &HashLog) -> bool {
    let op = Op::Put { key: b"added", head: b"", body: b"later" };
    let outcome = table.get(b"key").map(drop).and_then(|()| {
        table.multi_get(&[b"a", b"large", b"nothing"], MultiGetSink::Append(&mut Vec::new()))?;
        table.admit(&op, &MemoryWait::default())?;
        table.apply(Lsn(LSN), &op)?;
        let value = table.get(b"added")?.expect("what was just put");
        assert_eq!(&value[..], b"later");
        table.checkpoint(Lsn(LSN + 8)).map(drop)
    });
    let outcome = outcome.and_then(|()| {
        for _ in 0..20 {
            match table.pending_work() {
                PendingWork::Maintain => table.maintain(MaintenanceMode::Step)?,
                PendingWork::Checkpoint => drop(table.checkpoint(Lsn(LSN + 8))?),
                PendingWork::None | PendingWork::Later => break,
            }
        }
        Ok(())
    });
    outcome.map_err(|error| explains_itself(&error)).is_ok()
}

/// All entries, sorted.
fn scan(table: &HashLog) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut entries = Vec::new();
    let mut cursor = Cursor::START;
    loop {
        let (found, next) = table.scan(&cursor, 100)?;
        entries.extend(found.into_iter().map(|entry| (entry.key, entry.value.to_vec())));
        if next.is_start() {
            entries.sort_unstable();
            return Ok(entries);
        }
        cursor = next;
    }
}

/// A chunk of one extent whose entries (and head, where the input has one) are the input; the
/// manifest names it and has no usable hints, so that opening reads the entries.
pub(super) fn chunk(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (data, extent) =
        fix::hashlog_chunk(&mut input, &contents(DATA)[..4096], DATABASE_ID, TABLE_ID);
    let manifest = fix::hashlog_checkpoint(&extent, &[0, 0], &contents(MANIFEST)[..512]);
    open_with(&[(DATA, data), (MANIFEST, manifest)]);
}

/// A manifest of these publications over the data of the base.
pub(super) fn manifest(bytes: &[u8]) {
    let file = fix::hashlog_manifest(Input::new(bytes), &contents(MANIFEST)[..512]);
    open_with(&[(MANIFEST, file)]);
}

/// A checkpoint of the index that holds these hints. Variant 0: the extent is said to fit them.
pub(super) fn hints(bytes: &[u8]) {
    let input = Input::new(bytes);
    let data = contents(DATA);
    let extent = fix::hashlog_extent(&data, &input);
    let manifest = fix::hashlog_checkpoint(&extent, input.rest(), &contents(MANIFEST)[..512]);
    open_with(&[(MANIFEST, manifest)]);
}

/// Files built around the code's own publications and hints equal those that the code writes.
fn assert_understood(manifest: &[u8], hints: &[u8]) {
    let head = &manifest[..512];
    let publications = [&[0], &manifest[512..]].concat();
    let built = fix::hashlog_manifest(Input::new(&publications), head);
    assert!(built == manifest, "other checksums than the code's");
    // With damaged entries, an extent opens only through sound hints.
    let mut data = contents(DATA);
    let extent = fix::hashlog_extent(&data, &Input::new(&[&[0], hints].concat()));
    data[4096 + 128 + 20] ^= 1;
    let opens = |hints: &[u8]| {
        let env = base().kill();
        let manifest = fix::hashlog_checkpoint(&extent, hints, head);
        for (name, bytes) in [(DATA, data.clone()), (MANIFEST, manifest)] {
            env.damage(name, &Damage::Replace(bytes)).expect("a file of the base");
        }
        open(&env).is_ok()
    };
    assert!(opens(hints), "the hints are not taken");
    assert!(!opens(&hints[1..]), "hints are not read");
}

/// Inputs made by the code itself: target, name, bytes.
pub(super) fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let with = |flags: u8, rest: &[u8]| [&[flags][..], rest].concat();
    let (data, manifest) = (contents(DATA), contents(MANIFEST));
    let end = fix::hashlog_extent_bytes(&data);
    let publications = &manifest[512..];
    let hints = fix::hashlog_first_hints(&manifest);
    assert_understood(&manifest, hints);
    vec![
        ("hashlog_chunk", "entries-as-written", with(0, &data[4096 + 128..4096 + end])),
        ("hashlog_chunk", "a-head-of-its-own", with(2, &data[4096..4096 + end])),
        ("hashlog_chunk", "with-its-own-checksums", with(7, &data[4096..4096 + end])),
        ("hashlog_chunk", "no-entries", with(0, &[])),
        ("hashlog_manifest", "as-written", with(0, publications)),
        ("hashlog_manifest", "with-its-own-checksums", with(1, publications)),
        ("hashlog_manifest", "a-head-of-its-own", with(2, &manifest)),
        ("hashlog_manifest", "no-publication", with(0, &[])),
        ("hashlog_hints", "as-written", with(0, hints)),
        ("hashlog_hints", "of-another-extent", with(1 << 3, &hints[..hints.len() - 9])),
        ("hashlog_hints", "none", with(0, &[])),
    ]
}
