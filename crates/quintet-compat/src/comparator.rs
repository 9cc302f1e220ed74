//! Comparators of the program. Tables are ordered by bytes, so only a comparator that does the same
//! can be used.
//!
//! How: a comparator is asked for the order of some hundred keys when a database is
//! opened. One that answers otherwise is refused. An iterator asks it again for each step, so an
//! order that differs elsewhere is an error there and not a wrong order.

use std::{cmp::Ordering, ffi::c_int};

use crate::{
    boundary::{Context, Text, View},
    status::Status,
    timestamps::{TIMESTAMP_BYTES, TimestampOrder},
};

/// The name of the order by bytes, as both originals store it.
pub const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// Compares two keys for a program.
pub type CompareFunction =
    extern "C-unwind" fn(state: Context, a: View, a_size: usize, b: View, b_size: usize) -> c_int;
/// Compares two keys for a program, each with or without a timestamp at its end.
pub type CompareKeysFunction = extern "C-unwind" fn(
    state: Context,
    a: View,
    a_size: usize,
    a_has_timestamp: u8,
    b: View,
    b_size: usize,
    b_has_timestamp: u8,
) -> c_int;
/// Returns a name of the program.
pub type NameFunction = extern "C-unwind" fn(state: Context) -> Text;
/// Releases the state of callbacks.
pub type Destructor = extern "C-unwind" fn(state: Context);

/// A comparator. Dropping it releases the state of its callbacks.
#[derive(Debug)]
pub struct Comparator {
    calls: ComparatorCalls,
    destructor: Option<Destructor>,
}

/// The callbacks of a comparator, which lives longer than its databases.
#[derive(Clone, Copy, Debug)]
pub struct ComparatorCalls {
    state: Context,
    compare: Option<CompareFunction>,
    name: Option<NameFunction>,
    timestamps: Option<TimestampCalls>,
}

/// The callbacks of a comparator whose keys end in a timestamp.
#[derive(Clone, Copy, Debug)]
pub struct TimestampCalls {
    /// Compares timestamps.
    pub compare: Option<CompareFunction>,
    /// Compares keys without their timestamps.
    pub compare_keys: Option<CompareKeysFunction>,
    /// Size of a timestamp in bytes.
    pub size: usize,
}

impl Comparator {
    /// Makes a comparator of callbacks.
    pub fn new(
        state: Context,
        destructor: Option<Destructor>,
        compare: Option<CompareFunction>,
        name: Option<NameFunction>,
    ) -> Self {
        Self { calls: ComparatorCalls { state, compare, name, timestamps: None }, destructor }
    }

    /// Adds the callbacks for timestamps.
    #[must_use]
    pub fn with_timestamps(mut self, calls: TimestampCalls) -> Self {
        self.calls.timestamps = Some(calls);
        self
    }

    /// Returns the callbacks.
    pub fn calls(&self) -> ComparatorCalls {
        self.calls
    }
}

impl Drop for Comparator {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            destructor(self.calls.state);
        }
    }
}

impl ComparatorCalls {
    /// Returns the name. Fails if the program returns none.
    pub fn name(&self) -> Result<String, Status> {
        let name = self.name.ok_or_else(|| Status::invalid("a comparator has no name"))?;
        name(self.state).text()
    }

    /// Returns whether keys have timestamps.
    pub fn has_timestamps(&self) -> bool {
        self.timestamps.is_some()
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Result<Ordering, Status> {
        let compare = self.compare.ok_or_else(|| Status::invalid("a comparator cannot compare"))?;
        Ok(compare(self.state, View::of(a), a.len(), View::of(b), b.len()).cmp(&0))
    }

    /// Compares two keys, each with its timestamp if that is not empty.
    fn compare_keys(
        &self,
        calls: &TimestampCalls,
        (a, a_timestamp): (&[u8], &[u8]),
        (b, b_timestamp): (&[u8], &[u8]),
    ) -> Result<Ordering, Status> {
        let missing = || Status::invalid("a comparator cannot compare keys without timestamps");
        let compare = calls.compare_keys.ok_or_else(missing)?;
        let (a_key, b_key) = ([a, a_timestamp].concat(), [b, b_timestamp].concat());
        let (a_has, b_has) = (u8::from(!a_timestamp.is_empty()), u8::from(!b_timestamp.is_empty()));
        let (a_view, b_view) = (View::of(&a_key), View::of(&b_key));
        Ok(compare(self.state, a_view, a_key.len(), a_has, b_view, b_key.len(), b_has).cmp(&0))
    }

    /// Fails unless the comparator orders the two keys, without timestamps, as their bytes do.
    pub fn check(&self, a: &[u8], b: &[u8]) -> Result<(), Status> {
        let order = match &self.timestamps {
            None => self.compare(a, b)?,
            Some(calls) => self.compare_keys(calls, (a, &[]), (b, &[]))?,
        };
        if order == a.cmp(b) {
            return Ok(());
        }
        let name = self.name()?;
        Err(Status::unsupported(format!(
            "comparator {name:?} does not order keys by their bytes; Quintet has no other order"
        )))
    }

    /// Fails unless the comparator orders samples of keys as their bytes do. Returns the byte order
    /// of timestamps.
    pub fn check_samples(&self) -> Result<Option<TimestampOrder>, Status> {
        let samples = samples();
        for a in &samples {
            for b in &samples {
                self.check(a, b)?;
            }
        }
        let check = |calls| self.check_timestamps(calls, &samples);
        self.timestamps.as_ref().map(check).transpose()
    }

    /// Fails unless timestamps are numbers of eight bytes, the greater of which are newer and come
    /// first. Returns their byte order. `keys` are compared with timestamps, if there are any.
    fn check_timestamps(
        &self,
        calls: &TimestampCalls,
        keys: &[Vec<u8>],
    ) -> Result<TimestampOrder, Status> {
        let name = self.name()?;
        if calls.size != TIMESTAMP_BYTES {
            return Err(Status::unsupported(format!(
                "comparator {name:?} has timestamps of {} bytes; Quintet has only those of {}",
                calls.size, TIMESTAMP_BYTES
            )));
        }
        let missing = || Status::invalid("a comparator cannot compare timestamps");
        let compare = calls.compare.ok_or_else(missing)?;
        let refused = || {
            Status::unsupported(format!(
                "comparator {name:?} does not order timestamps as numbers, the greatest first; \
                 Quintet has no other order"
            ))
        };
        let order = TimestampOrder::ALL.into_iter().find(|order| self.has_order(compare, *order));
        let order = order.ok_or_else(refused)?;
        let samples = TIMESTAMPS.map(|number| (number, order.bytes(number)));
        for (a, a_bytes) in &samples {
            for (b, b_bytes) in &samples {
                for (one, other) in keys.iter().zip(keys.iter().skip(1)).step_by(KEY_STEP) {
                    for (a_key, b_key) in [(one, other), (one, one)] {
                        let (one, other) =
                            ([&**a_key, a_bytes].concat(), [&**b_key, b_bytes].concat());
                        let keys = a_key.cmp(b_key);
                        if self.compare(&one, &other)? != keys.then(b.cmp(a))
                            || self.compare_keys(calls, (a_key, a_bytes), (b_key, b_bytes))? != keys
                            || self.compare_keys(calls, (a_key, a_bytes), (b_key, &[]))? != keys
                        {
                            return Err(refused());
                        }
                    }
                }
            }
        }
        Ok(order)
    }

    /// Returns whether a function orders samples of timestamps as numbers in a byte order.
    fn has_order(&self, compare: CompareFunction, order: TimestampOrder) -> bool {
        let samples = TIMESTAMPS.map(|number| (number, order.bytes(number)));
        let agrees = |(a, a_bytes): &(u64, [u8; TIMESTAMP_BYTES]),
                      (b, b_bytes): &(u64, [u8; TIMESTAMP_BYTES])| {
            let (a_view, b_view) = (View::of(a_bytes), View::of(b_bytes));
            let found = compare(self.state, a_view, a_bytes.len(), b_view, b_bytes.len());
            found.cmp(&0) == a.cmp(b)
        };
        samples.iter().all(|a| samples.iter().all(|b| agrees(a, b)))
    }

    /// Returns the byte order of timestamps. `None`: keys have none. Asks for the order of
    /// timestamps only; fails as [`ComparatorCalls::check_samples`] does.
    pub fn timestamp_order(&self) -> Result<Option<TimestampOrder>, Status> {
        self.timestamps.as_ref().map(|calls| self.check_timestamps(calls, &[])).transpose()
    }
}

/// Timestamps that other orders sort otherwise.
const TIMESTAMPS: [u64; 8] = [0, 1, 2, 255, 256, 1 << 32, 1 << 63, u64::MAX];
/// Of the pairs of neighbouring samples of keys, every sixteenth is compared with each pair of
/// timestamps.
const KEY_STEP: usize = 16;

/// Keys that common orders sort otherwise than bytes do: single bytes, letters of both cases,
/// numbers in decimal and in both byte orders, prefixes, and keys that end in zeros.
fn samples() -> Vec<Vec<u8>> {
    let mut samples = vec![Vec::new()];
    samples.extend((0..=u8::MAX).map(|byte| vec![byte]));
    for text in ["a", "A", "aa", "aB", "Ab", "b", "B", "1", "2", "9", "10", "-1", "a1", "a10", "a2"]
    {
        samples.push(text.into());
        samples.push([text.as_bytes(), &[0]].concat());
        samples.push([text, text].concat().into());
    }
    for number in [0_u64, 1, 2, 255, 256, 257, 65_535, 65_536, 1 << 31, 1 << 32, 1 << 63, u64::MAX]
    {
        samples.push(number.to_be_bytes().into());
        samples.push(number.to_le_bytes().into());
        if let Ok(short) = u32::try_from(number) {
            samples.push(short.to_be_bytes().into());
            samples.push(short.to_le_bytes().into());
        }
    }
    samples.push(b"user\x00key".to_vec());
    samples.push(b"user\xffkey".to_vec());
    samples
}
