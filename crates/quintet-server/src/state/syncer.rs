//! Syncs of the log that connections share (`appendfsync always`).
//!
//! A connection commits without a sync, asks for one, and replies after it. All that ask while a
//! sync runs share the next one. Worker threads do not wait for the disk.
//!
//! Syncs have numbers. Those that wait for one sync and those that wait for the next one are on two
//! channels, so that the end of a sync wakes only whom it covers.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use quintet::Database;
use tokio::sync::watch;

/// The number of the last sync of a channel, or why syncs fail.
type Outcome = Result<u64, String>;

/// Shares syncs.
#[derive(Debug)]
pub(crate) struct Syncer {
    requests: Arc<Requests>,
    /// For syncs with even and with odd numbers.
    done: [watch::Receiver<Outcome>; 2],
    /// Whether a write must be on disk within a second.
    is_due: AtomicBool,
}

#[derive(Debug, Default)]
struct Requests {
    total: AtomicU64,
    state: Mutex<SyncerState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct SyncerState {
    /// The number of the sync that covers who asks now.
    next: u64,
    /// Whether a connection waits for it.
    is_wanted: bool,
    /// Whether the thread ends.
    is_ending: bool,
}

impl Requests {
    fn state(&self) -> MutexGuard<'_, SyncerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Syncer {
    /// Starts the thread that syncs.
    pub(crate) fn start(database: Database) -> std::io::Result<Self> {
        let requests = Arc::new(Requests::default());
        let channels = [watch::channel(Ok(0)), watch::channel(Ok(0))];
        let [(even, even_done), (odd, odd_done)] = channels;
        requests.state().next = 1;
        let own = requests.clone();
        thread::Builder::new()
            .name("quintet-sync".to_owned())
            .spawn(move || sync_requests(&database, &own, &[even, odd]))?;
        Ok(Self { requests, done: [even_done, odd_done], is_due: AtomicBool::new(false) })
    }

    /// Asks for a sync within a second. Costs one store.
    pub(crate) fn sync_within_a_second(&self) {
        self.is_due.store(true, Ordering::Release);
    }

    /// Whether a sync is due since the last call.
    pub(crate) fn take_due(&self) -> bool {
        self.is_due.swap(false, Ordering::AcqRel)
    }

    /// Number of syncs that were asked for.
    pub(crate) fn requested(&self) -> u64 {
        self.requests.total.load(Ordering::Relaxed)
    }

    /// Waits until everything that the caller has committed is on disk.
    pub(crate) async fn sync(&self) -> Result<(), String> {
        self.requests.total.fetch_add(1, Ordering::Relaxed);
        let (own, is_first) = {
            let mut state = self.requests.state();
            (state.next, !std::mem::replace(&mut state.is_wanted, true))
        };
        if is_first {
            self.requests.wake.notify_one();
        }
        let [even, odd] = &self.done;
        let mut done = if own % 2 == 0 { even.clone() } else { odd.clone() };
        let is_over = |outcome: &Outcome| match outcome {
            Ok(last) => *last >= own,
            Err(_) => true,
        };
        match done.wait_for(is_over).await {
            Ok(outcome) => outcome.clone().map(drop),
            Err(_) => Err("the server ends".to_owned()),
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.requests.state().is_ending = true;
        self.requests.wake.notify_one();
    }
}

/// Syncs while connections ask for it. `done` are the channels for even and odd numbers.
fn sync_requests(database: &Database, requests: &Requests, done: &[watch::Sender<Outcome>; 2]) {
    loop {
        let number = {
            let mut state = requests.state();
            while !state.is_wanted && !state.is_ending {
                state = requests.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_ending {
                return;
            }
            state.is_wanted = false;
            state.next += 1;
            state.next - 1
        };
        let [even, odd] = done;
        match database.sync() {
            Ok(()) => {
                let covered = if number % 2 == 0 { even } else { odd };
                drop(covered.send_replace(Ok(number)));
            }
            // A failed sync stays: the store refuses later writes too.
            Err(error) => {
                let error = error.to_string();
                tracing::error!(error, "a sync failed; writes are refused until the next start");
                drop(even.send_replace(Err(error.clone())));
                drop(odd.send_replace(Err(error)));
                return;
            }
        }
    }
}
