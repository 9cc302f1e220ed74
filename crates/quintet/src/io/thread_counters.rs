//! Counters of the calling thread: what its calls read from files and waited for.
//!
//! Problem: statistics of a database cannot tell which of its callers waited. How: each thread has
//! counters of its own, and counts only while it has asked for that. Work of background threads is
//! not counted here; a flush that a writer does itself is.
//!
//! Cost: until the first thread of the process asks for counters, a place that counts loads one
//! static flag, which nothing writes. The places are reads of files, waits, and the two halves of
//! a write; hits of caches are not counted, because a get from memory should cost nothing more.
//!
//! Threads: any. Nothing is shared but the flag.

use std::{
    cell::Cell,
    // Not through `crate::util::sync`: the flag is no part of what the model checkers explore.
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// Whether any thread of the process has asked for counters.
static IS_USED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DETAIL: Cell<ThreadDetail> = const { Cell::new(ThreadDetail::Off) };
    static COUNTERS: Cell<ThreadCounters> = const { Cell::new(ThreadCounters::ZERO) };
}

/// What a thread counts of its own calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadDetail {
    /// Nothing.
    #[default]
    Off,
    /// Events and bytes.
    Counts,
    /// Events, bytes and times. Each event costs two reads of the clock.
    Times,
}

/// What the calls of one thread have done, in all databases, while the thread counted it.
///
/// ```
/// # fn main() -> quintet::Result<()> {
/// # let path = std::env::temp_dir().join(format!("quintet-counters-{}", std::process::id()));
/// use quintet::{Database, EngineKind, TableOptions, ThreadCounters, ThreadDetail};
///
/// let db = Database::open(&path)?;
/// let table = db.create_table("t", TableOptions::new(EngineKind::BTree))?;
/// ThreadCounters::set_detail(ThreadDetail::Times);
/// table.put("key", "value")?;
/// assert!(!ThreadCounters::get().apply_time.is_zero());
/// ThreadCounters::reset();
/// assert_eq!(ThreadCounters::get(), ThreadCounters::default());
/// # ThreadCounters::set_detail(ThreadDetail::Off);
/// # db.close()?;
/// # std::fs::remove_dir_all(&path).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadCounters {
    /// Reads of blocks and pages from files of the ordered engines, each of one or more blocks.
    /// Reads that an I/O queue runs for the thread, such as those of `multi_get`, are not counted.
    pub file_reads: u64,
    /// Bytes of these reads.
    pub file_read_bytes: u64,
    /// Time of these reads.
    pub file_read_time: Duration,
    /// Time of writing records to the log, and of waiting until they are durable.
    pub log_time: Duration,
    /// Time of applying logged operations to tables.
    pub apply_time: Duration,
    /// Time for which writes were delayed because background work is behind.
    pub write_delay_time: Duration,
    /// Waits for a lock that another transaction held.
    pub lock_waits: u64,
    /// Time of these waits.
    pub lock_wait_time: Duration,
}

impl ThreadCounters {
    const ZERO: Self = Self {
        file_reads: 0,
        file_read_bytes: 0,
        file_read_time: Duration::ZERO,
        log_time: Duration::ZERO,
        apply_time: Duration::ZERO,
        write_delay_time: Duration::ZERO,
        lock_waits: 0,
        lock_wait_time: Duration::ZERO,
    };

    /// Sets what the calling thread counts from now on. At first it counts nothing.
    pub fn set_detail(detail: ThreadDetail) {
        if detail != ThreadDetail::Off {
            IS_USED.store(true, Ordering::Relaxed);
        }
        DETAIL.set(detail);
    }

    /// Returns what the calling thread counts.
    #[inline]
    pub fn detail() -> ThreadDetail {
        if IS_USED.load(Ordering::Relaxed) { DETAIL.get() } else { ThreadDetail::Off }
    }

    /// Returns the counters of the calling thread.
    pub fn get() -> Self {
        COUNTERS.get()
    }

    /// Sets the counters of the calling thread to zero.
    pub fn reset() {
        COUNTERS.set(Self::ZERO);
    }
}

/// Measures one event of the calling thread.
#[derive(Debug)]
#[must_use = "an event is counted when the watch is stopped"]
pub(crate) struct Stopwatch {
    detail: ThreadDetail,
    start: Option<Instant>,
}

impl Stopwatch {
    /// Starts an event. Does nothing if the thread counts nothing.
    #[inline]
    pub(crate) fn start() -> Self {
        if IS_USED.load(Ordering::Relaxed) {
            Self::start_used()
        } else {
            Self { detail: ThreadDetail::Off, start: None }
        }
    }

    // Out of line, as `count` is: the callers are the path of each write.
    #[cold]
    #[inline(never)]
    fn start_used() -> Self {
        let detail = DETAIL.get();
        Self { detail, start: (detail == ThreadDetail::Times).then(Instant::now) }
    }

    /// Adds the time of an event that was measured otherwise.
    pub(crate) fn record_time(add: impl FnOnce(&mut ThreadCounters)) {
        let detail = ThreadCounters::detail();
        if detail == ThreadDetail::Times {
            Self { detail, start: None }.stop(|counters, _| add(counters));
        }
    }

    /// Ends the event. `add` gets the counters and the time, which is zero if times are not
    /// counted. It is not called if the thread counts nothing.
    #[inline]
    pub(crate) fn stop(self, add: impl FnOnce(&mut ThreadCounters, Duration)) {
        if self.detail != ThreadDetail::Off {
            self.count(add);
        }
    }

    #[cold]
    #[inline(never)]
    fn count(self, add: impl FnOnce(&mut ThreadCounters, Duration)) {
        let mut counters = COUNTERS.get();
        add(&mut counters, self.start.map_or(Duration::ZERO, |start| start.elapsed()));
        COUNTERS.set(counters);
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_its_own_events_while_it_has_asked_for_it() {
        let event = || {
            Stopwatch::start().stop(|counters, time| {
                counters.lock_waits += 1;
                counters.lock_wait_time += time;
            });
        };
        event();
        assert_eq!(ThreadCounters::get(), ThreadCounters::default());
        ThreadCounters::set_detail(ThreadDetail::Counts);
        event();
        let counted = ThreadCounters::get();
        assert_eq!((counted.lock_waits, counted.lock_wait_time), (1, Duration::ZERO));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                event();
                assert_eq!(ThreadCounters::get(), ThreadCounters::default());
            });
        });
        ThreadCounters::set_detail(ThreadDetail::Off);
        event();
        assert_eq!(ThreadCounters::get(), counted);
        ThreadCounters::reset();
        assert_eq!(ThreadCounters::get(), ThreadCounters::default());
    }
}
