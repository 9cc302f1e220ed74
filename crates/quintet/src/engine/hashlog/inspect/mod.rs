//! Files of a table as text, for `quintet inspect`. It writes nothing and takes no lock.
//!
//! The modules that own the formats decode and verify the bytes.

mod data;
mod manifest;

use std::sync::Arc;

use crate::{
    Result,
    io::{Dir, File},
    util::format::LineSink,
};

/// Describes a manifest, record by record. Fails with `Corruption` at the first damage.
pub fn manifest(
    dir: &Arc<dyn Dir>,
    file: Arc<dyn File>,
    name: &str,
    say: &mut LineSink<'_>,
) -> Result<()> {
    manifest::describe(dir, file, name, say)
}

/// Describes a data file: its extents with their entries, and its large values.
///
/// Fails with `Corruption` if anything is damaged, after it has described the rest. An extent that
/// no manifest names may be damaged in a sound table: a crash during a flush leaves one.
pub fn data(file: &dyn File, name: &str, say: &mut LineSink<'_>) -> Result<()> {
    data::describe(file, name, say)
}
