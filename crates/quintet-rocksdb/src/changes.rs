//! Changes of the options of an open database.
//!
//! Why: programs adjust buffers and compactions while they run. Here a table has the options with
//! which it was created, so a change has no effect. But a wrong name or value fails, as in RocksDB.
//!
//! How: [`KINDS`] has the options of column families that RocksDB 7.8 changes in an open database.
//! Those whose value is a number or a flag are accepted. A program would rely on the effect of the
//! others, such as `compression`, so they fail.

use std::ffi::c_int;

use quintet_compat::{
    boundary::{Array, Text, required},
    export_fallible,
    status::Status,
};

use crate::{
    core::Db,
    families::{FamilyHandle, family_of},
};

/// The values that an option can have.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// `true`, `false`, 1 or 0.
    Flag,
    /// A signed number of 32 bits.
    Integer,
    /// A number of 64 bits, which `k`, `m`, `g` or `t` after it multiplies.
    Size,
    /// A number with a fraction.
    Real,
    /// An option that this library cannot change.
    Fixed,
}

/// The kinds of options and their names.
const KINDS: [(Kind, &[&str]); 5] = [
    (
        Kind::Flag,
        &[
            "check_flush_compaction_key_order",
            "disable_auto_compactions",
            "enable_blob_files",
            "enable_blob_garbage_collection",
            "ignore_max_compaction_bytes_for_input",
            "memtable_whole_key_filtering",
            "paranoid_file_checks",
            "report_bg_io_stats",
        ],
    ),
    (
        Kind::Integer,
        &[
            "blob_file_starting_level",
            "level0_file_num_compaction_trigger",
            "level0_slowdown_writes_trigger",
            "level0_stop_writes_trigger",
            "max_write_buffer_number",
            "target_file_size_multiplier",
        ],
    ),
    (
        Kind::Size,
        &[
            "arena_block_size",
            "blob_compaction_readahead_size",
            "blob_file_size",
            "hard_pending_compaction_bytes_limit",
            "inplace_update_num_locks",
            "max_bytes_for_level_base",
            "max_compaction_bytes",
            "max_sequential_skip_in_iterations",
            "max_successive_merges",
            "memtable_huge_page_size",
            "memtable_protection_bytes_per_key",
            "min_blob_size",
            "periodic_compaction_seconds",
            "sample_for_compression",
            "soft_pending_compaction_bytes_limit",
            "target_file_size_base",
            "ttl",
            "write_buffer_size",
        ],
    ),
    (
        Kind::Real,
        &[
            "blob_garbage_collection_age_cutoff",
            "blob_garbage_collection_force_threshold",
            "experimental_mempurge_threshold",
            "max_bytes_for_level_multiplier",
            "memtable_prefix_bloom_size_ratio",
        ],
    ),
    (
        Kind::Fixed,
        &[
            "blob_compression_type",
            "block_based_table_factory",
            "bottommost_compression",
            "bottommost_compression_opts",
            "bottommost_temperature",
            "compaction_options_fifo",
            "compaction_options_universal",
            "compression",
            "compression_opts",
            "compression_per_level",
            "last_level_temperature",
            "max_bytes_for_level_multiplier_additional",
            "prefix_extractor",
            "prepopulate_blob_cache",
        ],
    ),
];

/// Returns whether a text is a number of 64 bits, with or without a letter that multiplies it.
fn is_size(text: &str) -> bool {
    let (digits, shift) = match text.strip_suffix(|last: char| last.is_ascii_alphabetic()) {
        None => (text, 0),
        Some(digits) => match text.chars().last().map(|last| last.to_ascii_lowercase()) {
            Some('k') => (digits, 10),
            Some('m') => (digits, 20),
            Some('g') => (digits, 30),
            Some('t') => (digits, 40),
            _ => return false,
        },
    };
    digits.parse::<u64>().is_ok_and(|number| number.checked_mul(1 << shift).is_some())
}

/// Fails unless a value of an option may be set in an open database.
fn check(name: &str, value: &str) -> Result<(), Status> {
    let kind = KINDS.iter().find(|(_, names)| names.contains(&name)).map(|(kind, _)| *kind);
    let (is_valid, expected) = match kind {
        None => {
            let message = format!("{name}: there is no such option of an open column family");
            return Err(Status::invalid(message));
        }
        Some(Kind::Fixed) => {
            let message = format!("{name}: a table keeps the options with which it was created");
            return Err(Status::invalid(message));
        }
        Some(Kind::Flag) => (matches!(value, "true" | "false" | "1" | "0"), "true or false"),
        Some(Kind::Integer) => (value.parse::<i32>().is_ok(), "a number of 32 bits"),
        Some(Kind::Size) => (is_size(value), "a number of 64 bits"),
        Some(Kind::Real) => (value.parse::<f64>().is_ok_and(f64::is_finite), "a number"),
    };
    if is_valid {
        return Ok(());
    }
    Err(Status::invalid(format!("{name}: {value} is not {expected}")))
}

/// Fails unless all of the options may be set, and there is at least one.
fn check_all(count: c_int, names: Array<Text>, values: Array<Text>) -> Result<(), Status> {
    let count = usize::try_from(count).map_err(|_| Status::invalid("the count is negative"))?;
    if count == 0 {
        return Err(Status::invalid("there are no options to set"));
    }
    let options = names.items(count)?.iter().zip(values.items(count)?);
    options
        .into_iter()
        .try_for_each(|(name, value)| check(name.text()?.trim(), value.text()?.trim()))
}

export_fallible! {
    /// Checks the names and the values of options. They have no effect.
    pub fn rocksdb_set_options(
        db: Option<&Db>, count: c_int, names: Array<Text>, values: Array<Text>,
    ) {
        required(db, "the database")?;
        check_all(count, names, values)
    }

    /// Checks the names and the values of options of a column family. They have no effect.
    pub fn rocksdb_set_options_cf(
        db: Option<&Db>, family: Option<&FamilyHandle>, count: c_int, names: Array<Text>,
        values: Array<Text>,
    ) {
        required(db, "the database")?;
        family_of(family)?;
        check_all(count, names, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_kind_of_their_option() {
        for (name, value) in [
            ("disable_auto_compactions", "true"),
            ("max_write_buffer_number", "-1"),
            ("write_buffer_size", "18446744073709551615"),
            ("write_buffer_size", "4M"),
            ("max_bytes_for_level_multiplier", "1.5"),
        ] {
            check(name, value).expect(name);
        }
        for (name, value) in [
            ("disable_auto_compactions", "2"),
            ("max_write_buffer_number", "2147483648"),
            ("write_buffer_size", "18446744073709551616"),
            ("write_buffer_size", "16777216T"),
            ("write_buffer_size", "1x"),
            ("write_buffer_size", "M"),
            ("write_buffer_size", ""),
            ("max_bytes_for_level_multiplier", "inf"),
            ("compression", "kZSTD"),
            ("comparator", "1"),
        ] {
            check(name, value).expect_err(name);
        }
    }
}
