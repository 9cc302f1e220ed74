//! The command line of `quintet-compare`.

use std::{io::Write, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand, value_parser};
use quintet_bench::{
    args::{bytes, count, key_bytes, option, rate, scale, value_bytes},
    comparison::{self, Comparison, JobGroup},
    failure::{Failure, Outcome},
    limits::{LimitsRecord, MeasurementScope},
    report::{self, ReportArgs},
    session::{
        self,
        plan::{self, MemoryPlan, SessionOptions, SessionPlan, StepRequest, StoreChoice},
    },
    store::{Durability, MemoryMode, StoreOptions, Stores as _},
    workload::{self, Suite, WorkloadSpec, find},
};

use crate::{
    papers::PapersArgs,
    preset::{self, KnownPresets, Preset},
    stores::{self, AllStores},
};

/// Default number of repetitions.
const RUNS: u64 = 3;
/// Default size of a key, that of YCSB.
const KEY_BYTES: usize = 23;
/// Default size of a value.
const VALUE_BYTES: usize = 128;

/// Runs the same workloads on Quintet and on other stores, in turn, each in its own process.
#[derive(Debug, Parser)]
#[command(name = "quintet-compare", version, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a preset, or workloads by name, and appends the results to a file.
    Run(Box<RunArgs>),
    /// Runs all experiments of the five papers, on our defaults, the papers' own designs and their
    /// peers, and writes one report.
    Papers(Box<PapersArgs>),
    /// Lists the stores with versions, settings and reasons, and why a store is not available.
    Stores,
    /// Lists the presets with their subjects.
    Presets {
        /// Shows one preset with its points and the figures of the paper.
        name: Option<String>,
    },
    /// Makes an HTML page with charts, and Markdown tables, from results files.
    Report(ReportArgs),
    /// Measures the limits of the machine (memory, disk) and prints them as a line of a results
    /// file. `run` also measures them, in less time.
    Limits {
        /// Directory for the temporary files of the measurement.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
}

/// Options of `run`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
struct RunArgs {
    /// Presets, separated by commas; each has its stores, sizes and workloads.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["suite", "workload", "records"])]
    preset: Vec<String>,
    /// Suite of the workloads: ycsb, micro, dbbench, txn.
    #[arg(long, value_parser = suite, default_value = "ycsb")]
    suite: Suite,
    /// Workloads, separated by commas [default: all of the suite].
    #[arg(long, value_delimiter = ',')]
    workload: Vec<String>,
    /// Stores, separated by commas [default: the preset's; else all available ones].
    #[arg(long, value_delimiter = ',')]
    store: Vec<String>,
    /// Factor for a preset's records and operations [default: the preset's own].
    #[arg(long, value_parser = scale)]
    scale: Option<f64>,
    /// Records loaded first; several sizes are separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "1M")]
    records: Vec<u64>,
    /// Operations of all threads together [default: as many as records].
    #[arg(long, value_parser = count)]
    operations: Option<u64>,
    /// Threads; several counts are separated by commas [default: 1, for txn-hot and its variants
    /// 8, or the preset's].
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u64).range(1..=1024))]
    threads: Vec<u64>,
    /// Bytes of each key [default: 23, or the preset's].
    #[arg(long, value_parser = key_bytes)]
    key_bytes: Option<usize>,
    /// Bytes of each value; several sizes, separated by commas, occur in equal parts [default: 128,
    /// or the preset's].
    #[arg(long, value_delimiter = ',', value_parser = value_bytes)]
    value_bytes: Vec<usize>,
    /// Durability of a returned write [default: buffered, or the preset's].
    #[arg(long, value_enum)]
    durability: Option<Durability>,
    /// Memory: `fits`, `limit:BYTES`, `share:FRACTION`, `direct`, `direct:BYTES` or
    /// `direct:FRACTION`. `limit` and `share` (of the data) limit the process by a control group.
    /// `direct` uses direct I/O with a cache of 32 MiB, of BYTES, or of a share of the data, such
    /// as `direct:0.8` [default: fits, or the preset's].
    #[arg(long, value_parser = plan::parse_memory)]
    memory: Option<MemoryPlan>,
    /// Memory budget of each store [default: three times the data, at least 1 GiB, at most half of
    /// the machine's memory; under a limit half of the limit].
    #[arg(long, value_parser = bytes)]
    budget: Option<u64>,
    /// Repetitions; all stores run in turn [default: 3, or the preset's].
    #[arg(long, value_parser = value_parser!(u64).range(1..=100))]
    runs: Option<u64>,
    /// Option of the engines, `name=value`; of one engine, `engine.name=value`.
    #[arg(long, value_parser = option)]
    option: Vec<(String, String)>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Records in one atomic write while loading, unless loading is measured [default: 1; synced:
    /// 1000].
    #[arg(long, value_parser = value_parser!(u64).range(1..=100_000))]
    load_batch: Option<u64>,
    /// Times one operation of this many on average [default: 16; synced or at a rate: 1].
    #[arg(long, value_parser = value_parser!(u32).range(1..=1_000_000))]
    timed_one_in: Option<u32>,
    /// Operations per second of all threads together.
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Repeats the operations of a workload with other seeds until they have taken this many
    /// seconds [default: 0, or the preset's].
    #[arg(long, value_parser = seconds)]
    seconds_min: Option<f64>,
    /// Closes and reopens each store after loading. If memory is less than the data, another
    /// process runs the workloads. Only that process is limited; loading has a budget for all of
    /// the data. The page cache is dropped between both.
    #[arg(long)]
    reopen: bool,
    /// Waits after loading until the process has been idle for three seconds, so that compactions
    /// of the load do not disturb the measurement. Fails if that takes longer than this many
    /// seconds [default: 0, does not wait].
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "SECONDS")]
    settle: u64,
    /// Kills each store after its workload (SIGKILL), reopens it, and checks every record.
    #[arg(long)]
    recovery: bool,
    /// Directory for the files of stores, which are removed afterwards.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Results file.
    #[arg(long, short)]
    out: PathBuf,
    /// Resumes a results file: runs that it contains are not repeated.
    #[arg(long)]
    resume: bool,
    /// Does not measure the limits of the machine. Without this option they are measured first,
    /// unless the file has them.
    #[arg(long)]
    no_limits: bool,
    /// Longest duration of a run in seconds.
    #[arg(long, default_value_t = 3600, value_parser = value_parser!(u64).range(1..))]
    limit: u64,
}

/// Runs the command of `args` and prints to `out`.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    if let Some(outcome) = session::serve_if_child(&AllStores, out) {
        return outcome;
    }
    match &args.command {
        Command::Run(run) => run.run(),
        Command::Papers(papers) => papers.run(out),
        Command::Stores => list_stores(out),
        Command::Presets { name: None } => list_presets(out),
        Command::Presets { name: Some(name) } => show_preset(preset::find(name)?, out),
        Command::Report(args) => report::run(args, &KnownPresets, out),
        Command::Limits { dir } => {
            let dir = dir.clone().unwrap_or_else(std::env::temp_dir);
            let record = LimitsRecord::measure(String::new(), &dir, MeasurementScope::FULL);
            Ok(writeln!(out, "{}", record.text()?)?)
        }
    }
}

impl RunArgs {
    fn run(&self) -> Outcome {
        plan::check_stores(&AllStores, "--store", &self.store)?;
        let summary = comparison::run(&AllStores, &self.comparison()?)?;
        let total = summary.done + summary.failed;
        if summary.failed > 0 {
            let what = format!("{} of {total} runs failed", summary.failed);
            return Err(Failure::Failed(what));
        }
        Ok(())
    }

    fn comparison(&self) -> Outcome<Comparison<'static>> {
        let mut groups = Vec::new();
        let mut notes = Vec::new();
        let mut add = |plan: SessionPlan, runs: u64| {
            groups.extend(plan.groups.into_iter().map(|jobs| JobGroup { jobs, runs }));
            notes.extend(plan.notes);
        };
        if self.preset.is_empty() {
            let options = self.session_options(None);
            let plan = plan::sessions(&AllStores, None, &self.requests()?, &options)?;
            add(plan, self.runs.unwrap_or(RUNS));
        }
        for name in &self.preset {
            let preset = preset::find(name)?;
            add(self.preset_sessions(preset)?, self.runs.unwrap_or(preset.runs));
        }
        if groups.is_empty() {
            let why = notes.join("; ");
            let why = if why.is_empty() { "no store is left".to_owned() } else { why };
            return Err(Failure::Usage(format!("nothing to run: {why}")));
        }
        Ok(Comparison {
            groups,
            dir: self.dir.clone().unwrap_or_else(std::env::temp_dir),
            emptied_dir: None,
            out: self.out.clone(),
            resumes: self.resume,
            limit: Duration::from_secs(self.limit),
            measures_limits: !self.no_limits,
            notes,
        })
    }

    /// Returns the sessions of a preset.
    fn preset_sessions(&self, preset: &Preset) -> Outcome<SessionPlan> {
        let mut plan = SessionPlan::default();
        let mut options = self.session_options(Some(preset));
        if self.store.is_empty() {
            let (names, notes) = preset.stores();
            options.stores = names.into_iter().map(StoreChoice::named).collect();
            plan.notes.extend(notes);
        }
        if preset.points.is_empty() {
            plan.notes.push(format!("{}: {}", preset.name, preset.about));
            return Ok(plan);
        }
        let mut requests = preset.requests(self.scale.unwrap_or(preset.scale));
        for request in &mut requests {
            self.change(request);
        }
        let added = plan::sessions(&AllStores, Some(preset.name), &requests, &options)?;
        plan.groups = added.groups;
        plan.notes.extend(added.notes);
        Ok(plan)
    }

    /// Overrides a request by options of the command line.
    fn change(&self, request: &mut StepRequest) {
        if let [threads] = self.threads.as_slice() {
            request.threads = *threads;
        }
        if let Some(bytes) = self.key_bytes {
            request.key_bytes = bytes;
        }
        if !self.value_bytes.is_empty() {
            request.value_bytes.clone_from(&self.value_bytes);
        }
        if let Some(operations) = self.operations {
            request.operations = operations;
        }
    }

    /// Returns the requests of named workloads.
    fn requests(&self) -> Outcome<Vec<StepRequest>> {
        let known = workload::names(self.suite);
        let names: Vec<String> = if self.workload.is_empty() {
            known.iter().map(|&name| name.to_owned()).collect()
        } else {
            self.workload.clone()
        };
        // 0: as many as the workload has.
        let threads = if self.threads.is_empty() { &[0][..] } else { &self.threads };
        let mut requests = Vec::new();
        for &records in &self.records {
            for &threads in threads {
                for name in &names {
                    // A wrong name must fail before the first run.
                    let workload = find(self.suite, name)?;
                    let threads = if threads == 0 { workload.threads } else { threads };
                    let mut request = StepRequest {
                        point: None,
                        spec: WorkloadSpec::Named { suite: self.suite, name: name.clone() },
                        records,
                        operations: records,
                        threads,
                        key_bytes: KEY_BYTES,
                        value_bytes: vec![VALUE_BYTES],
                        value_repeated_percent: 0,
                        settings: Vec::new(),
                    };
                    self.change(&mut request);
                    request.threads = threads;
                    requests.push(request);
                }
            }
        }
        Ok(requests)
    }

    fn session_options(&self, preset: Option<&Preset>) -> SessionOptions {
        let stores = if self.store.is_empty() {
            let transactions = preset.is_none() && self.suite == Suite::Txn;
            stores::default_names(transactions).into_iter().map(StoreChoice::named).collect()
        } else {
            self.store.iter().map(|name| StoreChoice::named(name)).collect()
        };
        let durability = preset.map_or(Durability::Buffered, |preset| preset.durability);
        let memory = preset.map_or(MemoryPlan::Fits, |preset| preset.memory);
        let seconds_min = self.seconds_min.or(preset.map(|preset| preset.seconds_min));
        SessionOptions {
            stores,
            options: self.option.clone(),
            durability: self.durability.unwrap_or(durability),
            memory: Some(self.memory.unwrap_or(memory)),
            budget_bytes: self.budget,
            seed: self.seed,
            load_batch: self.load_batch,
            timed_one_in: self.timed_one_in,
            rate: self.rate,
            seconds_min: seconds_min.unwrap_or_default(),
            settle_seconds: self.settle,
            reopens: self.reopen || preset.is_some_and(|preset| preset.reopens),
            recovers: self.recovery || preset.is_some_and(|preset| preset.recovers),
            ..SessionOptions::default()
        }
    }
}

fn list_stores(out: &mut dyn Write) -> Outcome {
    let options = StoreOptions {
        dir: PathBuf::new(),
        durability: Durability::Buffered,
        records_max: 0,
        bytes_written_max: 0,
        memory: Some(MemoryMode::Fits { budget_bytes: 4 << 30 }),
        settings: Vec::new(),
    };
    writeln!(out, "Settings are shown for buffered writes and a budget of 4 GiB.")?;
    for name in AllStores.names() {
        let info = AllStores.describe(name, &options);
        writeln!(out, "\n{name}, version {}", info.version)?;
        if let Err(failure) = AllStores.check_available(name) {
            writeln!(out, "  not available: {failure}")?;
            continue;
        }
        if !info.promise.is_empty() {
            writeln!(out, "  a returned write: {}", info.promise)?;
        }
        for setting in info.settings {
            writeln!(out, "  {} = {}: {}", setting.name, setting.value, setting.reason)?;
        }
    }
    Ok(())
}

fn list_presets(out: &mut dyn Write) -> Outcome {
    for preset in preset::all() {
        writeln!(out, "{:24} {}: {}", preset.name, preset.origin, preset.about)?;
    }
    Ok(())
}

fn show_preset(preset: &Preset, out: &mut dyn Write) -> Outcome {
    writeln!(out, "{} ({})\n{}\n", preset.name, preset.origin, preset.about)?;
    let (names, notes) = preset.stores();
    writeln!(out, "stores: {}", names.join(", "))?;
    for note in notes {
        writeln!(out, "  {note}")?;
    }
    writeln!(out, "scale: {}, runs: {}", preset.scale, preset.runs)?;
    for point in preset.points {
        let workload = point.spec().workload()?;
        writeln!(
            out,
            "point {}: {}; {} records, {} operations, {} threads, key {} B, values {:?} B",
            point.name,
            workload.about,
            point.records,
            point.operations,
            point.threads,
            point.key_bytes,
            point.value_bytes
        )?;
    }
    for figure in preset.figures {
        let point = if figure.point.is_empty() { "all points" } else { figure.point };
        let to = if figure.relative_to.is_empty() {
            figure.metric.unit().to_owned()
        } else {
            format!("times {}", figure.relative_to)
        };
        let (store, metric, value) = (figure.store, figure.metric.title(), figure.value);
        writeln!(out, "paper, {point}: {store}, {metric}: {value} {to} {}", figure.note)?;
    }
    Ok(())
}

fn suite(text: &str) -> Result<Suite, String> {
    match text {
        "ycsb" => Ok(Suite::Ycsb),
        "micro" => Ok(Suite::Micro),
        "dbbench" => Ok(Suite::DbBench),
        "txn" => Ok(Suite::Txn),
        _ => Err("not ycsb, micro, dbbench or txn; LogKV's points are presets".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "not a number of seconds up to 3600".to_owned())
}
