//! Options whose values are words: an enum each.

/// Options that are words. A macro implements it.
pub(crate) trait OptionWord: Copy + 'static {
    /// All values with their words.
    const ALL: &'static [(Self, &'static str)];
}

/// Declares an enum whose values are the words of an option.
macro_rules! option_words {
    (
        $(#[$attribute:meta])*
        $name:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)+ }
    ) => {
        $(#[$attribute])*
        ///
        /// Displays as the option's word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $value,)+ }

        impl $name {
            /// The words, in the order of the values.
            pub(crate) const WORDS: &'static [&'static str] = &[$($word),+];
        }

        impl $crate::contract::options::words::OptionWord for $name {
            const ALL: &'static [(Self, &'static str)] = &[$((Self::$value, $word)),+];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $(Self::$value => $word,)+ })
            }
        }
    };
}
pub(crate) use option_words;

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
