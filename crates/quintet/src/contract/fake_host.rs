//! What a database does for its engines, counted: for the tests of engines alone.

use std::{path::Path, sync::Arc};

use super::{Context, Host};
use crate::{
    Error, Result,
    io::{Env, sim::SimEnv},
    util::{
        budget::{Budget, Reservation},
        codec::{KeyHash, Lsn},
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
    },
};

#[derive(Debug, Default)]
pub(crate) struct FakeHost {
    pub(crate) log_syncs: AtomicU64,
    /// Syncs of the log fail.
    pub(crate) refuses: AtomicBool,
    /// A round of persisting is always due.
    pub(crate) hurries: AtomicBool,
    /// Memory of work under way: it ends when the database is asked to work.
    pub(crate) lent: Mutex<Option<Reservation>>,
}

impl FakeHost {
    /// A table in `table` of a simulated disk.
    pub(crate) fn context(self: &Arc<Self>, env: &SimEnv, budget: u64) -> Context {
        Context {
            env: Arc::new(env.clone()),
            dir: env.open_dir(Path::new("table"), true).unwrap(),
            database_id: [7; 16],
            table_id: 3,
            hash: KeyHash::new([1, 2]),
            budget: Arc::new(Budget::new(budget)),
            host: Arc::clone(self) as Arc<dyn Host>,
            read_only: false,
            complete: Lsn(0),
        }
    }
}

impl Host for FakeHost {
    fn sync_log(&self) -> Result<()> {
        self.log_syncs.fetch_add(1, Ordering::Relaxed);
        let refuses = self.refuses.load(Ordering::Relaxed);
        if refuses { Err(Error::LogFailed { reason: "as asked".to_owned() }) } else { Ok(()) }
    }

    fn wake(&self) {
        drop(lock(&self.lent).take());
    }

    fn can_sync_log(&self) -> bool {
        !self.refuses.load(Ordering::Relaxed)
    }

    fn is_round_due(&self) -> bool {
        self.hurries.load(Ordering::Relaxed)
    }

    fn is_expired(&self, stored: &[u8]) -> bool {
        stored.starts_with(b"expired")
    }

    fn expires(&self, stored: &[u8]) -> bool {
        stored.starts_with(b"expire")
    }
}
