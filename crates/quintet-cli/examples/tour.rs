//! A tour: four tables of four engines in one database, on the public data of `examples/data`.
//!
//! `cargo run --release --example tour` loads the data, commits one atomic batch over all four
//! tables, reads a range and lets a session expire. It kills a writing process and finds all of its
//! commits. Then it measures, and prints statistics. It asserts each result that it prints.

use std::{
    error::Error,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use quintet::{Database, EngineKind, KeyRange, PutOptions, Table, TableOptions};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The argument that makes this program the process that is killed.
const CHILD: &str = "--write-until-killed";
const SESSION_LIFETIME: Duration = Duration::from_millis(300);
/// Commits after which the child is killed.
const COMMITS_BEFORE_KILL: u64 = 50_000;
/// Operations of each measurement.
const OPERATIONS: u32 = 200_000;

/// The four tables.
struct Tables {
    /// Time zones in the order of their names.
    zones: Table,
    /// How many characters each category has.
    counters: Table,
    /// Names of characters: written once and rarely read.
    characters: Table,
    sessions: Table,
}

impl Tables {
    fn open(db: &Database) -> Result<Self> {
        let open = |path, kind| db.open_or_create_table(path, TableOptions::new(kind));
        Ok(Self {
            zones: open("world/zones", EngineKind::BTree)?,
            counters: open("world/counters", EngineKind::Trie)?,
            characters: open("archive/characters", EngineKind::Tph)?,
            sessions: open("app/sessions", EngineKind::HashLog)?,
        })
    }

    fn all(&self) -> [&Table; 4] {
        [&self.zones, &self.counters, &self.characters, &self.sessions]
    }

    fn count(&self, name: &str) -> Result<u64> {
        let stored = self.counters.get(name)?;
        Ok(stored.map_or(Ok(0), |value| std::str::from_utf8(&value).unwrap_or("").parse())?)
    }
}

/// A folder that is removed at the end, also after an error.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn heading(text: &str) {
    println!("\n{text}\n{}", "-".repeat(text.len()));
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Loads time zones and characters, and counts the characters of each category.
fn load(db: &Database, tables: &Tables) -> Result<()> {
    heading("1. Load: four tables of four engines in one database");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data");
    let began = Instant::now();
    for row in csv::Reader::from_path(data.join("zones.csv"))?.records() {
        let row = row?;
        tables.zones.put(&row[0], format!("{} {} {}", &row[1], &row[2], &row[3]))?;
    }
    for row in csv::Reader::from_path(data.join("characters.csv"))?.records() {
        let row = row?;
        // The name and its count change together or not at all.
        let count = tables.count(&row[2])? + 1;
        let mut batch = db.batch();
        batch.put(&tables.characters, &row[0], &row[1]);
        batch.put(&tables.counters, &row[2], count.to_string());
        batch.commit()?;
    }
    for (number, entry) in tables.zones.range(..)?.enumerate().step_by(10) {
        tables.sessions.put(format!("session-{number}"), entry?.0)?;
    }
    for (table, what) in tables.all().iter().zip([
        "time zones, ordered by name",
        "characters of each category",
        "names of characters",
        "users that are signed in",
    ]) {
        let (name, kind, keys) = (table.name(), table.kind().name(), table.stats()?.keys);
        println!("{name:<20} {kind:<8} {keys:>5} keys: {what}");
    }
    println!("loaded in {} ms", began.elapsed().as_millis());
    Ok(())
}

fn batch(db: &Database, tables: &Tables) -> Result<()> {
    heading("2. One atomic batch over all four tables");
    let mut batch = db.batch();
    batch.put(&tables.zones, "Atlantic/Atlantis", "XA +3100-02400 sunken");
    batch.put(&tables.counters, "Co", "1");
    batch.put(&tables.characters, "U+E000", "TRIDENT");
    let short = PutOptions::new().ttl(SESSION_LIFETIME);
    batch.put_with(&tables.sessions, "session-poseidon", "Atlantic/Atlantis", short);
    batch.commit()?;
    for (table, key) in
        tables.all().iter().zip(["Atlantic/Atlantis", "Co", "U+E000", "session-poseidon"])
    {
        let value = table.get(key)?.ok_or("the batch is not whole")?;
        println!("{:<20} {key:<18} {}", table.name(), text(&value));
    }
    Ok(())
}

fn range(tables: &Tables) -> Result<()> {
    heading("3. A range: zones from Atlantic/A to Atlantic/D");
    let mut count = 0;
    for entry in tables.zones.range("Atlantic/A".."Atlantic/D")? {
        let (key, value) = entry?;
        println!("{:<20} {}", text(&key), text(&value));
        count += 1;
    }
    let (last, _) =
        tables.zones.range(KeyRange::prefix(b"Pacific/"))?.next_back().ok_or("no")??;
    println!("the last zone of Pacific/ is {}", text(&last));
    assert_eq!((count, last.as_slice()), (5, &b"Pacific/Tongatapu"[..]));
    Ok(())
}

fn expiry(tables: &Tables) -> Result<()> {
    heading("4. Expiry");
    let began = Instant::now();
    while tables.sessions.contains("session-poseidon")? {
        std::thread::sleep(Duration::from_millis(5));
        if began.elapsed() > SESSION_LIFETIME * 20 {
            return Err("the session does not expire".into());
        }
    }
    println!("session-poseidon was written for {} ms and is gone", SESSION_LIFETIME.as_millis());
    assert!(tables.sessions.get("session-poseidon")?.is_none());
    Ok(())
}

/// The process that is killed: commits batches over all four tables and reports each commit.
fn write_until_killed(path: &str) -> Result<()> {
    let db = Database::open(path)?;
    let tables = Tables::open(&db)?;
    let mut out = std::io::stdout().lock();
    for number in 1_u64.. {
        let (key, value) = (format!("kill-{number:08}"), number.to_string());
        let mut batch = db.batch();
        batch.put(&tables.zones, &key, &value).put(&tables.counters, "commits", &value);
        batch.put(&tables.characters, &key, &value).put(&tables.sessions, &key, &value);
        batch.commit()?;
        writeln!(out, "{number}")?;
    }
    Ok(())
}

/// Kills a writing process with SIGKILL and compares what is found with what it reported.
fn kill(path: &Path) -> Result<()> {
    heading("5. kill -9 of a process that writes, then reopen");
    let mut child = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let mut reported = 0;
    while reported < COMMITS_BEFORE_KILL {
        reported = lines.next().ok_or("the child ended by itself")??.parse()?;
    }
    child.kill()?; // SIGKILL: the child cannot write anything more
    child.wait()?;
    // What it had reported before it died and was still in the pipe.
    for line in lines {
        reported = reported.max(line?.parse()?);
    }

    let began = Instant::now();
    let db = Database::open(path)?;
    let elapsed = began.elapsed();
    let tables = Tables::open(&db)?;
    let found = tables.count("commits")?;
    assert!(found >= reported, "{reported} reported, {found} found");
    for table in [&tables.zones, &tables.characters, &tables.sessions] {
        for number in 1..=found {
            let value = table.get(format!("kill-{number:08}"))?;
            assert!(value.is_some_and(|value| *value == *number.to_string().as_bytes()));
        }
        assert!(table.get(format!("kill-{:08}", found + 1))?.is_none(), "half a batch is left");
    }
    println!("the child reported {reported} commits over four tables, then it was killed");
    println!("reopened in {} ms: {found} commits found, each whole", elapsed.as_millis());
    assert!(db.check()?.is_sound());
    println!("check: sound");
    Ok(db.close()?)
}

fn per_second(began: Instant) -> f64 {
    f64::from(OPERATIONS) / began.elapsed().as_secs_f64()
}

/// Puts and gets of one thread, for each table.
fn measure(tables: &Tables) -> Result<()> {
    heading("6. Operations a second");
    println!("{OPERATIONS} puts, then {OPERATIONS} gets; one thread, keys of 12 bytes in random");
    println!("order, values of 100 bytes, all in memory, durability Buffered (the default)");
    println!("{:<20} {:<8} {:>12} {:>12}", "table", "engine", "puts/s", "gets/s");
    // An odd factor visits each key once, out of order.
    let key = |number: u32| format!("key-{:08x}", number.wrapping_mul(0x9e37_79b1));
    for table in tables.all() {
        let began = Instant::now();
        for number in 0..OPERATIONS {
            table.put(key(number), [b'v'; 100])?;
        }
        let puts = per_second(began);
        let (began, mut value) = (Instant::now(), Vec::new());
        for number in 0..OPERATIONS {
            assert!(table.get_into(key(number), &mut value)?);
        }
        let gets = per_second(began);
        println!("{:<20} {:<8} {puts:>12.0} {gets:>12.0}", table.name(), table.kind().name());
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "printed with one digit")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn statistics(db: &Database) -> Result<()> {
    heading("7. Statistics, after persist");
    db.persist()?;
    let (table, engine, keys) = ("table", "engine", "keys");
    println!("{table:<20} {engine:<8} {keys:>8} {:>12} {:>12}", "MiB in files", "MiB in memory");
    let stats = db.stats();
    for table in &stats.tables {
        let (files, memory) = (mebibytes(table.file_bytes), mebibytes(table.memory_bytes));
        let (name, kind, keys) = (&table.name, table.kind.name(), table.keys);
        println!("{name:<20} {kind:<8} {keys:>8} {files:>12.1} {memory:>12.1}");
    }
    let (used, budget) = (mebibytes(stats.memory_bytes), mebibytes(stats.memory_budget_bytes));
    println!("memory: {used:.0} MiB of a budget of {budget:.0} MiB");
    println!("commits since it was opened: {}", stats.commits_total);
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, path] = arguments.as_slice()
        && flag == CHILD
    {
        return write_until_killed(path);
    }
    let name = format!("quintet-tour-{}", std::process::id());
    let scratch = Scratch(std::env::temp_dir().join(name));
    let began = Instant::now();
    let db = Database::open(&scratch.0)?;
    let tables = Tables::open(&db)?;
    load(&db, &tables)?;
    batch(&db, &tables)?;
    range(&tables)?;
    expiry(&tables)?;
    db.close()?;
    kill(&scratch.0)?;
    let db = Database::open(&scratch.0)?;
    measure(&Tables::open(&db)?)?;
    statistics(&db)?;
    db.close()?;
    println!("\nall results as expected, in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}
