//! The command line of `quintet bench`.

use std::{io::Write, path::PathBuf};

use crate::{
    child, ckvs,
    data::{KEY_BYTES, VALUE_BYTES},
    expiry,
    failure::Outcome,
    instructions, plan,
    store::{Durability, Own, Stores},
    workload::logkv::Preset,
};

/// What is asked for.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Suite {
    /// The Yahoo! Cloud Serving Benchmark: load, a to f.
    Ycsb {
        /// Workloads, by comma: load, a, b, c, d, e, f.
        #[arg(long, value_delimiter = ',', default_value = "load,a,b,c,d,e,f")]
        workload: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
    /// One kind of operation at a time.
    Micro {
        /// Workloads, by comma: read-uniform, read-zipfian, read-absent, read-dependent, insert,
        /// update, delete, multi-get-16, multi-get-32, multi-get-256, range-5,
        /// range-10, range-50, range-100.
        #[arg(
            long,
            value_delimiter = ',',
            default_values_t = crate::workload::MICRO.map(str::to_owned)
        )]
        workload: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
    /// The workloads of `db_bench` by their names.
    Dbbench {
        /// Workloads, by comma: fillseq, fillsorted (with one thread only), fillrandom, overwrite,
        /// readrandom, readseq, readmissing, seekrandom, readwhilewriting, deleterandom.
        #[arg(
            long,
            value_delimiter = ',',
            default_values_t = crate::workload::DB_BENCH.map(str::to_owned)
        )]
        workload: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
    /// The generator and the experiments of the LogKV paper.
    Logkv {
        /// One of the paper's experiments, with its stores, sizes and numbers of commands.
        #[arg(long, conflicts_with_all = ["hit_rate", "read_fraction", "hot_fraction", "hot_rate"])]
        preset: Option<Preset>,
        /// Probability that a command's key is in the store.
        #[arg(long, default_value_t = 0.95)]
        hit_rate: f64,
        /// Probability that a command is a read.
        #[arg(long, default_value_t = 0.8)]
        read_fraction: f64,
        /// Share of the keys that is hot.
        #[arg(long, default_value_t = 0.2)]
        hot_fraction: f64,
        /// Share of the commands that goes to hot keys.
        #[arg(long, default_value_t = 0.6)]
        hot_rate: f64,
        #[command(flatten)]
        common: Common,
    },
    /// The tests of ckvs's README.
    Ckvs(ckvs::Args),
    /// What expiry costs those who work meanwhile.
    Expiry(expiry::Args),
    /// Runs one kind of operation for an instruction counter (`cargo xtask instructions`).
    #[command(hide = true)]
    Instructions(instructions::Args),
}

/// Options of every suite.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common {
    /// Stores, by comma, measured turn by turn. Also `floor` (a bare table: what the machine
    /// allows), `hashbrown` (a map behind a lock) and `null` (the harness itself).
    #[arg(long, value_delimiter = ',')]
    pub(crate) engine: Vec<String>,
    /// Records loaded first [default: 1M; logkv: as many as operations].
    #[arg(long, value_parser = count)]
    pub(crate) records: Option<u64>,
    /// Operations, all threads together [default: as many as records; presets: as in the paper].
    #[arg(long, value_parser = count)]
    pub(crate) operations: Option<u64>,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: u64,
    /// Bytes of each key [default: 23; logkv: 100].
    #[arg(long, value_parser = key_bytes)]
    pub(crate) key_bytes: Option<usize>,
    /// Bytes of each value; several sizes by comma are mixed in equal parts [default: 128; logkv:
    /// 500].
    #[arg(long, value_delimiter = ',', value_parser = value_bytes)]
    pub(crate) value_bytes: Vec<usize>,
    /// Per cent of each value that repeats what stands before it: what a compression can save.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) value_repeated: u32,
    /// What a returned write promises. With `sync`, records are loaded in batches of 1000 unless
    /// loading is what is measured.
    #[arg(long, value_enum, default_value_t = Durability::Buffered)]
    pub(crate) durability: Durability,
    /// Seed of everything random: the same seed gives the same operations.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where stores put their files, each in a directory of its own that is removed afterwards
    /// [default: the system's temporary directory].
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Prints one JSON object a line, one for each store and workload.
    #[arg(long)]
    pub(crate) json: bool,
    /// Runs of each store and workload, stores turn by turn; the median and the spread are shown.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) runs: u64,
    /// Checks every read, and every record at the end. Slower: do not compare the figures.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Kills the process (SIGKILL) after each run, opens the store again and checks every record.
    /// Stores without files are left out of this.
    #[arg(long)]
    pub(crate) recovery: bool,
    /// Operations a second, all threads together: an operation that starts late counts from when
    /// it was due.
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Rests so many seconds after each run, before bytes written and files are counted.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) rest: u64,
    /// Times one operation in so many [default: 16; with `sync` or a rate: 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) timed_one_in: Option<u32>,
    /// Records that one atomic write loads, where loading is not what is measured.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) load_batch: Option<u64>,
    /// Memory that a store may use, in bytes.
    #[arg(long, value_parser = count)]
    pub(crate) memory_budget: Option<u64>,
    /// An option of the engines, `name=value`; of one of several, `engine.name=value`.
    #[arg(long, value_parser = option)]
    pub(crate) option: Vec<(String, String)>,
}

/// Runs what `args` ask for on the stores of this crate and prints to `out`. Fails with the exit
/// code of [`crate::failure::Failure::code`]; what was measured before has been printed.
///
/// Runs are child processes: this executable with the same arguments, told what to do by an
/// environment variable. So the caller must reach this function again from the same command line.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    run_with(&Own, args, out)
}

/// As [`run`], on a set of stores of the caller's choice.
pub fn run_with(stores: &dyn Stores, args: &Args, out: &mut dyn Write) -> Outcome {
    let plan = match &args.suite {
        Suite::Ycsb { workload, common } => {
            plan::named(stores, crate::workload::Suite::Ycsb, workload, common)?
        }
        Suite::Micro { workload, common } => {
            plan::named(stores, crate::workload::Suite::Micro, workload, common)?
        }
        Suite::Dbbench { workload, common } => {
            plan::named(stores, crate::workload::Suite::DbBench, workload, common)?
        }
        Suite::Logkv { preset: Some(preset), common, .. } => plan::preset(stores, *preset, common)?,
        Suite::Logkv { preset: None, hit_rate, read_fraction, hot_fraction, hot_rate, common } => {
            let point = crate::workload::logkv::Point {
                hit_rate: *hit_rate,
                read_fraction: *read_fraction,
                hot_fraction: *hot_fraction,
                hot_rate: *hot_rate,
            };
            plan::point(stores, point, common)?
        }
        Suite::Ckvs(args) => return ckvs::run(args, out),
        Suite::Expiry(args) => return expiry::run(args, out),
        Suite::Instructions(args) => return instructions::run(stores, args, out),
    };
    child::run(stores, &plan, out)
}

/// A count: digits, `_` between them, and `k`, `M` or `G` for thousands, millions, thousand
/// millions.
pub fn count(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let (digits, unit) = match digits.as_bytes().last() {
        Some(b'k' | b'K') => (digits.trim_end_matches(['k', 'K']), 1_000),
        Some(b'm' | b'M') => (digits.trim_end_matches(['m', 'M']), 1_000_000),
        Some(b'g' | b'G') => (digits.trim_end_matches(['g', 'G']), 1_000_000_000),
        _ => (digits.as_str(), 1),
    };
    let number: u64 = digits.parse().map_err(|_| "not a count such as 2000000, 2M or 500k")?;
    let most = 1 << 50;
    number
        .checked_mul(unit)
        .filter(|count| *count <= most)
        .ok_or_else(|| format!("more than {most}"))
}

fn within(text: &str, allowed: &std::ops::RangeInclusive<usize>) -> Result<usize, String> {
    let size = count(text)?;
    usize::try_from(size)
        .ok()
        .filter(|size| allowed.contains(size))
        .ok_or_else(|| format!("sizes are from {} to {} bytes", allowed.start(), allowed.end()))
}

/// Bytes of a key, within [`KEY_BYTES`].
pub fn key_bytes(text: &str) -> Result<usize, String> {
    within(text, &KEY_BYTES)
}

/// Bytes of a value, within [`VALUE_BYTES`].
pub fn value_bytes(text: &str) -> Result<usize, String> {
    within(text, &VALUE_BYTES)
}

/// Operations a second.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate >= 1e-3);
    rate.ok_or_else(|| "not a rate of at least 0.001 operations a second".to_owned())
}

/// An option, `name=value`.
pub fn option(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("not of the form name=value")?;
    if name.is_empty() {
        return Err("the name is empty".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Whole {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_definition_is_consistent() {
        use clap::{CommandFactory as _, Parser as _};
        Whole::command().debug_assert();
        let words =
            "bench ycsb --engine a,b --workload c --records 2_000k --value-bytes 1,20 --json";
        let whole = Whole::try_parse_from(words.split(' ')).map_err(|error| error.to_string());
        let Suite::Ycsb { common, workload } = whole.unwrap().args.suite else {
            panic!("not ycsb")
        };
        assert_eq!(workload, ["c"]);
        assert_eq!(common.engine, ["a", "b"]);
        assert_eq!(common.records, Some(2_000_000));
        assert_eq!(common.value_bytes, [1, 20]);
    }

    #[test]
    fn counts_are_read_with_their_units() {
        assert_eq!(count("2_000_000"), Ok(2_000_000));
        assert_eq!(count("2M"), Ok(2_000_000));
        assert_eq!(count("500k"), Ok(500_000));
        for wrong in ["", "k", "-1", "1.5", "1x", "99999999999G"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
        assert!(key_bytes("7").is_err() && key_bytes("65536").is_err());
        assert_eq!(value_bytes("0"), Ok(0));
        assert!(rate("0").is_err() && rate("inf").is_err());
        assert!(option("=1").is_err() && option("x").is_err());
    }
}
