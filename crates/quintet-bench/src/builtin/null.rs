//! `null`: a store that does nothing. Its figures are the cost of the harness.

use crate::{
    failure::Outcome,
    store::{EachEntry, EachFound, Store, StoreStats},
};
use std::hint::black_box;

/// A store that ignores writes and finds no key.
#[derive(Clone, Copy, Debug)]
pub struct Null;

impl Store for Null {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        black_box(key);
        value.clear();
        Ok(false)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut EachFound<'_>) -> Outcome {
        for (index, key) in keys.iter().enumerate() {
            black_box(key);
            each(index, None);
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        black_box((key, value));
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        black_box(key);
        Ok(())
    }

    fn range(&self, _: &[u8], _: usize, _: &mut EachEntry<'_>) -> Outcome<usize> {
        Ok(0)
    }

    fn scan(&self, _: &mut EachEntry<'_>) -> Outcome<u64> {
        Ok(0)
    }

    fn sync(&self) -> Outcome {
        Ok(())
    }

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }

    fn close(self: Box<Self>) -> Outcome {
        Ok(())
    }
}
