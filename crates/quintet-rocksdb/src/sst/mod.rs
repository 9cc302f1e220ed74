//! Files of sorted entries that a program writes, and that databases ingest.
//!
//! # Layout
//!
//! | size | name |
//! |---|---|
//! | 8 | [`format::magic`] |
//! | | blocks |
//! | 4 | [`format::END`] |
//! | 8 | number of entries |
//! | 4 | CRC-32C of the number of entries |
//!
//! A block is its size (4), the CRC-32C of its content (4), and the content: a write batch of the
//! default column family. Integers are little-endian. A block has about [`format::BLOCK_BYTES`].
//! The last block has the range deletes, if there are any: they apply before all other entries.
//!
//! In a file with timestamps, a key is the key and its timestamp, as in a batch. Such a file is
//! ingested into a family with timestamps of the same byte order only, and any other file into one
//! without.
//!
//! RocksDB does not read these files, and its own are refused.

mod format;
mod ingest;
mod writer;

use quintet_compat::{
    boundary::{Array, Bytes, Out, Text, give, required},
    comparator::Comparator,
    export, export_fallible,
    operations::Action,
    status::Status,
};

use ingest::{IngestRules, ingest};
use writer::SstWriter;

use crate::{
    core::{Core, Db, Family},
    families::{FamilyHandle, family_of},
    kept::{OptionNumbers, kept},
    objects::EnvOptions,
    options::database::DatabaseOptions,
};

/// `rocksdb_ingestexternalfileoptions_t`.
#[derive(Clone, Debug, Default)]
pub struct IngestOptions {
    pub(crate) kept: OptionNumbers,
}

impl IngestOptions {
    fn is_set(&self, name: &str) -> bool {
        self.kept.get::<u8>(name).is_some_and(|value| value != 0)
    }

    fn rules(&self) -> IngestRules {
        IngestRules {
            moves_files: self.is_set("rocksdb_ingestexternalfileoptions_set_move_files"),
            is_behind: self.is_set("rocksdb_ingestexternalfileoptions_set_ingest_behind"),
        }
    }
}

fn add(
    writer: Option<&mut SstWriter>,
    action: Action,
    key: Result<&[u8], Status>,
    value: Result<&[u8], Status>,
) -> Result<(), Status> {
    required(writer, "the writer")?.add(action, (key?, None), value?)
}

/// Adds a version.
fn add_version(
    writer: Option<&mut SstWriter>,
    action: Action,
    key: Result<&[u8], Status>,
    timestamp: Result<&[u8], Status>,
    value: Result<&[u8], Status>,
) -> Result<(), Status> {
    required(writer, "the writer")?.add(action, (key?, Some(timestamp?)), value?)
}

fn ingest_files(
    core: &Core,
    family: &Family,
    files: Array<Text>,
    count: usize,
    options: Option<&IngestOptions>,
) -> Result<(), Status> {
    let rules = required(options, "options")?.rules();
    let paths = files.items(count)?.iter().map(|file| core.environment.path(*file));
    ingest(core, family, &paths.collect::<Result<Vec<_>, Status>>()?, rules)
}

export! {
    /// Makes a writer of files.
    pub fn rocksdb_sstfilewriter_create(
        _env: Option<&EnvOptions>, options: Option<&DatabaseOptions>,
    ) -> Option<Box<SstWriter>>, None, {
        let comparator = options.and_then(DatabaseOptions::comparator);
        Some(Box::new(SstWriter::new(comparator, DatabaseOptions::environment_of(options))))
    }

    /// Makes a writer of files. The comparator must order keys by their bytes.
    pub fn rocksdb_sstfilewriter_create_with_comparator(
        _env: Option<&EnvOptions>, options: Option<&DatabaseOptions>,
        comparator: Option<&Comparator>,
    ) -> Option<Box<SstWriter>>, None, {
        let environment = DatabaseOptions::environment_of(options);
        Some(Box::new(SstWriter::new(comparator.map(Comparator::calls), environment)))
    }

    /// Stores the size of the file in bytes.
    pub fn rocksdb_sstfilewriter_file_size(
        writer: Option<&SstWriter>, size: Out<'_, u64>,
    ) {
        give(size, writer.map_or(0, SstWriter::size));
    }

    /// Frees a writer. A file that was not finished is of no use.
    pub fn rocksdb_sstfilewriter_destroy(writer: Option<Box<SstWriter>>) {
        drop(writer);
    }

    /// Makes options of an ingestion with the defaults of RocksDB.
    pub fn rocksdb_ingestexternalfileoptions_create() -> Option<Box<IngestOptions>>, None, {
        Some(Box::default())
    }

    /// Frees options of an ingestion.
    pub fn rocksdb_ingestexternalfileoptions_destroy(options: Option<Box<IngestOptions>>) {
        drop(options);
    }
}

kept! { IngestOptions {
    rocksdb_ingestexternalfileoptions_set_move_files(u8);
    rocksdb_ingestexternalfileoptions_set_snapshot_consistency(u8);
    rocksdb_ingestexternalfileoptions_set_allow_global_seqno(u8);
    rocksdb_ingestexternalfileoptions_set_allow_blocking_flush(u8);
    rocksdb_ingestexternalfileoptions_set_ingest_behind(u8);
} }

export_fallible! {
    /// Begins a file.
    pub fn rocksdb_sstfilewriter_open(writer: Option<&mut SstWriter>, name: Text) {
        required(writer, "the writer")?.open(name)
    }

    /// Adds a put. Keys must ascend.
    pub fn rocksdb_sstfilewriter_add(
        writer: Option<&mut SstWriter>, key: Bytes, key_size: usize, value: Bytes, size: usize,
    ) {
        add(writer, Action::Put, key.items(key_size), value.items(size))
    }

    /// Adds a put. Keys must ascend.
    pub fn rocksdb_sstfilewriter_put(
        writer: Option<&mut SstWriter>, key: Bytes, key_size: usize, value: Bytes, size: usize,
    ) {
        add(writer, Action::Put, key.items(key_size), value.items(size))
    }

    /// Adds a put of a version. Keys must ascend, and the timestamps of a key must descend.
    pub fn rocksdb_sstfilewriter_put_with_ts(
        writer: Option<&mut SstWriter>, key: Bytes, key_size: usize, timestamp: Bytes,
        timestamp_size: usize, value: Bytes, size: usize,
    ) {
        let timestamp = timestamp.items(timestamp_size);
        add_version(writer, Action::Put, key.items(key_size), timestamp, value.items(size))
    }

    /// Adds a merge. Keys must ascend.
    pub fn rocksdb_sstfilewriter_merge(
        writer: Option<&mut SstWriter>, key: Bytes, key_size: usize, value: Bytes, size: usize,
    ) {
        add(writer, Action::Merge, key.items(key_size), value.items(size))
    }

    /// Adds a delete. Keys must ascend.
    pub fn rocksdb_sstfilewriter_delete(
        writer: Option<&mut SstWriter>, key: Bytes, key_size: usize,
    ) {
        add(writer, Action::Delete, key.items(key_size), Ok(&[]))
    }

    /// Adds a delete with a timestamp. Keys must ascend, and the timestamps of a key must descend.
    pub fn rocksdb_sstfilewriter_delete_with_ts(
        writer: Option<&mut SstWriter>, key: Bytes, key_size: usize, timestamp: Bytes,
        timestamp_size: usize,
    ) {
        let timestamp = timestamp.items(timestamp_size);
        add_version(writer, Action::Delete, key.items(key_size), timestamp, Ok(&[]))
    }

    /// Adds a delete of a range. It applies before all other entries of the file.
    pub fn rocksdb_sstfilewriter_delete_range(
        writer: Option<&mut SstWriter>, start: Bytes, start_size: usize, end: Bytes,
        end_size: usize,
    ) {
        add(writer, Action::DeleteRange, start.items(start_size), end.items(end_size))
    }

    /// Ends a file. It is durable then.
    pub fn rocksdb_sstfilewriter_finish(writer: Option<&mut SstWriter>) {
        required(writer, "the writer")?.finish()
    }

    /// Ingests files into the default column family.
    pub fn rocksdb_ingest_external_file(
        db: Option<&Db>, files: Array<Text>, count: usize, options: Option<&IngestOptions>,
    ) {
        let core = &required(db, "the database")?.core;
        ingest_files(core, core.default_family()?, files, count, options)
    }

    /// Ingests files into a column family.
    pub fn rocksdb_ingest_external_file_cf(
        db: Option<&Db>, family: Option<&FamilyHandle>, files: Array<Text>, count: usize,
        options: Option<&IngestOptions>,
    ) {
        let core = &required(db, "the database")?.core;
        ingest_files(core, family_of(family)?, files, count, options)
    }
}
