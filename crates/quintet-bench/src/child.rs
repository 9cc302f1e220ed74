//! Runs every job in a child process of its own, stores turn by turn, and gathers what they found.
//!
//! Why children: memory that one store leaves fragmented, or caches that it leaves warm, do not
//! reach the next; peak memory is one store's; and a store can be killed without warning to see
//! what it recovers.
//!
//! The child is this executable with the same command line; [`ROLE`] tells it what to do, [`DIR`]
//! where. It answers with one line of JSON on its standard output. One that is to be killed then
//! waits for its death, or for the end of its standard input should the parent die first.
//!
//! One child measures nothing: in a process group of its own, so that an interrupt from the
//! terminal does not reach it, it waits for the end of the parent and removes its directory.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, BufRead as _, BufReader, IsTerminal as _, Read as _, Write},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    driver,
    failure::{Failure, Outcome},
    machine::{self, Machine},
    measurement::{Measurement, Recovery},
    numbers::{to_f64, to_u64},
    plan::{Job, Plan},
    recovery::{self, Killed},
    store::{Store, Stores},
    table,
};

/// The environment variable that makes a process a child: `measure N` or `reopen N`, with the
/// job's number, or `clear 0`.
pub const ROLE: &str = "QUINTET_BENCH_ROLE";
/// The environment variable with the store's directory.
pub const DIR: &str = "QUINTET_BENCH_DIR";

/// The role that removes the directory.
const CLEAR: &str = "clear 0";
/// How often what is left of the directory is removed, while a run that was interrupted may still
/// be writing there, and how long to wait between.
const CLEAR_TRIES: u32 = 100;
const CLEAR_PAUSE: Duration = Duration::from_millis(50);

/// What a child answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Measured(Box<Measurement>),
    Reopened(Recovery),
    Failed { code: u8, what: String },
}

/// Runs the plan, or, in a child, the part of it that the parent asks for.
pub fn run(stores: &dyn Stores, plan: &Plan, out: &mut dyn Write) -> Outcome {
    match (env::var(ROLE), env::var_os(DIR)) {
        (Ok(role), Some(dir)) => serve(stores, plan, &role, Path::new(&dir), out),
        _ => Parent::new(plan)?.run(out),
    }
}

/// The child's side.
fn serve(stores: &dyn Stores, plan: &Plan, role: &str, dir: &Path, out: &mut dyn Write) -> Outcome {
    if role == CLEAR {
        io::copy(&mut io::stdin(), &mut io::sink())?;
        return clear(dir);
    }
    let wrong = || Failure::Usage(format!("{ROLE}: {role:?} makes no sense"));
    let (what, number) = role.split_once(' ').ok_or_else(wrong)?;
    let number: usize = number.parse().map_err(|_| wrong())?;
    let job = plan.jobs.get(number).ok_or_else(wrong)?;
    let mut answer = |answer: Answer| -> Outcome {
        let text = serde_json::to_string(&answer).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    };
    let failed =
        |failure: &Failure| Answer::Failed { code: failure.code(), what: failure.to_string() };
    if what == "reopen" {
        let killed = Killed { workload: &job.workload, shape: &job.shape, amount: job.amount };
        let options = job.store_options(plan, dir.to_path_buf());
        return answer(match recovery::reopen(stores, &job.engine, &options, &killed) {
            Ok(recovery) => Answer::Reopened(recovery),
            Err(failure) => failed(&failure),
        });
    }
    let watch = Watch::start();
    let outcome = measure(stores, plan, job, dir);
    // From here on the end of standard input is what the parent answers with.
    watch.stop();
    match outcome {
        Err(failure) => answer(failed(&failure)),
        Ok((measurement, store)) => {
            answer(Answer::Measured(Box::new(measurement)))?;
            if job.recovers {
                // The parent kills this process here, with the store open and nothing closed.
                io::copy(&mut io::stdin(), &mut io::sink())?;
            }
            store.close()
        }
    }
}

/// Ends this process when its parent does.
struct Watch(Arc<AtomicBool>);

impl Watch {
    fn start() -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopped);
        thread::spawn(move || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            if !seen.load(Ordering::SeqCst) {
                process::exit(1);
            }
        });
        Self(stopped)
    }

    fn stop(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Measures one job in this process, in `dir`, and leaves the store open.
pub fn measure(
    stores: &dyn Stores,
    plan: &Plan,
    job: &Job,
    dir: &Path,
) -> Outcome<(Measurement, Box<dyn Store>)> {
    let written = machine::written(dir);
    let store = stores.open(&job.engine, &job.store_options(plan, dir.to_path_buf()))?;
    let phases = driver::run(store.as_ref(), &job.task(plan))?;
    let memory = machine::memory();
    rest(store.as_ref(), plan)?;
    let written = machine::written(dir).since(written);
    let stats = store.stats();
    let disk_bytes = disk_bytes(job, dir)?;
    let user_bytes =
        phases.load.bytes_written + phases.body.as_ref().map_or(0, |body| body.bytes_written);
    let load_rate = phases.load.rate();
    let phase = phases.body.unwrap_or(phases.load);
    let [reads, writes, all] = phase.times.summarize()?;
    let keys = stats.keys.unwrap_or(phases.records);
    let all_bytes = || (0..phases.records).map(|number| job.shape.record_bytes(number)).sum();
    let live_bytes = stats.live_bytes.unwrap_or_else(all_bytes);
    let device_bytes = if job.is_persistent { written.device.or(written.process) } else { None };
    let memory_bytes = stats.memory_bytes.unwrap_or(0);
    let measurement = Measurement {
        engine: job.engine.clone(),
        options: job.settings.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        suite: job.workload.suite,
        workload: job.workload.name.clone(),
        logkv: job.point,
        records: job.amount.records,
        operations: phase.operations,
        threads: job.amount.threads,
        key_bytes: job.shape.key_bytes,
        value_bytes: job.shape.value_bytes.clone(),
        value_repeated_percent: job.shape.repeated_percent,
        durability: plan.durability,
        seed: job.amount.seed,
        batch: job.workload.batch,
        rate: plan.rate,
        verified: plan.verify,
        runs: 1,
        ops_per_second: phase.rate(),
        ops_per_second_min: phase.rate(),
        ops_per_second_max: phase.rate(),
        seconds: phase.time.as_secs_f64(),
        p50_ns: all.p50_ns,
        p99_ns: all.p99_ns,
        p999_ns: all.p999_ns,
        max_ns: all.max_ns,
        reads,
        writes,
        timed_one_in: plan.timed_one_in,
        cpu_seconds: phase.cpu.as_secs_f64(),
        load_ops_per_second: load_rate,
        resident_bytes: memory.resident_bytes,
        peak_resident_bytes: memory.peak_bytes,
        harness_bytes: phase.harness_bytes,
        memory_bytes,
        memory_utilisation: ratio(live_bytes, memory_bytes),
        details: stats.details,
        index_bytes_per_key: ratio(stats.index_bytes.unwrap_or(0), keys),
        user_bytes_written: user_bytes,
        process_bytes_written: written.process,
        device_bytes_written: written.device,
        write_amplification: ratio(device_bytes.unwrap_or(0), user_bytes),
        live_bytes,
        disk_bytes,
        space_amplification: ratio(disk_bytes, live_bytes),
        found: phase.found,
        absent: phase.absent,
        recovery: None,
        load_average: machine::load_average(),
        machine: Machine::default(),
    };
    Ok((measurement, store))
}

/// Removes the parent's directory, unless it has done so itself.
fn clear(dir: &Path) -> Outcome {
    let mut outcome = Ok(());
    for _ in 0..CLEAR_TRIES {
        outcome = match fs::remove_dir_all(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            outcome => outcome,
        };
        thread::sleep(CLEAR_PAUSE);
    }
    outcome.map_err(|error| Failure::io(dir.display(), &error))
}

/// Lets the store finish what it does in the background.
fn rest(store: &dyn Store, plan: &Plan) -> Outcome {
    store.sync()?;
    thread::sleep(Duration::from_secs(plan.rest));
    Ok(())
}

/// Bytes of the store's files.
fn disk_bytes(job: &Job, dir: &Path) -> Outcome<u64> {
    if !job.is_persistent {
        return Ok(0);
    }
    machine::disk_bytes(dir).map_err(|error| Failure::io(dir.display(), &error))
}

/// `part / whole`; 0 where there is no whole.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { to_f64(part) / to_f64(whole) }
}

/// The parent's side.
struct Parent<'a> {
    plan: &'a Plan,
    /// Made by this process, and removed by it.
    dir: PathBuf,
    machine: Machine,
    failures: Vec<Failure>,
    /// Removes the directory should this process be killed.
    clearer: Child,
}

impl<'a> Parent<'a> {
    fn new(plan: &'a Plan) -> Outcome<Self> {
        let base = plan.dir.clone().unwrap_or_else(env::temp_dir);
        let dir = base.join(format!("quintet-bench-{}", process::id()));
        let made = fs::create_dir_all(&base).and_then(|()| fs::create_dir(&dir));
        made.map_err(|error| Failure::io(format!("--dir {}", base.display()), &error))?;
        let clearer = spawn_in(CLEAR, &dir, Some(0)).inspect_err(|_| {
            let _ = fs::remove_dir(&dir);
        })?;
        let machine = Machine::look(&dir);
        Ok(Self { plan, dir, machine, failures: Vec::new(), clearer })
    }

    fn run(mut self, out: &mut dyn Write) -> Outcome {
        let jobs = &self.plan.jobs;
        let mut results = Vec::new();
        let mut first = 0;
        while let Some(job) = jobs.get(first) {
            let same = |other: &&Job| other.workload == job.workload;
            let count = jobs.iter().skip(first).take_while(same).count();
            let medians = self.run_group(first..first + count);
            if self.plan.json {
                for median in &medians {
                    let text = serde_json::to_string(median).map_err(io::Error::from)?;
                    writeln!(out, "{text}")?;
                }
                out.flush()?;
            }
            results.extend(medians);
            first += count;
        }
        if self.plan.json {
            for note in &self.plan.notes {
                complain(note);
            }
        } else if !results.is_empty() {
            write!(out, "{}", table::render(&results, &self.plan.notes))?;
            out.flush()?;
        }
        self.outcome()
    }

    /// The jobs of one workload: all of them once, then all of them again.
    fn run_group(&mut self, jobs: std::ops::Range<usize>) -> Vec<Measurement> {
        let mut runs: Vec<Vec<Measurement>> = jobs.clone().map(|_| Vec::new()).collect();
        for round in 1..=self.plan.runs {
            for (number, runs) in jobs.clone().zip(&mut runs) {
                let Some(job) = self.plan.jobs.get(number) else { continue };
                self.show_progress(number, round, job);
                match self.run_job(number, job) {
                    Ok(measurement) => runs.push(measurement),
                    Err(failure) => {
                        let failure = failure.within(job.name());
                        complain(&failure.to_string());
                        self.failures.push(failure);
                    }
                }
            }
        }
        runs.into_iter().filter_map(Measurement::median).collect()
    }

    fn show_progress(&self, number: usize, round: u64, job: &Job) {
        if io::stderr().is_terminal() && !self.plan.json {
            let (done, all) = (number + 1, self.plan.jobs.len());
            eprintln!("{done} of {all}, run {round} of {}: {}", self.plan.runs, job.name());
        }
    }

    fn run_job(&self, number: usize, job: &Job) -> Outcome<Measurement> {
        let dir = self.dir.join("store");
        let doing = |error: io::Error| Failure::io(dir.display(), &error);
        fs::create_dir(&dir).map_err(doing)?;
        let outcome = self.run_in(number, job, &dir);
        fs::remove_dir_all(&dir).map_err(doing)?;
        outcome
    }

    fn run_in(&self, number: usize, job: &Job, dir: &Path) -> Outcome<Measurement> {
        let mut child = spawn(&format!("measure {number}"), dir)?;
        let mut measurement = match hear(&mut child, job.recovers)? {
            Answer::Measured(measurement) => *measurement,
            other => return Err(unexpected(other)),
        };
        if job.recovers {
            let mut child = spawn(&format!("reopen {number}"), dir)?;
            measurement.recovery = match hear(&mut child, false)? {
                Answer::Reopened(recovery) => Some(recovery),
                other => return Err(unexpected(other).within("after kill -9")),
            };
        }
        measurement.machine = self.machine.clone();
        Ok(measurement)
    }

    fn outcome(mut self) -> Outcome {
        let count = self.failures.len();
        let worst = std::mem::take(&mut self.failures).into_iter().max_by_key(Failure::code);
        let Some(worst) = worst else { return Ok(()) };
        let runs = to_u64(self.plan.jobs.len()) * self.plan.runs;
        let what = format!("{count} of {runs} runs failed");
        Err(match worst {
            Failure::Damage(_) => Failure::Damage(what),
            Failure::Usage(_) => Failure::Usage(what),
            _ => Failure::Failed(what),
        })
    }
}

impl Drop for Parent<'_> {
    fn drop(&mut self) {
        // What cannot be removed has been complained about, or the disk is gone.
        let _ = fs::remove_dir_all(&self.dir);
        drop(self.clearer.stdin.take());
        let _ = self.clearer.wait();
    }
}

/// One line on standard error.
fn complain(what: &str) {
    // Standard error may be closed; there is nowhere else to say it.
    let _ = writeln!(io::stderr(), "quintet bench: {what}");
}

fn spawn(role: &str, dir: &Path) -> Outcome<Child> {
    spawn_in(role, dir, None)
}

/// A child in the parent's process group or in another one; 0 is one of its own.
fn spawn_in(role: &str, dir: &Path, group: Option<i32>) -> Outcome<Child> {
    let program = env::current_exe().map_err(|error| Failure::io("this program", &error))?;
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    let mut command = Command::new(program);
    if let Some(group) = group {
        command.process_group(group);
    }
    command
        .args(words)
        .env(ROLE, role)
        .env(DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::io("start a run", &error))
}

/// The child's answer; then it is killed, or waited for.
fn hear(child: &mut Child, kill: bool) -> Outcome<Answer> {
    let lost = |error: io::Error| Failure::io("hear from a run", &error);
    let mut line = String::new();
    if let Some(stdout) = &mut child.stdout {
        BufReader::new(stdout.by_ref()).read_line(&mut line).map_err(lost)?;
    }
    if kill {
        // SIGKILL: nothing of the process runs after this.
        child.kill().map_err(lost)?;
    }
    let status = child.wait().map_err(lost)?;
    if line.is_empty() {
        return Err(Failure::Failed(format!("the run died: {status}")));
    }
    let answer = serde_json::from_str(&line);
    let answer = answer.map_err(|error| Failure::Failed(format!("a garbled answer: {error}")))?;
    if !kill && !status.success() {
        return Err(Failure::Failed(format!("closing the store failed: {status}")));
    }
    Ok(answer)
}

/// The failure in an answer.
fn unexpected(answer: Answer) -> Failure {
    match answer {
        Answer::Failed { code: 2, what } => Failure::Usage(what),
        Answer::Failed { code: 3, what } => Failure::Damage(what),
        Answer::Failed { what, .. } => Failure::Failed(what),
        Answer::Measured(_) | Answer::Reopened(_) => {
            Failure::Failed("the run answered something else".to_owned())
        }
    }
}
