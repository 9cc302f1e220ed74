//! The child's side: one job in this process, from opening the store to closing it.
//!
//! The job comes as one line of JSON on standard input, the answer is one line of JSON on standard
//! output. A process that is to be killed then waits for it.

use std::{
    fs,
    io::{self, BufRead as _, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use quintet_bench::{
    data::Shape,
    driver::{self, Phase},
    failure::{Failure, Outcome},
    machine,
    recovery::{self, Killed},
    store::{Store, StoreOptions, Stores as _},
    workload::{Amount, Body, Kind, Workload},
};
use serde::{Deserialize, Serialize};

use crate::{
    counters,
    job::{Job, WRITING_ROUNDS_MAX},
    plan, rest,
    result::{Figures, Io, Latency, Recovery},
    stores::Set,
};

/// What a child is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// What to run.
    pub job: Job,
    /// The store's directory.
    pub dir: PathBuf,
    /// How much of the job.
    pub part: Part,
}

/// A part of a job: what one process does of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// All of it.
    Session,
    /// Loading, and closing the store.
    Load,
    /// The steps, on what another process has loaded.
    Steps(Loaded),
    /// Opening what a killed process left behind, and comparing.
    Recovery,
}

/// What loading took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Records a second.
    pub ops_per_second: f64,
    /// Bytes of keys and values.
    pub user_bytes: u64,
    /// Bytes and requests that reached the disk.
    pub io: Io,
}

/// What a child answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The figures of each step.
    Measured(Vec<Figures>),
    /// What loading took.
    Loaded(Loaded),
    /// What was found after the kill.
    Reopened(Recovery),
    /// Why it failed.
    Failed {
        /// The exit code of [`Failure::code`].
        code: u8,
        /// The message.
        what: String,
    },
}

/// Runs the order on standard input.
pub fn serve(out: &mut dyn Write) -> Outcome {
    // A parent that is killed takes its child along: nobody would hear the answer.
    let kill = rustix::process::Signal::KILL;
    rustix::process::set_parent_process_death_signal(Some(kill))
        .map_err(|error| Failure::io("this process", &error.into()))?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::io("standard input", &error))?;
    let order: Order = serde_json::from_str(&line).map_err(|error| {
        Failure::Usage(format!("a child is started by the tool itself: {error}"))
    })?;
    let answer = obey(&order, out);
    let answer = match answer {
        Ok(None) => return Ok(()),
        Ok(Some(answer)) => answer,
        Err(failure) => Answer::Failed { code: failure.code(), what: failure.to_string() },
    };
    say(out, &answer)
}

fn say(out: &mut dyn Write, answer: &Answer) -> Outcome {
    let text = serde_json::to_string(answer).map_err(io::Error::from)?;
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// The answer, or none where it has been given already.
fn obey(order: &Order, out: &mut dyn Write) -> Outcome<Option<Answer>> {
    let job = &order.job;
    job.check()?;
    let (mut steps, store) = match order.part {
        Part::Recovery => return Ok(Some(Answer::Reopened(reopen(job, &order.dir)?))),
        Part::Load => {
            let (store, _, mut loaded) = load(job, &order.dir)?;
            store.settle()?;
            rest_after_loading(job, &order.dir, store.as_ref(), &mut loaded)?;
            store.close()?;
            return Ok(Some(Answer::Loaded(loaded)));
        }
        Part::Session => measure(job, &order.dir)?,
        Part::Steps(loaded) => {
            let set = Set { memory: job.memory };
            let store = set.open(&job.store, &job.store_options(order.dir.clone())?)?;
            steps(job, &order.dir, store, None, loaded)?
        }
    };
    if job.recovers {
        say(out, &Answer::Measured(steps))?;
        // The parent kills this process here, with the store open.
        io::copy(&mut io::stdin(), &mut io::sink())?;
        store.close()?;
        return Ok(None);
    }
    let start = Instant::now();
    store.close()?;
    if let Some(last) = steps.last_mut() {
        last.close_seconds = Some(start.elapsed().as_secs_f64());
    }
    Ok(Some(Answer::Measured(steps)))
}

fn reopen(job: &Job, dir: &Path) -> Outcome<Recovery> {
    let step = job.steps.first().ok_or_else(|| Failure::Usage("no step".to_owned()))?;
    let workload = step.spec.workload()?;
    let shape = job.shape()?;
    let amount = job.amount(step, &workload, job.records);
    let killed = Killed { workload: &workload, shape: &shape, amount };
    let set = Set { memory: job.memory };
    let options = job.store_options(dir.to_path_buf())?;
    let found = recovery::reopen(&set, &job.store, &options, &killed)?;
    Ok(Recovery {
        seconds: found.seconds,
        open_seconds: found.open_seconds,
        checked: found.checked,
        missing: found.missing,
        mismatching: found.mismatching,
    })
}

/// Opens the store and loads the records.
fn load(job: &Job, dir: &Path) -> Outcome<(Box<dyn Store>, Phase, Loaded)> {
    let before = counters::now(dir);
    let set = Set { memory: job.memory };
    let store = set.open(&job.store, &job.store_options(dir.to_path_buf())?)?;
    let (loading, shape) = (loading_workload(job)?, job.shape()?);
    let amount = Amount {
        records: job.records,
        operations: job.records,
        threads: job.threads,
        seed: job.seed,
    };
    let phase = driver::load(store.as_ref(), &job.task(&loading, &shape, amount))?;
    store.sync()?;
    let loaded = Loaded {
        ops_per_second: phase.rate(),
        user_bytes: phase.bytes_written,
        io: counters::since(counters::now(dir), before),
    };
    Ok((store, phase, loaded))
}

/// Waits for the store to come to rest, if the job wants that; what it does until then is part of
/// loading.
fn rest_after_loading(job: &Job, dir: &Path, store: &dyn Store, loaded: &mut Loaded) -> Outcome {
    if job.settle_seconds == 0 {
        return Ok(());
    }
    let before = counters::now(dir);
    store.settle()?;
    rest::wait(Duration::from_secs(job.settle_seconds))?;
    loaded.io = counters::sum(loaded.io, counters::since(counters::now(dir), before));
    Ok(())
}

/// Runs the whole session and leaves the store open.
fn measure(job: &Job, dir: &Path) -> Outcome<(Vec<Figures>, Box<dyn Store>)> {
    let (mut store, phase, mut loaded) = load(job, dir)?;
    rest_after_loading(job, dir, store.as_ref(), &mut loaded)?;
    if job.reopens {
        let before = counters::now(dir);
        store.close()?;
        let set = Set { memory: job.memory };
        store = set.open(&job.store, &job.store_options(dir.to_path_buf())?)?;
        loaded.io = counters::sum(loaded.io, counters::since(counters::now(dir), before));
    }
    steps(job, dir, store, Some(phase), loaded)
}

/// Runs the steps on what is loaded and leaves the store open. `load` where this process has.
fn steps(
    job: &Job,
    dir: &Path,
    store: Box<dyn Store>,
    load: Option<Phase>,
    loaded: Loaded,
) -> Outcome<(Vec<Figures>, Box<dyn Store>)> {
    let set = Set { memory: job.memory };
    let shape = job.shape()?;
    let mut session = Session {
        dir,
        load,
        loaded,
        records: job.records,
        record_bytes_live: 0,
        has_deleted: false,
        is_persistent: set.is_persistent(&job.store),
    };
    session.record_bytes_live = (0..job.records).map(|number| shape.record_bytes(number)).sum();
    let mut steps = Vec::new();
    for step in &job.steps {
        let workload = step.spec.workload()?;
        let before = counters::now(dir);
        let amount = job.amount(step, &workload, session.records);
        let ran = operate(job, store.as_ref(), &workload, &shape, amount)
            .map_err(|failure| failure.within(&workload.name))?;
        let phase = if let Some((phase, records)) = ran {
            store.sync()?;
            let new = session.records..records;
            session.record_bytes_live += new.map(|number| shape.record_bytes(number)).sum::<u64>();
            session.records = records;
            session.has_deleted |= workload.share(Kind::Delete) > 0.0;
            let io = counters::since(counters::now(dir), before);
            Some((phase, io))
        } else {
            None
        };
        steps.push(session.figures(store.as_ref(), phase)?);
    }
    if job.measures_load()
        && !job.recovers
        && let Some(load) = session.load
    {
        let total = load_again(job, &job.store_options(dir.to_path_buf())?, load)?;
        for (figures, step) in steps.iter_mut().zip(&job.steps) {
            figures.load_ops_per_second = total.rate();
            if step.spec.workload()?.body == Body::Load {
                figures.ops_per_second = total.rate();
                figures.seconds = total.time.as_secs_f64();
                figures.cpu_seconds = total.cpu.as_secs_f64();
                figures.writes = Latency::of(total.times.writes())?;
            }
        }
    }
    Ok((steps, store))
}

/// Loads at most so many stores more.
const LOADS_MAX: u32 = 15;

/// Loads further stores, each empty and removed afterwards, until loading has taken the time that
/// the job wants, and adds them to `total`. After everything else, so that no figure but the time
/// of loading notices.
fn load_again(job: &Job, options: &StoreOptions, mut total: Phase) -> Outcome<Phase> {
    let set = Set { memory: job.memory };
    let loading = loading_workload(job)?;
    let shape = job.shape()?;
    let amount = Amount {
        records: job.records,
        operations: job.records,
        threads: job.threads,
        seed: job.seed,
    };
    let dir = options.dir.with_extension("again");
    let doing = |error: io::Error| Failure::io(dir.display(), &error);
    for _ in 0..LOADS_MAX {
        if total.time.as_secs_f64() >= job.seconds_min {
            break;
        }
        if dir.exists() {
            // Of a run that died.
            fs::remove_dir_all(&dir).map_err(doing)?;
        }
        fs::create_dir(&dir).map_err(doing)?;
        let store = set.open(&job.store, &StoreOptions { dir: dir.clone(), ..options.clone() })?;
        let load = driver::load(store.as_ref(), &job.task(&loading, &shape, amount))?;
        store.close()?;
        fs::remove_dir_all(&dir).map_err(doing)?;
        add(&mut total, &load)?;
    }
    Ok(total)
}

/// Adds a round to the time and the operations of the others.
fn add(total: &mut Phase, round: &Phase) -> Outcome {
    total.operations += round.operations;
    total.time += round.time;
    total.cpu += round.cpu;
    total.times.merge(&round.times)?;
    total.bytes_written += round.bytes_written;
    total.found += round.found;
    total.absent += round.absent;
    Ok(())
}

/// The rounds of a workload at most, however short they are.
const ROUNDS_MAX: u64 = 1000;

/// Runs a workload's operations, again and again from other seeds where the job wants them to take
/// longer, and adds the rounds up.
fn operate(
    job: &Job,
    store: &dyn Store,
    workload: &Workload,
    shape: &Shape,
    amount: Amount,
) -> Outcome<Option<(Phase, u64)>> {
    let Some((mut total, records)) = driver::operate(store, &job.task(workload, shape, amount))?
    else {
        return Ok(None);
    };
    if plan::changes_count(workload) {
        return Ok(Some((total, records)));
    }
    let rounds = if total.bytes_written > 0 { WRITING_ROUNDS_MAX } else { ROUNDS_MAX };
    for round in 1..rounds {
        if total.time.as_secs_f64() >= job.seconds_min {
            break;
        }
        let amount = Amount { seed: amount.seed.wrapping_add(round), ..amount };
        let again = driver::operate(store, &job.task(workload, shape, amount))?;
        let Some((phase, _)) = again else { break };
        add(&mut total, &phase)?;
    }
    Ok(Some((total, records)))
}

/// The workload that loads, for the driver; the session's own where it has one.
fn loading_workload(job: &Job) -> Outcome<Workload> {
    for step in &job.steps {
        let workload = step.spec.workload()?;
        if workload.body == Body::Load {
            return Ok(workload);
        }
    }
    quintet_bench::workload::find(quintet_bench::workload::Suite::Ycsb, "load")
}

/// What the figures of all steps of a session have in common.
struct Session<'a> {
    dir: &'a Path,
    /// None where another process has loaded.
    load: Option<Phase>,
    loaded: Loaded,
    /// Records now.
    records: u64,
    /// Bytes of all records that were ever loaded or inserted.
    record_bytes_live: u64,
    /// Records have been deleted: only the store knows what is live.
    has_deleted: bool,
    is_persistent: bool,
}

impl Session<'_> {
    fn figures(&self, store: &dyn Store, ran: Option<(Phase, Io)>) -> Outcome<Figures> {
        let memory = machine::memory();
        let stats = store.stats();
        let is_load = ran.is_none();
        let load = || self.load.clone().map(|phase| (phase, Io::default()));
        let (phase, io) = ran.or_else(load).ok_or_else(|| {
            Failure::Failed("loading is measured by the process that loads".to_owned())
        })?;
        let disk_bytes = if self.is_persistent {
            let bytes = machine::disk_bytes(self.dir);
            Some(bytes.map_err(|error| Failure::io(self.dir.display(), &error))?)
        } else {
            None
        };
        Ok(Figures {
            ops_per_second: phase.rate(),
            seconds: phase.time.as_secs_f64(),
            cpu_seconds: phase.cpu.as_secs_f64(),
            load_ops_per_second: self.loaded.ops_per_second,
            reads: Latency::of(phase.times.reads())?,
            writes: Latency::of(phase.times.writes())?,
            found: phase.found,
            absent: phase.absent,
            resident_bytes: memory.resident_bytes,
            peak_resident_bytes: memory.peak_bytes,
            harness_bytes: phase.harness_bytes,
            store_memory_bytes: stats.memory_bytes,
            index_bytes: stats.index_bytes,
            keys: stats.keys.unwrap_or(if self.has_deleted { 0 } else { self.records }),
            load_user_bytes: self.loaded.user_bytes,
            user_bytes: if is_load { 0 } else { phase.bytes_written },
            load_io: self.loaded.io,
            io: if is_load { zeros(self.loaded.io) } else { io },
            live_bytes: stats.live_bytes.unwrap_or(if self.has_deleted {
                0
            } else {
                self.record_bytes_live
            }),
            disk_bytes,
            close_seconds: None,
            recovery: None,
        })
    }
}

/// Nothing read or written, as far as the counters are there.
fn zeros(io: Io) -> Io {
    counters::since(io, io)
}
