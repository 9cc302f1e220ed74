//! Planned faults: which call fails, when, and how.
//!
//! Each call on a file, a directory or the environment that could fail on a real system consults
//! the plan first. Calls are counted, failed ones included. So a loop can fail the first call, the
//! second and so on, until a run meets no fault.

use std::{io, time::Duration};

use rustix::io::Errno;

use super::random::Random;

/// The kinds of call that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// `File::read_at`.
    Read,
    /// `File::write_at`.
    Write,
    /// `File::sync_data` and `File::sync_all`.
    Sync,
    /// `File::set_len`.
    SetLen,
    /// `File::allocate`.
    Allocate,
    /// `File::punch_hole`.
    Punch,
    /// `File::map`.
    Map,
    /// `Dir::open` of a file that exists.
    Open,
    /// `Dir::open` of a new file, and the file that `Dir::lock` makes.
    Create,
    /// `open_dir` of a directory that exists.
    OpenDir,
    /// `open_dir` of a new directory.
    CreateDir,
    /// `Dir::list`.
    List,
    /// `Dir::rename`.
    Rename,
    /// `Dir::remove` and `Dir::remove_dir`.
    Remove,
    /// `Dir::sync`.
    SyncDir,
    /// `Dir::lock`.
    Lock,
    /// `Env::queue`.
    Queue,
}

impl Call {
    /// Every kind.
    pub const ALL: &[Self] = &[
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::SetLen,
        Self::Allocate,
        Self::Punch,
        Self::Map,
        Self::Open,
        Self::Create,
        Self::OpenDir,
        Self::CreateDir,
        Self::List,
        Self::Rename,
        Self::Remove,
        Self::SyncDir,
        Self::Lock,
        Self::Queue,
    ];
    /// Calls that a full disk or an exhausted quota fails.
    pub const NEED_SPACE: &[Self] =
        &[Self::Write, Self::Allocate, Self::Create, Self::CreateDir, Self::Rename];
    /// Calls that need a file descriptor.
    pub const NEED_DESCRIPTOR: &[Self] =
        &[Self::Open, Self::Create, Self::OpenDir, Self::CreateDir, Self::Lock, Self::Queue];
    /// Calls that make changes durable.
    pub const SYNCS: &[Self] = &[Self::Sync, Self::SyncDir];
    /// Calls that change the disk.
    pub const CHANGES: &[Self] = &[
        Self::Write,
        Self::Sync,
        Self::SetLen,
        Self::Allocate,
        Self::Punch,
        Self::Create,
        Self::CreateDir,
        Self::Rename,
        Self::Remove,
        Self::SyncDir,
    ];
}

/// The effect of a fault on the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// EIO. A failed sync of a file marks its pending changes clean: they stay readable until a
    /// reboot (or `drop_cache`, or a direct read) and never reach the disk.
    Io,
    /// ENOSPC. The call has no effect. (A sync behaves as with `Io`; delayed allocation can fail
    /// that late.)
    NoSpace,
    /// EDQUOT, as `NoSpace`.
    Quota,
    /// EMFILE.
    TooManyFiles,
    /// EINTR. The call has no effect.
    Interrupted,
    /// EAGAIN. The call has no effect.
    TryAgain,
    /// A read or write transfers only part (at least one byte; at least one block with direct
    /// I/O).
    Short,
    /// Bits flip in the bytes that a read returns or a write stores.
    FlipBits(u8),
    /// The first 4-KiB block that is read or stored is zeros.
    ZeroBlock,
    /// A read or write of block `n` affects block `n` plus this number, and reports success.
    Misdirect(i64),
    /// The first block of a write is replaced by a copy of the preceding block (at the start of
    /// the file: of the next one).
    DuplicateBlock,
    /// A write or sync that reports success and has no effect on the disk. The process still sees
    /// the write.
    Phantom,
    /// The call takes this virtual time, then succeeds.
    Delay(Duration),
}

impl Effect {
    fn errno(self) -> Option<Errno> {
        Some(match self {
            Self::Io => Errno::IO,
            Self::NoSpace => Errno::NOSPC,
            Self::Quota => Errno::DQUOT,
            Self::TooManyFiles => Errno::MFILE,
            Self::Interrupted => Errno::INTR,
            Self::TryAgain => Errno::AGAIN,
            _ => return None,
        })
    }

    /// Whether the call had no effect and may be repeated.
    pub(super) const fn is_harmless(self) -> bool {
        matches!(self, Self::Interrupted | Self::TryAgain)
    }
}

/// Which of the matching calls fail, counted from the injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This call only; the first is 1.
    Nth(u64),
    /// This call and all later ones.
    From(u64),
    /// Each with this probability (one in this number), by the seed of the simulation.
    OneIn(u64),
}

/// One planned fault.
#[derive(Clone, Debug)]
pub struct Fault {
    calls: Vec<Call>,
    path: String,
    when: When,
    effect: Effect,
    seen: u64,
}

impl Fault {
    /// Plans `effect` on those of `calls` that `when` selects.
    pub fn new(calls: &[Call], when: When, effect: Effect) -> Self {
        Self { calls: calls.to_vec(), path: String::new(), when, effect, seen: 0 }
    }

    /// Restricts the fault to paths that contain `part`.
    #[must_use]
    pub fn on(self, part: &str) -> Self {
        Self { path: part.to_owned(), ..self }
    }
}

/// The plan's verdict on one call.
#[derive(Debug)]
pub(super) enum Ruling {
    /// The call proceeds, perhaps with an effect.
    Proceed(Option<Effect>),
    /// The call fails.
    Fail(Effect, io::Error),
}

/// The faults of one simulated disk.
#[derive(Debug)]
pub(super) struct FaultPlan {
    faults: Vec<Fault>,
    /// Number of calls so far, by kind, in the order of [`Call::ALL`].
    calls: [u64; Call::ALL.len()],
    fired: u64,
    suspended: bool,
    random: Random,
}

impl FaultPlan {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            faults: Vec::new(),
            calls: [0; Call::ALL.len()],
            fired: 0,
            suspended: false,
            random: Random::derived(seed, 4),
        }
    }

    pub(super) fn add(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.faults.clear();
    }

    /// Suspends or resumes all faults. Returns the previous setting.
    pub(super) fn suspend(&mut self, suspended: bool) -> bool {
        std::mem::replace(&mut self.suspended, suspended)
    }

    pub(super) fn fired(&self) -> u64 {
        self.fired
    }

    pub(super) fn calls(&self, kinds: &[Call]) -> u64 {
        Call::ALL
            .iter()
            .zip(self.calls)
            .filter(|(kind, _)| kinds.contains(kind))
            .map(|(_, count)| count)
            .sum()
    }

    /// Counts a call and returns its verdict. The caller, which owns the clock, applies a delay.
    pub(super) fn rule(&mut self, call: Call, path: &str) -> Ruling {
        if self.suspended {
            return Ruling::Proceed(None);
        }
        for (kind, count) in Call::ALL.iter().zip(&mut self.calls) {
            *count += u64::from(*kind == call);
        }
        let mut effect = None;
        for fault in &mut self.faults {
            if !fault.calls.contains(&call) || !path.contains(&fault.path) {
                continue;
            }
            fault.seen += 1;
            let hit = match fault.when {
                When::Nth(number) => fault.seen == number,
                When::From(number) => fault.seen >= number,
                When::OneIn(count) => self.random.below(count) == 0,
            };
            if hit && effect.is_none() {
                effect = Some(fault.effect);
            }
        }
        self.fired += u64::from(effect.is_some());
        match effect {
            Some(effect) => match effect.errno() {
                Some(errno) => Ruling::Fail(effect, errno.into()),
                None => Ruling::Proceed(Some(effect)),
            },
            None => Ruling::Proceed(None),
        }
    }
}

/// Flips `count` bits of `bytes`.
pub(super) fn flip_bits(random: &mut Random, bytes: &mut [u8], count: u8) {
    let mut flipped = Vec::new();
    let bits = crate::util::codec::to_u64(bytes.len()) * 8;
    while flipped.len() < usize::from(count).min(bytes.len()) {
        let bit = random.below(bits);
        if !flipped.contains(&bit) {
            flipped.push(bit);
            bytes[crate::util::codec::to_usize(bit / 8)] ^= 1 << (bit % 8);
        }
    }
}
