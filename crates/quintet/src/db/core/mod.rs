//! The shared state of an open database, and of each of its tables.
//!
//! Invariants:
//! - [`Tables`] has exactly the tables of the catalog.
//! - A table's `applied_end` covers every operation of the table before the log ticket of that
//!   operation is dropped. So a table that has applied nothing past its persisted LSN is complete
//!   to every LSN up to [`Log::applied`].
//!
//! Lock order: `ARCHITECTURE.md`. The slots of the jobs are never held across a call.

pub(crate) mod stripes;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use super::{
    Durability,
    catalog::Catalog,
    expiry::{Clock, Expiries},
};
use crate::{
    Error, Result,
    contract::{Engine as _, EngineKind, Host, Load, Presence, value_sink::HeadAndBuffer},
    db::{
        core::stripes::Stripes,
        encoding::envelope::{ENVELOPE_BYTES_MAX, Envelope, EnvelopeSink},
        session::Mounts,
        tables::value::Value,
    },
    engine::AnyEngine,
    io::{Dir, Env, JobHandle, LockGuard},
    util::{
        budget::Budget,
        codec::{KeyHash, Lsn},
        mutant::mutant,
        sync::{
            AtomicBool, AtomicU8, AtomicU64, CachePadded, Mutex, OnceLock, Ordering, RwLock,
            fair_mutex::FairMutex, lock, read,
        },
        types::TableTypes,
    },
    wal::Log,
};

/// Whether a table takes operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Open,
    /// A sorted load is in progress: no other writes.
    Loading,
    Failed,
    Dropped,
    Closed,
}

impl Status {
    const fn code(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Loading => 1,
            Self::Failed => 2,
            Self::Dropped => 3,
            Self::Closed => 4,
        }
    }
}

/// One open table.
#[derive(Debug)]
pub(crate) struct TableState {
    pub(crate) id: u64,
    pub(crate) kind: EngineKind,
    pub(crate) hash: KeyHash,
    pub(crate) engine: AnyEngine,
    status: AtomicU8,
    /// Why the table failed; set before the status changes.
    failure: OnceLock<String>,
    /// The last name, once the table is dropped.
    pub(crate) dropped_name: OnceLock<String>,
    /// Past the last applied operation. On its own cache line, because every write stores it while
    /// gets read the fields around it.
    applied_end: CachePadded<AtomicU64>,
    /// The LSN that the files are complete to.
    persisted: AtomicU64,
    /// Whether the table may have entries in the expiry index.
    pub(crate) may_expire: AtomicBool,
    /// The types of keys and values; unset: any bytes.
    types: OnceLock<TableTypes>,
    /// The sorted load while the table is [`Status::Loading`].
    pub(crate) load: Mutex<Option<Box<dyn Load>>>,
    /// Held while the engine checkpoints, compacts or checks, and while the table's files are
    /// removed.
    pub(crate) maintenance: Mutex<()>,
}

impl TableState {
    pub(crate) fn new(
        id: u64,
        kind: EngineKind,
        hash: KeyHash,
        engine: AnyEngine,
        persisted: Lsn,
        types: Option<TableTypes>,
    ) -> Self {
        Self {
            id,
            kind,
            hash,
            engine,
            status: AtomicU8::new(0),
            failure: OnceLock::new(),
            dropped_name: OnceLock::new(),
            applied_end: CachePadded(AtomicU64::new(0)),
            persisted: AtomicU64::new(persisted.0),
            may_expire: AtomicBool::new(false),
            types: types.map_or_else(OnceLock::new, OnceLock::from),
            load: Mutex::new(None),
            maintenance: Mutex::new(()),
        }
    }

    #[inline]
    pub(crate) fn status(&self) -> Status {
        match self.status.load(Ordering::Acquire) {
            0 => Status::Open,
            1 => Status::Loading,
            2 => Status::Failed,
            3 => Status::Dropped,
            _ => Status::Closed,
        }
    }

    /// Returns whether the table takes reads and joins checkpoints.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.status(), Status::Open | Status::Loading)
    }

    /// Moves the status forward. Only a load moves it back, see [`TableState::turn`].
    pub(crate) fn end(&self, status: Status) {
        self.status.fetch_max(status.code(), Ordering::AcqRel);
    }

    /// Changes the status between open and loading. Returns `false`, and changes nothing, if it was
    /// not `from`.
    pub(crate) fn turn(&self, from: Status, to: Status) -> bool {
        let codes = (from.code(), to.code());
        let order = (Ordering::AcqRel, Ordering::Acquire);
        self.status.compare_exchange(codes.0, codes.1, order.0, order.1).is_ok()
    }

    /// Stops the table: a logged operation could not be applied.
    pub(crate) fn fail(&self, reason: &Error) {
        let _ = self.failure.set(reason.to_string());
        self.end(Status::Failed);
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    pub(crate) fn types(&self) -> Option<&TableTypes> {
        self.types.get()
    }

    /// Fixes the types for later writes. Returns the types in effect, which differ if they were
    /// fixed before.
    pub(crate) fn fix_types(&self, types: &TableTypes) -> &TableTypes {
        self.types.get_or_init(|| types.clone())
    }

    pub(crate) fn note_applied(&self, end: Lsn) {
        self.applied_end.fetch_max(end.0, Ordering::AcqRel);
    }

    pub(crate) fn note_persisted(&self, lsn: Lsn) {
        self.persisted.fetch_max(lsn.0, Ordering::AcqRel);
    }

    pub(crate) fn persisted(&self) -> Lsn {
        Lsn(self.persisted.load(Ordering::Acquire))
    }

    /// Returns whether the files lack an applied operation.
    pub(crate) fn is_dirty(&self) -> bool {
        self.applied_end.load(Ordering::Acquire) > self.persisted.load(Ordering::Acquire)
    }
}

/// The part of the state that engines call back into. Separate from [`Core`], so that engines do
/// not keep it alive.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// Set when the log is open; unset while it is replayed.
    pub(crate) log: OnceLock<Arc<Log>>,
    pub(crate) jobs: Jobs,
    /// A writer found that a checkpoint round is due. The next round clears it.
    pub(crate) round_due: AtomicBool,
}

impl Host for Shared {
    fn sync_log(&self) -> Result<()> {
        match self.log.get() {
            Some(log) => log.sync().map(drop),
            None => Err(Error::LogFailed { reason: "it is not open yet".to_owned() }),
        }
    }

    fn wake(&self) {
        self.jobs.wake(JobKind::Persist);
    }

    fn is_round_due(&self) -> bool {
        self.round_due.load(Ordering::Relaxed)
    }

    fn is_expired(&self, stored: &[u8]) -> bool {
        match Envelope::decode(stored) {
            Some((envelope, _)) => {
                envelope.expires_at.is_some() && envelope.is_expired(self.clock.now())
            }
            None => false,
        }
    }

    fn expires(&self, stored: &[u8]) -> bool {
        Envelope::decode(stored).is_none_or(|(envelope, _)| envelope.expires_at.is_some())
    }
}

/// The background jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    LogSync,
    LogPrepare,
    Persist,
    Expire,
}

/// The handles of the started jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    slots: [Mutex<Option<JobHandle>>; 4],
}

impl Jobs {
    fn slot(&self, kind: JobKind) -> &Mutex<Option<JobHandle>> {
        let [log_sync, log_prepare, persist, expire] = &self.slots;
        match kind {
            JobKind::LogSync => log_sync,
            JobKind::LogPrepare => log_prepare,
            JobKind::Persist => persist,
            JobKind::Expire => expire,
        }
    }

    pub(crate) fn set(&self, kind: JobKind, handle: JobHandle) {
        *lock(self.slot(kind)) = Some(handle);
    }

    pub(crate) fn wake(&self, kind: JobKind) {
        if let Some(handle) = &*lock(self.slot(kind)) {
            handle.wake();
        }
    }

    /// Stops all jobs and waits for those that run.
    pub(crate) fn stop(&self) {
        for slot in &self.slots {
            // Dropped without the slot's lock: the job that the drop waits for may be waking
            // another job.
            let handle = lock(slot).take();
            drop(handle);
        }
    }
}

/// Counters since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) expired_swept: AtomicU64,
    pub(crate) write_stalls: AtomicU64,
    pub(crate) write_delays: AtomicU64,
    pub(crate) persist_rounds: AtomicU64,
}

/// The tables by number.
pub(crate) type Tables = RwLock<HashMap<u64, Arc<TableState>>>;

/// An open database.
pub(crate) struct Core {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) dir: Arc<dyn Dir>,
    pub(crate) tables_dir: Arc<dyn Dir>,
    pub(crate) read_only: bool,
    pub(crate) durability: Durability,
    pub(crate) sync_interval: Duration,
    pub(crate) recovery_budget: u64,
    pub(crate) budget: Arc<Budget>,
    pub(crate) catalog: Catalog,
    pub(crate) mounts: Mounts,
    pub(crate) tables: Tables,
    pub(crate) expiries: Expiries,
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Arc<Log>,
    pub(crate) stripes: Stripes,
    /// Held by a checkpoint round; one at a time.
    pub(crate) round: FairMutex,
    /// Dropped tables whose files are still to be removed.
    pub(crate) doomed: Mutex<Vec<Arc<TableState>>>,
    /// No table needs the log below this LSN.
    pub(crate) log_start: AtomicU64,
    /// The LSN that the last successful round over all tables covered.
    pub(crate) round_end: AtomicU64,
    pub(crate) closed: AtomicBool,
    pub(crate) sync_armed: AtomicBool,
    pub(crate) prepare_armed: AtomicBool,
    pub(crate) counters: CachePadded<Counters>,
    /// The last failure of a background job that has not succeeded since.
    pub(crate) background_failure: Mutex<Option<String>>,
    /// The lock of the directory. `None` once the database is closed.
    pub(crate) lock: Mutex<Option<Box<dyn LockGuard>>>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("path", &self.dir.path()).finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Fails if the database is closed or read-only, or its catalog has failed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        match self.catalog.failure() {
            None => Ok(()),
            Some(reason) => Err(Error::LogFailed { reason: reason.to_owned() }),
        }
    }

    /// Fails if the table takes no reads.
    #[inline]
    pub(crate) fn check_usable(&self, table: &TableState) -> Result<()> {
        match table.status() {
            Status::Open | Status::Loading => Ok(()),
            status => Err(self.unusable(table, status)),
        }
    }

    /// Fails if the table takes no writes.
    #[inline]
    pub(crate) fn check_takes_writes(&self, table: &TableState) -> Result<()> {
        match table.status() {
            Status::Open => Ok(()),
            status => Err(self.unusable(table, status)),
        }
    }

    #[cold]
    fn unusable(&self, table: &TableState, status: Status) -> Error {
        let name = self.name_of(table);
        match status {
            Status::Failed => Error::TableFailed {
                table: name,
                reason: table.failure().unwrap_or_default().to_owned(),
            },
            Status::Dropped => Error::StaleTable { name },
            Status::Loading => Error::Loading { table: name },
            Status::Closed | Status::Open => Error::Closed,
        }
    }

    /// Returns a table's current name, or its last one.
    pub(crate) fn name_of(&self, table: &TableState) -> String {
        if let Some(name) = table.dropped_name.get() {
            return name.clone();
        }
        let name = self.catalog.look(|tree| tree.path(table.id));
        name.or_else(|| table.dropped_name.get().cloned()).unwrap_or_default()
    }

    /// Returns all tables, by number.
    pub(crate) fn all_tables(&self) -> Vec<Arc<TableState>> {
        let mut tables: Vec<_> = read(&self.tables).values().cloned().collect();
        tables.sort_by_key(|table| table.id);
        tables
    }

    /// Returns the value that a reader sees for a stored value of `key`: `None` once it is expired.
    #[inline]
    pub(crate) fn visible(
        &self,
        table: &TableState,
        key: &[u8],
        stored: crate::contract::Value,
    ) -> Result<Option<Value>> {
        let value = Value::open(stored).ok_or_else(|| self.bad_envelope(table))?;
        if value.expires_at_unix_millis().is_none() {
            return Ok(Some(value));
        }
        let now = self.shared.clock.now();
        if value.is_expired(now) { self.look_again(table, key, now) } else { Ok(Some(value)) }
    }

    /// Reads the value of `key` again after the clock, read at `now`, showed it as expired. A
    /// writer may have replaced the value in time, between the read of the value and the read of
    /// the clock; then the key was never without a value. Only a value that is expired by a clock
    /// read before the value is gone.
    #[cold]
    fn look_again(&self, table: &TableState, key: &[u8], mut now: u64) -> Result<Option<Value>> {
        mutant!(ExpiryIsNotLookedAtAgain => return Ok(None));
        loop {
            let Some(stored) = table.engine.get(key)? else { return Ok(None) };
            let value = Value::open(stored).ok_or_else(|| self.bad_envelope(table))?;
            if value.is_expired(now) {
                return Ok(None);
            }
            now = self.shared.clock.now();
            if !value.is_expired(now) {
                return Ok(Some(value));
            }
        }
    }

    #[cold]
    pub(crate) fn bad_envelope(&self, table: &TableState) -> Error {
        let file = format!("tables/{}", table.id);
        Error::corruption(file, 0, format!("a value of {} has no envelope", self.name_of(table)))
    }

    /// Returns the visible value of a key.
    #[inline]
    pub(crate) fn get(&self, table: &TableState, key: &[u8]) -> Result<Option<Value>> {
        match table.engine.get(key)? {
            Some(stored) => self.visible(table, key, stored),
            None => Ok(None),
        }
    }

    /// Returns whether a reader sees a value of a key. Reads the value only if the engine cannot
    /// tell from its index, and copies no more than the envelope.
    pub(crate) fn contains(&self, table: &TableState, key: &[u8]) -> Result<bool> {
        match table.engine.exists_hint(key)? {
            Presence::Absent => return Ok(false),
            Presence::Present => return Ok(true),
            Presence::InValue => {}
        }
        let Some(envelope) = table.engine.get_with(key, &mut EnvelopeSink)? else {
            return Ok(false);
        };
        let envelope = envelope.ok_or_else(|| self.bad_envelope(table))?;
        if envelope.expires_at.is_none() {
            return Ok(true);
        }
        let now = self.shared.clock.now();
        if !envelope.is_expired(now) {
            return Ok(true);
        }
        self.look_again(table, key, now).map(|value| value.is_some())
    }

    /// Copies the visible value of a key into `out`. Returns `false` if there is none; the content
    /// of `out` is undefined then.
    #[inline]
    pub(crate) fn get_into(
        &self,
        table: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match table.engine.get_with(key, &mut HeadAndBuffer(out))? {
            None => Ok(false),
            Some(Envelope::PLAIN) => Ok(true),
            Some(flags) => self.open_split(table, key, flags, out),
        }
    }

    /// Decodes an envelope of more than one byte. `flags` is its first byte; the rest is at the
    /// front of `out`, and is removed.
    #[cold]
    fn open_split(
        &self,
        table: &TableState,
        key: &[u8],
        flags: u8,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let mut front = [0; ENVELOPE_BYTES_MAX];
        let bytes = std::iter::once(flags).chain(out.iter().copied());
        let used = front.iter_mut().zip(bytes).map(|(to, from)| *to = from).count();
        let front = front.get(..used).unwrap_or(&[]);
        let (envelope, start) = Envelope::decode(front).ok_or_else(|| self.bad_envelope(table))?;
        out.drain(..start - 1);
        if envelope.expires_at.is_none() {
            return Ok(true);
        }
        let now = self.shared.clock.now();
        if !envelope.is_expired(now) {
            return Ok(true);
        }
        let Some(value) = self.look_again(table, key, now)? else { return Ok(false) };
        out.clear();
        out.extend_from_slice(&value);
        Ok(true)
    }

    /// Reports the number of durable catalog edits to the log.
    pub(crate) fn note_catalog(&self) {
        self.log.record_catalog_edit(self.catalog.edits());
    }

    pub(crate) fn note_background(&self, result: &Result<()>) {
        let failure = result.as_ref().err().map(ToString::to_string);
        *lock(&self.background_failure) = failure;
    }
}
