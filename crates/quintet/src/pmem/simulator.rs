//! Crash simulator of a pool: enumerates what a power loss may leave.
//!
//! A [`Recorder`] replaces the memory of a pool and records stores, write-backs, fences and the
//! ends of operations. [`CrashImages`] replays them. Just before each fence and at the end of each
//! operation it builds the images that the memory may hold: for each line, any prefix of the stores
//! since the line was last persistent for certain. (Between two fences fewer stores happened and
//! nothing more is certain, so those images are among the ones before the second fence.) It builds
//! all combinations if they are few. Otherwise it builds each line's prefixes with all other lines
//! lost and with all others kept, and seeded random ones. A hash, updated at each store, skips
//! images that were seen before with as many returned operations.
//!
//! It also reports waste: write-backs of lines without a store, and fences with nothing to order.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::medium::Counts;
use crate::util::{
    codec::{to_u64, to_usize},
    sync::{AtomicU64, Mutex, Ordering, lock},
};

/// Maximum number of images of one moment without sampling.
const ALL_MAX: u64 = 4096;
/// Random images of a moment with more combinations.
const RANDOM: u64 = 256;

/// A recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Stored {
        offset: u64,
        value: u64,
    },
    Flushed {
        line: u64,
    },
    Fenced,
    /// An operation returned.
    Done,
}

/// Memory that records its events.
#[derive(Debug)]
pub(crate) struct Recorder {
    words: Vec<AtomicU64>,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    pub(crate) fn new(image: &[u64]) -> Self {
        let words = image.iter().map(|word| AtomicU64::new(*word)).collect();
        Self { words, events: Mutex::new(Vec::new()) }
    }

    /// Returns zeroed memory.
    pub(crate) fn zeroed(bytes: u64) -> Self {
        Self::new(&vec![0; to_usize(bytes / 8)])
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    pub(crate) fn bytes(&self) -> u64 {
        to_u64(self.words.len()) * 8
    }

    /// Returns the current words, caches included.
    pub(crate) fn image(&self) -> Vec<u64> {
        self.words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    fn push(&self, event: Event) {
        lock(&self.events).push(event);
    }

    /// Records a store. The order of events is total over all threads.
    pub(crate) fn store(&self, offset: u64, value: u64) {
        let mut events = lock(&self.events);
        self.words[to_usize(offset / 8)].store(value, Ordering::Release);
        events.push(Event::Stored { offset, value });
    }

    pub(crate) fn flushed(&self, line: u64) {
        self.push(Event::Flushed { line });
    }

    pub(crate) fn fenced(&self) {
        self.push(Event::Fenced);
    }

    /// An operation returned.
    pub(crate) fn done(&self) {
        self.push(Event::Done);
    }

    pub(crate) fn counts(&self) -> Counts {
        let events = lock(&self.events);
        let count = |is: fn(&Event) -> bool| to_u64(events.iter().filter(|one| is(one)).count());
        Counts {
            lines: count(|event| matches!(event, Event::Flushed { .. })),
            fences: count(|event| matches!(event, Event::Fenced)),
        }
    }

    /// Returns the events since the last call.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut lock(&self.events))
    }
}

/// Counts of useless write-backs (of clean lines) and useless fences.
pub(crate) fn waste(events: &[Event]) -> (u64, u64) {
    let mut dirty = BTreeSet::new();
    let (mut clean, mut idle, mut started) = (0, 0, 0_u64);
    for event in events {
        match event {
            Event::Stored { offset, .. } => {
                dirty.insert(offset / 64);
            }
            Event::Flushed { line } => {
                clean += u64::from(!dirty.remove(line));
                started += 1;
            }
            Event::Fenced => {
                idle += u64::from(started == 0);
                started = 0;
            }
            Event::Done => {}
        }
    }
    (clean, idle)
}

/// Returns a word's contribution to the hash of an image.
fn mix(offset: u64, value: u64) -> u64 {
    let mixed = (value ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        .wrapping_add(offset);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 32
}

/// A cache line with stores that a power loss may lose.
#[derive(Debug, Default)]
struct Pending {
    stores: Vec<(u64, u64)>,
    /// The number of stores that were written back.
    flushed: usize,
}

/// A replay that yields images. See the module documentation.
#[derive(Debug)]
pub(crate) struct CrashImages {
    /// The words that are persistent for certain.
    sure: Vec<u64>,
    /// Hash of `sure`, updated with each word.
    hash: u64,
    pending: BTreeMap<u64, Pending>,
    operations: usize,
    random: u64,
    seen: HashSet<u64>,
    /// Number of distinct images.
    pub(crate) images: u64,
}

impl CrashImages {
    /// Starts from this memory.
    pub(crate) fn new(before: Vec<u64>, seed: u64) -> Self {
        Self {
            sure: before,
            hash: 0,
            pending: BTreeMap::new(),
            operations: 0,
            random: seed | 1,
            seen: HashSet::new(),
            images: 0,
        }
    }

    /// Replays events. Calls `visit` with each new image and the number of operations that had
    /// returned, until it returns `false`.
    pub(crate) fn replay(
        &mut self,
        events: &[Event],
        visit: &mut dyn FnMut(Vec<u64>, usize) -> bool,
    ) {
        for event in events {
            self.operations += usize::from(*event == Event::Done);
            if matches!(event, Event::Fenced | Event::Done) && !self.moment(visit) {
                return;
            }
            self.take(*event);
        }
    }

    fn moment(&mut self, visit: &mut dyn FnMut(Vec<u64>, usize) -> bool) -> bool {
        // The change of the hash for each prefix of a line.
        let mut changes = Vec::new();
        for pending in self.pending.values() {
            let (mut of_line, mut hash) = (vec![0], 0);
            let mut words: BTreeMap<u64, u64> = BTreeMap::new();
            for (offset, value) in &pending.stores {
                let before = words.insert(*offset, *value);
                let before = before.unwrap_or(self.sure[to_usize(offset / 8)]);
                hash ^= mix(*offset, before) ^ mix(*offset, *value);
                of_line.push(hash);
            }
            changes.push(of_line);
        }
        for choice in self.choices() {
            let hash = choice
                .iter()
                .zip(&changes)
                .fold(self.hash, |hash, (prefix, of_line)| hash ^ of_line[*prefix]);
            if !self.seen.insert(hash ^ mix(u64::MAX, to_u64(self.operations))) {
                continue;
            }
            self.images += 1;
            if !visit(self.image(&choice), self.operations) {
                return false;
            }
        }
        true
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Stored { offset, value } => {
                self.pending.entry(offset / 64).or_default().stores.push((offset, value));
            }
            Event::Flushed { line } => {
                if let Some(pending) = self.pending.get_mut(&line) {
                    pending.flushed = pending.stores.len();
                }
            }
            Event::Fenced => {
                for pending in self.pending.values_mut() {
                    for (offset, value) in pending.stores.drain(..pending.flushed) {
                        let word = &mut self.sure[to_usize(offset / 8)];
                        self.hash ^= mix(offset, *word) ^ mix(offset, value);
                        *word = value;
                    }
                    pending.flushed = 0;
                }
                self.pending.retain(|_, pending| !pending.stores.is_empty());
            }
            Event::Done => {}
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        to_usize((self.random >> 11) % to_u64(bound))
    }

    /// How many stores of each pending line survive, in the order of the lines.
    fn choices(&mut self) -> Vec<Vec<usize>> {
        let lengths: Vec<usize> =
            self.pending.values().map(|pending| pending.stores.len()).collect();
        let all = lengths.iter().try_fold(1_u64, |product, length| {
            product.checked_mul(to_u64(*length) + 1).filter(|product| *product <= ALL_MAX)
        });
        if let Some(all) = all {
            let digits = |number: u64| {
                let mut rest = number;
                let digit = |length: &usize| {
                    let base = to_u64(*length) + 1;
                    let digit = to_usize(rest % base);
                    rest /= base;
                    digit
                };
                lengths.iter().map(digit).collect()
            };
            return (0..all).map(digits).collect();
        }
        let none = vec![0; lengths.len()];
        let mut choices = Vec::new();
        for (line, length) in lengths.iter().enumerate() {
            for base in [&none, &lengths] {
                choices.extend((0..=*length).map(|prefix| {
                    let mut choice = base.clone();
                    choice[line] = prefix;
                    choice
                }));
            }
        }
        for _ in 0..RANDOM {
            choices.push(lengths.iter().map(|length| self.below(length + 1)).collect());
        }
        choices
    }

    fn image(&self, choice: &[usize]) -> Vec<u64> {
        let mut image = self.sure.clone();
        for (pending, count) in self.pending.values().zip(choice) {
            for (offset, value) in &pending.stores[..*count] {
                image[to_usize(offset / 8)] = *value;
            }
        }
        image
    }
}

/// Number of images of a campaign.
pub(crate) fn images_wanted() -> u64 {
    let asked = std::env::var("QUINTET_PMEM_IMAGES").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(10_000)
}
