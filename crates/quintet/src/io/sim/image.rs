//! Crash images: a [`Policy`] decides which changes survive a crash, of those that no sync covered.
//!
//! A *unit* is one pending change. Units are numbered in the order of their events over the whole
//! disk:
//! - a write, with the growth of the file that it caused,
//! - one 512-byte sector of a mapping (of persistent memory: one line of 64 bytes),
//! - a change of size,
//! - a change of names.

use std::{collections::BTreeMap, fmt, ops::Range, str::FromStr, sync::Arc};

use super::{
    content::FileContent,
    random::{Random, mix},
    state::{
        DirNode, DiskState, FileChange, FileNode, Inode, InodeId, MappingKind, Naming, Origin,
        PendingChange,
    },
};
use crate::{
    io::SECTOR_BYTES,
    util::codec::{to_u64, to_usize},
};

const MEMORY: Origin = Origin::Mapping(MappingKind::Memory);
const LINES: Origin = Origin::Mapping(MappingKind::Lines);

/// Selects the changes that survive a crash. `Display` and `FromStr` are inverse, so that one line
/// reproduces a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// Power loss: no unit survives.
    AllLost,
    /// Power loss: every unit survives.
    AllKept,
    /// Power loss: the first units, this many, survive.
    Prefix(usize),
    /// Power loss: only the last unit survives.
    OnlyLast,
    /// Power loss: all units but one survive. A dropped change of names is undone alone.
    DropOne(usize),
    /// Power loss: only this unit survives.
    KeepOne(usize),
    /// Power loss: a seeded coin decides for each sector of each write, each word of each line of
    /// persistent memory, each size and each name.
    Random {
        /// Seed of the coin, of its bias and of the garbage.
        seed: u64,
    },
    /// Power loss: everything before the last write survives, and of the last write its sectors
    /// (for a line of persistent memory: its words) before a cut.
    Torn {
        /// Number of its whole sectors, or words.
        sectors: u64,
        /// The bytes that follow them.
        tail: Tail,
    },
    /// Power loss: sizes and names survive, the bytes do not.
    SizesOnly {
        /// The bytes in the range by which files grew.
        tail: Tail,
    },
    /// Process death: the page cache is intact, and pending changes stay pending.
    Killed,
    /// Process death during the copy of the last event's stores into a mapping: some of their words
    /// are missing.
    KilledCopying {
        /// Seed of the choice of missing words.
        seed: u64,
    },
}

/// The content of a file where it grew and its bytes did not reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tail {
    /// The file did not grow.
    Short,
    /// Zeros.
    Zeros,
    /// The earlier content of the disk: old blocks of other files, or noise. A torn sector is half
    /// new, half noise.
    Garbage,
}

impl Policy {
    /// Whether the kernel survived.
    pub const fn is_kill(self) -> bool {
        matches!(self, Self::Killed | Self::KilledCopying { .. })
    }
}

/// Bounds on the number of policies of one crash point.
#[derive(Clone, Copy, Debug)]
pub struct PolicyLimits {
    /// Maximum number of each of: prefixes, units dropped, units kept. More are sampled evenly.
    /// Every change of names is undone once.
    pub each: usize,
    /// Number of random subsets.
    pub random: u64,
    /// Number of cuts of the last write, for each tail.
    pub torn: u64,
    /// Number of kills during a copy.
    pub copying: u64,
}

impl Default for PolicyLimits {
    fn default() -> Self {
        Self { each: 64, random: 16, torn: 64, copying: 8 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    Data,
    Size,
    Name,
}

/// The location of a pending change, and its unit.
#[derive(Clone, Copy, Debug)]
struct ChangeSlot {
    event: u64,
    inode: InodeId,
    index: usize,
    kind: ChangeKind,
    unit: usize,
}

/// Returns all pending changes in order, numbered.
fn slots(state: &DiskState) -> Vec<ChangeSlot> {
    let mut found = Vec::new();
    let mut add = |event, inode, index, kind| {
        found.push(ChangeSlot { event, inode, index, kind, unit: 0 });
    };
    for (inode, node) in state.iter() {
        match node {
            Inode::File(file) => {
                for (index, pending) in file.pending.iter().enumerate() {
                    let is_data = matches!(pending.change, FileChange::Data { .. });
                    let kind = if is_data { ChangeKind::Data } else { ChangeKind::Size };
                    add(pending.event, inode, index, kind);
                }
            }
            Inode::Dir(dir) => {
                for (index, pending) in dir.pending.iter().enumerate() {
                    add(pending.event, inode, index, ChangeKind::Name);
                }
            }
        }
    }
    found.sort_by_key(|slot| (slot.event, slot.inode, slot.index));
    // A write's growth of the file belongs to the write.
    let mut unit = 0;
    for index in 0..found.len() {
        found[index].unit = unit;
        let joined = found.get(index + 1).is_some_and(|next| {
            let this = found[index];
            this.kind == ChangeKind::Size
                && next.kind == ChangeKind::Data
                && (next.event, next.inode) == (this.event, this.inode)
        });
        unit += usize::from(!joined);
    }
    found
}

fn units(slots: &[ChangeSlot]) -> usize {
    slots.last().map_or(0, |slot| slot.unit + 1)
}

/// Returns the number of pending units.
pub(super) fn pending_units(state: &DiskState) -> usize {
    units(&slots(state))
}

/// Returns at most `limit` evenly spaced numbers below `count`, shifted by `seed`.
fn sample(count: usize, limit: usize, seed: u64) -> Vec<usize> {
    if count <= limit {
        return (0..count).collect();
    }
    let shift = to_usize(seed % to_u64(count));
    let mut picked: Vec<usize> =
        (0..limit).map(|index| (index * count / limit + shift) % count).collect();
    picked.sort_unstable();
    picked
}

/// Returns the policies that can give different images of `state`, whose last event was `event`.
pub(super) fn policies(state: &DiskState, event: u64, limits: PolicyLimits) -> Vec<Policy> {
    let slots = slots(state);
    let count = units(&slots);
    let mut found = vec![Policy::Killed, Policy::AllLost];
    if slots.iter().any(|slot| slot.event == event) {
        found.extend((0..limits.copying).map(|seed| Policy::KilledCopying { seed }));
    }
    if count == 0 {
        return found;
    }
    found.extend([Policy::AllKept, Policy::OnlyLast]);
    found.extend(sample(count, limits.each, event).into_iter().skip(1).map(Policy::Prefix));
    let mut dropped = sample(count, limits.each, mix(event));
    dropped.extend(slots.iter().filter(|slot| slot.kind == ChangeKind::Name).map(|slot| slot.unit));
    dropped.sort_unstable();
    dropped.dedup();
    found.extend(dropped.into_iter().map(Policy::DropOne));
    found.extend(sample(count, limits.each, mix(event + 1)).into_iter().map(Policy::KeepOne));
    found.extend((0..limits.random).map(|seed| Policy::Random { seed }));
    if let Some((last, range, origin)) = last_data(state, &slots) {
        let sectors = to_u64(pieces(range, origin).count());
        let grew = slots.iter().any(|slot| slot.unit == last && slot.kind == ChangeKind::Size);
        for cut in sample(to_usize(sectors), to_usize(limits.torn), event) {
            let cut = to_u64(cut);
            let tails = [Tail::Zeros, Tail::Garbage, Tail::Short];
            // Persistent memory stores words atomically.
            let count = if grew { 3 } else { 2 - usize::from(origin == MEMORY || origin == LINES) };
            let tails = tails.into_iter().take(count);
            found.extend(tails.map(|tail| Policy::Torn { sectors: cut, tail }));
        }
    }
    if slots.iter().any(|slot| slot.kind == ChangeKind::Data) {
        found.extend([Tail::Zeros, Tail::Garbage].map(|tail| Policy::SizesOnly { tail }));
    }
    found
}

fn data<'a>(state: &'a DiskState, slot: &ChangeSlot) -> Option<&'a FileChange> {
    let file = state.file(slot.inode).ok()?;
    file.pending.get(slot.index).map(|pending| &pending.change)
}

/// Returns the unit of the last write, the range of its bytes in the file, and their source.
fn last_data(state: &DiskState, slots: &[ChangeSlot]) -> Option<(usize, Range<u64>, Origin)> {
    let slot = slots.iter().rfind(|slot| slot.kind == ChangeKind::Data)?;
    match data(state, slot) {
        Some(FileChange::Data { offset, bytes, origin }) => {
            Some((slot.unit, *offset..*offset + to_u64(bytes.len()), *origin))
        }
        _ => None,
    }
}

/// Splits a range of a file where a power loss may tear it: at sectors, or at words of persistent
/// memory.
fn pieces(range: Range<u64>, origin: Origin) -> impl Iterator<Item = Range<u64>> {
    let (mut position, grain) = (range.start, origin.grain());
    std::iter::from_fn(move || {
        let stop = range.end.min((position / grain + 1) * grain);
        let piece = position..stop;
        position = stop;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The fate of one pending change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Drop,
    Keep,
    /// Each sector, or word of memory, survives with this probability in percent.
    Pieces(u64),
    /// The sectors, or words, before the cut survive.
    Cut(u64, Tail),
}

/// Builds the image of one crash.
struct Crash<'a> {
    state: &'a DiskState,
    policy: Policy,
    random: Random,
    /// Percentage of the units that a random subset keeps.
    bias: u64,
    tail: Tail,
}

/// Returns the disk after a power loss.
pub(super) fn power_loss(state: &DiskState, policy: Policy, seed: u64) -> DiskState {
    let mut random = match policy {
        Policy::Random { seed: coin } => Random::derived(seed ^ mix(coin), 1),
        _ => Random::derived(seed, 2),
    };
    let (bias, tail) = match policy {
        Policy::Random { .. } => (
            [50, 10, 90][to_usize(random.below(3))],
            [Tail::Zeros, Tail::Garbage][to_usize(random.below(2))],
        ),
        Policy::Torn { tail, .. } | Policy::SizesOnly { tail } => (100, tail),
        _ => (100, Tail::Zeros),
    };
    let mut crash = Crash { state, policy, random, bias, tail };
    let fates = crash.fates();
    let mut image = state.clone();
    for (id, inode) in image.iter_mut() {
        let fates = fates.get(&id).map_or(&[][..], Vec::as_slice);
        let after = match &**inode {
            Inode::File(file) if file.pending.is_empty() && !file.lossy => continue,
            Inode::File(file) => Inode::File(crash.file(file, fates)),
            Inode::Dir(dir) if dir.pending.is_empty() => continue,
            Inode::Dir(dir) => Inode::Dir(after_names(dir, fates)),
        };
        *inode = Arc::new(after);
    }
    image.sweep(std::iter::empty());
    image
}

fn after_names(dir: &DirNode, fates: &[Fate]) -> DirNode {
    let mut entries = dir.durable.clone();
    for (PendingChange { change, .. }, fate) in dir.pending.iter().zip(fates) {
        if *fate != Fate::Drop {
            Naming::apply(change, &mut entries);
        }
    }
    DirNode { visible: entries.clone(), durable: entries, pending: Vec::new() }
}

impl Crash<'_> {
    /// Returns, for each file and directory, the fates of its pending changes in order.
    fn fates(&mut self) -> BTreeMap<InodeId, Vec<Fate>> {
        let slots = slots(self.state);
        let count = units(&slots);
        let torn = match self.policy {
            Policy::Torn { .. } => last_data(self.state, &slots).map(|(unit, ..)| unit),
            _ => None,
        };
        let mut fates: BTreeMap<InodeId, Vec<Fate>> = BTreeMap::new();
        for slot in &slots {
            let fate = self.fate(slot, count, torn);
            fates.entry(slot.inode).or_default().push(fate);
        }
        fates
    }

    fn fate(&mut self, slot: &ChangeSlot, count: usize, torn: Option<usize>) -> Fate {
        let keep_if = |kept: bool| if kept { Fate::Keep } else { Fate::Drop };
        match self.policy {
            Policy::AllLost => Fate::Drop,
            Policy::Prefix(kept) => keep_if(slot.unit < kept),
            Policy::OnlyLast => keep_if(slot.unit + 1 == count),
            Policy::DropOne(unit) => keep_if(slot.unit != unit),
            Policy::KeepOne(unit) => keep_if(slot.unit == unit),
            Policy::Random { .. } if slot.kind == ChangeKind::Data => Fate::Pieces(self.bias),
            Policy::Random { .. } => keep_if(self.random.below(100) < self.bias),
            Policy::SizesOnly { .. } => keep_if(slot.kind != ChangeKind::Data),
            Policy::Torn { sectors, tail } if torn == Some(slot.unit) => match slot.kind {
                ChangeKind::Data => Fate::Cut(sectors, tail),
                // The cut sets the size.
                ChangeKind::Size | ChangeKind::Name => keep_if(tail != Tail::Short),
            },
            Policy::Torn { .. }
            | Policy::AllKept
            | Policy::Killed
            | Policy::KilledCopying { .. } => Fate::Keep,
        }
    }

    fn file(&mut self, file: &FileNode, fates: &[Fate]) -> FileNode {
        let mut content = file.durable.clone();
        for (PendingChange { change, .. }, fate) in file.pending.iter().zip(fates) {
            match (change, *fate) {
                (_, Fate::Drop) => {}
                (FileChange::Data { offset, bytes, origin }, Fate::Pieces(percent)) => {
                    for piece in pieces(*offset..*offset + to_u64(bytes.len()), *origin) {
                        if self.random.below(100) < percent {
                            write_within(&mut content, *offset, bytes, piece);
                        }
                    }
                }
                (FileChange::Data { offset, bytes, origin }, Fate::Cut(sectors, tail)) => {
                    let pieces = pieces(*offset..*offset + to_u64(bytes.len()), *origin);
                    self.cut(&mut content, (*offset, bytes), pieces, (sectors, tail));
                }
                (FileChange::Data { offset, bytes, .. }, Fate::Keep) => {
                    write_within(&mut content, *offset, bytes, 0..u64::MAX);
                }
                (FileChange::Grow { size, written: true }, _) if self.tail == Tail::Garbage => {
                    let start = content.size();
                    if *size > start {
                        let garbage = self.garbage(size - start);
                        content.write(start, &garbage);
                    }
                }
                (change, _) => change.apply(&mut content),
            }
        }
        FileNode::durable(content)
    }

    /// Applies the first pieces of a write, and the bytes that `tail` asks for after them.
    fn cut(
        &mut self,
        content: &mut FileContent,
        (offset, bytes): (u64, &[u8]),
        pieces: impl Iterator<Item = Range<u64>>,
        (sectors, tail): (u64, Tail),
    ) {
        for (index, piece) in (0..).zip(pieces) {
            if index < sectors {
                if tail == Tail::Short {
                    content.resize(content.size().max(piece.end));
                }
                write_within(content, offset, bytes, piece);
            } else if index == sectors && tail == Tail::Garbage {
                self.spoil(content, offset, bytes, piece);
            }
        }
    }

    /// Tears a sector: its first half is new, and the changed bytes of its second half are noise.
    /// Unchanged bytes stay; otherwise no log could fill a sector in two writes.
    fn spoil(&mut self, content: &mut FileContent, offset: u64, bytes: &[u8], piece: Range<u64>) {
        let half = piece.start + (piece.end - piece.start) / 2;
        let new = &bytes[to_usize(half - offset)..to_usize(piece.end - offset)];
        let mut mixed = vec![0; new.len()];
        content.read(half, &mut mixed);
        let garbage = self.garbage(to_u64(new.len()));
        for ((old, new), noise) in mixed.iter_mut().zip(new).zip(garbage) {
            if old != new {
                *old = noise;
            }
        }
        write_within(content, half, &mixed, half..piece.end);
        write_within(content, offset, bytes, piece.start..half);
    }

    /// Returns noise, or durable bytes of some file of the disk.
    fn garbage(&mut self, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(length)];
        self.random.fill(&mut bytes);
        let files: Vec<&FileNode> = self
            .state
            .iter()
            .filter_map(|(_, inode)| match inode {
                Inode::File(file) if file.durable.size() > 0 => Some(file),
                _ => None,
            })
            .collect();
        if !files.is_empty() && self.random.below(2) == 0 {
            let file = files[to_usize(self.random.below(to_u64(files.len())))];
            let sectors = file.durable.size().div_ceil(SECTOR_BYTES);
            file.durable.read(self.random.below(sectors) * SECTOR_BYTES, &mut bytes);
        }
        bytes
    }
}

/// Writes the part of `bytes` (which starts at `offset`) that is in `window` and within the file.
/// If the new size was lost, the bytes behind the old size are lost too.
fn write_within(content: &mut FileContent, offset: u64, bytes: &[u8], window: Range<u64>) {
    let start = window.start.max(offset);
    let end = window.end.min(offset + to_u64(bytes.len())).min(content.size());
    if start < end {
        content.write(start, &bytes[to_usize(start - offset)..to_usize(end - offset)]);
    }
}

/// Builds the disk after a process death during the copy of the stores of `event`. Some of their
/// words in `state` still have the value in `before`, which is the disk one event earlier.
pub(super) fn killed_copying(
    state: &DiskState,
    before: &DiskState,
    event: u64,
    seed: u64,
) -> DiskState {
    let mut random = Random::derived(seed, 3);
    let whole_words = random.below(2) == 0;
    let mut image = state.clone();
    for (id, inode) in image.iter_mut() {
        let stored = |pending: &PendingChange<FileChange>| {
            let FileChange::Data { origin, .. } = &pending.change else { return false };
            pending.event == event && *origin != Origin::Write && *origin != LINES
        };
        let Inode::File(file) = &**inode else { continue };
        let Ok(old) = before.file(id) else { continue };
        if !file.pending.iter().any(stored) {
            continue;
        }
        let mut file = file.clone();
        let words: u64 =
            file.pending.iter().filter(|p| stored(p)).map(changed_bytes).sum::<u64>() / 8;
        let stop = random.below(words + 1);
        let mut position = 0;
        for pending in file.pending.iter_mut().filter(|pending| stored(pending)) {
            let FileChange::Data { offset, bytes, .. } = &mut pending.change else { continue };
            let mut mixed = vec![0; bytes.len()];
            old.visible.read(*offset, &mut mixed);
            for (target, source) in mixed.chunks_mut(8).zip(bytes.chunks(8)) {
                let kept = if whole_words { position < stop } else { random.below(2) == 0 };
                if kept {
                    target.copy_from_slice(source);
                }
                position += 1;
            }
            *bytes = Arc::from(mixed);
            file.visible.write(*offset, bytes);
        }
        *inode = Arc::new(Inode::File(file));
    }
    image
}

fn changed_bytes(pending: &PendingChange<FileChange>) -> u64 {
    match &pending.change {
        FileChange::Data { bytes, .. } => to_u64(bytes.len()),
        _ => 0,
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "short",
            Self::Zeros => "zeros",
            Self::Garbage => "garbage",
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllLost => f.write_str("all-lost"),
            Self::AllKept => f.write_str("all-kept"),
            Self::Prefix(count) => write!(f, "prefix:{count}"),
            Self::OnlyLast => f.write_str("only-last"),
            Self::DropOne(unit) => write!(f, "drop-one:{unit}"),
            Self::KeepOne(unit) => write!(f, "keep-one:{unit}"),
            Self::Random { seed } => write!(f, "random:{seed}"),
            Self::Torn { sectors, tail } => write!(f, "torn:{sectors}:{tail}"),
            Self::SizesOnly { tail } => write!(f, "sizes-only:{tail}"),
            Self::Killed => f.write_str("killed"),
            Self::KilledCopying { seed } => write!(f, "killed-copying:{seed}"),
        }
    }
}

impl FromStr for Tail {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "short" => Ok(Self::Short),
            "zeros" => Ok(Self::Zeros),
            "garbage" => Ok(Self::Garbage),
            _ => Err(format!("no tail named {text:?}")),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let mut part = || parts.next().ok_or_else(|| format!("{text:?} lacks a part"));
        let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
        Ok(match name {
            "all-lost" => Self::AllLost,
            "all-kept" => Self::AllKept,
            "prefix" => Self::Prefix(to_usize(number(part()?)?)),
            "only-last" => Self::OnlyLast,
            "drop-one" => Self::DropOne(to_usize(number(part()?)?)),
            "keep-one" => Self::KeepOne(to_usize(number(part()?)?)),
            "random" => Self::Random { seed: number(part()?)? },
            "torn" => Self::Torn { sectors: number(part()?)?, tail: part()?.parse()? },
            "sizes-only" => Self::SizesOnly { tail: part()?.parse()? },
            "killed" => Self::Killed,
            "killed-copying" => Self::KilledCopying { seed: number(part()?)? },
            _ => return Err(format!("no policy named {text:?}")),
        })
    }
}
