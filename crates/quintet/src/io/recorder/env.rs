//! The recording environment: wraps another and keeps a trace of its changes.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::trace::TraceEvent;
use crate::io::{Dir, DirEntry, Env, File, Job, JobHandle, LockGuard, Mapping, Open, Queue};
use crate::util::{
    codec::to_u64,
    error::LockHolder,
    sync::{
        Ordering,
        system::{Mutex, lock},
    },
};

/// An environment that records its changes. Clones share the trace.
///
/// Start with an empty directory: the trace lacks what existed before.
#[derive(Clone, Debug)]
pub struct RecordEnv {
    inner: Arc<dyn Env>,
    recorder: Arc<Recorder>,
}

impl RecordEnv {
    /// Wraps `inner` and starts an empty trace.
    pub fn new(inner: Arc<dyn Env>) -> Self {
        Self { inner, recorder: Arc::default() }
    }

    /// Adds a mark to the trace: "commit 17 was acknowledged here".
    pub fn mark(&self, value: u64) {
        self.recorder.note(TraceEvent::Mark { value });
    }

    /// Returns the number of events. A later call has this index or a higher one.
    pub fn len(&self) -> usize {
        lock(&self.recorder.state).events.len()
    }

    /// Whether the trace is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the trace so far, with the stores since the last call.
    pub fn trace(&self) -> Vec<TraceEvent> {
        let mut state = lock(&self.recorder.state);
        state.capture();
        state.events.clone()
    }
}

impl Env for RecordEnv {
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.canonical(path)
    }

    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>> {
        self.recorder.perform(|numbers| {
            let inner = self.inner.open_dir(path, create)?;
            let dir = numbers.draw();
            let recorder = Arc::clone(&self.recorder);
            let opened: Arc<dyn Dir> = Arc::new(RecordDir { inner, number: dir, recorder });
            Ok((opened, TraceEvent::OpenRoot { dir, path: path.to_owned() }))
        })
    }

    fn monotonic(&self) -> Duration {
        self.inner.monotonic()
    }

    fn pause(&self, time: Duration) {
        self.inner.pause(time);
    }

    fn unix_millis(&self) -> u64 {
        self.inner.unix_millis()
    }

    fn random(&self, out: &mut [u8]) {
        self.inner.random(out);
    }

    fn boot_id(&self) -> [u8; 16] {
        self.inner.boot_id()
    }

    fn memory_bytes(&self) -> u64 {
        self.inner.memory_bytes()
    }

    fn start(&self, job: Arc<dyn Job>) -> JobHandle {
        self.inner.start(job)
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.inner.queue(depth)
    }
}

/// The trace, and the state needed to extend it.
#[derive(Debug, Default)]
struct Recorder {
    state: Mutex<RecorderState>,
}

#[derive(Debug, Default)]
struct RecorderState {
    events: Vec<TraceEvent>,
    numbers: Numbers,
    mappings: Vec<Shadow>,
}

/// Assigns handle numbers.
#[derive(Debug, Default)]
struct Numbers(u64);

impl Numbers {
    fn draw(&mut self) -> u64 {
        let number = self.0;
        self.0 += 1;
        number
    }
}

/// A live mapping and its content at the last comparison.
#[derive(Debug)]
struct Shadow {
    number: u64,
    mapping: Arc<Mapping>,
    words: Vec<u64>,
}

impl Recorder {
    /// Makes a changing call and records its event if it succeeds.
    fn perform<T>(
        &self,
        call: impl FnOnce(&mut Numbers) -> io::Result<(T, TraceEvent)>,
    ) -> io::Result<T> {
        let mut state = lock(&self.state);
        state.capture();
        let (value, event) = call(&mut state.numbers)?;
        state.events.push(event);
        Ok(value)
    }

    fn note(&self, event: TraceEvent) {
        let mut state = lock(&self.state);
        state.capture();
        state.events.push(event);
    }
}

impl RecorderState {
    /// Records the stores since the last comparison, and releases mappings that have no other
    /// holder.
    fn capture(&mut self) {
        let Self { events, mappings, .. } = self;
        mappings.retain_mut(|shadow| {
            // Check before reading the words: the thread that dropped the mapping has made all its
            // stores.
            let held = Arc::strong_count(&shadow.mapping) > 1;
            shadow.capture(events);
            if !held {
                events.push(TraceEvent::Unmap { mapping: shadow.number });
            }
            held
        });
    }
}

impl Shadow {
    fn capture(&mut self, events: &mut Vec<TraceEvent>) {
        let mut run: Option<(usize, Vec<u64>)> = None;
        let mut flush = |run: &mut Option<(usize, Vec<u64>)>| {
            if let Some((first, words)) = run.take() {
                let (mapping, first) = (self.number, to_u64(first));
                events.push(TraceEvent::Store { mapping, first, words });
            }
        };
        for (index, (word, seen)) in self.mapping.words().iter().zip(&mut self.words).enumerate() {
            // Acquire: once this loop sees a released store, its later loads see all stores that
            // preceded it.
            let now = word.load(Ordering::Acquire);
            if now == *seen {
                flush(&mut run);
            } else {
                *seen = now;
                run.get_or_insert_with(|| (index, Vec::new())).1.push(now);
            }
        }
        flush(&mut run);
    }
}

#[derive(Debug)]
struct RecordDir {
    inner: Arc<dyn Dir>,
    number: u64,
    recorder: Arc<Recorder>,
}

impl RecordDir {
    fn change(&self, call: impl FnOnce() -> io::Result<()>, event: TraceEvent) -> io::Result<()> {
        self.recorder.perform(|_| call().map(|()| ((), event)))
    }
}

impl Dir for RecordDir {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>> {
        self.recorder.perform(|numbers| {
            let inner = self.inner.open(name, how)?;
            let file = numbers.draw();
            let recorder = Arc::clone(&self.recorder);
            let opened: Arc<dyn File> = Arc::new(RecordFile { inner, number: file, recorder });
            Ok((opened, TraceEvent::Open { file, dir: self.number, name: name.to_owned(), how }))
        })
    }

    fn open_dir(&self, name: &str, create: bool) -> io::Result<Arc<dyn Dir>> {
        self.recorder.perform(|numbers| {
            let inner = self.inner.open_dir(name, create)?;
            let dir = numbers.draw();
            let recorder = Arc::clone(&self.recorder);
            let opened: Arc<dyn Dir> = Arc::new(Self { inner, number: dir, recorder });
            let (parent, name) = (self.number, name.to_owned());
            Ok((opened, TraceEvent::OpenDir { dir, parent, name, create }))
        })
    }

    fn list(&self) -> io::Result<Vec<DirEntry>> {
        self.inner.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let dir = self.number;
        let event = TraceEvent::Rename { dir, from: from.to_owned(), to: to.to_owned() };
        self.change(|| self.inner.rename(from, to), event)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let event = TraceEvent::Remove { dir: self.number, name: name.to_owned() };
        self.change(|| self.inner.remove(name), event)
    }

    fn remove_dir(&self, name: &str) -> io::Result<()> {
        let event = TraceEvent::RemoveDir { dir: self.number, name: name.to_owned() };
        self.change(|| self.inner.remove_dir(name), event)
    }

    fn sync(&self) -> io::Result<()> {
        self.change(|| self.inner.sync(), TraceEvent::SyncDir { dir: self.number })
    }

    fn lock_holder(&self, name: &str) -> LockHolder {
        self.inner.lock_holder(name)
    }

    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn LockGuard>> {
        self.recorder.perform(|numbers| {
            let inner = self.inner.lock(name, exclusive)?;
            let number = numbers.draw();
            let recorder = Arc::clone(&self.recorder);
            let guard: Box<dyn LockGuard> =
                Box::new(RecordLock { _inner: inner, number, recorder });
            let (dir, name) = (self.number, name.to_owned());
            Ok((guard, TraceEvent::Lock { lock: number, dir, name, exclusive }))
        })
    }
}

#[derive(Debug)]
struct RecordLock {
    _inner: Box<dyn LockGuard>,
    number: u64,
    recorder: Arc<Recorder>,
}

impl LockGuard for RecordLock {}

impl Drop for RecordLock {
    fn drop(&mut self) {
        self.recorder.note(TraceEvent::Unlock { lock: self.number });
    }
}

#[derive(Debug)]
struct RecordFile {
    inner: Arc<dyn File>,
    number: u64,
    recorder: Arc<Recorder>,
}

impl RecordFile {
    fn change(&self, call: impl FnOnce() -> io::Result<()>, event: TraceEvent) -> io::Result<()> {
        self.recorder.perform(|_| call().map(|()| ((), event)))
    }
}

impl Drop for RecordFile {
    fn drop(&mut self) {
        self.recorder.note(TraceEvent::Close { file: self.number });
    }
}

impl File for RecordFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.recorder.perform(|_| {
            let count = self.inner.write_at(bytes, offset)?;
            let bytes = bytes.get(..count).unwrap_or(bytes).to_owned();
            Ok((count, TraceEvent::Write { file: self.number, offset, bytes }))
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        let file = self.number;
        self.change(|| self.inner.set_len(size), TraceEvent::SetLen { file, size })
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let file = self.number;
        self.change(|| self.inner.allocate(size), TraceEvent::Allocate { file, size })
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        let event = TraceEvent::PunchHole { file: self.number, offset, length };
        self.change(|| self.inner.punch_hole(offset, length), event)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(|| self.inner.sync_data(), TraceEvent::SyncData { file: self.number })
    }

    fn sync_all(&self) -> io::Result<()> {
        self.change(|| self.inner.sync_all(), TraceEvent::SyncAll { file: self.number })
    }

    fn map(&self, size: u64) -> io::Result<Arc<Mapping>> {
        let mut state = lock(&self.recorder.state);
        state.capture();
        let mapping = self.inner.map(size)?;
        let number = state.numbers.draw();
        // Its current content is the file's, which the trace already has.
        let words = mapping.words().iter().map(|word| word.load(Ordering::Acquire)).collect();
        state.mappings.push(Shadow { number, mapping: Arc::clone(&mapping), words });
        state.events.push(TraceEvent::Map { mapping: number, file: self.number, size });
        Ok(mapping)
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.inner.drop_cache()
    }
}
