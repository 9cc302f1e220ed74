//! What every layer uses: encoding, the memory budget, synchronisation, errors, types of keys.

pub mod budget;
pub mod codec;
pub(crate) mod error;
pub mod format;
pub mod mutant;
pub(crate) mod report;
pub(crate) mod sync;
pub(crate) mod timed_counter;
pub(crate) mod types;
pub(crate) mod words;
