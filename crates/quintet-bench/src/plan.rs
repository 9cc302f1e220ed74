//! From the command line to jobs: every store under every workload.
//!
//! A plan is the same in the parent and in its children, since both make it from the same command
//! line; a child is told the number of its job.

use std::path::PathBuf;

use crate::{
    cli::Common,
    data::Shape,
    driver::Task,
    failure::{Failure, Outcome},
    latency::STRIDE,
    numbers::{to_f64, to_u64, to_usize},
    store::{Durability, StoreOptions, Stores},
    workload::{
        self, Amount, Body, Kind, Suite, Workload,
        logkv::{self, Point, Preset},
    },
};

const RECORDS: u64 = 1_000_000;
const KEY_BYTES: usize = 23;
const VALUE_BYTES: usize = 128;
/// Records that a synced batch loads: one sync for each would take minutes.
const SYNCED_LOAD_BATCH: usize = 1000;

/// One store under one workload.
#[derive(Clone, Debug)]
pub struct Job {
    /// The store.
    pub engine: String,
    /// Its options.
    pub settings: Vec<(String, String)>,
    /// Whether it keeps files.
    pub is_persistent: bool,
    /// The workload.
    pub workload: Workload,
    /// Parameters of LogKV's generator.
    pub point: Option<Point>,
    /// Keys and values.
    pub shape: Shape,
    /// How much.
    pub amount: Amount,
    /// Records that one atomic write loads.
    pub load_batch: usize,
    /// Whether it is killed and reopened.
    pub recovers: bool,
}

/// Everything that will be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Each workload with each store, stores of one workload next to each other.
    pub jobs: Vec<Job>,
    /// Runs of each.
    pub runs: u64,
    /// What a returned write promises.
    pub durability: Durability,
    /// One operation in so many is timed.
    pub timed_one_in: u32,
    /// Operations a second.
    pub rate: Option<f64>,
    /// Seconds of rest after a run.
    pub rest: u64,
    /// Check every read.
    pub verify: bool,
    /// Memory of a store.
    pub memory_budget: Option<u64>,
    /// Where files go; the system's temporary directory where `None`.
    pub dir: Option<PathBuf>,
    /// JSON instead of a table.
    pub json: bool,
    /// What was left out and why, and what the paper says.
    pub notes: Vec<String>,
}

impl Job {
    /// Names the job in messages.
    pub fn name(&self) -> String {
        format!("{}, workload {}", self.engine, self.workload.name)
    }

    /// How its store is opened.
    pub fn store_options(&self, plan: &Plan, dir: PathBuf) -> StoreOptions {
        let Amount { records, operations, .. } = self.amount;
        let largest = to_u64(self.shape.value_bytes.iter().copied().max().unwrap_or(0));
        let record = to_u64(self.shape.key_bytes) + largest;
        let background = if self.workload.background_writer { operations } else { 0 };
        let writes = [Kind::Insert, Kind::Update, Kind::ReadModifyWrite]
            .into_iter()
            .any(|kind| self.workload.share(kind) > 0.0);
        let writes = if writes { operations } else { 0 };
        StoreOptions {
            dir,
            durability: plan.durability,
            records_max: self.workload.records_max(operations, records),
            bytes_written_max: (records + writes + background).saturating_mul(record.max(64)),
            memory_budget: plan.memory_budget,
            settings: self.settings.clone(),
        }
    }

    /// What its driver is told.
    pub fn task<'a>(&'a self, plan: &Plan) -> Task<'a> {
        Task {
            workload: &self.workload,
            shape: &self.shape,
            amount: self.amount,
            timed_one_in: plan.timed_one_in,
            rate: plan.rate,
            verify: plan.verify,
            load_batch: self.load_batch,
        }
    }
}

/// Named workloads of a suite.
pub(crate) fn named(
    stores: &dyn Stores,
    suite: Suite,
    names: &[String],
    common: &Common,
) -> Outcome<Plan> {
    let workloads = names
        .iter()
        .map(|name| Ok((workload::find(suite, name)?, None)))
        .collect::<Outcome<Vec<_>>>()?;
    let records = common.records.unwrap_or(RECORDS);
    let amount = amount(common, records, common.operations.unwrap_or(records));
    let engines = engines(stores, common, &["hashlog", "naive", "floor", "hashbrown"])?;
    assemble(stores, &workloads, &engines, amount, common)
}

/// One point of LogKV's generator.
pub(crate) fn point(stores: &dyn Stores, point: Point, common: &Common) -> Outcome<Plan> {
    let workloads = [(point.workload("logkv")?, Some(point))];
    let operations = common.operations.or(common.records).unwrap_or(RECORDS);
    let amount = amount(common, common.records.unwrap_or(operations), operations);
    let engines = engines(stores, common, &["hashlog", "naive"])?;
    assemble(stores, &workloads, &engines, amount, &common.with_paper_sizes())
}

/// One of LogKV's experiments.
pub(crate) fn preset(stores: &dyn Stores, preset: Preset, common: &Common) -> Outcome<Plan> {
    let mut workloads = Vec::new();
    for (name, point) in preset.points() {
        workloads.push((point.workload(&name)?, Some(point)));
    }
    let operations = common.operations.unwrap_or(preset.operations());
    let amount = amount(common, common.records.unwrap_or(operations), operations);
    let mut notes = vec![preset.paper().to_owned()];
    let engines = if common.engine.is_empty() {
        let mut engines = Vec::new();
        for (name, settings) in preset.variants() {
            if stores.names().contains(name) {
                let settings = settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
                let mut settings: Vec<_> = settings.collect();
                settings.extend(settings_of(name, &common.option));
                engines.push(((*name).to_owned(), settings));
            } else {
                notes.push(format!("{name}: this build does not have it"));
            }
        }
        engines
    } else {
        engines(stores, common, &[])?
    };
    let mut common = common.with_paper_sizes();
    common.recovery |= preset.recovers();
    let mut plan = assemble(stores, &workloads, &engines, amount, &common)?;
    plan.notes.extend(notes);
    Ok(plan)
}

impl Common {
    /// With the sizes of the authors' program where none are given.
    fn with_paper_sizes(&self) -> Self {
        let mut common = self.clone();
        common.key_bytes.get_or_insert(logkv::KEY_BYTES);
        if common.value_bytes.is_empty() {
            common.value_bytes = vec![logkv::VALUE_BYTES];
        }
        common
    }
}

fn amount(common: &Common, records: u64, operations: u64) -> Amount {
    Amount { records, operations, threads: common.threads, seed: common.seed }
}

type Engines = Vec<(String, Vec<(String, String)>)>;

/// The stores asked for (`default` where none are, as far as there are any), each with its
/// options.
fn engines(stores: &dyn Stores, common: &Common, default: &[&str]) -> Outcome<Engines> {
    let names: Vec<String> = if common.engine.is_empty() {
        let known = stores.names();
        default.iter().filter(|name| known.contains(name)).map(|&name| name.to_owned()).collect()
    } else {
        common.engine.clone()
    };
    for (index, name) in names.iter().enumerate() {
        stores.check(name)?;
        if names.get(..index).is_some_and(|earlier| earlier.contains(name)) {
            return Err(Failure::Usage(format!("--engine: {name} is there twice")));
        }
    }
    for (option, _) in &common.option {
        if let Some((engine, _)) = option.split_once('.')
            && !names.iter().any(|name| name == engine)
        {
            return Err(Failure::Usage(format!("--option {option}: {engine} is not measured")));
        }
    }
    let with_settings = |name: String| {
        // Options without an engine's name are meant for engines: reference stores have none.
        let settings = settings_of(&name, &common.option);
        let settings = if stores.is_persistent(&name) || names_engine(&name, &common.option) {
            settings
        } else {
            Vec::new()
        };
        (name, settings)
    };
    Ok(names.into_iter().map(with_settings).collect())
}

fn names_engine(engine: &str, options: &[(String, String)]) -> bool {
    options.iter().any(|(name, _)| name.split_once('.').is_some_and(|(of, _)| of == engine))
}

fn settings_of(engine: &str, options: &[(String, String)]) -> Vec<(String, String)> {
    let mine = |(name, value): &(String, String)| {
        let name = match name.split_once('.') {
            Some((of, name)) => (of == engine).then_some(name)?,
            None => name,
        };
        Some((name.to_owned(), value.clone()))
    };
    options.iter().filter_map(mine).collect()
}

fn assemble(
    stores: &dyn Stores,
    workloads: &[(Workload, Option<Point>)],
    engines: &Engines,
    amount: Amount,
    common: &Common,
) -> Outcome<Plan> {
    let synced = common.durability == Durability::Sync;
    let every = if synced || common.rate.is_some() { 1 } else { STRIDE };
    let mut plan = Plan {
        jobs: Vec::new(),
        runs: common.runs,
        durability: common.durability,
        timed_one_in: common.timed_one_in.unwrap_or(every),
        rate: common.rate,
        rest: common.rest,
        verify: common.verify,
        memory_budget: common.memory_budget,
        dir: common.dir.clone(),
        json: common.json,
        notes: Vec::new(),
    };
    for (workload, point) in workloads {
        workload.check(amount.records)?;
        for (engine, settings) in engines {
            if workload.needs_order() && !stores.is_ordered(engine) {
                let name = &workload.name;
                plan.notes.push(format!("{engine}: no key order, so no workload {name}"));
                continue;
            }
            if workload.sorted && amount.threads > 1 {
                let name = &workload.name;
                plan.notes
                    .push(format!("{engine}: one thread loads in order, so no workload {name}"));
                continue;
            }
            let operations = workload.operations(amount.operations, amount.records);
            let default_batch = if synced { SYNCED_LOAD_BATCH } else { 1 };
            plan.jobs.push(Job {
                engine: engine.clone(),
                settings: settings.clone(),
                is_persistent: stores.is_persistent(engine),
                workload: workload.clone(),
                point: *point,
                shape: shape(workload, common),
                amount: Amount { operations, ..amount },
                load_batch: match (&workload.body, common.load_batch) {
                    (Body::Load, _) => 1,
                    (_, asked) => asked.map_or(default_batch, to_usize),
                },
                recovers: common.recovery && stores.is_persistent(engine),
            });
        }
    }
    if plan.jobs.is_empty() {
        let why = plan.notes.join("; ");
        let why = if why.is_empty() { "no engine is given".to_owned() } else { why };
        return Err(Failure::Usage(format!("nothing to run: {why}")));
    }
    refuse_too_much(&plan)?;
    Ok(plan)
}

fn shape(workload: &Workload, common: &Common) -> Shape {
    let value_bytes =
        if common.value_bytes.is_empty() { vec![VALUE_BYTES] } else { common.value_bytes.clone() };
    Shape {
        key_bytes: common.key_bytes.unwrap_or(KEY_BYTES),
        value_bytes,
        repeated_percent: common.value_repeated,
        order: workload.order,
    }
}

/// A number of records that no table of counters could hold is refused before anything is started.
fn refuse_too_much(plan: &Plan) -> Outcome {
    const RECORDS_MAX: f64 = 1e11;
    for job in &plan.jobs {
        let records = job.workload.records_max(job.amount.operations, job.amount.records);
        if to_f64(records) > RECORDS_MAX {
            return Err(Failure::Usage(format!("{}: {records} records are too many", job.name())));
        }
    }
    Ok(())
}
