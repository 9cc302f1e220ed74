//! The command line.

use std::{io::Write, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand, value_parser};
use quintet_bench::{
    args::{bytes, count, key_bytes, option, rate, value_bytes},
    comparison::{self, Comparison},
    failure::{Failure, Outcome},
    limits::{LimitsRecord, MeasurementScope},
    report::{self, ReportArgs},
    session::{
        child,
        plan::{self, MemoryPlan, SessionOptions, SessionPlan, StepRequest, StoreChoice},
    },
    store::{Durability, MemoryMode, StoreOptions, Stores as _},
    workload::{self, Suite, WorkloadSpec, find},
};

use crate::{
    preset::{self, KnownPresets, Preset},
    stores::{self, AllStores},
};

/// Default number of repetitions.
const RUNS: u64 = 3;
/// Default size of a key, that of YCSB.
const KEY_BYTES: usize = 23;
/// Default size of a value.
const VALUE_BYTES: usize = 128;

/// The same workloads on Quintet and on other stores, in turn, in processes of their own.
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
    /// Lists the stores: versions, settings and their reasons, and why one cannot be had.
    Stores,
    /// Lists the presets: what each shows, and what the paper found.
    Presets {
        /// One of them, with its points and the paper's figures.
        name: Option<String>,
    },
    /// Makes one HTML page with charts, and Markdown tables, of results files.
    Report(ReportArgs),
    /// Measures the limits of the machine (memory, disk) and prints them as a line of a results
    /// file. `run` measures them as well, more shortly.
    Limits {
        /// Where the file for the disk's limits goes; it is removed afterwards.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
}

/// Options of `run`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
struct RunArgs {
    /// Presets, by comma; each brings its stores, sizes and workloads.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["suite", "workload", "records"])]
    preset: Vec<String>,
    /// Family of the workloads: ycsb, micro, dbbench.
    #[arg(long, value_parser = suite, default_value = "ycsb")]
    suite: Suite,
    /// Workloads, by comma [default: all of the family].
    #[arg(long, value_delimiter = ',')]
    workload: Vec<String>,
    /// Stores, by comma [default: the preset's; else all that are there].
    #[arg(long, value_delimiter = ',')]
    store: Vec<String>,
    /// Multiplies a preset's records and operations [default: the preset's own].
    #[arg(long, value_parser = scale)]
    scale: Option<f64>,
    /// Records loaded first, by comma for several sizes.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "1M")]
    records: Vec<u64>,
    /// Operations, all threads together [default: as many as records].
    #[arg(long, value_parser = count)]
    operations: Option<u64>,
    /// Threads, by comma for several counts [default: 1, or the preset's].
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u64).range(1..=1024))]
    threads: Vec<u64>,
    /// Bytes of each key [default: 23, or the preset's].
    #[arg(long, value_parser = key_bytes)]
    key_bytes: Option<usize>,
    /// Bytes of each value; several sizes by comma are mixed in equal parts [default: 128, or the
    /// preset's].
    #[arg(long, value_delimiter = ',', value_parser = value_bytes)]
    value_bytes: Vec<usize>,
    /// What a returned write promises [default: buffered, or the preset's].
    #[arg(long, value_enum)]
    durability: Option<Durability>,
    /// Memory: `fits`; `limit:BYTES` or `share:FRACTION` of the data by a control group; `direct`
    /// or `direct:BYTES` for direct I/O with a cache of 32 MiB or so many bytes, `direct:0.8` for
    /// one of a share of the data [default: fits, or the preset's].
    #[arg(long, value_parser = plan::parse_memory)]
    memory: Option<MemoryPlan>,
    /// What each store is told that it may use [default: three times the data, at least 1 GiB, at
    /// most half of the machine's; under a limit half of that].
    #[arg(long, value_parser = bytes)]
    budget: Option<u64>,
    /// Repetitions, all stores in turn [default: 3, or the preset's].
    #[arg(long, value_parser = value_parser!(u64).range(1..=100))]
    runs: Option<u64>,
    /// An option of our engines, `name=value`; of one of several, `engine.name=value`.
    #[arg(long, value_parser = option)]
    option: Vec<(String, String)>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Records that one atomic write loads, where loading is not measured [default: 1; synced:
    /// 1000].
    #[arg(long, value_parser = value_parser!(u64).range(1..=100_000))]
    load_batch: Option<u64>,
    /// Times one operation in so many [default: 16; synced or at a rate: 1].
    #[arg(long, value_parser = value_parser!(u32).range(1..=1_000_000))]
    timed_one_in: Option<u32>,
    /// Operations a second, all threads together.
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Runs the operations of a workload again, from other seeds, until they have taken so many
    /// seconds together [default: 0, or the preset's].
    #[arg(long, value_parser = seconds)]
    seconds_min: Option<f64>,
    /// Closes each store after loading and opens it again; where memory is less than the data, in
    /// another process, which alone is limited (loading has a budget that fits the data), and with
    /// nothing left in the page cache.
    #[arg(long)]
    reopen: bool,
    /// Waits after loading until the process has been at rest for three seconds, and fails where
    /// that takes more than so many seconds: what is measured then has no merges of the load
    /// beside it [default: 0, does not wait].
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "SECONDS")]
    settle: u64,
    /// Kills each store after its workload (SIGKILL), opens it again, and compares every record.
    #[arg(long)]
    recovery: bool,
    /// Where stores put their files; each in a directory that is removed afterwards.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The results file.
    #[arg(long, short)]
    out: PathBuf,
    /// Goes on with a results file: what it holds is not run again.
    #[arg(long)]
    resume: bool,
    /// Leaves out the limits of the machine, which are measured first where the file has none.
    #[arg(long)]
    no_limits: bool,
    /// The longest that one run may take, in seconds.
    #[arg(long, default_value_t = 3600, value_parser = value_parser!(u64).range(1..))]
    limit: u64,
}

/// Runs what `args` ask for and prints to `out`.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    if let Some(outcome) = child::serve_if_child(&AllStores, out) {
        return outcome;
    }
    match &args.command {
        Command::Run(run) => run.run(),
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

    fn comparison(&self) -> Outcome<Comparison> {
        let mut runs = self.runs.unwrap_or(RUNS);
        let mut plan = SessionPlan::default();
        if self.preset.is_empty() {
            let options = self.session_options(None);
            plan = plan::sessions(&AllStores, None, &self.requests()?, &options)?;
        }
        for name in &self.preset {
            let preset = preset::find(name)?;
            runs = self.runs.unwrap_or(preset.runs);
            self.add(preset, &mut plan)?;
        }
        let SessionPlan { groups, notes } = plan;
        if groups.is_empty() {
            let why = notes.join("; ");
            let why = if why.is_empty() { "no store is left".to_owned() } else { why };
            return Err(Failure::Usage(format!("nothing to run: {why}")));
        }
        Ok(Comparison {
            groups,
            runs,
            dir: self.dir.clone().unwrap_or_else(std::env::temp_dir),
            out: self.out.clone(),
            resumes: self.resume,
            limit: Duration::from_secs(self.limit),
            measures_limits: !self.no_limits,
            notes,
        })
    }

    /// Adds the sessions of a preset to a plan.
    fn add(&self, preset: &Preset, plan: &mut SessionPlan) -> Outcome {
        let mut options = self.session_options(Some(preset));
        if self.store.is_empty() {
            let (names, notes) = preset.stores();
            options.stores = names.into_iter().map(StoreChoice::named).collect();
            plan.notes.extend(notes);
        }
        if preset.points.is_empty() {
            plan.notes.push(format!("{}: {}", preset.name, preset.about));
            return Ok(());
        }
        let mut requests = preset.requests(self.scale.unwrap_or(preset.scale));
        for request in &mut requests {
            self.change(request);
        }
        let added = plan::sessions(&AllStores, Some(preset.name), &requests, &options)?;
        plan.groups.extend(added.groups);
        plan.notes.extend(added.notes);
        Ok(())
    }

    /// What the command line says instead of the preset.
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

    /// The requests of workloads by name.
    fn requests(&self) -> Outcome<Vec<StepRequest>> {
        let known = workload::names(self.suite);
        let names: Vec<String> = if self.workload.is_empty() {
            known.iter().map(|&name| name.to_owned()).collect()
        } else {
            self.workload.clone()
        };
        let threads = if self.threads.is_empty() { &[1][..] } else { &self.threads };
        let mut requests = Vec::new();
        for &records in &self.records {
            for &threads in threads {
                for name in &names {
                    // A wrong name is found before anything is run.
                    find(self.suite, name)?;
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
            stores::default_names().into_iter().map(StoreChoice::named).collect()
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
            rest_seconds: 0,
            verify: false,
            reopens: self.reopen || preset.is_some_and(|preset| preset.reopens),
            recovers: self.recovery || preset.is_some_and(|preset| preset.recovers),
            skips_volatile: true,
            shares_load: true,
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
            writeln!(out, "  cannot be run: {failure}")?;
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
        _ => Err("not ycsb, micro or dbbench; LogKV's points are presets".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "not a number of seconds up to 3600".to_owned())
}

fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse::<f64>().ok().filter(|scale| *scale > 0.0 && *scale <= 100.0);
    scale.ok_or_else(|| "not a factor such as 0.01".to_owned())
}
