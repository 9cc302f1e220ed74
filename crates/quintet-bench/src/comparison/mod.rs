//! Comparisons: runs sessions of several stores in turn and appends raw results to a file.
//!
//! Order: for each group of jobs (the same session on different stores), the first repetition of
//! every store runs, then the second of every store, and so on. Drift of the machine affects all
//! stores in the same way.
//!
//! A store that fails, crashes or exceeds the time limit gives a line with the error, and the
//! comparison continues. It ends early only if every further run would fail: the directory is
//! missing, or the results file is not writable.

mod progress;
mod results_file;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    failure::{Failure, Outcome},
    limits::{LimitsRecord, MeasurementScope},
    machine::{
        self, Conditions, Machine,
        conditions::{self, DiskProbe},
    },
    numbers::to_u64,
    result::{Figures, RunResult, SCHEMA},
    session::{Job, Launcher, Step, scratch::ScratchDir},
    store::Stores,
};

pub use results_file::read;

use progress::ProgressBar;
use results_file::ResultsFile;

/// Free disk space that a run needs, as a multiple of the data size.
const SPACE_FACTOR: u64 = 2;

/// The same session on different stores.
#[derive(Clone, Debug)]
pub struct JobGroup {
    /// Sessions, one for each store.
    pub jobs: Vec<Job>,
    /// Repetitions of each.
    pub runs: u64,
}

/// A comparison: what runs, and where.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// Groups in the order of their runs.
    pub groups: Vec<JobGroup>,
    /// Directory for the files of stores.
    pub dir: PathBuf,
    /// Directory outside `dir` where stores keep files; every run begins with it empty.
    pub emptied_dir: Option<&'a ScratchDir>,
    /// Results file, which is appended to.
    pub out: PathBuf,
    /// Whether to resume at the end of the results file.
    pub resumes: bool,
    /// Longest duration of a run.
    pub limit: Duration,
    /// Whether to measure the limits of the machine first, unless the file has them.
    pub measures_limits: bool,
    /// Lines for the user before the start: what is left out, and why.
    pub notes: Vec<String>,
}

/// Counts of the runs of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComparisonSummary {
    /// Runs that gave figures.
    pub done: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Runs that the file contained already.
    pub skipped: u64,
}

/// Runs a comparison.
pub fn run(stores: &dyn Stores, comparison: &Comparison<'_>) -> Outcome<ComparisonSummary> {
    let mut runner = ComparisonRunner::new(stores, comparison)?;
    runner.dir.remove_when_killed()?;
    for note in &comparison.notes {
        runner.progress.note(note);
    }
    let summary = runner.run()?;
    runner.progress.end();
    Ok(summary)
}

struct ComparisonRunner<'a> {
    stores: &'a dyn Stores,
    comparison: &'a Comparison<'a>,
    dir: ScratchDir,
    launcher: Launcher,
    /// Probe of the disk; without a file until the disk has room for it.
    probe: DiskProbe,
    /// Whether the user has been told that the probe has no file.
    lacks_probe: bool,
    machine: Machine,
    file: ResultsFile,
    progress: ProgressBar,
    summary: ComparisonSummary,
}

impl<'a> ComparisonRunner<'a> {
    fn new(stores: &'a dyn Stores, comparison: &'a Comparison<'a>) -> Outcome<Self> {
        for job in comparison.groups.iter().flat_map(|group| &group.jobs) {
            job.check()?;
        }
        let file = ResultsFile::open(&comparison.out, comparison.resumes)?;
        if !comparison.dir.is_dir() {
            let what = format!("--dir {}: there is no such directory", comparison.dir.display());
            return Err(Failure::Usage(what));
        }
        let dir = ScratchDir::new(&comparison.dir, "quintet-compare")?;
        let (mut runs, mut work_bytes) = (0, 0_u64);
        for group in &comparison.groups {
            let work = group.jobs.iter().map(Job::work_bytes).fold(0, u64::saturating_add);
            runs += to_u64(group.jobs.len()) * group.runs;
            work_bytes = work_bytes.saturating_add(work.saturating_mul(group.runs));
        }
        Ok(Self {
            stores,
            comparison,
            launcher: Launcher::new(dir.path(), Some(comparison.limit)),
            probe: DiskProbe::none(),
            lacks_probe: false,
            machine: Machine::look(dir.path()),
            dir,
            file,
            progress: ProgressBar::new(runs, work_bytes),
            summary: ComparisonSummary::default(),
        })
    }

    fn run(&mut self) -> Outcome<ComparisonSummary> {
        let comparison = self.comparison;
        if comparison.measures_limits && !self.file.has_limits() {
            self.progress.note("measuring the limits of the machine");
            let run_id = self.file.run_id().to_owned();
            let record = LimitsRecord::measure(run_id, self.dir.path(), MeasurementScope::SHORT);
            self.file.append_text(&record.text()?)?;
        }
        if self.machine.reads_far_ahead() {
            self.progress.note(
                "this disk reads ahead more than the usual 128 KiB; stores that map their files \
                 read that much around each page fault and look slow if memory is short (see \
                 read_ahead_kb in /sys/class/bdi)",
            );
        }
        for group in &comparison.groups {
            for repetition in 0..group.runs {
                for job in &group.jobs {
                    self.run_once(job, repetition)?;
                }
            }
        }
        Ok(self.summary)
    }

    /// Runs one repetition of one job. Fails only if no further run can succeed.
    fn run_once(&mut self, job: &Job, repetition: u64) -> Outcome {
        let template = self.template(job, repetition)?;
        if template.iter().all(|line| self.file.has(line)) {
            self.summary.skipped += 1;
            self.progress.skip(job);
            return Ok(());
        }
        self.progress.begin(job, repetition);
        if let Some(dir) = self.comparison.emptied_dir {
            dir.empty()?;
        }
        let start = Instant::now();
        let started_unix_ms = machine::unix_ms();
        let mut conditions = self.conditions();
        let outcome = self.measure(job);
        conditions.load_average_after = machine::load_average();
        let elapsed_seconds = start.elapsed().as_secs_f64();
        if let Err(failure) = &outcome {
            self.summary.failed += 1;
            self.progress.fail(job, &failure.to_string());
        } else {
            self.summary.done += 1;
        }
        let (mut figures, error) = match outcome {
            Ok(figures) => (figures.into_iter().map(Some).collect(), None),
            Err(failure) => (Vec::new(), Some(failure.to_string())),
        };
        figures.resize(template.len(), None);
        for (line, figures) in template.into_iter().zip(figures) {
            let line = RunResult {
                started_unix_ms,
                elapsed_seconds,
                conditions,
                figures,
                error: error.clone(),
                ..line
            };
            self.file.append(line)?;
        }
        self.progress.done(job, repetition);
        Ok(())
    }

    /// Measures the conditions of the machine. If the disk has no space for the file of the probe,
    /// its values are absent and the run continues: a store that needs the disk fails by itself.
    fn conditions(&mut self) -> Conditions {
        if !self.probe.is_made() {
            match DiskProbe::new(self.dir.path()) {
                Ok(probe) => self.probe = probe,
                Err(failure) if !self.lacks_probe => {
                    self.lacks_probe = true;
                    self.progress.note(&format!("the disk's conditions are not known: {failure}"));
                }
                Err(_) => {}
            }
        }
        self.probe.measure()
    }

    /// Returns the lines of a job, one for each step, without the values that a run measures.
    fn template(&self, job: &Job, repetition: u64) -> Outcome<Vec<RunResult>> {
        let options = job.store_options(PathBuf::new())?;
        let memory = job.memory.ok_or_else(|| {
            Failure::Usage(format!("{}: a comparison needs a memory mode", job.store))
        })?;
        let line = |step: &Step| {
            Ok(RunResult {
                schema: SCHEMA,
                run_id: self.file.run_id().to_owned(),
                started_unix_ms: 0,
                elapsed_seconds: 0.0,
                built: built(),
                machine: self.machine.clone(),
                conditions: Conditions::default(),
                store: self.stores.describe(&job.store, &options),
                preset: job.preset.clone(),
                point: job.preset.as_ref().map(|_| step.name().to_owned()),
                workload: job.workload_info(step)?,
                durability: job.durability,
                memory,
                repetition,
                figures: None,
                error: None,
            })
        };
        job.steps.iter().map(line).collect()
    }

    fn measure(&self, job: &Job) -> Outcome<Vec<Figures>> {
        self.stores.check_available(&job.store)?;
        if job.is_persistent {
            check_space(self.dir.path(), job)?;
        }
        let reports = self.launcher.run(job)?;
        Ok(reports.into_iter().map(|report| report.figures).collect())
    }
}

/// Fails if the disk has no room for a run, before the run fills the disk.
fn check_space(dir: &Path, job: &Job) -> Outcome {
    let needed = job.data_bytes().saturating_mul(SPACE_FACTOR);
    match conditions::free_bytes(dir) {
        Some(free) if free < needed => Err(Failure::Failed(format!(
            "{}: {free} bytes are free on the disk of {}, a run may need {needed}",
            job.store,
            dir.display()
        ))),
        _ => Ok(()),
    }
}

/// Returns the version of this build, with the commit if the build knows it.
fn built() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("QUINTET_COMMIT") {
        Some(commit) => format!("{version} {commit}"),
        None => version.to_owned(),
    }
}

#[cfg(test)]
mod tests;
