//! The five papers.

use std::str::FromStr;

/// A paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// "CedrusDB: Persistent Key-Value Store with Memory-Mapped Lazy-Trie".
    CedrusDb,
    /// "SLM-DB: Single-Level Key-Value Store with Persistent Memory".
    SlmDb,
    /// `CompassDB`, whose tables have perfect hashes.
    CompassDb,
    /// ckvs, whose paper is its README.
    Ckvs,
    /// `LogKV`, with `NaiveKV` beside it.
    LogKv,
}

impl Paper {
    /// All papers.
    pub const ALL: [Self; 5] =
        [Self::CedrusDb, Self::SlmDb, Self::CompassDb, Self::Ckvs, Self::LogKv];

    /// Returns the name in presets and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CedrusDb => "cedrusdb",
            Self::SlmDb => "slmdb",
            Self::CompassDb => "compassdb",
            Self::Ckvs => "ckvs",
            Self::LogKv => "logkv",
        }
    }

    /// Returns the name in text.
    pub const fn title(self) -> &'static str {
        match self {
            Self::CedrusDb => "CedrusDB",
            Self::SlmDb => "SLM-DB",
            Self::CompassDb => "CompassDB",
            Self::Ckvs => "ckvs",
            Self::LogKv => "LogKV",
        }
    }

    /// Returns the paper of a preset.
    pub fn of_preset(preset: &str) -> Option<Self> {
        let (name, _) = preset.split_once('-')?;
        Self::ALL.into_iter().find(|paper| paper.name() == name)
    }
}

impl FromStr for Paper {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|paper| paper.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no paper {text:?}; there are: {names}")
        })
    }
}
