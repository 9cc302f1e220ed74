//! The parent's side: runs jobs in child processes, stores turn by turn, and appends what they
//! found to a results file.
//!
//! Order: for each group of jobs (the same session on different stores), the first repetition of
//! every store, then the second of every store, and so on: A B A B. What drifts, drifts for all.
//!
//! A store that fails, crashes or takes too long gives a line with the error, and the others go on.
//! What ends everything is what would end every run: a directory that is not there, a results file
//! that cannot be written.

mod child;
mod file;
mod progress;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use quintet_bench::{
    failure::{Failure, Outcome},
    machine::{self, Machine},
    store::Stores as _,
};

use crate::{
    cgroup,
    conditions::{self, Probe},
    job::Job,
    limits,
    measure::{Answer, Order, Part},
    plan,
    result::{Conditions, Figures, Memory, Recovery, RunResult, SCHEMA},
    stores::Set,
};

pub use file::read;

use progress::Progress;

/// Space that must be free for a run: this many times the bytes of the records.
const SPACE_FACTOR: u64 = 2;

/// What to run and where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The sessions, in groups of the same session on different stores.
    pub groups: Vec<Vec<Job>>,
    /// Repetitions of each.
    pub runs: u64,
    /// Where the stores put their files.
    pub dir: PathBuf,
    /// The results file; appended to.
    pub out: PathBuf,
    /// Go on with the results file where it ends.
    pub resumes: bool,
    /// The longest that a run may take.
    pub limit: Duration,
    /// Measure the limits of the machine first, where the file has none.
    pub measures_limits: bool,
    /// Lines for the user before it starts: what is left out and why.
    pub notes: Vec<String>,
}

/// How a whole comparison went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs that gave figures.
    pub done: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Runs that were in the file already.
    pub skipped: u64,
}

/// Runs the plan.
pub fn run(plan: &Plan) -> Outcome<Tally> {
    let mut runner = Runner::new(plan)?;
    for note in &plan.notes {
        runner.progress.note(note);
    }
    let tally = runner.run()?;
    runner.progress.end();
    Ok(tally)
}

struct Runner<'a> {
    plan: &'a Plan,
    /// Made by this process, and removed by it.
    dir: PathBuf,
    /// Of the disk; of nothing until there is room for its file.
    probe: Probe,
    /// That there is none has been said.
    lacks_probe: bool,
    machine: Machine,
    file: file::Results,
    progress: Progress,
    tally: Tally,
}

impl<'a> Runner<'a> {
    fn new(plan: &'a Plan) -> Outcome<Self> {
        for job in plan.groups.iter().flatten() {
            job.check()?;
        }
        let file = file::Results::open(&plan.out, plan.resumes)?;
        if !plan.dir.is_dir() {
            return Err(Failure::Usage(format!(
                "--dir {}: there is no such directory",
                plan.dir.display()
            )));
        }
        let dir = plan.dir.join(format!("quintet-compare-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| Failure::io(dir.display(), &error))?;
        let total = plan.groups.iter().flatten().count();
        let progress = Progress::new(quintet_bench::numbers::to_u64(total) * plan.runs);
        let mut runner = Self {
            plan,
            machine: Machine::default(),
            probe: Probe::none(),
            lacks_probe: false,
            dir,
            file,
            progress,
            tally: Tally::default(),
        };
        runner.machine = Machine::look(&runner.dir);
        Ok(runner)
    }

    fn run(&mut self) -> Outcome<Tally> {
        let plan = self.plan;
        if plan.measures_limits && !self.file.has_limits() {
            self.progress.note("measuring the limits of the machine");
            let run_id = self.file.run_id().to_owned();
            let record = limits::Record::measure(run_id, &self.dir, limits::Extent::SHORT);
            self.file.append_text(&record.text()?)?;
        }
        if self.machine.reads_far_ahead() {
            self.progress.note(
                "this disk reads more than the usual 128 KiB ahead: stores that map their files \
                 read as much around each page they miss, so they look slow where memory is short \
                 (see read_ahead_kb in /sys/class/bdi)",
            );
        }
        for group in &plan.groups {
            for repetition in 0..plan.runs {
                for job in group {
                    self.one(job, repetition)?;
                }
            }
        }
        Ok(self.tally)
    }

    /// One repetition of one job. Fails only where going on makes no sense.
    fn one(&mut self, job: &Job, repetition: u64) -> Outcome {
        let template = self.template(job, repetition)?;
        if template.iter().all(|line| self.file.has(line)) {
            self.tally.skipped += 1;
            self.progress.skip(job, repetition);
            return Ok(());
        }
        self.progress.begin(job, repetition);
        let start = Instant::now();
        let started_unix_ms = unix_ms();
        let mut conditions = self.look();
        let outcome = self.measure(job);
        conditions.load_average_after = machine::load_average();
        let elapsed_seconds = start.elapsed().as_secs_f64();
        if let Err(failure) = &outcome {
            self.tally.failed += 1;
            self.progress.fail(job, &failure.to_string());
        } else {
            self.tally.done += 1;
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

    /// What the machine is doing now. A disk that has no room for the probe's file costs these
    /// figures, not the run: each store meets the disk's end by itself, or does without a disk.
    fn look(&mut self) -> Conditions {
        if !self.probe.is_made() {
            match Probe::new(&self.dir) {
                Ok(probe) => self.probe = probe,
                Err(failure) if !self.lacks_probe => {
                    self.lacks_probe = true;
                    self.progress.note(&format!("the disk's conditions are not known: {failure}"));
                }
                Err(_) => {}
            }
        }
        self.probe.look()
    }

    /// The lines of a job, one a step, without what only running it tells.
    fn template(&self, job: &Job, repetition: u64) -> Outcome<Vec<RunResult>> {
        let set = Set { memory: job.memory };
        let options = job.store_options(PathBuf::new())?;
        let line = |step| {
            Ok(RunResult {
                schema: SCHEMA,
                run_id: self.file.run_id().to_owned(),
                started_unix_ms: 0,
                elapsed_seconds: 0.0,
                built: built(),
                machine: self.machine.clone(),
                conditions: Conditions::default(),
                store: set.describe(&job.store, &options),
                preset: job.preset.clone(),
                point: job.preset.as_ref().map(|_| crate::job::step_name(step).to_owned()),
                workload: job.workload_info(step)?,
                durability: job.durability,
                memory: job.memory,
                repetition,
                figures: None,
                error: None,
            })
        };
        job.steps.iter().map(line).collect()
    }

    /// Runs a job in its child, and in a second one where it is to be killed.
    fn measure(&self, job: &Job) -> Outcome<Vec<Figures>> {
        let set = Set { memory: job.memory };
        set.check(&job.store)?;
        if let Some(peer) = crate::stores::peer(&job.store) {
            peer.is_there()?;
        }
        if set.is_persistent(&job.store) {
            enough_space(&self.dir, job)?;
        }
        let dir = self.dir.join("store");
        let doing = |error: std::io::Error| Failure::io(dir.display(), &error);
        fs::create_dir(&dir).map_err(doing)?;
        let outcome = self.measure_in(job, &dir);
        fs::remove_dir_all(&dir).map_err(doing)?;
        outcome
    }

    fn measure_in(&self, job: &Job, dir: &Path) -> Outcome<Vec<Figures>> {
        let log = self.dir.join("stderr");
        let mut order = Order { job: job.clone(), dir: dir.to_path_buf(), part: Part::Session };
        let fits = matches!(job.memory, Memory::Fits { .. });
        if job.reopens && !fits && !job.measures_load() {
            // Little memory is for what is measured: loading has as much as it can use, and what
            // it left in the page cache goes first.
            let budget_bytes = plan::budget_that_fits(job.data_bytes());
            order.job.memory = Memory::Fits { budget_bytes };
            order.part = Part::Load;
            order.part = match child::run(&order, &log, self.plan.limit)? {
                Answer::Loaded(loaded) => Part::Steps(loaded),
                other => return Err(child::unexpected(other).within("load")),
            };
            order.job.memory = job.memory;
            let forget = |error: std::io::Error| Failure::io(dir.display(), &error);
            cgroup::forget_cached(dir).map_err(forget)?;
        }
        let answer = child::run(&order, &log, self.plan.limit)?;
        let mut figures = match answer {
            Answer::Measured(figures) => figures,
            other => return Err(child::unexpected(other)),
        };
        if job.recovers && (Set { memory: job.memory }).is_persistent(&job.store) {
            order.part = Part::Recovery;
            let found = match child::run(&order, &log, self.plan.limit)? {
                Answer::Reopened(recovery) => recovery,
                other => return Err(child::unexpected(other).within("after kill -9")),
            };
            set_recovery(&mut figures, found);
        }
        Ok(figures)
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        // What cannot be removed is in the directory that the user named.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn set_recovery(figures: &mut [Figures], found: Recovery) {
    if let Some(last) = figures.last_mut() {
        last.recovery = Some(found);
    }
}

/// Refuses a run that the disk has no room for, before it fills the disk.
fn enough_space(dir: &Path, job: &Job) -> Outcome {
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

/// The version that was built.
fn built() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("QUINTET_COMMIT") {
        Some(commit) => format!("{version} {commit}"),
        None => version.to_owned(),
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
