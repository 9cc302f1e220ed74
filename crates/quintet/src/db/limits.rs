//! The limits of tables' paths, keys, values and batches.

use crate::{Error, Result, util::codec::to_u64};

/// Maximum size of a component of a table's path, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum number of components of a table's path.
pub const NAME_DEPTH_MAX: usize = 32;
/// Maximum size of a key in bytes. Keys have at least one byte.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Maximum size of a value in bytes (512 MiB).
pub const VALUE_BYTES_MAX: usize = 512 << 20;
/// Maximum encoded size of a batch in bytes (1 GiB): keys, values and a few bytes for each
/// operation.
pub const BATCH_BYTES_MAX: u64 = 1 << 30;

const _: () = assert!(to_u64(VALUE_BYTES_MAX) * 2 <= BATCH_BYTES_MAX);

/// Fails with [`Error::Limit`] for a key outside its limits.
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    let what = format!("a key has {} bytes; keys have 1 to {KEY_BYTES_MAX}", key.len());
    Err(Error::Limit { what })
}

/// Fails with [`Error::Limit`] for a value outside its limits.
pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let what = format!("a value has {} bytes; values have 0 to {VALUE_BYTES_MAX}", value.len());
    Err(Error::Limit { what })
}
