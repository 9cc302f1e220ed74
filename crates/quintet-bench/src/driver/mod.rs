//! Runs a workload on a store and measures it.
//!
//! Each thread is a worker. A worker draws its operations into a window before the clock starts.
//! All workers begin at a barrier, and the time runs until the last one ends. A long run has
//! several windows; the time between them does not count. Workers make keys and values within the
//! measured time but outside of timed operations. That cost is the same for every store; `null`
//! shows it.

mod phase;
mod state;
mod task;
mod version_sums;
mod worker;

use std::{
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    data::{ReadMatch, RecordShape},
    expected_state::{ExpectedState, wrong_read},
    failure::{Failure, Outcome},
    latency::LatencyHistograms,
    machine,
    numbers::to_u64,
    store::Store,
    workload::{Body, Op, OperationKind, OperationStream, RunSize, Workload},
};

use state::{SharedState, lock};
use worker::Worker;

pub use phase::Phase;
pub use task::{BATCH_MAX, Task};
pub use version_sums::{VersionSums, load_second};

/// Maximum number of operations of a window: 32 MiB of memory.
const WINDOW: u64 = 4 << 20;

/// Measurement of loading and of the operations.
#[derive(Clone, Debug)]
pub struct Phases {
    /// Loading.
    pub load: Phase,
    /// Operations; `None` if loading is the workload.
    pub body: Option<Phase>,
    /// Records that have been loaded or inserted.
    pub records: u64,
}

/// Runs `task` on an empty store: loads, operates, and checks the records if `verify` is set. Fails
/// at the first operation that fails or, with `verify`, returns a wrong result. Of a workload that
/// counts versions the sum of all versions is always checked.
pub fn run(store: &dyn Store, task: &Task<'_>) -> Outcome<Phases> {
    let records_max = task.workload.records_max(task.amount.operations, task.amount.records);
    let truth = task.verify.then(|| ExpectedState::new(records_max));
    let load = load(store, task, truth.as_ref())?;
    if task.workload.body != Body::Load {
        store.sync()?;
    }
    let mut sums = VersionSums::loaded(task.amount.records);
    if task.workload.has_transfers() {
        sums.second = Some(load_second(store, task)?);
    }
    let (body, records) = match operate(store, task, truth.as_ref())? {
        Some((phase, records)) => (Some(phase), records),
        None => (None, task.amount.records),
    };
    if let Some(phase) = body.as_ref().filter(|_| task.workload.counts_versions()) {
        sums.after(task.workload, phase.operations).check(store, task.shape, records)?;
    } else if let Some(truth) = &truth {
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

/// A worker and the source of its operations.
struct WorkerSource<'a> {
    worker: Worker<'a>,
    /// Drawn operations; if `None`, the worker loads the records `from..to`.
    stream: Option<OperationStream>,
    from: u64,
    to: u64,
}

/// Counts of one worker in a phase.
struct WorkerReport {
    spans: Vec<(Instant, Instant)>,
    operations: u64,
    harness_bytes: u64,
}

impl<'a> SharedState<'a> {
    /// Runs the operations that follow loading.
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
            conflicts: 0,
            harness_bytes: reports.iter().map(|report| report.harness_bytes).sum(),
        };
        for source in sources {
            lock(source).worker.add_to(&mut phase)?;
        }
        Ok(phase)
    }

    /// Background writer of `readwhilewriting`: updates records until `done` is set, or as many
    /// records as there are reads.
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
            conflicts: 0,
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
}

fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> Outcome<T> {
    handle.join().map_err(|_| Failure::Failed("a worker panicked".to_owned()))
}

/// Returns the sum over all windows of the time from the start of the first worker to the end of
/// the last one.
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

/// Runs one worker, from its first window to its last. The numbers of windows of two workers differ
/// by at most one. A worker without a window still waits at the barriers, and so does a worker that
/// failed; otherwise the others would block.
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
            return Err(wrong_read(number, found));
        }
    }
    Ok(())
}

/// Calls `each` for every write of a thread, in order, with the record number and the version
/// (`None` for a delete). It leaves out inserts, because the numbers of their records depend on the
/// other threads. Inserted records have the numbers from `amount.records` on and the version
/// [`crate::workload::VERSION_FIRST`]. Returns the number of inserts.
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
