//! The parts that the engines with appended records share: memory for records, and records that
//! writers read ahead.
//!
//! - [`frames`]: equal pieces of memory in one reserved range, charged to the budget.
//! - [`segments`]: runs of appended records, each in a frame while it is in memory. An address is a
//!   segment and a position. Readers take no lock.
//! - [`read_ahead`]: what admitted writes read from the disk, until they are applied.
//!
//! `hashlog` appends entries to chunks, `trie` appends records to regions. Each engine adds its
//! own counts to the rows of its segments, and owns the format of its records and its files.
//! Neither engine imports the other.
//!
//! Start reading at [`segments`].

pub(crate) mod frames;
pub(crate) mod read_ahead;
pub(crate) mod segments;
