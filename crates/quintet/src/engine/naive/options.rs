//! The options of a table.

use crate::{
    Result,
    contract::{
        TableOptions,
        options::{OptionReader, declaration::engine_options},
    },
};

engine_options! {
    /// Options of a table of the naive engine.
    NaiveOptions: Naive;

    snapshot_bytes {
        values: number(4_096, 1_099_511_627_776),
        unit: "bytes",
        default: number(2_097_152, "the paper's"),
        meaning: "size of the updates after which the engine writes the whole table as a \
                  checkpoint",
        change_when: "the table is large: a larger value writes less, and opening replays more log",
        audience: General,
    }
}

/// The options, parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveSettings {
    /// Bytes of updates after which a checkpoint is due.
    pub(super) snapshot_bytes: u64,
}

impl NaiveSettings {
    /// Reads the options of a table. Fails with `InvalidOption`.
    pub(super) fn parse(options: &TableOptions) -> Result<Self> {
        let options = OptionReader::new(options, NaiveOptions::OPTIONS)?;
        Ok(Self { snapshot_bytes: options.number("snapshot_bytes")? })
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::contract::{EngineKind, options::tests::assert_reads_all};

    #[test]
    fn every_declared_option_is_read() {
        assert_reads_all(EngineKind::Naive, NaiveOptions::OPTIONS, NaiveSettings::parse);
    }
}
