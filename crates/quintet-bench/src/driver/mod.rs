//! Runs a workload against a store and measures it.
//!
//! One thread a worker. Operations are drawn into a window before the clock starts, all workers
//! begin at a barrier, and time runs until the last of them is done; a long run has several
//! windows, and what lies between them is not counted. Keys and values are made within the
//! measured time (and cost the same for every store; `null` shows how much), but outside of timed
//! operations.

mod worker;

use std::{
    sync::{
        Barrier, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    data::{ReadMatch, RecordShape},
    expected_state::ExpectedState,
    failure::{Failure, Outcome},
    latency::LatencyHistograms,
    machine,
    numbers::{to_f64, to_u64},
    store::Store,
    workload::{Body, Op, OperationKind, OperationStream, RunSize, Workload},
};

use worker::{InsertTracker, Worker};

/// The most keys of one `multi_get`.
pub const BATCH_MAX: usize = 256;
/// Operations that a worker draws at once: 32 MiB of them.
const WINDOW: u64 = 4 << 20;

/// What to run and how to time it.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Keys and values.
    pub shape: &'a RecordShape,
    /// How much.
    pub amount: RunSize,
    /// One operation in so many is timed.
    pub timed_one_in: u32,
    /// Operations a second of all threads together; none: as fast as possible.
    pub rate: Option<f64>,
    /// Check every read.
    pub verify: bool,
    /// Records that one atomic write loads; 1 for single puts.
    pub load_batch: usize,
}

/// What a phase of a run took.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Operations done.
    pub operations: u64,
    /// Time.
    pub time: Duration,
    /// Processor time of the whole process.
    pub cpu: Duration,
    /// Latencies of the operations that were timed.
    pub times: LatencyHistograms,
    /// Bytes of keys and values written.
    pub bytes_written: u64,
    /// Reads that found their key.
    pub found: u64,
    /// Reads that did not.
    pub absent: u64,
    /// Bytes of drawn operations.
    pub harness_bytes: u64,
}

impl Phase {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { to_f64(self.operations) / seconds } else { 0.0 }
    }

    /// Adds the measurement of a further round.
    pub fn add(&mut self, round: &Self) -> Outcome {
        self.operations += round.operations;
        self.time += round.time;
        self.cpu += round.cpu;
        self.times.merge(&round.times)?;
        self.bytes_written += round.bytes_written;
        self.found += round.found;
        self.absent += round.absent;
        Ok(())
    }
}

/// Loading, then the workload's operations.
#[derive(Clone, Debug)]
pub struct Phases {
    /// Loading the records.
    pub load: Phase,
    /// The operations; `None` where loading is the workload.
    pub body: Option<Phase>,
    /// Records that have been loaded or inserted.
    pub records: u64,
}

/// Runs `task` on an empty store: loads, operates, and checks the records if `verify` is set. Fails
/// at the first operation that fails or, with `verify`, returns a wrong result.
pub fn run(store: &dyn Store, task: &Task<'_>) -> Outcome<Phases> {
    let records_max = task.workload.records_max(task.amount.operations, task.amount.records);
    let truth = task.verify.then(|| ExpectedState::new(records_max));
    let load = load(store, task, truth.as_ref())?;
    if task.workload.body != Body::Load {
        store.sync()?;
    }
    let (body, records) = match operate(store, task, truth.as_ref())? {
        Some((phase, records)) => (Some(phase), records),
        None => (None, task.amount.records),
    };
    if let Some(truth) = &truth {
        audit(store, task.shape, truth, records)?;
    }
    Ok(Phases { load, body, records })
}

/// Loads the records into an empty store. `truth` is the expected content, if it is checked.
pub fn load(store: &dyn Store, task: &Task<'_>, truth: Option<&ExpectedState>) -> Outcome<Phase> {
    let shared = SharedState::new(store, task, truth);
    shared.phase(&shared.loaders()?)
}

/// Runs the operations on a store that holds the records. Returns their measurement and the number
/// of records afterwards, or `None` if loading is the workload.
pub fn operate(
    store: &dyn Store,
    task: &Task<'_>,
    truth: Option<&ExpectedState>,
) -> Outcome<Option<(Phase, u64)>> {
    let shared = SharedState::new(store, task, truth);
    let body = shared.body()?;
    Ok(body.map(|phase| (phase, shared.ledger.known())))
}

/// What all workers share.
pub(crate) struct SharedState<'a> {
    store: &'a dyn Store,
    task: &'a Task<'a>,
    truth: Option<&'a ExpectedState>,
    ledger: InsertTracker,
    /// A worker has failed; the others give up.
    stop: AtomicBool,
    failure: Mutex<Option<Failure>>,
    /// Bytes written by the writer of `readwhilewriting`.
    background_bytes: AtomicU64,
}

/// A worker and where its operations come from.
struct WorkerSource<'a> {
    worker: Worker<'a>,
    /// Drawn operations; else records from, to are loaded.
    stream: Option<OperationStream>,
    from: u64,
    to: u64,
}

/// What one worker did in a phase.
struct WorkerReport {
    spans: Vec<(Instant, Instant)>,
    operations: u64,
    harness_bytes: u64,
}

impl<'a> SharedState<'a> {
    fn new(store: &'a dyn Store, task: &'a Task<'a>, truth: Option<&'a ExpectedState>) -> Self {
        Self {
            store,
            task,
            truth,
            ledger: InsertTracker::new(task.amount.records),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
            background_bytes: AtomicU64::new(0),
        }
    }

    /// What follows loading.
    fn body(&'a self) -> Outcome<Option<Phase>> {
        match self.task.workload.body {
            Body::Load => Ok(None),
            Body::ReadAll => self.read_all().map(Some),
            Body::Mix { .. } => self.phase(&self.mixers()?).map(Some),
        }
    }

    fn loaders(&'a self) -> Outcome<Vec<Mutex<WorkerSource<'a>>>> {
        self.sources(|thread| {
            let (from, to) = self.task.amount.part(self.task.amount.records, thread);
            (None, from, to)
        })
    }

    fn mixers(&'a self) -> Outcome<Vec<Mutex<WorkerSource<'a>>>> {
        self.sources(|thread| {
            (Some(OperationStream::new(self.task.workload, self.task.amount, thread)), 0, 0)
        })
    }

    fn sources(
        &'a self,
        source: impl Fn(u64) -> (Option<OperationStream>, u64, u64),
    ) -> Outcome<Vec<Mutex<WorkerSource<'a>>>> {
        (0..self.task.amount.threads.max(1))
            .map(|thread| {
                let (stream, from, to) = source(thread);
                let worker = Worker::new(self, thread)?;
                Ok(Mutex::new(WorkerSource { worker, stream, from, to }))
            })
            .collect()
    }

    /// Runs all workers to their end.
    fn phase(&self, sources: &[Mutex<WorkerSource<'_>>]) -> Outcome<Phase> {
        let barrier = Barrier::new(sources.len());
        let done = AtomicBool::new(false);
        let cpu = AtomicU64::new(0);
        let mixes = sources.iter().any(|source| lock(source).stream.is_some());
        let reports: Outcome<Vec<WorkerReport>> = thread::scope(|scope| {
            let background = (mixes && self.task.workload.background_writer)
                .then(|| scope.spawn(|| self.write_until(&done)));
            let workers: Vec<_> = sources
                .iter()
                .map(|source| scope.spawn(|| work(&mut lock(source), &barrier, &cpu)))
                .collect();
            let reports = workers.into_iter().map(join).collect();
            done.store(true, Ordering::Relaxed);
            background.map_or(Ok(()), |writer| join(writer)?)?;
            reports
        });
        let reports = reports?;
        if let Some(failure) = lock(&self.failure).take() {
            return Err(failure);
        }
        let mut phase = Phase {
            operations: reports.iter().map(|report| report.operations).sum(),
            time: total_time(&reports),
            cpu: Duration::from_nanos(cpu.load(Ordering::Relaxed)),
            times: LatencyHistograms::new()?,
            bytes_written: self.background_bytes.swap(0, Ordering::Relaxed),
            found: 0,
            absent: 0,
            harness_bytes: reports.iter().map(|report| report.harness_bytes).sum(),
        };
        for source in sources {
            lock(source).worker.add_to(&mut phase)?;
        }
        Ok(phase)
    }

    /// Updates records until told to end, or as many as there are reads: the writer of
    /// `readwhilewriting`.
    fn write_until(&self, done: &AtomicBool) -> Outcome {
        let threads = self.task.amount.threads;
        let mut worker = Worker::new(self, threads)?;
        let mut random = crate::random::Random::new(self.task.amount.seed, threads);
        // Versions above those of any other thread.
        let first = self.task.amount.version(0, self.task.amount.operations + 1);
        for version in first..first + self.task.amount.operations {
            if done.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed) {
                break;
            }
            worker.update(random.below(self.task.amount.records), version)?;
        }
        self.background_bytes.fetch_add(worker.bytes_written(), Ordering::Relaxed);
        Ok(())
    }

    /// Visits every entry once.
    fn read_all(&self) -> Outcome<Phase> {
        let (cpu, start) = (machine::cpu_time(), Instant::now());
        let mut bytes = 0;
        let mut each = |key: &[u8], value: &[u8]| bytes += key.len() + value.len();
        let limit = usize::MAX;
        let ordered = match self.store.range(&[], limit, &mut each) {
            Ok(count) => Some(to_u64(count)),
            Err(Failure::Usage(_)) => None,
            Err(failure) => return Err(failure),
        };
        let operations = ordered.map_or_else(|| self.store.scan(&mut each), Ok)?;
        std::hint::black_box(bytes);
        let time = start.elapsed();
        let mut times = LatencyHistograms::new()?;
        times.add(false, time);
        let phase = Phase {
            operations,
            time,
            cpu: machine::cpu_time().saturating_sub(cpu),
            times,
            bytes_written: 0,
            found: operations,
            absent: 0,
            harness_bytes: 0,
        };
        if self.task.verify && operations < self.ledger.known() {
            return Err(Failure::Damage(format!(
                "a scan gave {operations} entries of {}",
                self.ledger.known()
            )));
        }
        Ok(phase)
    }

    /// Notes a failure; the first one counts.
    fn fail(&self, failure: Failure) {
        lock(&self.failure).get_or_insert(failure);
        // After the failure is noted: who stops because of this notes one as well.
        self.stop.store(true, Ordering::Release);
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> Outcome<T> {
    handle.join().map_err(|_| Failure::Failed("a worker panicked".to_owned()))
}

/// The sum over windows of the time from the first worker's start to the last one's end.
fn total_time(reports: &[WorkerReport]) -> Duration {
    let windows = reports.iter().map(|report| report.spans.len()).max().unwrap_or(0);
    (0..windows)
        .filter_map(|window| {
            let spans = reports.iter().filter_map(|report| report.spans.get(window));
            let start = spans.clone().map(|(start, _)| *start).min()?;
            Some(spans.map(|(_, end)| *end).max()?.saturating_duration_since(start))
        })
        .sum()
}

/// One worker, from its first window to its last. All workers have the same number of windows to
/// within one; who has none left still comes to the barriers. A worker that fails does too, so
/// that nobody waits for ever.
fn work(source: &mut WorkerSource<'_>, barrier: &Barrier, cpu: &AtomicU64) -> WorkerReport {
    let amount = source.worker.amount();
    let parts = (0..amount.threads.max(1)).map(|thread| {
        let count = if source.stream.is_some() { amount.operations } else { amount.records };
        let (from, to) = amount.part(count, thread);
        to - from
    });
    let windows = parts.max().unwrap_or(0).div_ceil(WINDOW);
    let mut report = WorkerReport { spans: Vec::new(), operations: 0, harness_bytes: 0 };
    let mut window: Vec<Op> = Vec::new();
    for _ in 0..windows {
        if let Some(stream) = &mut source.stream {
            stream.fill(&mut window, WINDOW);
            let bytes = window.capacity() * size_of::<Op>();
            report.harness_bytes = report.harness_bytes.max(to_u64(bytes));
        }
        let leads = barrier.wait().is_leader();
        let cpu_before = machine::cpu_time();
        let start = Instant::now();
        report.operations += if source.stream.is_some() {
            source.worker.run(&window)
        } else {
            let from = source.from;
            source.from = source.to.min(from + WINDOW);
            source.worker.load(from..source.from)
        };
        report.spans.push((start, Instant::now()));
        barrier.wait();
        if leads {
            let spent = machine::cpu_time().saturating_sub(cpu_before);
            cpu.fetch_add(u64::try_from(spent.as_nanos()).unwrap_or(0), Ordering::Relaxed);
        }
    }
    report
}

/// Reads every record and compares it with its expected content. Nothing else may use the store.
pub fn audit(
    store: &dyn Store,
    shape: &RecordShape,
    truth: &ExpectedState,
    records: u64,
) -> Outcome {
    let (mut key, mut value, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..records {
        shape.key(number, &mut key);
        let found = store.get_into(&key, &mut value)?;
        let found =
            if found { shape.check(number, &value, &mut scratch) } else { ReadMatch::Absent };
        if !truth.agrees(number, truth.before(number), found) {
            return Err(worker::lie(number, found));
        }
    }
    Ok(())
}

/// Calls `each` for every write of a thread's operations, in order: the record number and, unless
/// it is a delete, the version. Inserts are left out, since which records they made depends on the
/// other threads; all of them are numbered from `amount.records` on, with
/// [`crate::workload::VERSION_FIRST`]. Returns their count.
pub fn each_write(
    workload: &Workload,
    amount: RunSize,
    thread: u64,
    mut each: impl FnMut(u64, Option<u64>),
) -> u64 {
    let mut inserts = 0;
    for (op, index) in OperationStream::new(workload, amount, thread).zip(0..) {
        match op.kind() {
            OperationKind::Insert => inserts += 1,
            OperationKind::Update | OperationKind::ReadModifyWrite => {
                each(op.number(), Some(amount.version(thread, index)));
            }
            OperationKind::Delete => each(op.number(), None),
            _ => {}
        }
    }
    inserts
}

#[cfg(test)]
mod tests;
