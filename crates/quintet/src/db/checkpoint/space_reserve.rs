//! Disk space that is kept for a full disk.
//!
//! What: the file `reserve` of the database, whose space is allocated and has no data. Deletes give
//! space back only when they are logged, and when checkpoints and compactions have written the
//! tables' files anew. All of that needs space first.
//!
//! How: work that meets a full disk releases the reserve and is tried again
//! ([`SpaceReserve::release_for_rounds`]). A sixth is left for log files, which deletes take in
//! small steps ([`SpaceReserve::release_for_log`]). From then on, writes that free nothing are
//! refused, because they would take what was released. Each of them tries to allocate the reserve
//! again, and so does each checkpoint round. Once it is whole, all writes are taken again.
//!
//! How large: half more than the log that no table's files have, since the next checkpoint round
//! writes about that. A database at rest keeps a little for deletes
//! (`CheckpointScheduler::reserve_needed`). The size is adjusted when a log file is prepared, and
//! after each round. If the disk lacks the space to let it grow, it is short: writes are refused as
//! after a release, and a round shortens the log.
//!
//! Invariants:
//! - While the reserve is short, no write is logged that frees no space.
//! - No data depends on the file: any state of it that a crash leaves is a valid one. An empty file
//!   is a reserve that was released.
//!
//! Locks: `state` is a leaf.

use std::{fmt, io, sync::Arc};

use crate::{
    Error, Result,
    io::{Dir, File, Open},
    util::{
        mutant::mutant,
        sync::{AtomicBool, Mutex, Ordering, lock},
    },
};

/// Name of the file.
pub(crate) const NAME: &str = "reserve";
/// Minimum size of a reserve in bytes. If less is needed, there is none.
pub(crate) const BYTES_MIN: u64 = 64 << 10;
/// The reserve need not grow by one part in this many of its size.
const SLACK_PART: u64 = 16;
/// The reserve shrinks when it is more than this many times as large as needed.
const SHRINK_MIN: u64 = 2;
/// One part in this many of the reserve is for log files, so that deletes go on when a checkpoint
/// needs more than the rest.
const LOG_PART: u64 = 6;
/// Most bytes that are released for a log file at once.
const LOG_STEP_BYTES: u64 = 256 << 10;

/// The reserve of an open database.
pub(crate) struct SpaceReserve {
    dir: Arc<dyn Dir>,
    /// Maximum size in bytes. 0: there is no reserve.
    bytes_max: u64,
    /// Whether the reserve was released or could not grow, and is not whole again.
    is_short: AtomicBool,
    state: Mutex<ReserveFile>,
}

#[derive(Debug, Default)]
struct ReserveFile {
    /// `None`: there is no file yet.
    file: Option<Arc<dyn File>>,
    /// Size of the file, all of it allocated.
    bytes: u64,
    /// Its size when it was whole.
    bytes_whole: u64,
}

impl ReserveFile {
    fn shrink_to(&mut self, bytes: u64) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let shrunk = file.set_len(bytes);
        self.bytes = if shrunk.is_ok() { bytes } else { file.len().unwrap_or_default() };
        shrunk
    }
}

impl fmt::Debug for SpaceReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceReserve").field("state", &self.state).finish_non_exhaustive()
    }
}

impl SpaceReserve {
    /// Opens the reserve of a database, of at most `bytes_max`. With 0, removes it. A database that
    /// is open for reading has none, and keeps the file.
    pub(crate) fn open(dir: &Arc<dyn Dir>, bytes_max: u64, read_only: bool) -> Result<Self> {
        let mut state = ReserveFile::default();
        if !read_only && bytes_max == 0 {
            remove(dir)?;
        } else if !read_only {
            state = open_file(dir)?;
        }
        Ok(Self {
            dir: Arc::clone(dir),
            bytes_max: if read_only { 0 } else { bytes_max },
            is_short: AtomicBool::new(state.file.is_some() && state.bytes == 0),
            state: Mutex::new(state),
        })
    }

    /// Returns whether the reserve is smaller than what is needed.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Acquire)
    }

    /// Returns the size of the reserve in bytes: what a full disk would still give.
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.state).bytes
    }

    /// Returns the maximum size of the reserve in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Refuses a write that frees no space while the reserve is short, unless it can be made whole.
    /// `needed` returns the size that it should have.
    #[inline]
    pub(crate) fn admit(&self, needed: impl FnOnce() -> u64) -> Result<()> {
        if !self.is_short() {
            return Ok(());
        }
        mutant!(WritesTakeTheReserve => return Ok(()));
        self.admit_short(needed())
    }

    #[cold]
    fn admit_short(&self, needed: u64) -> Result<()> {
        self.allocate(&mut lock(&self.state), needed);
        if self.is_short() {
            let doing = "take a write while the space that deletes need is not free".to_owned();
            return Err(Error::DiskFull { doing });
        }
        Ok(())
    }

    /// Releases a part of the reserve for the log: at most [`LOG_STEP_BYTES`]. Returns whether that
    /// gave space back.
    pub(crate) fn release_for_log(&self) -> bool {
        let mut state = lock(&self.state);
        let left = state.bytes.saturating_sub(LOG_STEP_BYTES);
        self.release_to(&mut state, left)
    }

    /// Releases the reserve for checkpoints and compactions, but for the part of the log. Returns
    /// whether that gave space back.
    pub(crate) fn release_for_rounds(&self) -> bool {
        let mut state = lock(&self.state);
        let left = state.bytes_whole / LOG_PART;
        self.release_to(&mut state, left)
    }

    fn release_to(&self, state: &mut ReserveFile, left: u64) -> bool {
        if state.bytes <= left {
            return false;
        }
        mutant!(ReserveIsKept => return false);
        // Writers must not take the space before deletes and checkpoints.
        self.is_short.store(true, Ordering::Release);
        // Some file systems give space back when the change is durable.
        let synced = |file: &Arc<dyn File>| file.sync_all().is_ok();
        state.shrink_to(left).is_ok() && state.file.as_ref().is_some_and(synced)
    }

    /// Gives the reserve the size `needed`, more or less. Returns whether the disk had the space.
    pub(crate) fn adjust(&self, needed: u64) -> bool {
        let needed = needed.min(self.bytes_max);
        let mut state = lock(&self.state);
        let is_small = needed > state.bytes + state.bytes / SLACK_PART;
        let is_large = needed < state.bytes / SHRINK_MIN || state.bytes > self.bytes_max;
        if self.is_short() || is_small && needed >= BYTES_MIN {
            self.allocate(&mut state, needed);
        } else if is_large && state.shrink_to(needed).is_ok() {
            state.bytes_whole = needed;
        }
        !self.is_short()
    }

    fn allocate(&self, state: &mut ReserveFile, needed: u64) {
        let needed = needed.clamp(BYTES_MIN, self.bytes_max.max(BYTES_MIN));
        let allocated = match self.bytes_max {
            0 => Ok(()),
            _ => mutant!(ReserveIsNotAllocated: Ok(()), else self.try_allocate(state, needed)),
        };
        // Other errors do not tell that the disk is full. Without the reserve, writes go on.
        let allocated = allocated.map_err(|error| Error::io("allocate", error));
        let is_full = matches!(allocated, Err(Error::DiskFull { .. }));
        self.is_short.store(is_full, Ordering::Release);
    }

    /// Allocates `bytes` for the reserve, or changes nothing.
    fn try_allocate(&self, state: &mut ReserveFile, bytes: u64) -> io::Result<()> {
        if state.file.is_none() {
            state.file = Some(self.dir.open(NAME, Open::CREATE)?);
        }
        let Some(file) = &state.file else { return Ok(()) };
        if bytes > state.bytes {
            if let Err(error) = file.allocate(bytes) {
                // A part may be allocated.
                let _ = file.set_len(state.bytes);
                return Err(error);
            }
            state.bytes = bytes;
        }
        // Also if it did not grow: less may be needed than when it was released.
        state.bytes_whole = state.bytes;
        Ok(())
    }
}

/// Releases the reserve of a database that is being opened. Returns whether that gave space back.
pub(crate) fn release_in(dir: &Arc<dyn Dir>) -> bool {
    let Ok(ReserveFile { file: Some(file), bytes: 1.., .. }) = open_file(dir) else { return false };
    file.set_len(0).and_then(|()| file.sync_all()).is_ok()
}

/// Removes the reserve, if there is one.
fn remove(dir: &Arc<dyn Dir>) -> Result<()> {
    match dir.remove(NAME) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("remove {NAME}"), error))
        }
        _ => Ok(()),
    }
}

fn open_file(dir: &Arc<dyn Dir>) -> Result<ReserveFile> {
    let opened = dir.open(NAME, Open::WRITE).and_then(|file| Ok((file.len()?, file)));
    match opened {
        Ok((bytes, file)) => Ok(ReserveFile { file: Some(file), bytes, bytes_whole: bytes }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ReserveFile::default()),
        Err(error) => Err(Error::io(format!("open {NAME}"), error)),
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    //! Goal: the reserve has the size that is needed, and tells when the disk lacks the space.

    use std::path::Path;

    use super::*;
    use crate::io::{Env as _, sim::SimEnv};

    const MIB: u64 = 1 << 20;

    fn dir(env: &SimEnv) -> Arc<dyn Dir> {
        env.open_dir(Path::new("db"), true).unwrap()
    }

    fn reserve(env: &SimEnv) -> SpaceReserve {
        SpaceReserve::open(&dir(env), 16 * MIB, false).unwrap()
    }

    #[test]
    fn it_follows_what_is_needed_within_its_bounds() {
        let reserve = reserve(&SimEnv::new(1));
        let cases = [
            (BYTES_MIN - 1, 0),
            (BYTES_MIN, BYTES_MIN),
            (8 * MIB, 8 * MIB),
            // Not worth a change.
            (8 * MIB + MIB / 2, 8 * MIB),
            (4 * MIB, 8 * MIB),
            (4 * MIB - 1, 4 * MIB - 1),
            (64 * MIB, 16 * MIB),
            (0, 0),
        ];
        for (needed, expected) in cases {
            assert!(reserve.adjust(needed), "{needed} bytes");
            assert_eq!(reserve.bytes(), expected, "{needed} bytes");
        }
    }

    #[test]
    fn it_is_whole_again_at_the_size_that_is_needed_then() {
        let reserve = reserve(&SimEnv::new(1));
        assert!(reserve.adjust(8 * MIB));
        assert!(reserve.release_for_rounds());
        assert_eq!(reserve.bytes(), 8 * MIB / 6);
        assert!(reserve.is_short());
        assert!(!reserve.release_for_rounds(), "the part of the log is left");
        // Less than what is left: it is whole at that size.
        assert!(reserve.adjust(MIB));
        assert!(!reserve.is_short());
        assert!(reserve.release_for_rounds(), "a sixth of what is left is for the log");
        assert_eq!(reserve.bytes(), 8 * MIB / 36);
        while reserve.release_for_log() {}
        assert_eq!(reserve.bytes(), 0);
    }

    #[test]
    fn writes_are_refused_while_the_disk_lacks_its_space() {
        let env = SimEnv::new(1);
        let reserve = reserve(&env);
        assert!(reserve.adjust(MIB));
        env.set_capacity(Some(env.bytes_used()));
        assert!(!reserve.adjust(4 * MIB));
        assert_eq!(reserve.bytes(), MIB, "a growth that fails changes nothing");
        let refused = reserve.admit(|| 4 * MIB);
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
        env.set_capacity(None);
        reserve.admit(|| 4 * MIB).unwrap();
        assert_eq!(reserve.bytes(), 4 * MIB);
    }

    #[test]
    fn an_opened_database_has_it_as_it_was_left() {
        let env = SimEnv::new(1);
        assert!(reserve(&env).adjust(4 * MIB));
        assert_eq!(reserve(&env).bytes(), 4 * MIB);
        // Reading changes nothing.
        let of_reader = SpaceReserve::open(&dir(&env), 16 * MIB, true).unwrap();
        assert!(of_reader.adjust(8 * MIB));
        drop(of_reader);
        let reserve = reserve(&env);
        assert_eq!(reserve.bytes(), 4 * MIB);
        assert!(!reserve.is_short());
        while reserve.release_for_log() {}
        // An empty file is one that was released.
        assert!(self::reserve(&env).is_short());
        SpaceReserve::open(&dir(&env), 0, false).unwrap();
        let names = dir(&env).list().unwrap();
        assert!(names.iter().all(|entry| entry.name != NAME), "{names:?}");
    }
}
