//! Plans the sessions of a suite: one session for each workload and store.

use std::path::PathBuf;

use super::options::SuiteOptions;
use crate::{
    failure::{Failure, Outcome},
    session::{
        Job,
        plan::{
            self, MemoryPlan, SessionOptions, SessionPlan, StepRequest, StoreChoice, check_stores,
        },
    },
    store::Stores,
    workload::{
        Suite, WorkloadSpec,
        logkv::{self, LogKvPoint, LogKvPreset, PresetPoint},
    },
};

/// Default number of records.
const RECORDS: u64 = 1_000_000;
/// Default size of a key, that of YCSB.
const KEY_BYTES: usize = 23;
/// Default size of a value.
const VALUE_BYTES: usize = 128;

/// Everything that a suite runs.
#[derive(Clone, Debug)]
pub struct SuitePlan {
    /// Jobs of one step each, in groups of the same workload on different stores.
    pub groups: Vec<Vec<Job>>,
    /// Runs of each job.
    pub runs: u64,
    /// Directory for files; the system's temporary directory if `None`.
    pub dir: Option<PathBuf>,
    /// Whether to print JSON instead of a table.
    pub json: bool,
    /// Notes for the user: what is left out, and the figures of the paper.
    pub notes: Vec<String>,
}

/// Default sizes of a suite.
#[derive(Clone, Copy, Debug)]
struct DefaultSizes {
    records: u64,
    operations: u64,
    key_bytes: usize,
    value_bytes: usize,
}

/// Plans named workloads of a suite.
pub(crate) fn named(
    stores: &dyn Stores,
    suite: Suite,
    names: &[String],
    options: &SuiteOptions,
) -> Outcome<SuitePlan> {
    let records = options.records.unwrap_or(RECORDS);
    let sizes = DefaultSizes {
        records,
        operations: records,
        key_bytes: KEY_BYTES,
        value_bytes: VALUE_BYTES,
    };
    let default: &[&str] = match suite {
        Suite::Txn => &["hashlog", "btree"],
        _ => &["hashlog", "naive", "floor", "hashbrown"],
    };
    let specs = names.iter().map(|name| (WorkloadSpec::Named { suite, name: name.clone() }, sizes));
    let engines = engines(stores, options, default)?;
    assemble(stores, specs.collect(), engines, options)
}

/// Plans one point of the LogKV generator.
pub(crate) fn point(
    stores: &dyn Stores,
    point: LogKvPoint,
    options: &SuiteOptions,
) -> Outcome<SuitePlan> {
    let operations = options.operations.or(options.records).unwrap_or(RECORDS);
    let spec = WorkloadSpec::LogKv { name: "logkv".to_owned(), point };
    let engines = engines(stores, options, &["hashlog", "naive"])?;
    assemble(stores, vec![(spec, logkv_sizes(operations))], engines, options)
}

/// Plans one of LogKV's experiments.
pub(crate) fn preset(
    stores: &dyn Stores,
    preset: LogKvPreset,
    options: &SuiteOptions,
) -> Outcome<SuitePlan> {
    let specs = preset.points().into_iter().map(|PresetPoint { name, point, operations }| {
        let operations = options.operations.unwrap_or(operations);
        (WorkloadSpec::LogKv { name, point }, logkv_sizes(operations))
    });
    let specs = specs.collect();
    let engines = if options.engine.is_empty() {
        let variants = preset.variants().iter();
        variants
            .map(|(name, settings)| StoreChoice {
                name: (*name).to_owned(),
                settings: settings
                    .iter()
                    .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                    .collect(),
            })
            .collect()
    } else {
        engines(stores, options, &[])?
    };
    let mut options = options.clone();
    options.recovery |= preset.recovers();
    let mut plan = assemble(stores, specs, engines, &options)?;
    plan.notes.push(preset.paper().to_owned());
    Ok(plan)
}

/// Returns the sizes of the LogKV authors' program.
const fn logkv_sizes(operations: u64) -> DefaultSizes {
    DefaultSizes {
        records: operations,
        operations,
        key_bytes: logkv::KEY_BYTES,
        value_bytes: logkv::VALUE_BYTES,
    }
}

/// Returns the stores of the command line, or `default` if it names none.
fn engines(
    stores: &dyn Stores,
    options: &SuiteOptions,
    default: &[&str],
) -> Outcome<Vec<StoreChoice>> {
    let known = stores.names();
    let names: Vec<String> = if options.engine.is_empty() {
        default.iter().filter(|name| known.contains(name)).map(|&name| name.to_owned()).collect()
    } else {
        options.engine.clone()
    };
    check_stores(stores, "--engine", &names)?;
    for (option, _) in &options.option {
        if let Some((engine, _)) = option.split_once('.')
            && !names.iter().any(|name| name == engine)
        {
            return Err(Failure::Usage(format!("--option {option}: {engine} is not measured")));
        }
    }
    Ok(names.iter().map(|name| StoreChoice::named(name)).collect())
}

fn assemble(
    stores: &dyn Stores,
    specs: Vec<(WorkloadSpec, DefaultSizes)>,
    engines: Vec<StoreChoice>,
    options: &SuiteOptions,
) -> Outcome<SuitePlan> {
    let request = |(spec, sizes): (WorkloadSpec, DefaultSizes)| -> Outcome<StepRequest> {
        let value_bytes = if options.value_bytes.is_empty() {
            vec![sizes.value_bytes]
        } else {
            options.value_bytes.clone()
        };
        Ok(StepRequest {
            threads: match options.threads {
                Some(threads) => threads,
                None => spec.workload()?.threads,
            },
            point: None,
            spec,
            records: options.records.unwrap_or(sizes.records),
            operations: options.operations.unwrap_or(sizes.operations),
            key_bytes: options.key_bytes.unwrap_or(sizes.key_bytes),
            value_bytes,
            value_repeated_percent: options.value_repeated,
            settings: Vec::new(),
        })
    };
    let requests = specs.into_iter().map(request).collect::<Outcome<Vec<StepRequest>>>()?;
    let session_options = SessionOptions {
        stores: engines,
        options: options.option.iter().cloned().chain(options.log.settings()).collect(),
        durability: options.durability,
        memory: options.memory_budget.map(|_| MemoryPlan::Fits),
        budget_bytes: options.memory_budget,
        random_keys: options.random_keys,
        seed: options.seed,
        load_batch: options.load_batch,
        timed_one_in: options.timed_one_in,
        rate: options.rate,
        seconds_min: 0.0,
        settle_seconds: 0,
        rest_seconds: options.rest,
        verify: options.verify,
        reopens: false,
        recovers: options.recovery,
        skips_volatile: false,
        shares_load: false,
    };
    let SessionPlan { groups, notes } = plan::sessions(stores, None, &requests, &session_options)?;
    if groups.is_empty() {
        let why = notes.join("; ");
        let why = if why.is_empty() { "no engine is given".to_owned() } else { why };
        return Err(Failure::Usage(format!("nothing to run: {why}")));
    }
    let (runs, dir, json) = (options.runs, options.dir.clone(), options.json);
    Ok(SuitePlan { groups, runs, dir, json, notes })
}
