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
};

/// The name of the order by bytes, as both originals store it.
pub const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// Compares two keys for a program.
pub type CompareFunction =
    extern "C-unwind" fn(state: Context, a: View, a_size: usize, b: View, b_size: usize) -> c_int;
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
}

impl Comparator {
    /// Makes a comparator of callbacks.
    pub fn new(
        state: Context,
        destructor: Option<Destructor>,
        compare: Option<CompareFunction>,
        name: Option<NameFunction>,
    ) -> Self {
        Self { calls: ComparatorCalls { state, compare, name }, destructor }
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

    fn compare(&self, a: &[u8], b: &[u8]) -> Result<Ordering, Status> {
        let compare = self.compare.ok_or_else(|| Status::invalid("a comparator cannot compare"))?;
        Ok(compare(self.state, View::of(a), a.len(), View::of(b), b.len()).cmp(&0))
    }

    /// Fails unless the comparator orders the two keys as their bytes do.
    pub fn check(&self, a: &[u8], b: &[u8]) -> Result<(), Status> {
        if self.compare(a, b)? == a.cmp(b) {
            return Ok(());
        }
        let name = self.name()?;
        Err(Status::unsupported(format!(
            "comparator {name:?} does not order keys by their bytes; Quintet has no other order"
        )))
    }

    /// Fails unless the comparator orders samples of keys as their bytes do.
    pub fn check_samples(&self) -> Result<(), Status> {
        let samples = samples();
        for a in &samples {
            for b in &samples {
                self.check(a, b)?;
            }
        }
        Ok(())
    }
}

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
