//! Command-line options that all suites share.

use std::{path::PathBuf, time::Duration};

use clap::value_parser;
use quintet::Options;

use crate::{
    args::{LogLimits, bytes, count, duration, key_bytes, option, rate, value_bytes},
    store::Durability,
};

/// Options of the log of Quintet's databases.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct LogOptions {
    /// Time after which the log of Quintet's engines is synced after the first unsynced write: 1ms
    /// to 1h [default: 100ms].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) sync_interval: Option<Duration>,
    /// Bound of the log that opening a database of Quintet replays, in bytes, or with KiB, MiB or
    /// GiB: at least 64KiB [default: 256MiB].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) recovery_budget: Option<u64>,
    /// Time after which all tables of Quintet with unpersisted updates are checkpointed: 0s, or
    /// 10ms to 24h [default: 0s, as the engines and the bound of the log ask].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) checkpoint_interval: Option<Duration>,
}

impl LogOptions {
    /// Returns the options of a database.
    pub(crate) fn apply(self, options: Options) -> Options {
        let Self { sync_interval, recovery_budget, checkpoint_interval } = self;
        LogLimits { sync_interval, recovery_budget, checkpoint_interval }.apply(options)
    }

    /// Returns the settings of Quintet's stores: [`crate::builtin`] reads them.
    pub(crate) fn settings(self) -> impl Iterator<Item = (String, String)> {
        let time = |time: Duration| format!("{}ms", time.as_millis());
        let settings = [
            ("sync_interval", self.sync_interval.map(time)),
            ("recovery_budget", self.recovery_budget.map(|bytes| bytes.to_string())),
            ("checkpoint_interval", self.checkpoint_interval.map(time)),
        ];
        settings.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)))
    }
}

/// Options of every suite.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SuiteOptions {
    /// Stores, separated by commas; they run in turn. Besides the engines: `floor` (a bare table,
    /// the bound that the machine sets), `hashbrown` (a map behind a lock) and `null` (the harness
    /// alone).
    #[arg(long, value_delimiter = ',')]
    pub(crate) engine: Vec<String>,
    /// Records loaded first [default: 1M; logkv: as many as operations].
    #[arg(long, value_parser = count)]
    pub(crate) records: Option<u64>,
    /// Operations of all threads together [default: as many as records; presets: as in the paper].
    #[arg(long, value_parser = count)]
    pub(crate) operations: Option<u64>,
    /// Threads [default: 1; txn-hot and its variants: 8].
    #[arg(long, value_parser = value_parser!(u64).range(1..=1024))]
    pub(crate) threads: Option<u64>,
    /// Bytes of each key [default: 23; logkv: 100].
    #[arg(long, value_parser = key_bytes)]
    pub(crate) key_bytes: Option<usize>,
    /// Keys of uniformly distributed bytes, as hashes are, instead of text with a hash at the end.
    #[arg(long)]
    pub(crate) random_keys: bool,
    /// Bytes of each value; several sizes, separated by commas, occur in equal parts [default: 128;
    /// logkv: 500].
    #[arg(long, value_delimiter = ',', value_parser = value_bytes)]
    pub(crate) value_bytes: Vec<usize>,
    /// Percentage of each value that repeats earlier bytes of the same value. Compression can save
    /// these bytes.
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u32).range(0..=100))]
    pub(crate) value_repeated: u32,
    /// Durability of a returned write. With `sync`, records are loaded in batches of 1000, unless
    /// the workload measures loading.
    #[arg(long, value_enum, default_value_t = Durability::Buffered)]
    pub(crate) durability: Durability,
    /// Seed of all random choices: the same seed gives the same operations.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory for the files of stores, which are removed afterwards [default: the system's
    /// temporary directory].
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Prints one JSON object on a line for each store and workload.
    #[arg(long)]
    pub(crate) json: bool,
    /// Runs of each store and workload; stores run in turn. The output shows median and spread.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=100))]
    pub(crate) runs: u64,
    /// Checks every read, and every record at the end. This is slower: do not compare the figures.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Kills the process (SIGKILL) after each run, reopens the store and checks every record.
    /// Stores without files run without this check.
    #[arg(long)]
    pub(crate) recovery: bool,
    /// Operations per second of all threads together. The latency of an operation counts from the
    /// time at which it was due.
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Seconds to pause after each run, before bytes written and files are counted.
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u64).range(0..=3600))]
    pub(crate) rest: u64,
    /// Times one operation of this many on average [default: 16; with `sync` or a rate: 1].
    #[arg(long, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) timed_one_in: Option<u32>,
    /// Records in one atomic write while loading, unless the workload measures loading.
    #[arg(long, value_parser = value_parser!(u64).range(1..=100_000))]
    pub(crate) load_batch: Option<u64>,
    /// Memory budget of a store in bytes.
    #[arg(long, value_parser = count)]
    pub(crate) memory_budget: Option<u64>,
    #[command(flatten)]
    pub(crate) log: LogOptions,
    /// Option of the engines, `name=value`; of one engine, `engine.name=value`.
    #[arg(long, value_parser = option)]
    pub(crate) option: Vec<(String, String)>,
}
