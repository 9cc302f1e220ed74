//! The options of a table.

use crate::{Result, contract::TableOptions};

/// Default of `snapshot_bytes`: the paper's value.
const SNAPSHOT_BYTES_DEFAULT: u64 = 2 << 20;

/// The options, parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveSettings {
    /// Bytes of updates after which a checkpoint is due.
    pub(super) snapshot_bytes: u64,
}

impl NaiveSettings {
    /// Reads the options of a table. Fails with `InvalidOption`.
    pub(super) fn parse(options: &TableOptions) -> Result<Self> {
        options.check_names(&["snapshot_bytes"])?;
        let snapshot_bytes =
            options.number("snapshot_bytes", SNAPSHOT_BYTES_DEFAULT, 4096..=1 << 40)?;
        Ok(Self { snapshot_bytes })
    }
}
