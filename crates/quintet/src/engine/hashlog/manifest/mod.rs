//! The manifest: the content of the data files, and an image of the index as hints.
//!
//! An append-only file of checkpoints. A checkpoint adds the extents flushed since the last one and
//! names dropped ones. Its last record, the commit, makes it valid. Behind the commit stand hints,
//! one for each entry of those extents.
//! A hint is all that the index needs of an entry, so opening reads 7 to 10 bytes an entry instead
//! of the entry. A hint is written once, with its extent. Rewriting dirty regions of the index
//! would write most of it at each checkpoint, because inserts are random.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QHLINDEX` |
//! | 8 | 4 | format | 1 |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 47 with this field zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | number | of this manifest; newer ones replace it |
//! | 512 | | checkpoints | each at a multiple of 512: a begin, records, a commit; at the next multiple of 512 the hints of its extents, in the records' order |
//!
//! [`record`] has the layout of records, [`hints`]
//! that of hints.
//!
//! Invariants:
//! - A checkpoint is synced before anything that it drops is freed.
//! - Bytes behind the last commit are ignored, unless the begin of a later checkpoint stands behind
//!   them: then they are damaged.
//! - Damaged hints are recreated from their extent.
//! - A sector of a committed checkpoint is never written again.
//! - After a failed sync the manifest is in doubt: it gets no more writes, and a new manifest
//!   replaces it. Until the new name is durable, a crash may leave either. Both are valid, because
//!   nothing that either names is freed.
//!
//! Locks: `maintenance` (one thread at a time).

#![deny(clippy::indexing_slicing)]

mod file;
mod hints;
mod record;
mod window;
mod write;

pub(super) use self::{
    file::{HEAD_BYTES, HashLogManifest, is_unfinished, number_of},
    hints::{HINT_HASH_MASK, HintReader, IndexHint, encode_hints},
    record::{Commit, Extent, HintsLocation, LargeRecord, ManifestContents, ManifestRecord},
    window::Window,
};
