//! Sinks for values read from cache or disk.
//!
//! A sink decides how a value is returned: in a new allocation, in a buffer of the caller, or as a
//! location. Each value is copied at most once. [`Engine::get_with`] is generic over its sink: each
//! get compiles to code for one kind of copy.
//!
//! [`Engine::get_with`]: super::Engine::get_with

use crate::{
    contract::Value,
    util::{sync::AtomicU64, words::copy_out},
};

/// First byte that [`HeadAndBuffer`] returns for an empty value. No envelope begins with it.
pub const NO_FIRST_BYTE: u8 = 0xff;

/// Copies a value, or a part of it.
pub trait ValueSink {
    /// The result for one value.
    type Output;

    /// Copies the value of `bytes` bytes that begins at byte `at` of `words`. A reader without a
    /// lock may see `words` change: it then discards the result and calls the sink again.
    fn of_words(&mut self, words: &[AtomicU64], place: (usize, usize)) -> Self::Output;

    /// Copies these bytes.
    fn of_bytes(&mut self, bytes: &[u8]) -> Self::Output;

    /// Takes a value that already has a separate allocation.
    #[inline]
    fn of_value(&mut self, value: Value) -> Self::Output {
        self.of_bytes(&value)
    }

    /// Returns how many of a value's `bytes` bytes the sink needs, from the first one on. Storage
    /// that copies a value in parts may stop there.
    #[inline]
    fn needed_bytes(&self, bytes: usize) -> usize {
        bytes
    }

    /// Takes a value of `bytes` bytes that `copy` writes into a buffer of that length: for values
    /// that are spread over several pages.
    #[inline]
    fn of_copy(&mut self, bytes: usize, copy: &mut dyn FnMut(&mut [u8])) -> Self::Output {
        self.of_value(Value::fill_with(bytes, |out| copy(out)))
    }
}

/// Returns the value in a new allocation.
#[derive(Debug)]
pub struct OwnedValue;

impl ValueSink for OwnedValue {
    type Output = Value;

    #[inline]
    fn of_words(&mut self, words: &[AtomicU64], (at, bytes): (usize, usize)) -> Value {
        Value::fill_with(bytes, |out| copy_out(words, at, out))
    }

    #[inline]
    fn of_bytes(&mut self, bytes: &[u8]) -> Value {
        Value::copy(bytes)
    }

    #[inline]
    fn of_value(&mut self, value: Value) -> Value {
        value
    }
}

/// Appends the value to a vector. A [`Value`] is as large as three cache lines, and moving it
/// through every return costs more than finding it. For memtables only, whose entries do not change
/// under a reader: for a cache that is read again, the value could be appended twice.
#[derive(Debug)]
pub(crate) struct AppendOwned<'a>(pub(crate) &'a mut Vec<Option<Value>>);

impl ValueSink for AppendOwned<'_> {
    type Output = ();

    #[inline]
    fn of_words(&mut self, words: &[AtomicU64], place: (usize, usize)) {
        self.0.push(Some(OwnedValue.of_words(words, place)));
    }

    #[inline]
    fn of_bytes(&mut self, bytes: &[u8]) {
        self.0.push(Some(OwnedValue.of_bytes(bytes)));
    }
}

/// Copies all but the first byte into a buffer and returns the first byte: the database's envelope
/// is one byte for nearly every value. Returns [`NO_FIRST_BYTE`] for an empty value, which the
/// database never stores.
#[derive(Debug)]
pub(crate) struct HeadAndBuffer<'a>(pub(crate) &'a mut Vec<u8>);

impl ValueSink for HeadAndBuffer<'_> {
    type Output = u8;

    #[inline]
    fn of_words(&mut self, words: &[AtomicU64], (at, bytes): (usize, usize)) -> u8 {
        let Some(rest) = bytes.checked_sub(1) else {
            self.0.clear();
            return NO_FIRST_BYTE;
        };
        self.0.resize(rest, 0);
        copy_out(words, at + 1, self.0);
        let mut first = [0];
        copy_out(words, at, &mut first);
        first[0]
    }

    #[inline]
    fn of_bytes(&mut self, bytes: &[u8]) -> u8 {
        let (first, rest) = bytes.split_first().unwrap_or((&NO_FIRST_BYTE, &[]));
        self.0.clear();
        self.0.extend_from_slice(rest);
        *first
    }

    fn of_copy(&mut self, bytes: usize, copy: &mut dyn FnMut(&mut [u8])) -> u8 {
        self.0.clear();
        self.0.resize(bytes, 0);
        copy(self.0);
        let first = self.0.first().copied().unwrap_or(NO_FIRST_BYTE);
        self.0.drain(..bytes.min(1));
        first
    }
}

/// Copies the bytes into a buffer, replacing its content.
#[derive(Debug)]
pub(crate) struct IntoBuffer<'a>(pub(crate) &'a mut Vec<u8>);

impl ValueSink for IntoBuffer<'_> {
    type Output = ();

    #[inline]
    fn of_words(&mut self, words: &[AtomicU64], (at, bytes): (usize, usize)) {
        self.0.resize(bytes, 0);
        copy_out(words, at, self.0);
    }

    #[inline]
    fn of_bytes(&mut self, bytes: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(bytes);
    }
}

/// Returns where the value is: the index of its first byte, and its length.
#[derive(Debug)]
pub(crate) struct ValueLocation;

impl ValueSink for ValueLocation {
    type Output = (usize, usize);

    #[inline]
    fn of_words(&mut self, _words: &[AtomicU64], place: (usize, usize)) -> (usize, usize) {
        place
    }

    #[inline]
    fn of_bytes(&mut self, bytes: &[u8]) -> (usize, usize) {
        (0, bytes.len())
    }
}

/// A value found by a batch of gets: borrowed from a buffer that the next key overwrites, or owned.
#[derive(Debug)]
pub(crate) enum FoundValue<'a> {
    Bytes(&'a [u8]),
    Value(Value),
}

impl FoundValue<'_> {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Value(value) => value,
        }
    }

    #[inline]
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Bytes(bytes) => Value::copy(bytes),
            Self::Value(value) => value,
        }
    }
}
