//! Callbacks of the store traits.

use crate::failure::Outcome;

/// Callback with the key and the value of one entry.
pub type EachEntry<'a> = dyn FnMut(&[u8], &[u8]) + 'a;
/// Callback with the position of a key in a `multi_get` and its value.
pub type EachFound<'a> = dyn FnMut(usize, Option<&[u8]>) + 'a;
/// Source of entries: overwrites both buffers with the next key and value; false at the end.
pub type NextEntry<'a> = dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool + 'a;
/// Makes the new value of a key from the old one, which is `None` if the key is absent. The last
/// argument is a buffer for the new value.
pub type ChangeValue<'a> = dyn FnMut(Option<&[u8]>, &mut Vec<u8>) -> Outcome + 'a;
