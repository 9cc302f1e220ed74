//! Memory in pages, for the index structures above: they import nothing below this layer.
//!
//! Reserved regions of anonymous memory ([`Region`]); a page cache over direct I/O ([`cache`]).

pub(crate) mod cache;

pub(crate) use crate::disk::{AlignedBuffer, Region};
