//! The whole database over a catalog or a log record of arbitrary bytes.

use std::{path::Path, sync::Arc, sync::OnceLock, time::Duration};

use quintet::{
    Cursor, Database, EngineKind, Options, Result, Table, TableOptions, inspect,
    testing::{
        codec::{put_bytes, put_varint},
        disk::{
            Env, Open,
            sim::{Damage, SimEnv},
        },
        wal::{Anchor, Log, LogOptions, SegmentReader},
    },
};

use super::{
    explains_itself,
    fix::{self, Input},
};

const DIR: &str = "/db";
const CATALOG: &str = "/db/catalog";
/// Number of the first table of a database.
const FIRST_TABLE: u64 = 1;

/// A closed database of two tables: the base of every input.
fn base() -> &'static SimEnv {
    static BASE: OnceLock<SimEnv> = OnceLock::new();
    BASE.get_or_init(|| {
        let env = SimEnv::new(7);
        let db = open(&env).expect("a new database");
        let first = db.create_table("first", TableOptions::new(EngineKind::Naive)).expect("a name");
        let options = TableOptions::new(EngineKind::Naive).set("snapshot_bytes", "4096");
        let other = db.create_table("folder/other", options).expect("a name");
        for number in 0..20 {
            let key = format!("key {number}");
            first.put(&key, "a value").expect("room");
            other.put(&key, "another value").expect("room");
        }
        other.persist().expect("room");
        db.close().expect("a sound disk");
        env
    })
}

fn open(env: &SimEnv) -> Result<Database> {
    let options = Options::new().memory_budget(16 << 20).segment_bytes(64 << 10);
    options.open_in(Arc::new(env.clone()), DIR)
}

fn database_id(catalog: &[u8]) -> [u8; 16] {
    catalog[16..32].try_into().expect("sixteen bytes")
}

/// Opens and uses a database over a catalog made from the input.
pub(super) fn catalog(bytes: &[u8]) {
    let env = base().kill();
    let id = database_id(&env.contents(CATALOG).expect("a catalog"));
    let file = fix::catalog(Input::new(bytes), id);
    if let Err(error) = inspect::catalog(&file) {
        explains_itself(&error);
    }
    env.damage(CATALOG, &Damage::Replace(file)).expect("a catalog");
    open_and_use(&env, Trust::Nothing);
}

/// Opens and uses a database whose log ends with a sound record of this body.
pub(super) fn record_body(body: &[u8]) {
    match inspect::record_body(body) {
        Ok(lines) => assert!(lines.len() <= body.len(), "an operation takes bytes"),
        Err(error) => explains_itself(&error),
    }
    let env = base().kill();
    append(&env, body);
    open_and_use(&env, Trust::Reopening);
}

/// Opens and uses a database with a stored value of these bytes.
pub(super) fn envelope(stored: &[u8]) {
    match inspect::stored_value(stored) {
        Ok(line) => assert!(!line.is_empty()),
        Err(error) => explains_itself(&error),
    }
    let env = base().kill();
    append(&env, &put("stored", stored));
    open_and_use(&env, Trust::Reopening);
}

/// The body of a record that puts a stored value into the first table.
fn put(key: &str, stored: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    put_varint(&mut body, FIRST_TABLE);
    body.push(1);
    put_bytes(&mut body, key.as_bytes());
    put_bytes(&mut body, stored);
    body
}

/// Adds a record to the log of a closed database.
fn append(env: &SimEnv, body: &[u8]) {
    let dir = env.open_dir(&Path::new(DIR).join("log"), false).expect("the log's folder");
    let names = dir.list().expect("a folder");
    let oldest = names.iter().map(|entry| entry.name.as_str()).min().expect("a segment");
    let file = dir.open(oldest, Open::READ).expect("a segment");
    let start = SegmentReader::open(file, oldest).expect("a sound head").head().base;
    let anchor = Anchor {
        database_id: database_id(&env.contents(CATALOG).expect("a catalog")),
        start,
        durable: start,
        created: false,
        catalog: u64::MAX,
    };
    let options = LogOptions { segment_bytes: 64 << 10, read_only: false, retention: 0 };
    let env: Arc<dyn Env> = Arc::new(env.clone());
    let log = Log::open(&env, &dir, &options, &anchor, &mut |_, _| Ok(())).expect("a sound log");
    let mut ticket = log.begin().expect("a working log");
    ticket.append(&[body]).expect("room");
    drop(ticket);
    log.sync().expect("a sound disk");
}

/// The requirement on the second opening, after a first that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// It succeeds with the same contents.
    Reopening,
    /// It fails or has the same contents: a catalog with a sound checksum may name wrong bounds of
    /// the log.
    Nothing,
}

/// Opens the database. If that succeeds, reads, writes, a check, a close and a second opening must
/// succeed as well.
fn open_and_use(env: &SimEnv, trust: Trust) {
    let db = match open(env) {
        Ok(db) => db,
        Err(error) => return explains_itself(&error),
    };
    // The background jobs run: sync, persist, sweep.
    env.advance(Duration::from_secs(3));
    if let Some(table) = db.tables().first() {
        match db.table(&table.name) {
            Ok(table) => use_table(&table),
            Err(error) => explains_itself(&error),
        }
    }
    if let Err(error) = db.check() {
        explains_itself(&error);
    }
    let before = contents(&db);
    db.close().expect("a close");
    drop(db);
    match open(env) {
        Ok(again) => assert_eq!(contents(&again), before),
        Err(error) if trust == Trust::Nothing => explains_itself(&error),
        Err(error) => panic!("what was opened and closed does not open again: {error}"),
    }
}

fn use_table(table: &Table) {
    if let Err(error) = table.put("added", "later") {
        return explains_itself(&error);
    }
    let value = table.get("added").expect("a readable table").expect("what was just put");
    assert_eq!(&value[..], b"later");
}

/// Keys and values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the names of tables with their readable entries, sorted. A value that cannot be read is
/// noted.
fn contents(db: &Database) -> Vec<(String, Pairs)> {
    let mut all = Vec::new();
    for info in db.tables() {
        let mut entries = Vec::new();
        if let Ok(table) = db.table(&info.name) {
            let mut cursor = Cursor::START;
            while let Ok((found, next)) = table.scan(&cursor, 64) {
                entries.extend(found.into_iter().map(|(key, value)| (key, value.to_vec())));
                if next.is_start() {
                    break;
                }
                cursor = next;
            }
        }
        entries.sort_unstable();
        entries.dedup();
        all.push((info.name.clone(), entries));
    }
    all.sort_unstable();
    all
}

/// Inputs made by the code itself: target, name, bytes.
pub(super) fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let catalog = base().contents(CATALOG).expect("a catalog");
    let with = |flags: u8, rest: &[u8]| [&[flags][..], rest].concat();
    let edits = &catalog[4096..];
    let mut batch = put("one", b"\0value");
    batch.extend_from_slice(&put("two", b"\0value"));
    batch.extend_from_slice(&[2, 2, 3, b'k', b'e', b'y']);
    vec![
        ("catalog", "as-written", with(0, edits)),
        ("catalog", "length-not-recorded", with(1 << 3, edits)),
        ("catalog", "recorded-length-is-beyond", with(2 << 3, edits)),
        ("catalog", "recorded-length-is-short", with(3 << 3, edits)),
        ("catalog", "with-its-own-checksums", with(1, edits)),
        ("catalog", "no-edits", with(0, &[])),
        ("record_body", "two-puts-and-a-delete", batch),
        ("record_body", "a-range-in-an-unordered-table", vec![1, 3, 1, b'a', 1, b'b']),
        ("record_body", "of-an-unknown-table", vec![99, 2, 1, b'a']),
        ("record_body", "an-empty-key", vec![1, 2, 0]),
        ("record_body", "ends-in-a-key", vec![1, 1, 9, b'a']),
        ("record_body", "empty", vec![]),
        ("envelope", "plain", b"\0value".to_vec()),
        ("envelope", "expired", [&[1][..], &1_u64.to_le_bytes(), b"value"].concat()),
        ("envelope", "never-expires", [&[1][..], &u64::MAX.to_le_bytes(), b"value"].concat()),
        ("envelope", "tagged", b"\x02\x06text".to_vec()),
        ("envelope", "unknown-tag", b"\x02\xfftext".to_vec()),
        ("envelope", "unknown-flag", b"\x80value".to_vec()),
        ("envelope", "ends-in-its-expiry", b"\x01\x01\x02".to_vec()),
        ("envelope", "empty", vec![]),
    ]
}
