//! Runs a plan of a suite and prints medians as a table or as JSON.

mod measurement;
mod table;

use std::{
    env, fs,
    io::{self, IsTerminal as _, Write},
};

use measurement::Measurement;

use super::plan::SuitePlan;
use crate::{
    failure::{Failure, Outcome},
    machine::Machine,
    numbers::to_u64,
    session::{Job, Launcher, scratch::ScratchDir},
};

/// Runs the jobs and prints the median of each to `out`. A run that fails does not stop the others.
pub(crate) fn run(plan: &SuitePlan, out: &mut dyn Write) -> Outcome {
    SuiteRunner::new(plan)?.run(out)
}

struct SuiteRunner<'a> {
    plan: &'a SuitePlan,
    launcher: Launcher,
    machine: Machine,
    failures: Vec<Failure>,
    /// Dropped last, after everything that uses it.
    _dir: ScratchDir,
}

impl<'a> SuiteRunner<'a> {
    fn new(plan: &'a SuitePlan) -> Outcome<Self> {
        let base = plan.dir.clone().unwrap_or_else(env::temp_dir);
        let doing = || format!("--dir {}", base.display());
        fs::create_dir_all(&base).map_err(|error| Failure::io(doing(), &error))?;
        let mut dir = ScratchDir::new(&base, "quintet-bench").map_err(|why| why.within(doing()))?;
        dir.remove_when_killed()?;
        Ok(Self {
            plan,
            launcher: Launcher::new(dir.path(), None),
            machine: Machine::look(dir.path()),
            failures: Vec::new(),
            _dir: dir,
        })
    }

    fn run(mut self, out: &mut dyn Write) -> Outcome {
        let plan = self.plan;
        let mut results = Vec::new();
        for group in &plan.groups {
            let medians = self.run_group(group);
            if plan.json {
                for median in &medians {
                    let text = serde_json::to_string(median).map_err(io::Error::from)?;
                    writeln!(out, "{text}")?;
                }
                out.flush()?;
            }
            results.extend(medians);
        }
        if plan.json {
            for note in &plan.notes {
                complain(note);
            }
        } else if !results.is_empty() {
            write!(out, "{}", table::render(&results, &plan.notes))?;
            out.flush()?;
        }
        self.outcome()
    }

    /// Runs the jobs of one workload: every store once, then every store again.
    fn run_group(&mut self, group: &[Job]) -> Vec<Measurement> {
        let mut runs: Vec<Vec<Measurement>> = group.iter().map(|_| Vec::new()).collect();
        for round in 1..=self.plan.runs {
            for (job, runs) in group.iter().zip(&mut runs) {
                self.show_progress(round, job);
                match self.run_job(job) {
                    Ok(measurement) => runs.push(measurement),
                    Err(failure) => {
                        let failure = failure.within(name(job));
                        complain(&failure.to_string());
                        self.failures.push(failure);
                    }
                }
            }
        }
        runs.into_iter().filter_map(Measurement::median).collect()
    }

    fn show_progress(&self, round: u64, job: &Job) {
        if io::stderr().is_terminal() && !self.plan.json {
            eprintln!("run {round} of {}: {}", self.plan.runs, name(job));
        }
    }

    fn run_job(&self, job: &Job) -> Outcome<Measurement> {
        let mut reports = self.launcher.run(job)?;
        let report = reports.pop();
        let report = report.ok_or_else(|| Failure::Failed("the run has no result".to_owned()))?;
        Measurement::new(job, report, self.machine.clone())
    }

    /// Returns the outcome of all runs: the kind of the worst failure.
    fn outcome(mut self) -> Outcome {
        let count = self.failures.len();
        let worst = std::mem::take(&mut self.failures).into_iter().max_by_key(Failure::code);
        let Some(worst) = worst else { return Ok(()) };
        let jobs = self.plan.groups.iter().flatten().count();
        let what = format!("{count} of {} runs failed", to_u64(jobs) * self.plan.runs);
        Err(match worst {
            Failure::Damage(_) => Failure::Damage(what),
            Failure::Usage(_) => Failure::Usage(what),
            _ => Failure::Failed(what),
        })
    }
}

/// Returns the name of a job in messages.
fn name(job: &Job) -> String {
    let workload = job.steps.first().map_or("", |step| step.spec.name());
    format!("{}, workload {workload}", job.store)
}

/// Writes one line to standard error.
fn complain(what: &str) {
    // Standard error may be closed, and there is no other output for this text.
    let _ = writeln!(io::stderr(), "quintet bench: {what}");
}
