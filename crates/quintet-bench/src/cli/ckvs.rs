//! The tests in the README of ckvs: `quintet bench ckvs`.
//!
//! Method. Keys and values are numbers of eight bytes in random order. There are 8 threads, pages
//! of 16 KiB, and a page cache of 8,192 or 32,768 pages; each call puts or gets one key. Quintet
//! runs with its log. *Cold* means closed and reopened. The README measures a RAM disk; use `--dir`
//! with one to compare. `--scale` multiplies the README's sizes and its times: times grow at least
//! as fast as the number of records.
//!
//! The test "paged file" of the README writes 10,000 pages of 16 KiB at random with 8 threads, and
//! compares with one thread that writes a plain file. Here 10,000 values of almost a page are made
//! durable, and the same bytes go to a plain file that is synced once.

use std::{
    fs::File,
    io::Write,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::Instant,
};

use quintet::{Database, EngineKind, Options, Table, TableOptions};

use super::options::LogOptions;
use crate::{
    args::option,
    failure::{Failure, Outcome},
    numbers::{to_f64, to_u64, to_usize, truncate},
    random::mix,
};

/// Size of a page.
const PAGE_BYTES: u64 = 16 << 10;
/// Memory in addition to the page cache: log segments and write buffers.
const MEMORY_BESIDE: u64 = 256 << 20;
/// A thread removes a key after it has inserted this many further keys.
const REMOVE_BEHIND: u64 = 1_000;
/// Number of pages of the test "paged file".
const FILE_PAGES: u64 = 10_000;

/// Arguments of `quintet bench ckvs`.
#[derive(Clone, Debug, clap::Args)]
pub struct CkvsArgs {
    /// Tests, separated by commas: insert-remove-find, remove-hot, remove-cold, query-1m-8192,
    /// query-1m-32768, query-5m-32768, query-10m-32768, query-20m-8192, query-20m-32768,
    /// paged-file.
    #[arg(long, value_delimiter = ',', default_values_t = TESTS.map(|test| test.name.to_owned()))]
    test: Vec<String>,
    /// Factor for the number of records of the README.
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Threads.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    #[command(flatten)]
    log: LogOptions,
    /// Option of the engine, `name=value`.
    #[arg(long, value_parser = option)]
    option: Vec<(String, String)>,
    /// Directory for databases [default: the system's temporary directory].
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// A test of the README.
#[derive(Clone, Copy, Debug)]
struct CkvsTest {
    name: &'static str,
    records: u64,
    cache_pages: u64,
    body: TestBody,
    /// Time in the README in seconds.
    readme_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestBody {
    InsertRemoveFind,
    Remove { is_cold: bool },
    Query,
    PagedFile,
}

const fn query(name: &'static str, millions: u64, cache_pages: u64, readme_s: f64) -> CkvsTest {
    CkvsTest { name, records: millions * 1_000_000, cache_pages, body: TestBody::Query, readme_s }
}

const fn remove(name: &'static str, is_cold: bool, readme_s: f64) -> CkvsTest {
    let body = TestBody::Remove { is_cold };
    CkvsTest { name, records: 5_000_000, cache_pages: 32_768, body, readme_s }
}

const TESTS: [CkvsTest; 10] = [
    CkvsTest {
        name: "insert-remove-find",
        records: 10_000_000,
        cache_pages: 32_768,
        body: TestBody::InsertRemoveFind,
        readme_s: 14.174,
    },
    remove("remove-hot", false, 6.925),
    remove("remove-cold", true, 7.321),
    query("query-1m-8192", 1, 8_192, 0.78),
    query("query-1m-32768", 1, 32_768, 0.74),
    query("query-5m-32768", 5, 32_768, 4.951),
    query("query-10m-32768", 10, 32_768, 9.953),
    query("query-20m-8192", 20, 8_192, 658.798),
    query("query-20m-32768", 20, 32_768, 80.643),
    CkvsTest {
        name: "paged-file",
        records: FILE_PAGES,
        cache_pages: 32_768,
        body: TestBody::PagedFile,
        // Measured on the SSD of the README, asynchronous.
        readme_s: 1.206,
    },
];

/// Runs the tests in sequence and prints a line for each to `out`.
pub(crate) fn run(args: &CkvsArgs, out: &mut dyn Write) -> Outcome {
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    for name in &args.test {
        let test = TESTS.iter().find(|test| test.name == name);
        let test = test.ok_or_else(|| Failure::Usage(format!("there is no test {name:?}")))?;
        let records = truncate(to_f64(test.records) * args.scale).max(1);
        let dir = base.join(format!("quintet-ckvs-{}", std::process::id()));
        let outcome = run_test(args, test, records, &dir);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).map_err(|error| Failure::io(dir.display(), &error))?;
        }
        let times = outcome?;
        let seconds = times.first().map_or(0.0, |(_, seconds)| *seconds);
        let readme = test.readme_s * args.scale;
        let parts: Vec<String> =
            times.iter().map(|(part, seconds)| format!("{part} {seconds:.3} s")).collect();
        let (pages, ratio) = (test.cache_pages, readme / seconds);
        writeln!(
            out,
            "{name:18} {records:>9} records, {pages:>5} pages of cache: {}; README {readme:.3} s, \
             {ratio:.2} times as long",
            parts.join(", "),
        )?;
    }
    Ok(())
}

/// Parts of a test with their times in seconds. The first one corresponds to the time in the
/// README.
type TestParts = Vec<(&'static str, f64)>;

fn run_test(args: &CkvsArgs, test: &CkvsTest, records: u64, dir: &Path) -> Outcome<TestParts> {
    let store = TestStore { args, test, dir };
    match test.body {
        TestBody::InsertRemoveFind => store.insert_remove_find(records),
        TestBody::Remove { is_cold } => store.remove(records, is_cold),
        TestBody::Query => store.query(records),
        TestBody::PagedFile => store.paged_file(records),
    }
}

struct TestStore<'a> {
    args: &'a CkvsArgs,
    test: &'a CkvsTest,
    dir: &'a Path,
}

/// Returns the seconds that `work` takes, and its result.
fn timed<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<(f64, T)> {
    let start = Instant::now();
    let outcome = work()?;
    Ok((start.elapsed().as_secs_f64(), outcome))
}

/// Returns the key of a number. Keys are in random order.
fn key_of(number: u64) -> [u8; 8] {
    mix(number).to_be_bytes()
}

fn expect(holds: bool, number: u64) -> Outcome {
    if holds { Ok(()) } else { Err(Failure::Damage(format!("record {number}: a wrong answer"))) }
}

impl TestStore<'_> {
    fn open(&self) -> Outcome<(Database, Table)> {
        let cache = self.test.cache_pages * PAGE_BYTES;
        // The cache of a table is at most half of the budget.
        let budget = (2 * cache).max(cache + MEMORY_BESIDE);
        let options = self.args.log.apply(Options::new().memory_budget(budget));
        let db = options.open(self.dir)?;
        let options = TableOptions::new(EngineKind::BTree)
            .set("page_bytes", PAGE_BYTES.to_string())
            .set("cache_bytes", cache.to_string());
        let settings = self.args.option.iter();
        let options = settings.fold(options, |options, (name, value)| options.set(name, value));
        let table = db.open_or_create_table("numbers", options)?;
        Ok((db, table))
    }

    fn reopen(&self, db: &Database) -> Outcome<(Database, Table)> {
        db.persist()?;
        db.close()?;
        self.open()
    }

    /// Runs `work` for the numbers below `count`, divided among the threads.
    fn share(&self, count: u64, work: impl Fn(u64) -> Outcome + Sync) -> Outcome {
        let threads = self.args.threads;
        std::thread::scope(|scope| {
            let work = &work;
            let share = |thread: u64| {
                let mut numbers = (thread..count).step_by(to_usize(threads));
                move || numbers.try_for_each(work)
            };
            let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(share(thread))).collect();
            handles.into_iter().try_for_each(|handle| {
                let died = |_| Err(Failure::Failed("a thread panicked".to_owned()));
                handle.join().unwrap_or_else(died)
            })
        })
    }

    fn insert(&self, table: &Table, records: u64) -> Outcome {
        self.share(records, |number| Ok(table.put(key_of(number), number.to_le_bytes())?))
    }

    /// Inserts all records and removes the odd ones at the same time, saves and reopens, and finds
    /// the even ones with one thread.
    fn insert_remove_find(&self, records: u64) -> Outcome<TestParts> {
        let (db, table) = self.open()?;
        let behind = REMOVE_BEHIND * self.args.threads;
        let remove = |number: u64| {
            if number % 2 == 1 { table.delete(key_of(number)) } else { Ok(()) }
        };
        let (inserting, ()) = timed(|| {
            self.share(records + behind, |number| {
                if number < records {
                    table.put(key_of(number), number.to_le_bytes())?;
                }
                if let Some(earlier) = number.checked_sub(behind) {
                    remove(earlier)?;
                }
                Ok(())
            })
        })?;
        let (saving, (db, table)) = timed(|| self.reopen(&db))?;
        let (finding, ()) = timed(|| {
            (0..records).step_by(2).try_for_each(|number| {
                let found = table.get(key_of(number))?;
                expect(found.as_deref() == Some(&number.to_le_bytes()[..]), number)
            })
        })?;
        expect(table.stats()?.keys == records.div_ceil(2), records)?;
        db.close()?;
        let whole = inserting + saving + finding;
        Ok(vec![
            ("all", whole),
            ("insert and remove", inserting),
            ("save and open", saving),
            ("find", finding),
        ])
    }

    fn remove(&self, records: u64, is_cold: bool) -> Outcome<TestParts> {
        let (db, table) = self.open()?;
        self.insert(&table, records)?;
        let (db, table) = if is_cold { self.reopen(&db)? } else { (db, table) };
        let (removing, ()) =
            timed(|| self.share(records, |number| Ok(table.delete(key_of(number))?)))?;
        expect(table.stats()?.keys == 0, 0)?;
        db.close()?;
        Ok(vec![("remove", removing)])
    }

    fn query(&self, records: u64) -> Outcome<TestParts> {
        let (db, table) = self.open()?;
        let (inserting, ()) = timed(|| self.insert(&table, records))?;
        let (db, table) = self.reopen(&db)?;
        let (querying, ()) = timed(|| {
            self.share(records, |step| {
                // Not the order of the inserts.
                let number = step * 7_919 % records;
                let found = table.get(key_of(number))?;
                expect(found.as_deref() == Some(&number.to_le_bytes()[..]), number)
            })
        })?;
        db.close()?;
        Ok(vec![("query", querying), ("insert", inserting)])
    }

    fn paged_file(&self, pages: u64) -> Outcome<TestParts> {
        let (db, table) = self.open()?;
        let value = vec![0x5a; to_usize(PAGE_BYTES) - 64];
        let (durable, ()) = timed(|| {
            self.share(pages, |number| Ok(table.put(key_of(number), &value)?))?;
            Ok(db.persist()?)
        })?;
        db.close()?;
        let path = self.dir.join("plain");
        let io = |error| Failure::io(path.display(), &error);
        let (plain, ()) = timed(|| {
            let file = File::create(&path).map_err(io)?;
            let page = vec![0x5a; to_usize(PAGE_BYTES)];
            for step in 0..pages {
                let offset = step * 7_919 % pages * to_u64(page.len());
                file.write_all_at(&page, offset).map_err(io)?;
            }
            file.sync_all().map_err(io)
        })?;
        Ok(vec![("table", durable), ("plain file", plain)])
    }
}
