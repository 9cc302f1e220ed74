//! One thread of a run: executes operations, times some of them, and checks reads.

mod transactions;

use std::{
    hint::black_box,
    ops::Range,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::{phase::Phase, state::SharedState, task::BATCH_MAX};
use crate::{
    data::ReadMatch,
    expected_state::wrong_read,
    failure::{Failure, Outcome},
    latency::{LatencyHistograms, Sampler},
    numbers::{to_f64, to_u64, to_usize},
    random::{mix, scale},
    workload::{Op, OperationKind, RunSize, VERSION_FIRST},
};

/// Longest wait that spins. A longer wait sleeps, which may end up to 60 microseconds late.
const SPIN: Duration = Duration::from_micros(200);

/// One thread of a run. See the module head.
pub(super) struct Worker<'a> {
    shared: &'a SharedState<'a>,
    thread: u64,
    sampler: Sampler,
    times: LatencyHistograms,
    /// Operations since the first one, over all windows.
    done: u64,
    /// Time at which the next operation is due and the distance between operations, if there is a
    /// rate.
    pace: Option<(Instant, Duration)>,
    found: u64,
    absent: u64,
    bytes_written: u64,
    /// Transactions that ended with a conflict.
    conflicts: u64,
    /// Determines the key of the next dependent read.
    last: u64,
    keys: Vec<Vec<u8>>,
    key: Vec<u8>,
    /// Key of a transfer's second record.
    second_key: Vec<u8>,
    value: Vec<u8>,
    read: Vec<u8>,
    scratch: Vec<u8>,
}

/// An operation with its key and value.
struct PreparedOperation {
    kind: OperationKind,
    number: u64,
    length: usize,
    /// Version that the operation writes.
    version: u64,
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a SharedState<'a>, thread: u64) -> Outcome<Self> {
        Ok(Self {
            shared,
            thread,
            sampler: Sampler::new(shared.task.timed_one_in),
            times: LatencyHistograms::new()?,
            done: 0,
            pace: None,
            found: 0,
            absent: 0,
            bytes_written: 0,
            conflicts: 0,
            last: thread,
            keys: vec![Vec::new(); shared.task.workload.batch.min(BATCH_MAX)],
            key: Vec::new(),
            second_key: Vec::new(),
            value: Vec::new(),
            read: Vec::new(),
            scratch: Vec::new(),
        })
    }

    pub(super) fn amount(&self) -> RunSize {
        self.shared.task.amount
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Adds the counts of this worker to `phase`.
    pub(super) fn add_to(&self, phase: &mut Phase) -> Outcome {
        phase.bytes_written += self.bytes_written;
        phase.found += self.found;
        phase.absent += self.absent;
        phase.conflicts += self.conflicts;
        phase.times.merge(&self.times)
    }

    /// Runs operations. Returns how many succeeded before one failed; records the failure.
    pub(super) fn run(&mut self, window: &[Op]) -> u64 {
        let before = self.done;
        if let Some(rate) = self.shared.task.rate {
            let threads = to_f64(self.amount().threads.max(1));
            let distance = Duration::try_from_secs_f64(threads / rate).unwrap_or(Duration::ZERO);
            self.pace = Some((Instant::now(), distance));
        }
        let outcome = if self.shared.task.workload.batch > 1 {
            window.chunks(self.keys.len()).try_for_each(|ops| self.multi_get(ops))
        } else {
            window.iter().try_for_each(|op| self.one(*op))
        };
        if let Err(failure) = outcome {
            self.shared.fail(failure);
        }
        self.done - before
    }

    /// Loads records and returns how many. Records a failure.
    pub(super) fn load(&mut self, numbers: Range<u64>) -> u64 {
        let before = self.done;
        let batch = to_u64(self.shared.task.load_batch.max(1));
        let outcome = if self.shared.task.workload.sorted {
            self.load_sorted(numbers)
        } else if batch > 1 {
            let mut firsts = numbers.clone().step_by(to_usize(batch));
            firsts.try_for_each(|first| self.load_batch(first..numbers.end.min(first + batch)))
        } else {
            let mut numbers = numbers;
            numbers.try_for_each(|number| {
                let op = self.prepare(OperationKind::Insert, number, 0, VERSION_FIRST);
                self.timed(&op)
            })
        };
        if let Err(failure) = outcome {
            self.shared.fail(failure);
        }
        self.done - before
    }

    /// Loads records as one sorted run.
    fn load_sorted(&mut self, numbers: Range<u64>) -> Outcome {
        let (shape, shared) = (self.shared.task.shape, self.shared);
        let (mut left, mut bytes) = (numbers.clone(), 0);
        let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
            let Some(number) = left.next() else { return false };
            shape.key(number, key);
            shape.value(number, VERSION_FIRST, value);
            bytes += shape.record_bytes(number);
            true
        };
        self.clocked(true, |_| shared.store.load_sorted(&mut next))?;
        self.bytes_written += bytes;
        self.note_loaded(numbers);
        Ok(())
    }

    fn load_batch(&mut self, numbers: Range<u64>) -> Outcome {
        let shape = self.shared.task.shape;
        let mut entries = Vec::new();
        for number in numbers.clone() {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            shape.key(number, &mut key);
            shape.value(number, VERSION_FIRST, &mut value);
            self.bytes_written += shape.record_bytes(number);
            entries.push((key, value));
        }
        self.clocked(true, |worker| worker.shared.store.batch(&entries))?;
        self.note_loaded(numbers);
        Ok(())
    }

    fn note_loaded(&mut self, numbers: Range<u64>) {
        self.done += numbers.end - numbers.start;
        let Some(truth) = self.shared.truth else { return };
        for number in numbers {
            if let Some(writing) = truth.write(number) {
                writing.finish(Some(VERSION_FIRST));
            }
        }
    }

    /// Overwrites a record without timing it.
    pub(super) fn update(&mut self, number: u64, version: u64) -> Outcome {
        let op = self.prepare(OperationKind::Update, number, 0, version);
        self.perform(&op)
    }

    #[inline]
    fn one(&mut self, op: Op) -> Outcome {
        let version = self.amount().version(self.thread, self.done);
        let known = self.shared.ledger.known();
        let number = match op.kind() {
            OperationKind::Insert => self.shared.ledger.begin(),
            OperationKind::ReadLatest => known.saturating_sub(1 + op.number()),
            OperationKind::ReadDependent => scale(mix(self.last ^ op.number()), known),
            OperationKind::ReadAbsent => op.number(),
            // Another thread has not inserted this record yet.
            _ if op.number() >= known => op.number() % known.max(1),
            _ => op.number(),
        };
        let op = self.prepare(op.kind(), number, to_usize(op.length()), version);
        self.timed(&op)
    }

    /// Makes the key and the value of an operation.
    #[inline]
    fn prepare(
        &mut self,
        kind: OperationKind,
        number: u64,
        length: usize,
        version: u64,
    ) -> PreparedOperation {
        let shape = self.shared.task.shape;
        if kind == OperationKind::ReadAbsent {
            shape.absent_key(number, &mut self.key);
        } else {
            shape.key(number, &mut self.key);
        }
        let version = if kind == OperationKind::Insert { VERSION_FIRST } else { version };
        if matches!(
            kind,
            OperationKind::Insert | OperationKind::Update | OperationKind::ReadModifyWrite
        ) {
            shape.value(number, version, &mut self.value);
        }
        PreparedOperation { kind, number, length, version }
    }

    #[inline]
    fn timed(&mut self, op: &PreparedOperation) -> Outcome {
        let is_write = op.kind.is_write();
        self.clocked(is_write, |worker| worker.perform(op))?;
        self.done += 1;
        if op.kind == OperationKind::Insert && op.number >= self.amount().records {
            self.shared.ledger.finish(op.number);
        }
        Ok(())
    }

    /// Runs `work`, and times it if the sampler selects it.
    #[inline]
    fn clocked(&mut self, is_write: bool, work: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        if !self.sampler.is_due() {
            return work(self);
        }
        if self.shared.stop.load(Ordering::Acquire) {
            return Err(Failure::Failed("another thread failed".to_owned()));
        }
        let start = self.due();
        work(self)?;
        self.times.add(is_write, start.elapsed());
        Ok(())
    }

    /// Waits until the next operation is due, and returns that time; returns the current time if
    /// there is no rate.
    fn due(&mut self) -> Instant {
        let Some((due, distance)) = &mut self.pace else { return Instant::now() };
        let moment = *due;
        *due += *distance;
        loop {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return moment;
            }
            if left > SPIN {
                std::thread::sleep(left.saturating_sub(SPIN));
            }
            std::hint::spin_loop();
        }
    }

    #[inline]
    fn perform(&mut self, op: &PreparedOperation) -> Outcome {
        match op.kind {
            OperationKind::Read | OperationKind::ReadLatest | OperationKind::ReadDependent => {
                self.get(op.number)
            }
            OperationKind::ReadAbsent => self.get_absent(op.number),
            OperationKind::Insert | OperationKind::Update => self.put(op),
            OperationKind::ReadModifyWrite => {
                self.get(op.number)?;
                self.put(op)
            }
            OperationKind::Range => self.range(op),
            OperationKind::Delete => self.delete(op),
            OperationKind::TransactionalUpdate => self.update_in_transaction(op),
            OperationKind::Transfer => self.transfer(op),
            OperationKind::AtomicUpdate => self.update_atomically(op),
        }
    }

    #[inline]
    fn get(&mut self, number: u64) -> Outcome {
        let truth = self.shared.truth;
        let before = truth.map(|truth| truth.before(number));
        let found = self.shared.store.get_into(&self.key, &mut self.read)?;
        self.count(found);
        if let Some(head) = self.read.first_chunk() {
            self.last = self.last.wrapping_add(u64::from_le_bytes(*head));
        }
        if let Some(before) = before {
            let value = found.then(|| std::mem::take(&mut self.read));
            self.check(number, before, value.as_deref())?;
            self.read = value.unwrap_or_default();
        }
        Ok(())
    }

    #[inline]
    fn count(&mut self, found: bool) {
        if found {
            self.found += 1;
        } else {
            self.absent += 1;
        }
    }

    fn get_absent(&mut self, number: u64) -> Outcome {
        let found = self.shared.store.get_into(&self.key, &mut self.read)?;
        self.count(found);
        if found && self.shared.truth.is_some() {
            return Err(Failure::Damage(format!("the absent key number {number} was found")));
        }
        Ok(())
    }

    fn put(&mut self, op: &PreparedOperation) -> Outcome {
        let writing = self.shared.truth.and_then(|truth| truth.write(op.number));
        self.shared.store.put(&self.key, &self.value)?;
        self.bytes_written += to_u64(self.key.len() + self.value.len());
        if let Some(writing) = writing {
            writing.finish(Some(op.version));
        }
        Ok(())
    }

    fn delete(&mut self, op: &PreparedOperation) -> Outcome {
        let writing = self.shared.truth.and_then(|truth| truth.write(op.number));
        self.shared.store.delete(&self.key)?;
        self.bytes_written += to_u64(self.key.len());
        if let Some(writing) = writing {
            writing.finish(None);
        }
        Ok(())
    }

    fn range(&mut self, op: &PreparedOperation) -> Outcome {
        let verify = self.shared.task.verify;
        let mut last: Vec<u8> = Vec::new();
        let mut wrong = false;
        let (start, read) = (&self.key, &mut self.read);
        let mut each = |key: &[u8], value: &[u8]| {
            read.clear();
            read.extend_from_slice(value);
            if verify {
                wrong |= key < start.as_slice() || (!last.is_empty() && key <= last.as_slice());
                last.clear();
                last.extend_from_slice(key);
            }
        };
        let count = self.shared.store.range(start, op.length, &mut each)?;
        self.count(count > 0);
        if wrong || (verify && (count == 0 || count > op.length)) {
            let what = format!("a range of {} from record {} is wrong", op.length, op.number);
            return Err(Failure::Damage(what));
        }
        Ok(())
    }

    fn multi_get(&mut self, ops: &[Op]) -> Outcome {
        let shape = self.shared.task.shape;
        for (key, op) in self.keys.iter_mut().zip(ops) {
            shape.key(op.number(), key);
        }
        // The buffers leave `self` for the call, which borrows `self`.
        let buffers = std::mem::take(&mut self.keys);
        let mut keys: [&[u8]; BATCH_MAX] = [&[]; BATCH_MAX];
        for (to, from) in keys.iter_mut().zip(&buffers) {
            *to = from;
        }
        let keys = keys.get(..ops.len()).unwrap_or(&[]);
        let outcome = self.clocked(false, |worker| worker.multi_get_keys(ops, keys));
        self.keys = buffers;
        self.done += to_u64(ops.len());
        outcome
    }

    fn multi_get_keys(&mut self, ops: &[Op], keys: &[&[u8]]) -> Outcome {
        let shared = self.shared;
        let before: Vec<u64> = match shared.truth {
            Some(truth) => ops.iter().map(|op| truth.before(op.number())).collect(),
            None => Vec::new(),
        };
        let mut wrong = None;
        let mut answers = 0;
        shared.store.multi_get(keys, &mut |index, value| {
            answers += 1;
            self.count(value.is_some());
            if let Some(value) = value {
                // Copy the value, as a get does.
                self.read.clear();
                self.read.extend_from_slice(value);
                black_box(&self.read);
            }
            if let (Some(op), Some(before)) = (ops.get(index), before.get(index))
                && let Err(failure) = self.check(op.number(), *before, value)
            {
                wrong = Some(failure);
            }
        })?;
        if answers != keys.len() {
            wrong = Some(Failure::Damage(format!("{answers} answers to {} keys", keys.len())));
        }
        wrong.map_or(Ok(()), Err)
    }

    fn check(&mut self, number: u64, before: u64, value: Option<&[u8]>) -> Outcome {
        let Some(truth) = self.shared.truth else { return Ok(()) };
        let found = match value {
            None => ReadMatch::Absent,
            Some(value) => self.shared.task.shape.check(number, value, &mut self.scratch),
        };
        if truth.agrees(number, before, found) { Ok(()) } else { Err(wrong_read(number, found)) }
    }
}
