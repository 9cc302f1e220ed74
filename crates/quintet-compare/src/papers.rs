//! The command `papers`: every experiment of the five papers that a machine like ours can run, and
//! one report.
//!
//! Each experiment runs on our default, on the paper's own design (see [`crate::design`]) and on
//! the peers of its paper that are available, in turn. The emulated persistent memory is a file
//! in a directory of its own, so that its bytes are not those of the disk.

use std::{
    fs::{self, File, TryLockError},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::value_parser;
use quintet_bench::{
    args::scale,
    comparison::{self, Comparison, JobGroup},
    failure::{Failure, Outcome},
    report::{self, ReportArgs},
    session::{
        plan::{self, MemoryPlan, SessionOptions, SessionPlan, StoreChoice},
        scratch::ScratchDir,
    },
};

use crate::{
    design,
    paper::Paper,
    preset::{self, KnownPresets, Preset},
    stores::AllStores,
};

/// Name of the directory of pools.
const POOL_DIR: &str = "quintet-papers";

/// Options of `papers`.
#[derive(Debug, clap::Args)]
pub(crate) struct PapersArgs {
    /// Factor for the records and operations of every experiment. 1 is the default size of each
    /// preset, which suits a machine with two processors and 24 GiB (see `presets NAME`).
    #[arg(long, value_parser = scale, default_value = "1")]
    scale: f64,
    /// Papers (cedrusdb, slmdb, compassdb, ckvs, logkv) or single experiments (see `presets`),
    /// separated by commas [default: all].
    #[arg(long, value_delimiter = ',', value_parser = selection)]
    only: Vec<Selection>,
    /// Repetitions; all stores run in turn [default: each preset's].
    #[arg(long, value_parser = value_parser!(u64).range(1..=100))]
    runs: Option<u64>,
    /// Directory for the files of stores, which are removed afterwards.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Directory for the emulated persistent memory of SLM-DB's design, in memory. Its files are in
    /// `quintet-papers` there, which is removed afterwards.
    #[arg(long, default_value = "/dev/shm")]
    pmem_dir: PathBuf,
    /// Results file.
    #[arg(long, default_value = "papers.jsonl")]
    out: PathBuf,
    /// Page of the report. Its tables without charts go to the same name with the ending `.md`.
    #[arg(long, default_value = "papers.html")]
    output: PathBuf,
    /// Resumes a results file: runs that it contains are not repeated.
    #[arg(long)]
    resume: bool,
    /// Longest duration of a run in seconds.
    #[arg(long, default_value_t = 3600, value_parser = value_parser!(u64).range(1..))]
    limit: u64,
    /// Prints the experiments with their sizes and stores, and runs nothing.
    #[arg(long)]
    dry_run: bool,
}

/// What `--only` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    Paper(Paper),
    Preset(&'static str),
}

fn selection(text: &str) -> Result<Selection, String> {
    if Paper::of_preset(text).is_some()
        && let Ok(preset) = preset::find(text)
    {
        return Ok(Selection::Preset(preset.name));
    }
    text.parse().map(Selection::Paper)
}

/// Where SLM-DB's design keeps its pools. It has the same name in every run, so that a resumed run
/// has the options of the first.
struct PoolDir {
    scratch: ScratchDir,
    /// Lock of the directory; another run with the same directory would remove our files.
    _lock: File,
}

impl PoolDir {
    fn open(base: &Path) -> Outcome<Self> {
        let doing = |error: std::io::Error| Failure::io(base.display(), &error);
        let base = fs::canonicalize(base).map_err(doing)?;
        let path = base.join(POOL_DIR);
        fs::create_dir_all(&path).map_err(doing)?;
        let lock = File::open(&path).map_err(doing)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::Usage(format!(
                    "--pmem-dir: another run uses {}; name another directory",
                    path.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(doing(error)),
        }
        let mut scratch = ScratchDir::claim(&base, POOL_DIR)?;
        scratch.remove_when_killed()?;
        Ok(Self { scratch, _lock: lock })
    }
}

impl PapersArgs {
    /// Runs the experiments and writes the report. Fails at the end if a run failed.
    pub(crate) fn run(&self, out: &mut dyn Write) -> Outcome {
        if self.dry_run {
            return self.print_plan(out);
        }
        let pools = PoolDir::open(&self.pmem_dir)?;
        let (mut groups, mut notes) = (Vec::new(), Vec::new());
        for preset in self.presets() {
            let plan = self.sessions(preset, pools.scratch.path())?;
            let runs = self.runs.unwrap_or(preset.runs);
            groups.extend(plan.groups.into_iter().map(|jobs| JobGroup { jobs, runs }));
            notes.extend(plan.notes);
        }
        notes.sort();
        notes.dedup();
        let comparison = Comparison {
            groups,
            dir: self.dir.clone().unwrap_or_else(std::env::temp_dir),
            emptied_dir: Some(&pools.scratch),
            out: self.out.clone(),
            resumes: self.resume,
            limit: Duration::from_secs(self.limit),
            measures_limits: true,
            notes,
        };
        let summary = comparison::run(&AllStores, &comparison)?;
        let args = ReportArgs {
            results: vec![self.out.clone()],
            output: self.output.clone(),
            title: "The five papers beside Quintet".to_owned(),
        };
        report::run_papers(&args, &KnownPresets, out)?;
        if summary.failed > 0 {
            let total = summary.done + summary.failed;
            return Err(Failure::Failed(format!("{} of {total} runs failed", summary.failed)));
        }
        Ok(())
    }

    /// Returns the chosen experiments, by paper.
    fn presets(&self) -> impl Iterator<Item = &'static Preset> {
        preset::all().filter(|preset| {
            preset.paper().is_some_and(|paper| {
                let chosen = [Selection::Paper(paper), Selection::Preset(preset.name)];
                self.only.is_empty() || self.only.iter().any(|only| chosen.contains(only))
            })
        })
    }

    /// Returns the stores of an experiment: engines, designs of the paper, and available peers.
    fn stores(preset: &Preset) -> (Vec<&'static str>, Vec<String>) {
        let (mut names, notes) = preset.stores();
        let engines = preset.engines.len().min(names.len());
        let designs = preset.designs().filter(|name| !preset.engines.contains(name));
        names.splice(engines..engines, designs.collect::<Vec<_>>());
        (names, notes)
    }

    fn sessions(&self, preset: &Preset, pools: &Path) -> Outcome<SessionPlan> {
        let (names, mut notes) = Self::stores(preset);
        let pool = ("pmem_path".to_owned(), pools.display().to_string());
        let choice = |name: &'static str| {
            let design = design::find(name);
            // A control group counts files in memory. Under a limit the pool is a file of the disk
            // that the page cache holds, and shares the limit.
            let is_limited = matches!(preset.memory, MemoryPlan::Share(_) | MemoryPlan::Limit(_));
            let has_pool = !is_limited && design.is_some_and(|design| design.paper == Paper::SlmDb);
            let settings = if has_pool { vec![pool.clone()] } else { Vec::new() };
            StoreChoice { name: name.to_owned(), settings }
        };
        let options = SessionOptions {
            stores: names.into_iter().map(choice).collect(),
            durability: preset.durability,
            memory: Some(preset.memory),
            seconds_min: preset.seconds_min,
            reopens: preset.reopens,
            recovers: preset.recovers,
            ..SessionOptions::default()
        };
        let requests = preset.requests(preset.scale * self.scale);
        let mut plan = plan::sessions(&AllStores, Some(preset.name), &requests, &options)?;
        plan.notes.append(&mut notes);
        Ok(plan)
    }

    fn print_plan(&self, out: &mut dyn Write) -> Outcome {
        for preset in self.presets() {
            let (names, notes) = Self::stores(preset);
            writeln!(out, "{} ({}): {}", preset.name, preset.origin, names.join(", "))?;
            for note in notes {
                writeln!(out, "  {note}")?;
            }
            if preset.points.is_empty() {
                writeln!(out, "  not a workload of a store: {}", preset.about)?;
            }
            let runs = self.runs.unwrap_or(preset.runs);
            for request in preset.requests(preset.scale * self.scale) {
                writeln!(
                    out,
                    "  {}: {} records, {} operations, {} threads, {runs} runs",
                    request.point.unwrap_or_default(),
                    request.records,
                    request.operations,
                    request.threads,
                )?;
            }
        }
        Ok(())
    }
}
