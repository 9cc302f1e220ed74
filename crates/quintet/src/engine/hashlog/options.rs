//! The options of a table.

use crate::{
    Error, Result,
    contract::{
        Compression, TableOptions,
        options::{OptionReader, declaration::engine_options},
    },
};

engine_options! {
    /// Options of a table of the hashlog engine.
    HashLogOptions: HashLog;

    compression {
        values: words(Compression, ["none", "lz4"]),
        unit: "",
        default: word("none"),
        meaning: "compresses chunks and large values in the files, not in memory",
        change_when: "values compress well and the table is larger than memory; it costs \
                      processor time at write, compaction and load",
        audience: General,
    }
    live_ratio {
        values: number(10, 90),
        unit: "per cent",
        default: number(50),
        meaning: "part of the file bytes that compaction keeps live",
        change_when: "disk space matters more than copies: a larger value copies more",
        audience: General,
    }
    chunk_bytes {
        values: power_of_two(16_384, 16_777_216),
        unit: "bytes",
        default: number(2_097_152),
        meaning: "size of a chunk",
        change_when: "the table is small or the budget is only a few chunks",
        audience: Expert,
    }
    file_bytes {
        values: number(8_388_608, 2_147_483_648),
        unit: "bytes",
        default: number(2_147_483_648, "the paper's"),
        meaning: "maximum size of a data file, at least four chunks; a larger value has a file \
                  of its own",
        change_when: "the file system or a backup handles small files better: a smaller value \
                      makes more files",
        audience: Expert,
    }
    mutable_chunks {
        values: number(1, 1_024),
        unit: "chunks",
        default: number(8),
        meaning: "number of chunks that may wait for a checkpoint; their entries can be updated \
                  in place",
        change_when: "keys are updated again soon: more chunks write less, and opening \
                      replays more log",
        audience: Expert,
    }
}

/// Minimum number of chunks that a data file has room for. With fewer, most of the files would be
/// heads and names.
const FILE_CHUNKS_MIN: u64 = 4;

/// The options, parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashLogSettings {
    pub(super) chunk_bytes: u64,
    /// Maximum size of a data file in bytes.
    pub(super) file_bytes: u64,
    pub(super) live_per_cent: u64,
    pub(super) mutable_chunks: u64,
    /// Extents are compressed when they are written.
    pub(super) compresses: bool,
}

impl HashLogSettings {
    /// Reads the options of a table. Fails with `InvalidOption`.
    pub(super) fn parse(options: &TableOptions) -> Result<Self> {
        let options = OptionReader::new(options, HashLogOptions::OPTIONS)?;
        let chunk_bytes = options.number("chunk_bytes")?;
        let file_bytes = options.number("file_bytes")?;
        if file_bytes < FILE_CHUNKS_MIN * chunk_bytes {
            return Err(Error::InvalidOption {
                name: "file_bytes".to_owned(),
                what: format!(
                    "a data file has room for at least {FILE_CHUNKS_MIN} chunks, so with chunks of \
                     {chunk_bytes} bytes it must be at least {} bytes",
                    FILE_CHUNKS_MIN * chunk_bytes
                ),
            });
        }
        Ok(Self {
            chunk_bytes,
            file_bytes,
            live_per_cent: options.number("live_ratio")?,
            mutable_chunks: options.number("mutable_chunks")?,
            compresses: options.word::<Compression>("compression")? == Compression::Lz4,
        })
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::contract::{EngineKind, options::tests::assert_reads_all};

    #[test]
    fn every_declared_option_is_read() {
        assert_reads_all(EngineKind::HashLog, HashLogOptions::OPTIONS, HashLogSettings::parse);
    }
}
