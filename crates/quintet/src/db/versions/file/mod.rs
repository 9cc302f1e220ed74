//! Files of versions: sorted and immutable, in the directory `versions` of the database.
//!
//! Problem: a snapshot that is held for long needs more versions than memory has room for. How:
//! complete segments are merged into a file (`spill`), which takes their place in the list. In
//! memory stay the first key of each block and a Bloom filter. So a lookup of an absent key reads
//! nothing, and one of a present key reads one block, which the block cache keeps.
//!
//! A file consists of blocks, back to back:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | crc | CRC32C of the bytes from 4 on |
//! | 4 | 4 | length | bytes of the entries |
//! | 8 | | entries | in the order of keys, and of LSNs for one key |
//!
//! An entry is one version:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | varint | key length | |
//! | | key | the encoded key, as `version_key` has it |
//! | 4 | hash | the high half of the key's hash |
//! | varint | lsn | of the write that replaced the version |
//! | varint | value length | 0: the key had no value; otherwise the length plus one |
//! | | value | |
//!
//! Nothing of a file survives a close or a crash. So it has no head and no index on disk, is never
//! synced, and its layout may change with each build.
//!
//! Invariants:
//! - The versions of a key may continue in the next block. Blocks of other keys do not share keys.
//! - A file is removed when its last reference is dropped, but not by a forked child.
//! - Every block that is read from disk is verified. Damage is an error of the read.
//!
//! | module | content |
//! |---|---|
//! | [`block`] | encoding of blocks and entries |
//! | [`fences`] | the first keys and the offsets of blocks |
//! | [`filter`] | the Bloom filter |
//! | [`writer`], [`reader`] | a file that is being written; a file that is open |
//! | [`cursor`] | all versions of a file in order, for merges |
//! | [`directory`], [`file_name`] | the directory, the cache and the names of files |
//!
//! Threads: any; readers take no lock but that of a fill of the cache.

mod block;
mod cursor;
mod directory;
mod fences;
mod file_name;
mod filter;
mod reader;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod writer;

pub(crate) use self::directory::remove_versions;
pub(super) use self::{
    directory::VersionDirectory, reader::VersionFile, writer::VersionFileWriter,
};
