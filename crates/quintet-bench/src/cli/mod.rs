//! `quintet bench`: the command line and its suites.
//!
//! `plan` turns the arguments of a suite into sessions. `run` runs them and prints medians as a
//! table or as JSON. `ckvs` and `expiry` are benchmarks without sessions.

mod ckvs;
mod expiry;
mod options;
mod plan;
mod run;

use std::io::Write;

use ckvs::CkvsArgs;
use expiry::ExpiryArgs;
use options::SuiteOptions;

use crate::{
    builtin::BuiltinStores,
    failure::Outcome,
    instructions::{self, InstructionArgs},
    session,
    store::Stores,
    workload::{
        DB_BENCH, MICRO, Suite, TXN,
        logkv::{DELETE_FRACTION, LogKvPoint, LogKvPreset},
    },
};

/// Arguments of `quintet bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    suite: SuiteCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum SuiteCommand {
    /// The Yahoo! Cloud Serving Benchmark: load, a to f.
    Ycsb {
        /// Workloads, separated by commas: load, a, b, c, d, e, f.
        #[arg(long, value_delimiter = ',', default_value = "load,a,b,c,d,e,f")]
        workload: Vec<String>,
        #[command(flatten)]
        common: SuiteOptions,
    },
    /// Workloads of one kind of operation.
    Micro {
        /// Workloads, separated by commas: read-uniform, read-zipfian, read-absent, read-dependent,
        /// insert, update, delete, multi-get-16, multi-get-32, multi-get-256, range-5, range-10,
        /// range-50, range-100.
        #[arg(
            long,
            value_delimiter = ',',
            default_values_t = MICRO.map(str::to_owned)
        )]
        workload: Vec<String>,
        #[command(flatten)]
        common: SuiteOptions,
    },
    /// The workloads of `db_bench`, by their names.
    Dbbench {
        /// Workloads, separated by commas: fillseq, fillsorted (with one thread only), fillrandom,
        /// overwrite, readrandom, readseq, readmissing, seekrandom, readwhilewriting, deleterandom.
        #[arg(
            long,
            value_delimiter = ',',
            default_values_t = DB_BENCH.map(str::to_owned)
        )]
        workload: Vec<String>,
        #[command(flatten)]
        common: SuiteOptions,
    },
    /// The generator and the experiments of the LogKV paper.
    Logkv {
        /// One of the paper's experiments, with its stores, sizes and numbers of commands.
        #[arg(long, conflicts_with_all = [
            "hit_rate", "read_fraction", "hot_fraction", "hot_rate", "delete_fraction",
        ])]
        preset: Option<LogKvPreset>,
        /// Probability that a command's key is in the store.
        #[arg(long, default_value_t = 0.95)]
        hit_rate: f64,
        /// Probability that a command is a read.
        #[arg(long, default_value_t = 0.8)]
        read_fraction: f64,
        /// Share of the keys that are hot.
        #[arg(long, default_value_t = 0.2)]
        hot_fraction: f64,
        /// Share of the commands that go to hot keys.
        #[arg(long, default_value_t = 0.6)]
        hot_rate: f64,
        /// Probability that a write is a delete.
        #[arg(long, default_value_t = DELETE_FRACTION)]
        delete_fraction: f64,
        #[command(flatten)]
        common: SuiteOptions,
    },
    /// Transactions, and the atomic update of a key.
    ///
    /// After each run the sum over all records is checked.
    Txn {
        /// Workloads, separated by commas: txn-rmw, txn-rmw-snapshot, txn-transfer, txn-hot,
        /// txn-hot-snapshot, txn-hot-locked, atomic-update. Transfers are between two tables. The
        /// second one has the engine of `--option second_engine=ENGINE` (default: btree; for btree:
        /// hashlog).
        #[arg(
            long,
            value_delimiter = ',',
            default_values_t = TXN.map(str::to_owned)
        )]
        workload: Vec<String>,
        #[command(flatten)]
        common: SuiteOptions,
    },
    /// The tests in the README of ckvs.
    Ckvs(CkvsArgs),
    /// The cost of expiry for other operations.
    Expiry(ExpiryArgs),
    /// Runs one kind of operation for an instruction counter (`cargo xtask instructions`).
    #[command(hide = true)]
    Instructions(InstructionArgs),
}

/// Runs the benchmark of `args` on the stores of this crate and prints to `out`. A failure has the
/// exit code of [`crate::failure::Failure::code`]; results of earlier runs have been printed.
///
/// Runs are child processes: this executable with the same command line and an environment
/// variable. The caller must therefore reach this function again from the same command line.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    run_with(&BuiltinStores, args, out)
}

/// As [`run`], with the stores of the caller.
pub fn run_with(stores: &dyn Stores, args: &Args, out: &mut dyn Write) -> Outcome {
    if let Some(outcome) = session::serve_if_child(stores, out) {
        return outcome;
    }
    let suite_plan = match &args.suite {
        SuiteCommand::Ycsb { workload, common } => {
            plan::named(stores, Suite::Ycsb, workload, common)?
        }
        SuiteCommand::Micro { workload, common } => {
            plan::named(stores, Suite::Micro, workload, common)?
        }
        SuiteCommand::Dbbench { workload, common } => {
            plan::named(stores, Suite::DbBench, workload, common)?
        }
        SuiteCommand::Txn { workload, common } => {
            plan::named(stores, Suite::Txn, workload, common)?
        }
        SuiteCommand::Logkv { preset: Some(preset), common, .. } => {
            plan::preset(stores, *preset, common)?
        }
        SuiteCommand::Logkv {
            preset: None,
            hit_rate,
            read_fraction,
            hot_fraction,
            hot_rate,
            delete_fraction,
            common,
        } => {
            let point = LogKvPoint {
                hit_rate: *hit_rate,
                read_fraction: *read_fraction,
                hot_fraction: *hot_fraction,
                hot_rate: *hot_rate,
                delete_fraction: *delete_fraction,
            };
            plan::point(stores, point, common)?
        }
        SuiteCommand::Ckvs(args) => return ckvs::run(args, out),
        SuiteCommand::Expiry(args) => return expiry::run(args, out),
        SuiteCommand::Instructions(args) => return instructions::run(stores, args, out),
    };
    run::run(&suite_plan, out)
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
        let SuiteCommand::Ycsb { common, workload } = whole.unwrap().args.suite else {
            panic!("not ycsb")
        };
        assert_eq!(workload, ["c"]);
        assert_eq!(common.engine, ["a", "b"]);
        assert_eq!(common.records, Some(2_000_000));
        assert_eq!(common.value_bytes, [1, 20]);
    }
}
