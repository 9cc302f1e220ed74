//! The child's side: runs one session, or a part of it, in this process.
//!
//! The request is one line of JSON on standard input. The reply is one line of JSON on standard
//! output. A process that the parent kills waits for the kill after its reply, with the store open.

mod idle;
mod recovery;

use std::{
    fs,
    io::{self, Write},
    path::Path,
    time::{Duration, Instant},
};

use recovery::KilledRun;

use super::{
    job::{Job, WRITING_ROUNDS_MAX},
    protocol::{ChildReply, LoadReport, SessionPart, SessionRequest, StepReport, receive},
};
use crate::{
    data::RecordShape,
    driver::{self, Phase, VersionSums},
    expected_state::ExpectedState,
    failure::{Failure, Outcome},
    machine::{self, IoCounters, io_counters},
    result::{Figures, Latency, Recovery, TransactionFigures},
    store::{Store, StoreOptions, Stores},
    workload::{self, Body, OperationKind, RunSize, Suite, Workload},
};

/// Maximum number of further stores that a session loads to reach its minimum duration.
const LOADS_MAX: u32 = 15;
/// Maximum number of rounds of a workload that only reads.
const ROUNDS_MAX: u64 = 1000;

/// Reads the parent's request, runs it and replies.
pub(super) fn serve(stores: &dyn Stores, out: &mut dyn Write) -> Outcome {
    // The end of the parent ends this process: the reply would have no reader.
    let kill = rustix::process::Signal::KILL;
    rustix::process::set_parent_process_death_signal(Some(kill))
        .map_err(|error| Failure::io("this process", &error.into()))?;
    let request: SessionRequest = receive()?;
    let reply = match run(stores, &request, out) {
        Ok(None) => return Ok(()),
        Ok(Some(reply)) => reply,
        Err(failure) => ChildReply::Failed { code: failure.code(), what: failure.to_string() },
    };
    send(out, &reply)
}

fn send(out: &mut dyn Write, reply: &ChildReply) -> Outcome {
    let text = serde_json::to_string(reply).map_err(io::Error::from)?;
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Runs a request. Returns the reply, or `None` if the reply has been sent.
fn run(
    stores: &dyn Stores,
    request: &SessionRequest,
    out: &mut dyn Write,
) -> Outcome<Option<ChildReply>> {
    let job = &request.job;
    job.check()?;
    let session = Session::new(stores, job, &request.dir)?;
    let (mut steps, store) = match request.part {
        SessionPart::Recovery => return Ok(Some(ChildReply::Reopened(session.recover()?))),
        SessionPart::Load => return Ok(Some(ChildReply::Loaded(session.load_only()?))),
        SessionPart::Whole => session.run_whole()?,
        SessionPart::Steps(loaded) => {
            let store = session.open()?;
            session.run_steps(store, None, loaded)?
        }
    };
    if job.recovers {
        send(out, &ChildReply::Measured(steps))?;
        // The parent kills this process here, with the store open.
        io::copy(&mut io::stdin(), &mut io::sink())?;
        store.close()?;
        return Ok(None);
    }
    let start = Instant::now();
    store.close()?;
    if let Some(last) = steps.last_mut() {
        last.figures.close_seconds = Some(start.elapsed().as_secs_f64());
    }
    Ok(Some(ChildReply::Measured(steps)))
}

/// A session in this process.
struct Session<'a> {
    stores: &'a dyn Stores,
    job: &'a Job,
    dir: &'a Path,
    options: StoreOptions,
    shape: RecordShape,
    /// Expected content of the records, if the session checks reads.
    truth: Option<ExpectedState>,
}

/// The state of a session between its steps.
struct SessionState {
    /// Phase of loading; `None` if another process loaded.
    load: Option<Phase>,
    loaded: LoadReport,
    /// Records that have been loaded or inserted.
    records: u64,
    /// Bytes of all these records.
    record_bytes: u64,
    /// Whether a step deleted records; then only the store knows what is live.
    has_deleted: bool,
    /// Sums of the versions in the store; `None` after a step that wrote other versions.
    sums: Option<VersionSums>,
}

impl<'a> Session<'a> {
    fn new(stores: &'a dyn Stores, job: &'a Job, dir: &'a Path) -> Outcome<Self> {
        let options = job.store_options(dir.to_path_buf())?;
        let truth = job.verify.then(|| ExpectedState::new(options.records_max));
        Ok(Self { stores, job, dir, options, shape: job.shape()?, truth })
    }

    fn open(&self) -> Outcome<Box<dyn Store>> {
        self.stores.open(&self.job.store, &self.options)
    }

    fn counters(&self) -> IoCounters {
        io_counters::now(self.dir)
    }

    /// Opens the store that a killed process left, and checks its records.
    fn recover(&self) -> Outcome<Recovery> {
        let step = self.job.steps.first();
        let step = step.ok_or_else(|| Failure::Usage("the job has no step".to_owned()))?;
        let workload = step.spec.workload()?;
        let amount = self.job.amount(step, &workload, self.job.records);
        let killed = KilledRun { workload: &workload, shape: &self.shape, amount };
        recovery::reopen(self.stores, &self.job.store, &self.options, &killed)
    }

    /// Loads the records and closes the store.
    fn load_only(&self) -> Outcome<LoadReport> {
        let (store, _, mut loaded) = self.load()?;
        store.settle()?;
        self.wait_until_idle(store.as_ref(), &mut loaded)?;
        store.close()?;
        Ok(loaded)
    }

    /// Opens the store and loads the records.
    fn load(&self) -> Outcome<(Box<dyn Store>, Phase, LoadReport)> {
        let before = self.counters();
        let store = self.open()?;
        let workload = loading_workload(self.job)?;
        let task = self.job.task(&workload, &self.shape, self.job.load_amount());
        let phase = driver::load(store.as_ref(), &task, self.truth.as_ref())?;
        store.sync()?;
        let loaded = LoadReport {
            ops_per_second: phase.rate(),
            user_bytes: phase.bytes_written,
            io: self.counters().since(before),
        };
        Ok((store, phase, loaded))
    }

    /// Waits until background work ends, if the job requests it. Its input and output count as
    /// part of loading.
    fn wait_until_idle(&self, store: &dyn Store, loaded: &mut LoadReport) -> Outcome {
        if self.job.settle_seconds == 0 {
            return Ok(());
        }
        let before = self.counters();
        store.settle()?;
        idle::wait(Duration::from_secs(self.job.settle_seconds))?;
        loaded.io = loaded.io.plus(self.counters().since(before));
        Ok(())
    }

    /// Runs the whole session and leaves the store open.
    fn run_whole(&self) -> Outcome<(Vec<StepReport>, Box<dyn Store>)> {
        let (mut store, phase, mut loaded) = self.load()?;
        self.wait_until_idle(store.as_ref(), &mut loaded)?;
        if self.job.reopens {
            let before = self.counters();
            store.close()?;
            store = self.open()?;
            loaded.io = loaded.io.plus(self.counters().since(before));
        }
        self.run_steps(store, Some(phase), loaded)
    }

    /// Runs the steps on the loaded records and leaves the store open. `load` is the phase of
    /// loading if this process loaded.
    fn run_steps(
        &self,
        store: Box<dyn Store>,
        load: Option<Phase>,
        loaded: LoadReport,
    ) -> Outcome<(Vec<StepReport>, Box<dyn Store>)> {
        let job = self.job;
        let mut progress = SessionState {
            load,
            loaded,
            records: job.records,
            record_bytes: (0..job.records).map(|number| self.shape.record_bytes(number)).sum(),
            has_deleted: false,
            sums: Some(VersionSums::loaded(job.records)),
        };
        let mut steps = Vec::new();
        for step in &job.steps {
            let workload = step.spec.workload()?;
            let amount = job.amount(step, &workload, progress.records);
            let report = self
                .run_step(store.as_ref(), &workload, amount, &mut progress)
                .map_err(|failure| failure.within(&workload.name))?;
            steps.push(report);
        }
        if job.measures_load()
            && !job.recovers
            && let Some(load) = progress.load
        {
            self.repeat_load(load, &mut steps)?;
        }
        Ok((steps, store))
    }

    fn run_step(
        &self,
        store: &dyn Store,
        workload: &Workload,
        amount: RunSize,
        progress: &mut SessionState,
    ) -> Outcome<StepReport> {
        let sums_before = self.prepare_sums(store, workload, amount, progress)?;
        let before = self.counters();
        let ran = self.operate(store, workload, amount)?;
        if let Some((_, records)) = ran {
            let inserted = progress.records..records;
            progress.record_bytes +=
                inserted.map(|number| self.shape.record_bytes(number)).sum::<u64>();
            progress.records = records;
            progress.has_deleted |= workload.share(OperationKind::Delete) > 0.0;
        }
        let audited = self.truth.as_ref().filter(|_| sums_before.is_none());
        if let Some(truth) = audited {
            driver::audit(store, &self.shape, truth, progress.records)?;
        }
        let memory = machine::memory();
        if ran.is_some() || self.job.rest_seconds > 0 {
            store.sync()?;
            std::thread::sleep(Duration::from_secs(self.job.rest_seconds));
        }
        let io = self.counters().since(before);
        if ran.is_none() && self.job.rest_seconds > 0 {
            progress.loaded.io = progress.loaded.io.plus(io);
        }
        let ran = ran.map(|(phase, _)| (phase, io));
        let mut transactions = None;
        if let (Some(before), Some((phase, _))) = (sums_before, &ran) {
            let after = before.after(workload, phase.operations);
            after.check(store, &self.shape, progress.records)?;
            progress.sums = Some(after);
            transactions = Some(TransactionFigures {
                commits: phase.operations,
                conflicts: phase.conflicts,
                sum_before: before.total(),
                sum_after: after.total(),
            });
        } else if ran.as_ref().is_some_and(|(phase, _)| phase.bytes_written > 0) {
            progress.sums = None;
        }
        let mut report = self.report(store, memory, ran, progress)?;
        report.figures.transactions = transactions;
        Ok(report)
    }

    /// Returns the sums of all versions before a workload that counts them, and `None` for other
    /// workloads. Loads the second table if the workload needs it and it is not loaded.
    fn prepare_sums(
        &self,
        store: &dyn Store,
        workload: &Workload,
        amount: RunSize,
        progress: &SessionState,
    ) -> Outcome<Option<VersionSums>> {
        if !workload.counts_versions() {
            return Ok(None);
        }
        let mut sums = match progress.sums {
            Some(sums) => sums,
            None => VersionSums::read(store, &self.shape, progress.records, false)?,
        };
        if workload.has_transfers() && sums.second.is_none() {
            sums.second = Some(driver::load_second(store, &self.task(workload, amount))?);
            store.sync()?;
        }
        Ok(Some(sums))
    }

    /// Runs the operations of a workload. Repeats them with other seeds until they have taken the
    /// minimum duration, and adds the rounds. Returns `None` if loading is the workload.
    fn operate(
        &self,
        store: &dyn Store,
        workload: &Workload,
        amount: RunSize,
    ) -> Outcome<Option<(Phase, u64)>> {
        let truth = self.truth.as_ref();
        let run = |amount| driver::operate(store, &self.task(workload, amount), truth);
        let Some((mut total, records)) = run(amount)? else { return Ok(None) };
        if workload.changes_count() {
            return Ok(Some((total, records)));
        }
        let rounds = if total.bytes_written > 0 { WRITING_ROUNDS_MAX } else { ROUNDS_MAX };
        for round in 1..rounds {
            if total.time.as_secs_f64() >= self.job.seconds_min {
                break;
            }
            let amount = RunSize { seed: amount.seed.wrapping_add(round), ..amount };
            let Some((phase, _)) = run(amount)? else { break };
            total.add(&phase)?;
        }
        Ok(Some((total, records)))
    }

    fn task<'b>(&'b self, workload: &'b Workload, amount: RunSize) -> driver::Task<'b> {
        self.job.task(workload, &self.shape, amount)
    }

    fn report(
        &self,
        store: &dyn Store,
        memory: machine::ProcessMemory,
        ran: Option<(Phase, IoCounters)>,
        progress: &SessionState,
    ) -> Outcome<StepReport> {
        let stats = store.stats();
        let is_load = ran.is_none();
        let load = || progress.load.clone().map(|phase| (phase, IoCounters::default()));
        let (phase, io) = ran.or_else(load).ok_or_else(|| {
            Failure::Failed("the process that loads must measure loading".to_owned())
        })?;
        let loaded = progress.loaded;
        let unless_deleted = |count| if progress.has_deleted { 0 } else { count };
        let figures = Figures {
            ops_per_second: phase.rate(),
            seconds: phase.time.as_secs_f64(),
            cpu_seconds: phase.cpu.as_secs_f64(),
            load_ops_per_second: loaded.ops_per_second,
            reads: Latency::of(phase.times.reads())?,
            writes: Latency::of(phase.times.writes())?,
            found: phase.found,
            absent: phase.absent,
            resident_bytes: memory.resident_bytes,
            peak_resident_bytes: memory.peak_bytes,
            harness_bytes: phase.harness_bytes,
            store_memory_bytes: stats.memory_bytes,
            index_bytes: stats.index_bytes,
            keys: stats.keys.unwrap_or(unless_deleted(progress.records)),
            load_user_bytes: loaded.user_bytes,
            user_bytes: if is_load { 0 } else { phase.bytes_written },
            load_io: loaded.io,
            io: if is_load { loaded.io.since(loaded.io) } else { io },
            live_bytes: stats.live_bytes.unwrap_or(unless_deleted(progress.record_bytes)),
            disk_bytes: self.disk_bytes()?,
            close_seconds: None,
            recovery: None,
            transactions: None,
        };
        let load_average = machine::load_average();
        let operations = phase.operations;
        Ok(StepReport { figures, operations, details: stats.details, load_average })
    }

    /// Returns the bytes of the store's files; `None` for stores without files.
    fn disk_bytes(&self) -> Outcome<Option<u64>> {
        if !self.job.is_persistent {
            return Ok(None);
        }
        let bytes = machine::disk_bytes(self.dir);
        bytes.map(Some).map_err(|error| Failure::io(self.dir.display(), &error))
    }

    /// Loads further stores, each empty and removed afterwards, until loading has taken the
    /// minimum duration. Runs after the steps, so that only the duration of loading changes.
    fn repeat_load(&self, mut total: Phase, steps: &mut [StepReport]) -> Outcome {
        let workload = loading_workload(self.job)?;
        let dir = self.dir.with_extension("again");
        let doing = |error: io::Error| Failure::io(dir.display(), &error);
        for _ in 0..LOADS_MAX {
            if total.time.as_secs_f64() >= self.job.seconds_min {
                break;
            }
            if dir.exists() {
                // An earlier run died and left it.
                fs::remove_dir_all(&dir).map_err(doing)?;
            }
            fs::create_dir(&dir).map_err(doing)?;
            let options = StoreOptions { dir: dir.clone(), ..self.options.clone() };
            let store = self.stores.open(&self.job.store, &options)?;
            let task = self.task(&workload, self.job.load_amount());
            let load = driver::load(store.as_ref(), &task, None)?;
            store.close()?;
            fs::remove_dir_all(&dir).map_err(doing)?;
            total.add(&load)?;
        }
        for (report, step) in steps.iter_mut().zip(&self.job.steps) {
            let figures = &mut report.figures;
            figures.load_ops_per_second = total.rate();
            if step.spec.workload()?.body == Body::Load {
                figures.ops_per_second = total.rate();
                figures.seconds = total.time.as_secs_f64();
                figures.cpu_seconds = total.cpu.as_secs_f64();
                figures.writes = Latency::of(total.times.writes())?;
            }
        }
        Ok(())
    }
}

/// Returns the workload that loads: the session's own if it has one.
fn loading_workload(job: &Job) -> Outcome<Workload> {
    for step in &job.steps {
        let workload = step.spec.workload()?;
        if workload.body == Body::Load {
            return Ok(workload);
        }
    }
    workload::find(Suite::Ycsb, "load")
}
