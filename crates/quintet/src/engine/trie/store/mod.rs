//! The storage of a trie table: words of the trie ([`space`]), records ([`regions`]), large values
//! ([`extents`]).
//!
//! Each module owns one file. The engine decides when to write: the modules start no threads.

pub(crate) mod extents;
pub(crate) mod regions;
pub(crate) mod space;
