//! The cost of expiry for other operations: `quintet bench expiry`.
//!
//! Method. Of `records` values, `expiring` values expire evenly over a window. One thread reads and
//! updates the others at a fixed rate, first while none expires (idle), then during the window. The
//! latency of an operation counts from the time at which it was due, so a stall counts in every
//! operation that it delays. The benchmark then waits for the sweep and checks that exactly the
//! other values remain. It runs on Quintet only, because the trait of stores has no expiry.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use quintet::{Database, EngineKind, Options, PutOptions, Table, TableOptions};
use serde::Serialize;

use super::options::LogOptions;
use crate::{
    args::{count, key_bytes, option, rate, value_bytes},
    data::{KeyOrder, RecordShape},
    failure::{Failure, Outcome},
    latency::{LatencyHistograms, Percentiles},
    numbers::{to_f64, truncate},
    random::Random,
    workload::VERSION_FIRST,
};

/// Values in one batch while loading.
const LOAD_BATCH: u64 = 1000;
/// Pause between the idle time and the window.
const GAP: Duration = Duration::from_millis(500);
/// Longest wait for the sweep after the window.
const SWEEP_WAIT_MAX: Duration = Duration::from_mins(2);

/// Arguments of `quintet bench expiry`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExpiryArgs {
    /// Engines, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    engine: Vec<EngineKind>,
    /// Number of values.
    #[arg(long, value_parser = count, default_value = "1M")]
    records: u64,
    /// Number of values that expire.
    #[arg(long, value_parser = count, default_value = "100k")]
    expiring: u64,
    /// Length of the window in seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 10)]
    window: u64,
    /// Length of the idle time in seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 10)]
    idle: u64,
    /// Operations per second.
    #[arg(long, value_parser = rate, default_value = "50000")]
    rate: f64,
    /// Share of reads; the other operations are updates.
    #[arg(long, default_value_t = 0.5)]
    read_fraction: f64,
    /// Bytes of each key.
    #[arg(long, value_parser = key_bytes, default_value = "23")]
    key_bytes: usize,
    /// Bytes of each value.
    #[arg(long, value_parser = value_bytes, default_value = "128")]
    value_bytes: usize,
    /// Memory budget of the database in bytes.
    #[arg(long, value_parser = count)]
    memory_budget: Option<u64>,
    #[command(flatten)]
    log: LogOptions,
    /// Option of the engines, `name=value`.
    #[arg(long, value_parser = option)]
    option: Vec<(String, String)>,
    /// Directory for databases [default: the system's temporary directory].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Prints one JSON object on a line for each engine.
    #[arg(long)]
    json: bool,
}

/// Result of one engine.
#[derive(Clone, Debug, Serialize)]
struct ExpiryResult {
    engine: &'static str,
    records: u64,
    expiring: u64,
    window_s: u64,
    rate: f64,
    idle: Percentiles,
    expiry: Percentiles,
    /// p99 of the window divided by p99 of the idle time.
    p99_ratio: f64,
    /// Expired values that were not swept at the end of the window.
    late_at_end: u64,
    /// Milliseconds from the end of the window to the end of the sweep.
    swept_after_ms: u64,
    /// Bytes of the files of table and expiry index, before the window, and after the sweep and a
    /// checkpoint.
    file_bytes: [u64; 2],
    /// Bytes of the expiry index among them.
    index_bytes: [u64; 2],
    live_bytes: [u64; 2],
}

/// Measures the engines in sequence and prints to `out`.
pub(crate) fn run(args: &ExpiryArgs, out: &mut dyn Write) -> Outcome {
    if args.expiring > args.records / 2 {
        let what = "--expiring is at most half of --records: the others are worked on";
        return Err(Failure::Usage(what.to_owned()));
    }
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    for engine in &args.engine {
        let dir = base.join(format!("quintet-expiry-{}-{engine}", std::process::id()));
        let outcome = measure(args, *engine, &dir);
        if let Err(error) = std::fs::remove_dir_all(&dir)
            && dir.exists()
        {
            return Err(Failure::io(dir.display(), &error));
        }
        print(args, &outcome?, out)?;
    }
    Ok(())
}

fn print(args: &ExpiryArgs, result: &ExpiryResult, out: &mut dyn Write) -> Outcome {
    if args.json {
        let line = serde_json::to_string(result)
            .map_err(|error| Failure::Failed(format!("print the result: {error}")))?;
        writeln!(out, "{line}")?;
        return Ok(());
    }
    let ExpiryResult { engine, idle, expiry, p99_ratio, late_at_end, swept_after_ms, .. } = result;
    let micros = |ns: u64| to_f64(ns) / 1000.0;
    for (name, times) in [("idle", idle), ("expiring", expiry)] {
        let Percentiles { samples, p50_ns, p99_ns, p999_ns, max_ns } = *times;
        writeln!(
            out,
            "{engine:8} {name:9} {samples:>9} operations, us: p50 {:.1}, p99 {:.1}, p99.9 {:.1}, \
             max {:.1}",
            micros(p50_ns),
            micros(p99_ns),
            micros(p999_ns),
            micros(max_ns),
        )?;
    }
    let mebibytes = |bytes: [u64; 2]| bytes.map(|bytes| to_f64(bytes) / f64::from(1 << 20));
    let ([files, files_after], [live, live_after]) =
        (mebibytes(result.file_bytes), mebibytes(result.live_bytes));
    let [index, index_after] = mebibytes(result.index_bytes);
    writeln!(
        out,
        "{engine:8} p99 {p99_ratio:.2} times idle; {late_at_end} late at the end, the last swept \
         {swept_after_ms} ms after; MiB before and after: files {files:.1}, {files_after:.1} (of \
         these the index {index:.1}, {index_after:.1}), live {live:.1}, {live_after:.1}",
    )?;
    Ok(())
}

/// A loaded database.
struct LoadedTable {
    db: Database,
    table: Table,
    shape: RecordShape,
    /// Start of the window.
    start: SystemTime,
}

fn measure(args: &ExpiryArgs, engine: EngineKind, dir: &Path) -> Outcome<ExpiryResult> {
    let loaded = load(args, engine, dir)?;
    let LoadedTable { db, table, start, .. } = &loaded;
    let window = Duration::from_secs(args.window);
    let before = (db.stats(), table.stats()?);
    sleep_until(*start - GAP - Duration::from_secs(args.idle));
    let idle_end = Instant::now() + Duration::from_secs(args.idle);
    let idle = work(args, &loaded, 1, idle_end)?;
    if db.stats().expired_swept_total > 0 {
        let what = "the machine is too slow: values expired before the idle time was over";
        return Err(Failure::Failed(what.to_owned()));
    }
    sleep_until(*start);
    let expiry = work(args, &loaded, 2, Instant::now() + window)?;
    let late_at_end = args.expiring - db.stats().expired_swept_total.min(args.expiring);
    let ended = Instant::now();
    while db.stats().expiries_pending > 0 {
        if ended.elapsed() > SWEEP_WAIT_MAX {
            return Err(Failure::Failed("the sweep does not come to its end".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let swept_after_ms = u64::try_from(ended.elapsed().as_millis()).unwrap_or(u64::MAX);
    check(args, &loaded)?;
    db.persist()?;
    let after = (db.stats(), table.stats()?);
    db.close()?;
    let p99_ratio = to_f64(expiry.p99_ns) / to_f64(idle.p99_ns.max(1));
    Ok(ExpiryResult {
        engine: engine.name(),
        records: args.records,
        expiring: args.expiring,
        window_s: args.window,
        rate: args.rate,
        idle,
        expiry,
        p99_ratio,
        late_at_end,
        swept_after_ms,
        file_bytes: [&before, &after].map(|(db, table)| db.expiry_index_bytes + table.file_bytes),
        index_bytes: [&before, &after].map(|(db, _)| db.expiry_index_bytes),
        live_bytes: [&before, &after].map(|(_, table)| table.live_bytes),
    })
}

fn sleep_until(time: SystemTime) {
    if let Ok(wait) = time.duration_since(SystemTime::now()) {
        std::thread::sleep(wait);
    }
}

/// Loads the values that stay, then the values that expire.
fn load(args: &ExpiryArgs, engine: EngineKind, dir: &Path) -> Outcome<LoadedTable> {
    let options = args.log.apply(Options::new());
    let options = match args.memory_budget {
        Some(bytes) => options.memory_budget(bytes),
        None => options,
    };
    let db = options.open(dir)?;
    let settings = args.option.iter();
    let table_options =
        settings.fold(TableOptions::new(engine), |options, (name, value)| options.set(name, value));
    let table = db.create_table("t", table_options)?;
    let shape = RecordShape {
        key_bytes: args.key_bytes,
        value_bytes: vec![args.value_bytes],
        repeated_percent: 0,
        order: KeyOrder::Hashed,
    };
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let staying = args.records - args.expiring;
    let began = Instant::now();
    let mut number = 0;
    while number < staying {
        let mut batch = db.batch();
        for number in number..staying.min(number + LOAD_BATCH) {
            shape.key(number, &mut key);
            shape.value(number, VERSION_FIRST, &mut value);
            batch.put(&table, &key, &value);
        }
        batch.commit()?;
        number += LOAD_BATCH;
    }
    let loaded = began.elapsed();
    db.persist()?;
    // Loading the expiring values and a further checkpoint take time before the first value
    // expires. Estimate both from what was measured, with a reserve.
    let ratio = to_f64(args.expiring) / to_f64(staying);
    let slack = loaded.mul_f64(3.0 * ratio) + began.elapsed().saturating_sub(loaded) * 2;
    let start = SystemTime::now() + slack + GAP + Duration::from_secs(args.idle);
    let window_ns = to_f64(args.window) * 1e9;
    for expiring in 0..args.expiring {
        let part = (to_f64(expiring) + 0.5) / to_f64(args.expiring);
        let time = start + Duration::from_nanos(truncate(part * window_ns));
        let number = staying + expiring;
        shape.key(number, &mut key);
        shape.value(number, VERSION_FIRST, &mut value);
        table.put_with(&key, &value, PutOptions::new().expires_at(time))?;
    }
    db.persist()?;
    Ok(LoadedTable { db, table, shape, start })
}

/// Reads and updates values that stay, at the requested rate, until `end`.
fn work(
    args: &ExpiryArgs,
    loaded: &LoadedTable,
    stream: u64,
    end: Instant,
) -> Outcome<Percentiles> {
    let LoadedTable { table, shape, .. } = loaded;
    let mut random = Random::new(1, stream);
    let mut times = LatencyHistograms::new()?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let step = Duration::from_secs_f64(1.0 / args.rate);
    let mut due = Instant::now();
    while due < end {
        let number = random.below(args.records - args.expiring);
        let reads = random.chance(args.read_fraction);
        shape.key(number, &mut key);
        if !reads {
            shape.value(number, VERSION_FIRST + stream, &mut value);
        }
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        if reads {
            if !table.get_into(&key, &mut value)? {
                return Err(Failure::Failed(format!("record {number} is gone")));
            }
        } else {
            table.put(&key, &value)?;
        }
        times.add(!reads, due.elapsed());
        due += step;
    }
    let [.., all] = times.summarize()?;
    Ok(all)
}

/// Fails unless exactly the values that stay are present.
fn check(args: &ExpiryArgs, loaded: &LoadedTable) -> Outcome {
    let found = loaded.table.stats()?.keys;
    let expected = args.records - args.expiring;
    if found == expected {
        return Ok(());
    }
    Err(Failure::Failed(format!("{found} keys are left, not {expected}")))
}
