//! What may be left of a pool after a power loss, and does it recover?
//!
//! What: a [`Recorder`] stands in for the memory of a pool and remembers stores, write-backs,
//! fences and when an operation returned. A [`Walk`] goes over them and makes, just before each
//! fence and at the end of each operation, the images that the memory may hold: of each line any
//! prefix of the stores since it was last surely persistent. (At a moment between two fences less
//! was stored and nothing more is sure, so its images are among those before the second.) All
//! combinations where they are few; else each line's prefixes with all others lost and with all
//! others kept, and random ones by a seed. An image that was seen before with as many operations
//! returned is not made again: a hash of the image, kept from store to store, tells.
//!
//! It also finds waste: write-backs of lines without a store, fences with nothing to order.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::Counts;
use crate::util::{
    codec::{to_u64, to_usize},
    sync::{AtomicU64, Mutex, Ordering, lock},
};

/// Images made of one moment without sampling.
const ALL_MAX: u64 = 4096;
/// Random images of other moments.
const RANDOM: u64 = 256;

/// What happened.
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

/// Memory that remembers.
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

    /// Zeroed memory.
    pub(crate) fn zeroed(bytes: u64) -> Self {
        Self::new(&vec![0; to_usize(bytes / 8)])
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    pub(crate) fn bytes(&self) -> u64 {
        to_u64(self.words.len()) * 8
    }

    /// What the memory holds now, caches included.
    pub(crate) fn image(&self) -> Vec<u64> {
        self.words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    fn push(&self, event: Event) {
        lock(&self.events).push(event);
    }

    /// Stores, in the one order of all threads.
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

    /// What happened since the last call.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut lock(&self.events))
    }
}

/// Write-backs of clean lines, and fences that order nothing.
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

/// A word's part in the hash of an image.
fn mix(offset: u64, value: u64) -> u64 {
    let mixed = (value ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        .wrapping_add(offset);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 32
}

/// A line with stores that may be lost.
#[derive(Debug, Default)]
struct Pending {
    stores: Vec<(u64, u64)>,
    /// How many of them were written back.
    flushed: usize,
}

/// The images of a run. See the module head.
#[derive(Debug)]
pub(crate) struct Walk {
    /// What is surely persistent.
    sure: Vec<u64>,
    /// Changes with each word of `sure`.
    hash: u64,
    pending: BTreeMap<u64, Pending>,
    operations: usize,
    random: u64,
    seen: HashSet<u64>,
    /// Different images made.
    pub(crate) images: u64,
}

impl Walk {
    /// From this memory on.
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

    /// Goes over events. Calls `visit` with each new image and the number of operations that had
    /// returned, until it answers `false`.
    pub(crate) fn go(&mut self, events: &[Event], visit: &mut dyn FnMut(Vec<u64>, usize) -> bool) {
        for event in events {
            self.operations += usize::from(*event == Event::Done);
            if matches!(event, Event::Fenced | Event::Done) && !self.moment(visit) {
                return;
            }
            self.take(*event);
        }
    }

    fn moment(&mut self, visit: &mut dyn FnMut(Vec<u64>, usize) -> bool) -> bool {
        // What each line's prefixes do to the hash.
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

    /// How much is left of each pending line's stores, in the order of the lines.
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

/// How many images a campaign is to make.
pub(crate) fn images_wanted() -> u64 {
    let asked = std::env::var("QUINTET_PMEM_IMAGES").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(10_000)
}
