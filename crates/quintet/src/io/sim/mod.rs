//! A simulated disk: deterministic, in memory, with the crashes and faults that a test chooses.
//!
//! How: [`SimEnv`] implements [`Env`] over a model. The model keeps, for each file and directory,
//! what a process sees, what is durable, and the changes in between. Each call that changes the
//! disk is one numbered *event*. Stores into a mapping are found by comparison (at each event while
//! a history is kept, else at syncs and crashes) and become events too. From the state after any
//! event a test builds the disk that a power loss or a process death would leave
//! ([`SimEnv::image_at`], [`Policy`]). It can also plan faults ([`Fault`]), damage files at rest
//! ([`Damage`]), move the clocks, and step background jobs.
//!
//! Problem: crashes must be tested exhaustively and reproducibly. A run is executed once, and each
//! crash of it is checked from its history, thousands a second. One seed reproduces any of them.
//!
//! Fault kinds of block storage, and where to find them:
//!
//! | kind | here |
//! |---|---|
//! | process kill | [`Policy::Killed`], [`Policy::KilledCopying`] |
//! | power loss, any subset of un-synced writes, reordered | all other policies |
//! | any of the words stored to persistent memory | [`SimEnv::with_persistent_memory`] |
//! | torn at 512 bytes and so at 4 KiB, garbage in a sector | [`Policy::Torn`] |
//! | size grown, bytes not | [`Policy::SizesOnly`], [`Policy::Random`], [`Tail`] |
//! | create, rename, unlink undone; rename without content | [`Policy::DropOne`], `Random` |
//! | short transfer, EINTR, EAGAIN, EIO, EMFILE, slow call | [`Effect`], once or sticky: [`When`] |
//! | ENOSPC, EDQUOT | [`Effect`]; a disk of a size: [`SimEnv::set_capacity`] |
//! | failed sync that marks pages clean | [`Effect::Io`] of [`Call::Sync`] |
//! | bits flipped; block zeroed, doubled, misdirected, lost | [`Effect`]; at rest: [`Damage`] |
//! | file truncated, extended, deleted, swapped, replaced | [`Damage`] |
//! | clock jumps | [`SimEnv::jump_wall_clock`], [`SimEnv::advance`] |
//! | allocation failure | [`crate::util::budget::refusal`], which says why not more |
//!
//! Invariants: the same seed and the same calls give the same bytes, times and orders. A crash
//! returns a new, independent [`SimEnv`]; the old one continues unchanged. The new one continues
//! the event numbers, so that they are unique across nested crashes.
//!
//! A caller that violates the contract of [`File::map`](super::File::map) (truncates a mapped file,
//! or maps it twice with different sizes) has a bug: those calls panic here.
//!
//! Threads: any thread. One lock for the disk and one for the jobs, never both at once.

mod content;
mod damage;
mod disk;
mod fault;
mod handles;
mod image;
mod jobs;
mod queue;
mod random;
mod shared;
mod state;
#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::io::Errno;

use self::{
    content::FileContent,
    disk::{Disk, DiskSnapshot, components},
    fault::{FaultPlan, Ruling},
    jobs::{Scheduler, SimClock},
    random::{Random, mix},
    shared::SimShared,
    state::{DiskState, FileNode, Inode, MappingKind, ROOT},
};
pub use self::{
    damage::Damage,
    disk::{Event, EventKind},
    fault::{Call, Effect, Fault, When},
    image::{Policy, PolicyLimits, Tail},
};
use super::{BLOCK_BYTES, Dir, Env, Job, JobHandle, Queue};
use crate::util::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// Initial wall clock: 2020-09-13, so that times have their usual width.
const WALL_START_MS: u64 = 1_600_000_000_000;
/// Monotonic clock after a boot.
const CLOCK_START: Duration = Duration::from_secs(1);
/// Time that a read of the monotonic clock takes, so that a loop that polls it ends.
const CLOCK_READ: Duration = Duration::from_nanos(100);
/// Maximum runs until all jobs are idle. A job that always asks to run again has a bug.
const STEPS_MAX: u64 = 1_000_000;

/// The simulated system. Clones share it.
#[derive(Clone, Debug)]
pub struct SimEnv {
    shared: Arc<SimShared>,
}

impl SimEnv {
    /// Creates an empty disk. `seed` decides everything random.
    pub fn new(seed: u64) -> Self {
        Self::empty(seed, MappingKind::Pages)
    }

    /// Creates an empty disk whose mapped files are in persistent memory. A power loss keeps any
    /// subset of the stored words whose lines no sync has covered. A sync of a range covers its
    /// lines only.
    pub fn with_persistent_memory(seed: u64) -> Self {
        Self::empty(seed, MappingKind::Memory)
    }

    /// Whether mapped files are in persistent memory.
    pub fn has_persistent_memory(&self) -> bool {
        self.disk().state.mapped != MappingKind::Pages
    }

    fn empty(seed: u64, mapped: MappingKind) -> Self {
        let clock = SimClock { now: CLOCK_START, wall_base: WALL_START_MS };
        Self::boot(seed, 0, DiskState::new(mapped), 0, clock)
    }

    fn boot(seed: u64, boots: u64, state: DiskState, event: u64, clock: SimClock) -> Self {
        let random = Random::derived(seed, mix(event) ^ boots);
        let scheduler = Arc::new(Scheduler::new(clock));
        let plan = FaultPlan::new(seed ^ event);
        let disk = Disk::new(state, event, plan, random, scheduler.clone());
        Self {
            shared: Arc::new(SimShared {
                disk: Mutex::new(disk),
                scheduler,
                memory_bytes: AtomicU64::new(1 << 30),
                seed,
                boots,
            }),
        }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.shared.disk)
    }

    // Events and crashes.

    /// Keeps the state after every event from now on, for [`Self::image_at`].
    pub fn record_history(&self) {
        let mut disk = self.disk();
        disk.capture();
        let event = Event { number: disk.event, kind: EventKind::Start, path: "".into() };
        let state = disk.state.clone();
        let clock = self.shared.scheduler.clock();
        disk.history = Some(vec![DiskSnapshot { event, state, clock }]);
    }

    /// Detects stores into mappings and returns the number of the last event. Called before and
    /// after an operation, it delimits the operation's events: after the first number, up to and
    /// including the second.
    pub fn mark(&self) -> u64 {
        let mut disk = self.disk();
        disk.capture();
        disk.event
    }

    /// Returns the recorded events, the start first.
    pub fn history(&self) -> Vec<Event> {
        let disk = self.disk();
        disk.history.iter().flatten().map(|snapshot| snapshot.event.clone()).collect()
    }

    /// Returns the number of units pending after `event`.
    ///
    /// # Panics
    ///
    /// If the history does not contain the event.
    pub fn pending_units(&self, event: u64) -> usize {
        image::pending_units(&self.disk().snapshot(event).state)
    }

    /// Returns the policies that are worth trying for a crash right after `event`.
    ///
    /// # Panics
    ///
    /// If the history does not contain the event.
    pub fn policies(&self, event: u64, limits: PolicyLimits) -> Vec<Policy> {
        let disk = self.disk();
        let snapshot = disk.snapshot(event);
        // Only a recorded store has a state before it.
        let stored = snapshot.event.kind == EventKind::Store;
        let copying = if stored { limits.copying } else { 0 };
        image::policies(&snapshot.state, event, PolicyLimits { copying, ..limits })
    }

    /// Returns the system after a crash right after `event`.
    ///
    /// # Panics
    ///
    /// If the history does not contain the event.
    #[must_use]
    pub fn image_at(&self, event: u64, policy: Policy) -> Self {
        let disk = self.disk();
        let snapshot = disk.snapshot(event);
        let state = match policy {
            Policy::Killed => snapshot.state.clone(),
            Policy::KilledCopying { seed } => {
                let before = &disk.snapshot(event.saturating_sub(1)).state;
                image::killed_copying(&snapshot.state, before, event, seed)
            }
            _ => image::power_loss(&snapshot.state, policy, self.shared.seed ^ mix(event)),
        };
        let clock = snapshot.clock;
        drop(disk);
        self.after_crash(state, event, policy, clock)
    }

    /// Returns the system after a power loss now.
    #[must_use]
    pub fn crash(&self, policy: Policy) -> Self {
        let event = self.mark();
        let state = image::power_loss(&self.disk().state, policy, self.shared.seed ^ mix(event));
        self.after_crash(state, event, policy, self.shared.scheduler.clock())
    }

    /// Returns the system after a death of the process now.
    #[must_use]
    pub fn kill(&self) -> Self {
        let event = self.mark();
        let state = self.disk().state.clone();
        self.after_crash(state, event, Policy::Killed, self.shared.scheduler.clock())
    }

    fn after_crash(&self, state: DiskState, event: u64, policy: Policy, clock: SimClock) -> Self {
        let shared = &self.shared;
        let after = if policy.is_kill() {
            Self::boot(shared.seed, shared.boots, state, event, clock)
        } else {
            let clock = clock.rebooted(CLOCK_START);
            Self::boot(shared.seed, shared.boots + 1, state, event, clock)
        };
        after.set_memory_bytes(shared.memory_bytes.load(Ordering::Relaxed));
        after.disk().capacity_blocks = self.disk().capacity_blocks;
        after
    }

    /// Returns a 64-bit hash of what a process would find: names, contents, whether the machine was
    /// rebooted, and the durable state where it differs. Images with equal hashes need one check
    /// only.
    pub fn image_hash(&self) -> u64 {
        let mut disk = self.disk();
        disk.capture();
        let visible = disk.state.hash(false);
        mix(visible.rotate_left(9) ^ disk.state.hash(true)) ^ mix(self.shared.boots)
    }

    // Faults.

    /// Plans a fault.
    pub fn inject(&self, fault: Fault) {
        self.disk().plan.add(fault);
    }

    /// Removes all planned faults.
    pub fn clear_faults(&self) {
        self.disk().plan.clear();
    }

    /// Runs `work` with all faults suspended and without counting its calls, so that a test can
    /// inspect the state. For one thread at a time.
    pub fn unharmed<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.disk().plan.suspend(true);
        let outcome = work();
        self.disk().plan.suspend(before);
        outcome
    }

    /// Returns the number of calls that a fault hit.
    pub fn faults_fired(&self) -> u64 {
        self.disk().plan.fired()
    }

    /// Returns the number of calls of these kinds, failed ones included.
    pub fn calls(&self, kinds: &[Call]) -> u64 {
        self.disk().plan.calls(kinds)
    }

    /// Limits the disk to a size in bytes; a write beyond it fails with ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.disk().capacity_blocks = bytes.map(|bytes| bytes / BLOCK_BYTES);
    }

    /// Returns the bytes of the disk that files take.
    pub fn bytes_used(&self) -> u64 {
        let mut disk = self.disk();
        disk.capture();
        disk.blocks_used() * BLOCK_BYTES
    }

    /// Sets the result of [`Env::memory_bytes`].
    pub fn set_memory_bytes(&self, bytes: u64) {
        self.shared.memory_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Damages the file at `path` on the disk. Its pending changes become durable or are lost.
    pub fn damage(&self, path: impl AsRef<Path>, damage: &Damage) -> io::Result<()> {
        let mut disk = self.disk();
        disk.capture();
        let (dir, name, inode) = disk.find(path.as_ref())?;
        let mut bytes = disk.state.file(inode)?.on_disk().to_vec();
        match damage {
            Damage::Delete => {
                let dir = disk.state.dir_mut(dir)?;
                dir.visible.remove(&name);
                dir.durable.remove(&name);
                return Ok(());
            }
            Damage::Swap(other) => {
                let (_, _, other) = disk.find(other)?;
                let theirs = disk.state.file(other)?.on_disk();
                let ours = disk.state.file(inode)?.on_disk();
                *disk.state.file_mut(other)? = FileNode::durable(ours);
                *disk.state.file_mut(inode)? = FileNode::durable(theirs);
                return Ok(());
            }
            Damage::Replace(with) => bytes.clone_from(with),
            other => other.apply(&mut bytes, &mut disk.random)?,
        }
        let mut content = FileContent::default();
        content.write(0, &bytes);
        *disk.state.file_mut(inode)? = FileNode::durable(content);
        Ok(())
    }

    /// Returns every file: path without a leading slash, and size in bytes.
    pub fn files(&self) -> Vec<(String, u64)> {
        let mut disk = self.disk();
        disk.capture();
        let files = disk.state.files();
        let size = |inode| disk.state.file(inode).map_or(0, |file| file.visible.size());
        files.into_iter().map(|(path, inode)| (path, size(inode))).collect()
    }

    /// Returns what a process would read from the file at `path`.
    pub fn contents(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut disk = self.disk();
        disk.capture();
        let (_, _, inode) = disk.find(path.as_ref())?;
        Ok(disk.state.file(inode)?.visible.to_vec())
    }

    // Time and jobs.

    /// Moves the wall clock by this many milliseconds in either direction. The monotonic clock does
    /// not change.
    pub fn jump_wall_clock(&self, millis: i64) {
        self.shared.scheduler.jump(millis);
    }

    /// Advances the clocks by `time` and runs each job when it becomes due.
    ///
    /// # Panics
    ///
    /// If the jobs never become idle.
    pub fn advance(&self, time: Duration) {
        let until = self.shared.scheduler.now() + time;
        let mut steps = 0;
        while self.shared.scheduler.step(until).is_some() {
            steps += 1;
            assert!(steps < STEPS_MAX, "jobs never come to rest");
        }
        let now = self.shared.scheduler.now();
        self.shared.scheduler.pass(until.saturating_sub(now));
    }

    /// Runs the job that has been due longest and returns its name; `None` if none is due.
    pub fn step(&self) -> Option<&'static str> {
        self.shared.scheduler.step(self.shared.scheduler.now())
    }

    /// Runs due jobs until none is due. Returns the number of runs.
    ///
    /// # Panics
    ///
    /// If the jobs never become idle.
    pub fn run_due(&self) -> u64 {
        let mut steps = 0;
        while self.step().is_some() {
            steps += 1;
            assert!(steps < STEPS_MAX, "jobs never come to rest");
        }
        steps
    }

    /// Runs the job of this name once, due or not. Returns `false` if there is none, or if it is
    /// running.
    pub fn run_job(&self, name: &str) -> bool {
        self.shared.scheduler.run_named(name)
    }

    /// Returns the names of the due jobs, in the order in which [`Self::step`] would run them.
    pub fn due_jobs(&self) -> Vec<&'static str> {
        self.shared.scheduler.due()
    }
}

impl SimShared {
    /// Consults the fault plan. A delay advances the clock; other effects that do not fail the call
    /// are returned.
    fn rule(&self, disk: &mut Disk, call: Call, path: &str) -> Ruling {
        match disk.plan.rule(call, path) {
            Ruling::Proceed(Some(Effect::Delay(time))) => {
                self.scheduler.pass(time);
                Ruling::Proceed(None)
            }
            ruling => ruling,
        }
    }

    /// Consults the fault plan for calls that can only succeed or fail.
    fn allow(&self, disk: &mut Disk, call: Call, path: &str) -> io::Result<()> {
        match self.rule(disk, call, path) {
            Ruling::Proceed(_) => Ok(()),
            Ruling::Fail(_, error) => Err(error),
        }
    }
}

impl Env for SimEnv {
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>> {
        let mut disk = self.disk();
        let mut inode = ROOT;
        let mut place = PathBuf::new();
        for name in components(path)? {
            place.push(&name);
            let label: Arc<str> = place.to_string_lossy().into();
            if let Some(found) = disk.state.dir(inode)?.visible.get(&name) {
                inode = *found;
                continue;
            }
            if !create {
                return Err(Errno::NOENT.into());
            }
            self.shared.allow(&mut disk, Call::CreateDir, &label)?;
            disk.begin(inode);
            let child = disk.state.add(Inode::Dir(state::DirNode::default()));
            let parent = disk.state.dir_mut(inode)?;
            parent.visible.insert(name.clone(), child);
            parent.durable.insert(name, child);
            disk.end(Call::CreateDir, &label);
            inode = child;
        }
        let label: Arc<str> = place.to_string_lossy().into();
        self.shared.allow(&mut disk, Call::OpenDir, &label)?;
        disk.state.dir(inode)?;
        drop(disk);
        Ok(Arc::new(handles::SimDir::new(self.shared.clone(), inode, path.to_owned())))
    }

    fn monotonic(&self) -> Duration {
        self.shared.scheduler.pass(CLOCK_READ);
        self.shared.scheduler.now()
    }

    fn pause(&self, time: Duration) {
        self.shared.scheduler.pass(time);
    }

    fn unix_millis(&self) -> u64 {
        self.shared.scheduler.clock().unix_millis()
    }

    fn random(&self, out: &mut [u8]) {
        self.disk().random.fill(out);
    }

    fn boot_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        Random::derived(self.shared.seed ^ self.shared.boots, 5).fill(&mut id);
        id
    }

    fn memory_bytes(&self) -> u64 {
        self.shared.memory_bytes.load(Ordering::Relaxed)
    }

    fn start(&self, job: Arc<dyn Job>) -> JobHandle {
        JobHandle::new(self.shared.scheduler.start(job))
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let mut disk = self.disk();
        self.shared.allow(&mut disk, Call::Queue, "")?;
        let random = Random::new(disk.random.next());
        drop(disk);
        Ok(Box::new(queue::SimQueue::new(depth, random, self.shared.clone())))
    }
}
