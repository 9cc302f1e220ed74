//! Runs: the files that the index points into, and the list of them in each checkpoint.
//!
//! A [`Run`] is a file of entries in key order ([`crate::lsm::sst`]) with the count of its live
//! entries. [`Runs`] is the set that readers see. The [`Ledger`] has every run that has a file. It
//! writes the list of runs with live entries into the index at each checkpoint.
//!
//! The list is the value of the empty key, which no entry can have:
//!
//! | part | meaning |
//! |---|---|
//! | format | 1 byte: 3; 1 and 2 are read too: they end with the runs, keys are as they are, and places of 1 have no hints |
//! | next run | varint: the number of the next run |
//! | count | varint |
//! | runs | by number, each: varints number, file bytes, live entries; 1 byte why it is a candidate for compaction (bits: 1 dead entries, 2 leaves, 4 ranges, 8 it is small) |
//! | keys | 1 byte how the index writes keys: 0 it has none yet, 1 as they are, 2 in the code that follows: [`KeyCode::lengths`] |
//!
//! The value of any other key is an [`Entered`], 8 bytes:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 to 31 | number of the run |
//! | 32 to 54 | number of the block |
//! | 55 to 62 | where in the block the entry begins, in 256ths of `block_bytes`: a hint |
//! | 63 | the value does not expire |
//!
//! Invariants: live counts change with the index, inside the gate, so the list of a checkpoint
//! agrees with the places in it. The list leaves out a run whose entries are all dead and to which
//! no new place will point. Once that checkpoint is durable, its file is removed. No other file is.

#![deny(clippy::indexing_slicing)]

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use super::keys::{Coding, Keys};
use crate::{
    Error, Result,
    bptree::{CountChange, Tree, checkpoint::CheckpointParticipant},
    engine::slm::key_code::{KeyCode, SYMBOLS},
    lsm::{
        sst::decoded_block::DecodedBlockCache,
        sst::{Owner, Sst},
    },
    util::{
        codec::{Decoder, low_u8, low_u32, put_bytes, put_varint, to_u64, to_usize},
        mutant::{self, Bug},
        sync::{AtomicBool, AtomicU8, AtomicU64, Mutex, OnceLock, Ordering, lock},
    },
};

const FORMAT: u8 = 3;
/// Formats that are read, and say nothing of keys.
const PLAIN_FORMATS: std::ops::RangeInclusive<u8> = 1..=2;
/// The key of the list.
pub(super) const LIST_KEY: &[u8] = b"";
/// The first key that an entry can have.
pub(super) const FIRST_KEY: &[u8] = &[0];

/// Too many of its entries are dead.
pub(super) const DEAD: u8 = 1;
/// Neighbouring leaves of the index point into too many runs, it among them.
pub(super) const LEAVES: u8 = 2;
/// A range query went through too many runs, it among them.
pub(super) const RANGES: u8 = 4;
/// There are too many small ones.
pub(super) const SMALL: u8 = 8;
const REASONS: u8 = 15;

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) run: u32,
    pub(super) block: u32,
}

impl Place {
    /// The place in what the index holds; `None` for what is none.
    #[inline]
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        Entered::decode(bytes).map(|entered| entered.place)
    }
}

/// Runs have fewer blocks, and fewer entries.
pub(super) const BLOCKS_MAX: u32 = 1 << 23;
/// Bits of a block's number.
const BLOCK_BITS: u32 = BLOCKS_MAX.trailing_zeros();
/// The bit that says so.
const LASTS: u32 = 1 << 31;
/// Parts of a block that hints tell apart, to the power of two.
const PART_BITS: u32 = 8;

/// What the index holds of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entered {
    pub(super) place: Place,
    /// The value has no time at which it expires: that the key is here is enough to know that it
    /// has a value.
    pub(super) lasts: bool,
    /// The part of the block in which the entry begins: gets ask memory for it ahead, ranges take
    /// the entry there, where the run says what the parts are of.
    pub(super) part: u8,
}

/// The part of a block of `block_bytes` in which byte `offset` of its entries lies.
pub(super) fn part_of(offset: usize, block_bytes: usize) -> u8 {
    low_u8(to_u64((offset << PART_BITS) / block_bytes).min(u64::from(u8::MAX)))
}

/// The bytes of a block's entries that are its part of this number.
pub(super) fn bytes_of(part: u8, block_bytes: usize) -> Range<usize> {
    let first = |part: usize| (part * block_bytes).div_ceil(1 << PART_BITS);
    let part = usize::from(part);
    first(part)..if part < usize::from(u8::MAX) { first(part + 1) } else { usize::MAX }
}

impl Entered {
    /// The value in the index.
    pub(super) fn encode(self) -> [u8; 8] {
        let part = u32::from(self.part) << BLOCK_BITS;
        let block = self.place.block | part | if self.lasts { LASTS } else { 0 };
        (u64::from(block) << 32 | u64::from(self.place.run)).to_le_bytes()
    }

    #[inline]
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = u64::from_le_bytes(*bytes.first_chunk::<8>().filter(|_| bytes.len() == 8)?);
        let block = low_u32(word >> 32);
        let place = Place { run: low_u32(word), block: block % BLOCKS_MAX };
        let part = low_u8(u64::from(block >> BLOCK_BITS));
        Some(Self { place, lasts: block & LASTS != 0, part })
    }

    /// As [`Entered::decode`], for lookups in the index.
    #[inline]
    pub(super) fn take(length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Option<Self> {
        let mut bytes = [0; 8];
        if length == bytes.len() {
            fill(&mut bytes);
            return Self::decode(&bytes);
        }
        None
    }
}

/// A run as the list names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunRecord {
    pub(super) number: u32,
    pub(super) file_bytes: u64,
    pub(super) live: u64,
    pub(super) reasons: u8,
}

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunList {
    pub(super) next: u32,
    pub(super) runs: Vec<RunRecord>,
    pub(super) coding: Coding,
}

impl RunList {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_varint(&mut out, u64::from(self.next));
        put_varint(&mut out, to_u64(self.runs.len()));
        for run in &self.runs {
            put_varint(&mut out, u64::from(run.number));
            put_varint(&mut out, run.file_bytes);
            put_varint(&mut out, run.live);
            out.push(run.reasons);
        }
        match &self.coding {
            Coding::Open => out.push(0),
            Coding::Plain => out.push(1),
            Coding::Code(code) => {
                out.push(2);
                out.extend_from_slice(code.lengths());
            }
        }
        out
    }

    /// The list in what the index of this name has.
    pub(super) fn open(bytes: &[u8], label: &str) -> Result<Self> {
        if let Some(found) = bytes.first().copied().filter(|found| *found > FORMAT) {
            let (file, found, supported) = (label.to_owned(), found.into(), FORMAT.into());
            return Err(Error::NewerFormat { file, found, supported });
        }
        let damaged = || Error::corruption(label, 0, "the list of runs does not parse");
        Self::decode(bytes).ok_or_else(damaged)
    }

    /// `None` for what no writer makes.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let format = decoder.u8()?;
        let mut list = Self { next: number(&mut decoder)?, ..Self::default() };
        let mut before = None;
        for _ in 0..decoder.varint()? {
            let number = number(&mut decoder)?;
            let (file_bytes, live) = (decoder.varint()?, decoder.varint()?);
            let reasons = *decoder.take(1)?.first()?;
            let ascends = before.is_none_or(|before| before < number) && number < list.next;
            if !ascends || live == 0 || reasons & !REASONS != 0 {
                return None;
            }
            before = Some(number);
            list.runs.push(RunRecord { number, file_bytes, live, reasons });
        }
        list.coding = match format {
            FORMAT => coding(&mut decoder)?,
            _ if !PLAIN_FORMATS.contains(&format) => return None,
            // The index is empty where no run has anything.
            _ if list.runs.is_empty() => Coding::Open,
            _ => Coding::Plain,
        };
        let is_decided = list.coding != Coding::Open || list.runs.is_empty();
        (is_decided && decoder.is_empty()).then_some(list)
    }
}

fn coding(decoder: &mut Decoder<'_>) -> Option<Coding> {
    match decoder.u8()? {
        0 => Some(Coding::Open),
        1 => Some(Coding::Plain),
        2 => KeyCode::from_lengths(decoder.take(SYMBOLS)?).map(Arc::new).map(Coding::Code),
        _ => None,
    }
}

fn number(decoder: &mut Decoder<'_>) -> Option<u32> {
    u32::try_from(decoder.varint()?).ok()
}

/// A run. See the module head.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) number: u32,
    pub(super) sst: Arc<Sst>,
    /// Entries of a block, on average.
    of_block: usize,
    /// The first key, and the last.
    pub(super) low: Vec<u8>,
    pub(super) high: Vec<u8>,
    /// Entries that the index points to.
    live: AtomicU64,
    reasons: AtomicU8,
    /// Whoever made it has pointed to it what there is: from here on entries only die.
    sealed: AtomicBool,
}

impl Run {
    /// A run that nothing points to yet.
    pub(super) fn new(number: u32, sst: Sst, (low, high): (Vec<u8>, Vec<u8>)) -> Self {
        let blocks = u64::from(sst.blocks()).max(1);
        Self {
            number,
            of_block: to_usize(sst.footer.entries / blocks),
            sst: Arc::new(sst),
            low,
            high,
            live: AtomicU64::new(0),
            reasons: AtomicU8::new(0),
            sealed: AtomicBool::new(false),
        }
    }

    /// One that the list names.
    pub(super) fn open(owner: &Owner, record: &RunRecord) -> Result<Self> {
        let sst = Sst::open(owner, u64::from(record.number), record.file_bytes)?;
        let section = sst.footer.index;
        let bytes = sst.section(section)?;
        let damage = |what: &str| sst.damage(section.offset, what);
        let bounds = decode_bounds(&bytes).ok_or_else(|| damage("its bounds do not parse"))?;
        if record.live > sst.footer.entries {
            return Err(damage("more entries are live than it has"));
        }
        let run = Self::new(record.number, sst, bounds);
        run.live.store(record.live, Ordering::Relaxed);
        run.reasons.store(record.reasons, Ordering::Relaxed);
        run.seal();
        Ok(run)
    }

    /// Nothing more will point to it.
    pub(super) fn seal(&self) {
        self.sealed.store(true, Ordering::Relaxed);
    }

    /// The bytes of a block's entries among which an entry begins, where the run can tell.
    #[inline]
    pub(super) fn beginning(&self, entered: Entered) -> Option<Range<usize>> {
        let block_bytes = to_usize(self.sst.footer.block_bytes);
        (block_bytes > 0).then(|| bytes_of(entered.part, block_bytes))
    }

    /// Whether entries mostly begin alone in their part of a block, and the run can tell.
    #[inline]
    pub(super) fn has_shortcuts(&self) -> bool {
        self.sst.footer.block_bytes > 0 && self.of_block <= (1 << PART_BITS) / 2
    }

    /// Starts loading what says where a block is in the cache.
    #[inline]
    pub(super) fn prefetch_place(&self, place: Place) {
        if let Some(slot) = self.sst.slot(place.block) {
            slot.prefetch();
        }
    }

    /// Starts loading an entry of it, if its block is in the cache.
    #[inline]
    pub(super) fn prefetch(&self, entered: Entered, cache: &DecodedBlockCache) {
        let at = bytes_of(entered.part, cache.block_bytes).start;
        cache.prefetch_entry(self.sst.slot(entered.place.block), (self.of_block, at));
    }

    /// Entries that the index points to.
    pub(super) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// The index points to one entry more.
    pub(super) fn gain(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    /// The index points to one entry less.
    pub(super) fn lose(&self) {
        if !mutant::active(Bug::SlmMiscountsLive) {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Entries in the file.
    pub(super) fn entries(&self) -> u64 {
        self.sst.footer.entries
    }

    /// Nothing points to it, nor ever will.
    pub(super) fn is_dead(&self) -> bool {
        self.sealed.load(Ordering::Relaxed) && self.live() == 0
    }

    /// Why it is a candidate for compaction.
    pub(super) fn reasons(&self) -> u8 {
        self.reasons.load(Ordering::Relaxed)
    }

    /// Makes it a candidate; whether it was none.
    pub(super) fn nominate(&self, reason: u8) -> bool {
        self.reasons.fetch_or(reason, Ordering::Relaxed) == 0
    }

    /// It is no candidate any more.
    pub(super) fn dismiss(&self) {
        self.reasons.store(0, Ordering::Relaxed);
    }

    /// Bytes of keys and values of live entries, about.
    pub(super) fn live_bytes(&self) -> u64 {
        let all = u128::from(self.sst.footer.payload_bytes) * u128::from(self.live());
        crate::util::codec::low_u64(all / u128::from(self.entries().max(1)))
    }

    /// Bytes of key and value of an entry, on average.
    pub(super) fn entry_bytes(&self) -> u64 {
        self.sst.footer.payload_bytes / self.entries().max(1)
    }

    /// Bytes of memory that finding entries takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.sst.memory_bytes() + to_u64(self.low.len() + self.high.len())
    }
}

/// What a run's file says of its first and its last key.
pub(super) fn encode_bounds(low: &[u8], high: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, low);
    put_bytes(&mut out, high);
    out
}

pub(super) fn decode_bounds(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut decoder = Decoder::new(bytes);
    let bounds = (decoder.bytes()?.to_vec(), decoder.bytes()?.to_vec());
    (decoder.is_empty() && bounds.0 <= bounds.1).then_some(bounds)
}

/// The runs that readers see, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    all: Vec<Arc<Run>>,
    /// Their numbers, side by side for who looks for one.
    numbers: Vec<u32>,
}

impl Runs {
    pub(super) fn new(mut all: Vec<Arc<Run>>) -> Self {
        all.sort_by_key(|run| run.number);
        let numbers = all.iter().map(|run| run.number).collect();
        Self { all, numbers }
    }

    /// The run of a number.
    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<&Arc<Run>> {
        self.at(self.index_of(number)?)
    }

    /// Which run has a number, for [`Self::at`].
    #[inline]
    pub(super) fn index_of(&self, number: u32) -> Option<u32> {
        self.numbers.binary_search(&number).ok().and_then(|index| u32::try_from(index).ok())
    }

    #[inline]
    pub(super) fn at(&self, index: u32) -> Option<&Arc<Run>> {
        self.all.get(to_usize(u64::from(index)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.all.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// With one more, of a higher number than all.
    pub(super) fn with(&self, run: &Arc<Run>) -> Self {
        Self::new(self.all.iter().chain([run]).cloned().collect())
    }

    /// Without those of these numbers.
    pub(super) fn without(&self, gone: &[u32]) -> Self {
        Self::new(self.all.iter().filter(|run| !gone.contains(&run.number)).cloned().collect())
    }
}

#[derive(Debug, Default)]
struct Entries {
    runs: BTreeMap<u32, Arc<Run>>,
    /// Left out of the newest cut's list, and of the newest durable one's.
    left_out: Vec<u32>,
    gone: Vec<u32>,
    /// A name may not be durable yet.
    has_new_names: bool,
}

/// See the module head.
#[derive(Debug)]
pub(super) struct Ledger {
    owner: Owner,
    entries: Mutex<Entries>,
    /// The number of the next run.
    next: AtomicU64,
    /// How the index writes keys; without it, it has none.
    keys: OnceLock<Arc<Keys>>,
}

impl Ledger {
    pub(super) fn new(owner: Owner) -> Self {
        let (entries, keys) = Default::default();
        Self { owner, entries, next: AtomicU64::new(1), keys }
    }

    /// Takes over what was found at opening.
    pub(super) fn load(&self, next: u32, runs: &Runs, keys: &Arc<Keys>) {
        let _ = self.keys.set(Arc::clone(keys));
        self.next.store(u64::from(next).max(1), Ordering::Relaxed);
        lock(&self.entries).runs = runs.iter().map(|run| (run.number, Arc::clone(run))).collect();
    }

    /// A number for a run.
    pub(super) fn next_number(&self) -> Result<u32> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let exhausted = |_| Error::Limit { what: "a table has had 2^32 runs".to_owned() };
        u32::try_from(number).map_err(exhausted)
    }

    /// A run was written.
    pub(super) fn add(&self, run: &Arc<Run>) {
        let mut entries = lock(&self.entries);
        entries.runs.insert(run.number, Arc::clone(run));
        entries.has_new_names = true;
    }

    /// Whether the next cut lets go of a run.
    pub(super) fn has_dead(&self) -> bool {
        lock(&self.entries).runs.values().any(|run| run.is_dead())
    }

    /// The runs that no durable list names any more: they are out of the ledger.
    pub(super) fn take_gone(&self) -> Vec<u32> {
        let mut entries = lock(&self.entries);
        let gone = std::mem::take(&mut entries.gone);
        for number in &gone {
            entries.runs.remove(number);
        }
        gone
    }
}

impl CheckpointParticipant for Ledger {
    fn join(&self, tree: &Tree) -> Result<CountChange> {
        let mut entries = lock(&self.entries);
        let (mut left_out, mut runs) = (Vec::new(), Vec::new());
        for run in entries.runs.values() {
            let (live, reasons) = (run.live(), run.reasons());
            if live > 0 {
                let file_bytes = run.sst.file_bytes;
                runs.push(RunRecord { number: run.number, file_bytes, live, reasons });
            } else if run.is_dead() {
                left_out.push(run.number);
            }
        }
        let next = u32::try_from(self.next.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let coding = self.keys.get().map_or(Coding::Open, |keys| keys.coding());
        let is_forgotten = coding != Coding::Open && mutant::active(Bug::SlmForgetsKeyCode);
        let coding = if is_forgotten { Coding::Plain } else { coding };
        let list = RunList { next, runs, coding }.encode();
        if mutant::active(Bug::SlmRemovesRunsEarly) {
            for number in &left_out {
                let _ = self.owner.dir.remove(&self.owner.kind.name_of(u64::from(*number)));
            }
        }
        entries.left_out = left_out;
        if mutant::active(Bug::SlmCutsWithoutList) && !entries.runs.is_empty() {
            return Ok(CountChange::default());
        }
        tree.put(LIST_KEY, [&list, &[]], None)
    }

    fn make_durable(&self) -> Result<()> {
        let has_new_names = std::mem::take(&mut lock(&self.entries).has_new_names);
        if !has_new_names || mutant::active(Bug::SlmSkipsDirSync) {
            return Ok(());
        }
        let synced = self.owner.dir.sync();
        synced.map_err(|error| {
            lock(&self.entries).has_new_names = true;
            Error::io(format!("sync {}", self.owner.label("")), error)
        })
    }

    fn on_durable(&self) {
        let mut entries = lock(&self.entries);
        let left_out = std::mem::take(&mut entries.left_out);
        for number in left_out {
            if !entries.gone.contains(&number) {
                entries.gone.push(number);
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_pinned_and_comes_back() {
        let one = |number, live| RunRecord { number, file_bytes: 8192, live, reasons: DEAD };
        let runs = vec![one(3, 1), one(8, 300)];
        let list = RunList { next: 9, runs, coding: Coding::Plain };
        let bytes = list.encode();
        assert_eq!(bytes, [3, 9, 2, 3, 128, 64, 1, 1, 8, 128, 64, 172, 2, 1, 1]);
        assert_eq!(RunList::decode(&bytes), Some(list.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(RunList::decode(&bytes[..cut]), None);
        }
        // Of builds before hints, and before codes; of builds to come.
        let of_format = |format| [&[format], &bytes[1..]].concat();
        for format in [1, 2] {
            let mut old = of_format(format);
            assert!(RunList::open(&old, "x").is_err());
            old.pop();
            assert_eq!(RunList::open(&old, "x").unwrap(), list);
            let empty = RunList::open(&[format, 9, 0], "x").unwrap();
            assert_eq!(empty, RunList { next: 9, ..RunList::default() });
        }
        assert!(matches!(RunList::open(&of_format(0), "x"), Err(Error::Corruption { .. })));
        let newer = RunList::open(&of_format(4), "x");
        assert!(matches!(newer, Err(Error::NewerFormat { found: 4, supported: 3, .. })));
        let bad = [
            RunList { next: 8, ..list.clone() },
            RunList { runs: vec![one(8, 1), one(3, 1)], ..list.clone() },
            RunList { runs: vec![one(3, 0)], ..list.clone() },
            // Keys, and no word of how they are written.
            RunList { coding: Coding::Open, ..list },
        ];
        assert!(bad.iter().all(|list| RunList::decode(&list.encode()).is_none()));
    }

    #[test]
    fn the_code_of_keys_comes_back_with_the_list() {
        let mut lengths = [8; SYMBOLS];
        lengths[..2].copy_from_slice(&[9, 9]);
        let code = Arc::new(KeyCode::from_lengths(&lengths).unwrap());
        let list = RunList { next: 1, runs: Vec::new(), coding: Coding::Code(code) };
        let bytes = list.encode();
        assert_eq!(bytes[..7], [3, 1, 0, 2, 9, 9, 8]);
        assert_eq!(RunList::decode(&bytes), Some(list));
        for cut in 0..bytes.len() {
            assert_eq!(RunList::decode(&bytes[..cut]), None);
        }
        for (at, bad) in [(3, 3), (3, 1), (3, 0), (4, 8), (9, 0), (9, 7), (9, 255)] {
            let mut bytes = bytes.clone();
            bytes[at] = bad;
            assert_eq!(RunList::decode(&bytes), None, "{bad} at {at}");
        }
        let open = RunList { next: 1, ..RunList::default() };
        assert_eq!(open.encode(), [3, 1, 0, 0]);
        assert_eq!(RunList::decode(&[3, 1, 0, 0]), Some(open));
    }

    #[test]
    fn places_and_bounds_come_back() {
        let place = Place { run: 7, block: 0x0002_0304 };
        let entered = |lasts, part| Entered { place, lasts, part };
        assert_eq!(entered(false, 0).encode(), [7, 0, 0, 0, 4, 3, 2, 0]);
        assert_eq!(entered(true, 0).encode(), [7, 0, 0, 0, 4, 3, 2, 128]);
        assert_eq!(entered(false, 3).encode(), [7, 0, 0, 0, 4, 3, 130, 1]);
        for part in [0, 1, 128, 255] {
            for entered in [entered(false, part), entered(true, part)] {
                assert_eq!(Entered::decode(&entered.encode()), Some(entered));
                assert_eq!(Place::decode(&entered.encode()), Some(place));
            }
        }
        let last = Place { run: u32::MAX, block: BLOCKS_MAX - 1 };
        let last = Entered { place: last, lasts: true, part: 255 };
        assert_eq!(Entered::decode(&last.encode()), Some(last));
        assert_eq!([0, 15, 16, 4087, 1 << 20].map(|at| part_of(at, 4096)), [0, 0, 1, 255, 255]);
        for block_bytes in [512, 1000, 4096, 5000, 1 << 20] {
            for at in (0..2 * block_bytes).step_by(block_bytes / 500) {
                let bytes = bytes_of(part_of(at, block_bytes), block_bytes);
                assert!(bytes.contains(&at), "{at} of {block_bytes}: {bytes:?}");
            }
        }
        assert_eq!(Place::decode(&[0; 9]), None);
        let bounds = (b"a".to_vec(), b"z".to_vec());
        assert_eq!(decode_bounds(&encode_bounds(b"a", b"z")), Some(bounds));
        assert_eq!(decode_bounds(&encode_bounds(b"z", b"a")), None);
    }
}
