//! What becomes of a value that was found: read where it lies, into whatever the caller wants, so
//! that nothing is copied twice.

use crate::{
    contract::{Value, copy_split, split_value},
    util::{sync::AtomicU64, words::copy_out},
};

/// Makes something of a stored value.
pub(crate) trait ValueSink {
    /// What is made.
    type Output;

    /// Of the value of `bytes` that begins at byte `at` of `words`. Words of a cache may change
    /// meanwhile: then what was made is thrown away, and it is asked for again.
    fn of_words(&mut self, words: &[AtomicU64], place: (usize, usize)) -> Self::Output;

    /// Of these bytes.
    fn of_bytes(&mut self, bytes: &[u8]) -> Self::Output;
}

/// A value that stands alone.
#[derive(Debug)]
pub(crate) struct OwnedValue;

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
}

/// A value that stands alone, put at the end of what was found before it: a value is as long as
/// three lines of memory, and moving it through every return costs more than finding it. For
/// memtables alone, which do not change under a reader: in a cache it might be put there twice.
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

/// All but the first byte goes into a buffer; the first byte is what is made. See
/// [`crate::contract::Engine::get_split`].
#[derive(Debug)]
pub(crate) struct HeadAndBuffer<'a>(pub(crate) &'a mut Vec<u8>);

impl ValueSink for HeadAndBuffer<'_> {
    type Output = u8;

    #[inline]
    fn of_words(&mut self, words: &[AtomicU64], place: (usize, usize)) -> u8 {
        copy_split(words, place, self.0)
    }

    #[inline]
    fn of_bytes(&mut self, bytes: &[u8]) -> u8 {
        split_value(bytes, self.0)
    }
}

/// The bytes go into a buffer, in place of what was there.
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

/// Where the value lies: its first byte, and how many it has.
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
