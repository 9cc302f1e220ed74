//! Background jobs under a virtual clock: no job runs by itself, a test steps them.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    io::{Job, JobControl, NextRun},
    util::sync::{AtomicU64, Condvar, Mutex, Ordering, lock},
};

/// One started job.
struct JobEntry {
    id: u64,
    job: Arc<dyn Job>,
    /// When it is due; `None` until woken.
    due: Option<Duration>,
    /// The thread that runs it now.
    running: Option<std::thread::ThreadId>,
    woken: bool,
}

#[derive(Default)]
struct JobTable {
    next: u64,
    entries: Vec<JobEntry>,
}

/// The values of both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimClock {
    pub(super) now: Duration,
    /// The wall clock when the monotonic clock is zero, in milliseconds, wrapping.
    pub(super) wall_base: u64,
}

impl SimClock {
    /// After a reboot the monotonic clock restarts; the wall clock continues.
    pub(super) fn rebooted(self, start: Duration) -> Self {
        let passed = millis(self.now).wrapping_sub(millis(start));
        Self { now: start, wall_base: self.wall_base.wrapping_add(passed) }
    }

    pub(super) fn unix_millis(self) -> u64 {
        self.wall_base.wrapping_add(millis(self.now))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The clocks and the jobs.
pub(super) struct Scheduler {
    nanos: AtomicU64,
    wall_base: AtomicU64,
    table: Mutex<JobTable>,
    ended: Condvar,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("nanos", &self.nanos).finish_non_exhaustive()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Scheduler {
    pub(super) fn new(clock: SimClock) -> Self {
        Self {
            nanos: AtomicU64::new(nanos(clock.now)),
            wall_base: AtomicU64::new(clock.wall_base),
            table: Mutex::new(JobTable::default()),
            ended: Condvar::new(),
        }
    }

    pub(super) fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    pub(super) fn clock(&self) -> SimClock {
        SimClock { now: self.now(), wall_base: self.wall_base.load(Ordering::Relaxed) }
    }

    /// Moves the wall clock only.
    pub(super) fn jump(&self, millis: i64) {
        self.wall_base.fetch_add(millis.cast_unsigned(), Ordering::Relaxed);
    }

    /// Advances the clocks without running a job.
    pub(super) fn pass(&self, time: Duration) {
        self.nanos.fetch_add(nanos(time), Ordering::Relaxed);
    }

    /// Starts a job. It is due immediately.
    pub(super) fn start(self: &Arc<Self>, job: Arc<dyn Job>) -> Box<dyn JobControl> {
        let mut table = lock(&self.table);
        let id = table.next;
        table.next += 1;
        let due = Some(self.now());
        table.entries.push(JobEntry { id, job, due, running: None, woken: false });
        Box::new(Control { scheduler: self.clone(), id })
    }

    /// Returns the names of the due jobs, in the order in which they would run.
    pub(super) fn due(&self) -> Vec<&'static str> {
        let table = lock(&self.table);
        let mut found: Vec<_> = table
            .entries
            .iter()
            .filter(|entry| entry.due.is_some_and(|due| due <= self.now()))
            .map(|entry| (entry.due, entry.id, entry.job.name()))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, _, name)| name).collect()
    }

    /// Runs the job that has been due longest, as of `until`, and returns its name.
    pub(super) fn step(&self, until: Duration) -> Option<&'static str> {
        let ready =
            |entry: &JobEntry| entry.running.is_none() && entry.due.is_some_and(|due| due <= until);
        self.run_first(|entry| ready(entry).then_some((entry.due, entry.id)))
    }

    /// Runs the job named `name`, due or not. Returns `false` if none can run.
    pub(super) fn run_named(&self, name: &str) -> bool {
        let ready = |entry: &JobEntry| entry.running.is_none() && entry.job.name() == name;
        self.run_first(|entry| ready(entry).then_some(entry.id)).is_some()
    }

    fn run_first<K: Ord>(&self, key: impl Fn(&JobEntry) -> Option<K>) -> Option<&'static str> {
        let (id, job) = {
            let mut table = lock(&self.table);
            let entry = table
                .entries
                .iter_mut()
                .filter_map(|entry| key(entry).map(|key| (key, entry)))
                .min_by(|(left, _), (right, _)| left.cmp(right))
                .map(|(_, entry)| entry)?;
            entry.running = Some(std::thread::current().id());
            entry.woken = false;
            if let Some(due) = entry.due.take() {
                self.nanos.fetch_max(nanos(due), Ordering::Relaxed);
            }
            (entry.id, entry.job.clone())
        };
        let next = job.run();
        let mut table = lock(&self.table);
        let now = self.now();
        if let Some(entry) = table.entries.iter_mut().find(|entry| entry.id == id) {
            entry.running = None;
            entry.due = match next {
                NextRun::Now => Some(now),
                _ if entry.woken => Some(now),
                NextRun::After(delay) => Some(now + delay),
                NextRun::WhenWoken => None,
            };
        }
        drop(table);
        self.ended.notify_all();
        Some(job.name())
    }
}

#[derive(Debug)]
struct Control {
    scheduler: Arc<Scheduler>,
    id: u64,
}

impl JobControl for Control {
    fn wake(&self) {
        let mut table = lock(&self.scheduler.table);
        let now = self.scheduler.now();
        if let Some(entry) = table.entries.iter_mut().find(|entry| entry.id == self.id) {
            entry.due = Some(entry.due.map_or(now, |due| due.min(now)));
            entry.woken = true;
        }
    }

    fn stop(&self) {
        let mut table = lock(&self.scheduler.table);
        let this_thread = Some(std::thread::current().id());
        loop {
            let found = table.entries.iter().position(|entry| entry.id == self.id);
            let Some(index) = found else { return };
            let running = table.entries[index].running;
            if running.is_none() || running == this_thread {
                let entry = table.entries.swap_remove(index);
                drop(table);
                drop(entry);
                return;
            }
            // Prevents further runs, then waits for the one in progress.
            table.entries[index].due = None;
            table = match self.scheduler.ended.wait(table) {
                Ok(table) => table,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
    }
}
