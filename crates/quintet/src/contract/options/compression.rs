//! The option `compression` of several engines.

use super::declaration::option_words;

option_words! {
    /// Compression of the entries in files. Entries in memory are not compressed, except in cached
    /// blocks as the engine's page says.
    Compression {
        /// No compression.
        None = "none",
        /// LZ4: fast in both directions.
        Lz4 = "lz4",
        /// Zstandard: smaller, at many times the processor time of LZ4.
        Zstd = "zstd",
    }
}
