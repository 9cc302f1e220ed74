//! Syncs of the log that connections share (`appendfsync always`).
//!
//! A connection commits without a sync, asks for one, and replies after it. All that ask while a
//! sync runs share the next one. Worker threads do not wait for the disk.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use quintet::Database;
use tokio::sync::watch;

/// The number of the last request that a sync covers, or why syncs fail.
type Outcome = Result<u64, String>;

/// Shares syncs.
#[derive(Debug)]
pub(crate) struct Syncer {
    requests: Arc<Requests>,
    done: watch::Receiver<Outcome>,
    /// Whether a write must be on disk within a second.
    is_due: AtomicBool,
}

#[derive(Debug, Default)]
struct Requests {
    last: AtomicU64,
    /// Whether the thread has something to do, and whether it ends.
    state: Mutex<(bool, bool)>,
    wake: Condvar,
}

impl Syncer {
    /// Starts the thread that syncs.
    pub(crate) fn start(database: Database) -> std::io::Result<Self> {
        let requests = Arc::new(Requests::default());
        let (sender, done) = watch::channel(Ok(0));
        let own = requests.clone();
        thread::Builder::new()
            .name("quintet-sync".to_owned())
            .spawn(move || sync_requests(&database, &own, &sender))?;
        Ok(Self { requests, done, is_due: AtomicBool::new(false) })
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
        self.requests.last.load(Ordering::Relaxed)
    }

    /// Waits until everything that the caller has committed is on disk.
    pub(crate) async fn sync(&self) -> Result<(), String> {
        let own = self.requests.last.fetch_add(1, Ordering::AcqRel) + 1;
        self.requests.state.lock().unwrap_or_else(PoisonError::into_inner).0 = true;
        self.requests.wake.notify_one();
        let mut done = self.done.clone();
        let is_over = |outcome: &Outcome| match outcome {
            Ok(covered) => *covered >= own,
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
        self.requests.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.requests.wake.notify_one();
    }
}

fn sync_requests(database: &Database, requests: &Requests, done: &watch::Sender<Outcome>) {
    loop {
        {
            let mut state = requests.state.lock().unwrap_or_else(PoisonError::into_inner);
            while !state.0 && !state.1 {
                state = requests.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.1 {
                return;
            }
            state.0 = false;
        }
        let covered = requests.last.load(Ordering::Acquire);
        let outcome = database.sync().map(|()| covered).map_err(|error| error.to_string());
        // A failed sync stays: the store refuses later writes too.
        let is_failed = outcome.is_err();
        if let Err(error) = &outcome {
            tracing::error!(error, "a sync failed; writes are refused until the next start");
        }
        drop(done.send_replace(outcome));
        if is_failed {
            return;
        }
    }
}
