//! The hash function of keys, which determines their paths in the trie.
//!
//! SipHash-1-3 with 64 bits is the default. It is keyed with the seed of the table, so no user can
//! craft collisions. `HighwayHash` is the paper's. It is keyed as well, with 256 bits that are
//! derived from the seed. We have not measured which of the two is faster for which keys.
//!
//! Of the 128 and 256 bits of `HighwayHash` only the first 64 are used. A path and a tag use 36
//! bits, and keys that agree in these are compared, so more bits decide nothing. (The paper
//! compares whole hashes before keys, and found no difference between the three lengths either.)
//! The choice is an option of the table and never changes.

use highway::{HighwayHash as _, HighwayHasher, Key};

use crate::{Result, contract::TableOptions, util::codec::KeyHash};

const WORDS: [&str; 4] = ["siphash", "highway64", "highway128", "highway256"];

/// The hash function of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash {
    sip: KeyHash,
    /// Length and key of `HighwayHash`, if it is used instead of `SipHash`.
    highway: Option<(Bits, [u64; 4])>,
}

#[derive(Clone, Copy, Debug)]
enum Bits {
    B64,
    B128,
    B256,
}

impl Hash {
    /// The hash function that the option `hash` names. Fails with `InvalidOption` for an unknown
    /// name.
    pub(super) fn new(options: &TableOptions, sip: KeyHash) -> Result<Self> {
        let bits = match options.word("hash", &WORDS)? {
            "highway64" => Some(Bits::B64),
            "highway128" => Some(Bits::B128),
            "highway256" => Some(Bits::B256),
            _ => None,
        };
        let key = [b"highway0", b"highway1", b"highway2", b"highway3"].map(|part| sip.hash(part));
        Ok(Self { sip, highway: bits.map(|bits| (bits, key)) })
    }

    /// Returns whether it is the database's own hash of a key.
    #[inline]
    pub(super) fn is_siphash(&self) -> bool {
        self.highway.is_none()
    }

    /// The hash of a key.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        match self.highway {
            None => self.sip.hash(key),
            Some((bits, seed)) => highway(bits, seed, key),
        }
    }
}

fn highway(bits: Bits, seed: [u64; 4], key: &[u8]) -> u64 {
    let hasher = HighwayHasher::new(Key(seed));
    match bits {
        Bits::B64 => hasher.hash64(key),
        Bits::B128 => {
            let [first, _] = hasher.hash128(key);
            first
        }
        Bits::B256 => {
            let [first, ..] = hasher.hash256(key);
            first
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::contract::EngineKind;

    /// Hashes are in files: they never change.
    #[test]
    fn hashes_stay_what_they_are() {
        let sip = KeyHash::new([1, 2]);
        let hashes = WORDS.map(|word| {
            let options = TableOptions::new(EngineKind::Trie).set("hash", word);
            Hash::new(&options, sip).unwrap().hash(b"a key of some length, longer than a block")
        });
        let known = [
            0x777e_4ef1_f100_dd74,
            0xa91a_0299_88fc_5939,
            0x7cfa_554f_95e4_75a2,
            0x7e0b_5212_1a1c_9ab9,
        ];
        assert_eq!(hashes, known);
        let other = TableOptions::new(EngineKind::Trie).set("hash", "highway64");
        assert_ne!(Hash::new(&other, KeyHash::new([1, 3])).unwrap().hash(b"key"), {
            Hash::new(&other, sip).unwrap().hash(b"key")
        });
        let wrong = TableOptions::new(EngineKind::Trie).set("hash", "md5");
        assert!(Hash::new(&wrong, sip).is_err());
    }
}
