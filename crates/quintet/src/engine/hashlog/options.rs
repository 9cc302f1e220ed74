//! The options of a table.

use crate::{Error, Result, contract::TableOptions};

/// Default of `chunk_bytes`.
const CHUNK_BYTES_DEFAULT: u64 = 2 << 20;
/// Default of `live_ratio`.
const LIVE_PER_CENT_DEFAULT: u64 = 50;
/// Default of `mutable_chunks`. It bounds the data that opening replays, on one thread.
const MUTABLE_CHUNKS_DEFAULT: u64 = 8;

/// The options, parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashLogSettings {
    pub(super) chunk_bytes: u64,
    pub(super) live_per_cent: u64,
    pub(super) mutable_chunks: u64,
    /// Extents are compressed when they are written.
    pub(super) compresses: bool,
}

impl HashLogSettings {
    /// Reads the options of a table. Fails with `InvalidOption`.
    pub(super) fn parse(options: &TableOptions) -> Result<Self> {
        options.check_names(&["chunk_bytes", "compression", "live_ratio", "mutable_chunks"])?;
        let chunk_bytes =
            options.number("chunk_bytes", CHUNK_BYTES_DEFAULT, 16 << 10..=16 << 20)?;
        if !chunk_bytes.is_power_of_two() {
            return Err(Error::InvalidOption {
                name: "chunk_bytes".to_owned(),
                what: format!("{chunk_bytes} is not a power of two"),
            });
        }
        let live_per_cent = options.number("live_ratio", LIVE_PER_CENT_DEFAULT, 10..=90)?;
        let mutable_chunks = options.number("mutable_chunks", MUTABLE_CHUNKS_DEFAULT, 1..=1024)?;
        let compresses = options.word("compression", &["none", "lz4"])? == "lz4";
        Ok(Self { chunk_bytes, live_per_cent, mutable_chunks, compresses })
    }
}
