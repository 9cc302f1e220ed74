//! Databases that earlier builds wrote are opened and read whole.
//!
//! `fixtures/` has one folder for each version of the file formats. Each file in it is a database
//! in a compressed archive: one for each engine and one with all engines, in three states:
//!
//! | state | made by |
//! |---|---|
//! | `closed` | persisted after each round of writes, then closed |
//! | `log` | never persisted, the process aborted: the log alone has the content |
//! | `mixed` | persisted after two rounds of four, the process aborted |
//!
//! [^load]: A sorted load of `btree` writes the table's own file and not the log.
//!
//! The expected content comes from `plan`, the steps that also wrote the database.
//!
//! A log is judged by the boot id of the kernel that wrote it. The fixtures were written under an
//! invented one, so on every machine the system's boot id differs, as after a reboot. Each is
//! opened under the invented id as well, as after the death of the process alone.
//!
//! To write the fixtures of a new version (the command `zstd` compresses them):
//! `QUINTET_FIXTURES=v0.2 cargo test -p quintet --test compatibility -- --ignored write_fixtures`

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod archive;
mod plan;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use quintet::{
    Cursor, Database, EngineKind, Options,
    testing::disk::{Dir, Env, Job, JobHandle, Queue, os::OsEnv},
};

use crate::plan::{Content, Contents, ROUNDS, Steps};

const STATES: [&str; 3] = ["closed", "log", "mixed"];
/// Names the folder of fixtures to write.
const VERSION: &str = "QUINTET_FIXTURES";
/// Directory, database and state, for the child that writes and aborts.
const CHILD: &str = "QUINTET_FIXTURES_CHILD";
/// Larger files do not belong in the repository.
const FIXTURE_BYTES_MAX: u64 = 1 << 20;

/// The system, under an invented kernel.
#[derive(Debug, Default)]
struct InventedBoot(OsEnv);

impl Env for InventedBoot {
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>> {
        self.0.open_dir(path, create)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.0.canonical(path)
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn unix_millis(&self) -> u64 {
        self.0.unix_millis()
    }

    fn random(&self, out: &mut [u8]) {
        self.0.random(out);
    }

    fn boot_id(&self) -> [u8; 16] {
        *b"quintet-fixtures"
    }

    fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes()
    }

    fn start(&self, job: Arc<dyn Job>) -> JobHandle {
        self.0.start(job)
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.0.queue(depth)
    }
}

/// Returns the names of the databases, with their engines.
fn databases() -> Vec<(&'static str, Vec<EngineKind>)> {
    let single = EngineKind::ALL.iter().map(|kind| (kind.name(), vec![*kind]));
    single.chain([("all", EngineKind::ALL.to_vec())]).collect()
}

fn options() -> Options {
    let hour = Duration::from_hours(1);
    Options::new().memory_budget(32 << 20).segment_bytes(256 << 10).sync_interval(hour)
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Returns a new folder for one test.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("compatibility-{}", std::process::id()))
        .join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Writes a database, and aborts unless its state is `closed`.
fn write(path: &Path, kinds: &[EngineKind], state: &str) {
    let db = options().open_in(Arc::new(InventedBoot::default()), path).unwrap();
    let mut steps = Steps::new(kinds, Some(&db));
    steps.create();
    for round in 0..ROUNDS {
        steps.round(round);
        if state == "closed" || (state == "mixed" && round == 1) {
            db.persist().unwrap();
        }
    }
    if state != "closed" {
        std::process::abort();
    }
    db.close().unwrap();
}

/// The child: writes one database. Does nothing in an ordinary run.
#[test]
fn child_that_writes() {
    let Ok(words) = std::env::var(CHILD) else { return };
    let [path, name, state] = words.split('|').collect::<Vec<_>>().try_into().unwrap();
    let kinds = databases().into_iter().find(|(database, _)| *database == name).unwrap().1;
    write(Path::new(path), &kinds, state);
}

#[test]
#[ignore = "writes files of the repository; see the module head"]
fn write_fixtures() {
    let version = std::env::var(VERSION).expect("QUINTET_FIXTURES names the folder to write");
    let folder = fixtures().join(version);
    fs::create_dir_all(&folder).unwrap();
    for ((name, _), state) in
        databases().iter().flat_map(|one| STATES.map(|state| (one.clone(), state)))
    {
        let file = folder.join(format!("{name}-{state}.tar.zst"));
        assert!(!file.exists(), "{} is never written again", file.display());
        let path = scratch("written").join(format!("{name}-{state}"));
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["child_that_writes", "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{}|{name}|{state}", path.display()))
            .output()
            .unwrap();
        let has_panicked = String::from_utf8_lossy(&output.stderr).contains("panicked");
        assert!(!has_panicked && output.status.success() == (state == "closed"), "{output:?}");
        let archive = path.with_extension("tar");
        fs::write(&archive, archive::pack(&path)).unwrap();
        let zstd = Command::new("zstd").arg("-19").arg(&archive).arg("-o").arg(&file).status();
        assert!(zstd.unwrap().success());
        assert!(fs::metadata(file).unwrap().len() <= FIXTURE_BYTES_MAX);
    }
    fs::remove_dir_all(scratch("written")).unwrap();
}

/// Returns the content of `path` by every way of reading, which must agree.
fn read_table(db: &Database, path: &str) -> Content {
    let table = db.table(path).unwrap();
    let mut content =
        Content { kind: Some(table.kind()), types: table.types(), ..Content::default() };
    let mut cursor = Cursor::START;
    loop {
        let (entries, next) = table.scan(&cursor, 50).unwrap();
        for (key, value) in entries {
            let expiry = value.expires_at_unix_millis();
            content.entries.insert(key, (value.to_vec(), expiry));
        }
        if next == Cursor::START {
            break;
        }
        cursor = next;
    }
    if table.kind().is_ordered() {
        let ranged = table.range(..).unwrap().map(|entry| {
            let (key, value) = entry.unwrap();
            let expiry = value.expires_at_unix_millis();
            (key, (value.to_vec(), expiry))
        });
        assert!(ranged.eq(content.entries.clone()), "{path}: range and scan differ");
    }
    let keys: Vec<&[u8]> = content.entries.keys().map(Vec::as_slice).collect();
    for (key, several) in keys.iter().zip(table.multi_get(&keys).unwrap()) {
        let (expected, expiry) = &content.entries[*key];
        let one = table.get(key).unwrap();
        for value in [one, several] {
            let value = value.unwrap_or_else(|| panic!("{path}: {key:02x?} is not found"));
            assert_eq!((&*value, value.expires_at_unix_millis()), (&**expected, *expiry));
        }
    }
    content
}

/// Compares every table with what the steps wrote.
fn verify(db: &Database, expected: &Contents, what: &str) {
    let names: Vec<String> = db.tables().into_iter().map(|info| info.name).collect();
    assert_eq!(names, expected.keys().cloned().collect::<Vec<_>>(), "{what}");
    for (path, expected) in expected {
        let found = read_table(db, path);
        assert_eq!((found.kind, &found.types), (expected.kind, &expected.types), "{what}: {path}");
        let differing: Vec<_> = expected
            .entries
            .iter()
            .filter(|(key, value)| found.entries.get(*key) != Some(value))
            .map(|(key, _)| key)
            .chain(found.entries.keys().filter(|key| !expected.entries.contains_key(*key)))
            .collect();
        assert!(differing.is_empty(), "{what}: {path}: {differing:02x?}");
        let absent = db.table(path).unwrap().get("never written").unwrap();
        assert!(absent.is_none(), "{what}: {path}");
    }
    let default_options = db.default_options("new").unwrap().unwrap();
    assert_eq!(Some(default_options.kind()), expected["new/name"].kind, "{what}");
    let report = db.check().unwrap();
    assert!(report.is_sound(), "{what}: {:?}", report.findings);
}

/// Opens a fixture for reading and for writing, writes to it, and opens it again.
fn open_and_verify(env: &Arc<dyn Env>, path: &Path, kinds: &[EngineKind], what: &str) {
    let mut expected = Steps::contents(kinds);
    let open = |options: Options| {
        options.open_in(Arc::clone(env), path).unwrap_or_else(|error| panic!("{what}: {error}"))
    };
    let db = open(options().read_only(true));
    verify(&db, &expected, what);
    db.close().unwrap();
    let db = open(options());
    verify(&db, &expected, what);
    for (path, content) in &mut expected {
        if content.types.is_none() {
            db.table(path).unwrap().put("written by this build", "1").unwrap();
            let added = (b"written by this build".to_vec(), (b"1".to_vec(), None));
            content.entries.extend([added]);
        }
    }
    verify(&db, &expected, what);
    db.persist().unwrap();
    db.close().unwrap();
    let db = open(options());
    verify(&db, &expected, what);
    db.close().unwrap();
}

#[test]
fn databases_of_earlier_builds_are_read_whole() {
    let mut count = 0;
    for version in fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path()) {
        for ((name, kinds), state) in
            databases().iter().flat_map(|one| STATES.map(|state| (one.clone(), state)))
        {
            let file = version.join(format!("{name}-{state}.tar.zst"));
            let archive = archive::decompress(&fs::read(&file).unwrap());
            let envs: [Arc<dyn Env>; 2] =
                [Arc::new(OsEnv::new()), Arc::new(InventedBoot::default())];
            for (kernel, env) in ["another kernel", "the same kernel"].iter().zip(&envs) {
                let what = format!("{}, {kernel}", file.display());
                let path = scratch("read").join(format!("{name}-{state}"));
                archive::unpack(&archive, &path);
                open_and_verify(env, &path, &kinds, &what);
                fs::remove_dir_all(&path).unwrap();
            }
            count += 1;
        }
    }
    assert!(count >= 21, "{count} fixtures");
    fs::remove_dir_all(scratch("read").parent().unwrap()).unwrap();
}

#[test]
fn archives_give_back_what_was_packed() {
    let folder = scratch("archive");
    for (name, content) in [("a", vec![]), ("b/c", vec![7; 512]), ("b/d/e", vec![0; 1000])] {
        let path = folder.join("from").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::create_dir(folder.join("from/empty")).unwrap();
    let packed = archive::pack(&folder.join("from"));
    archive::unpack(&packed, &folder.join("to"));
    assert_eq!(archive::pack(&folder.join("to")), packed);
    assert_eq!(fs::read(folder.join("to/b/d/e")).unwrap(), [0; 1000]);
    assert!(folder.join("to/empty").is_dir());
    fs::remove_dir_all(folder).unwrap();
}
