//! Mutable memory in pages, and what makes its changes crash-consistent.
//!
//! Reserved regions of anonymous memory ([`Region`]), a page cache over direct I/O ([`cache`]), the
//! journal that makes the changes of a cut atomic on disk ([`redo`]), and block writes in place
//! ([`writeback`]).

pub(crate) mod cache;
pub(crate) mod redo;
pub(crate) mod writeback;

pub(crate) use crate::disk::{AlignedBuffer, Region, store};
