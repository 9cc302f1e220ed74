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

use super::options::TrieHash;
use crate::util::codec::KeyHash;

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
    /// Returns the hash function that the option `hash` chooses.
    pub(super) fn new(choice: TrieHash, sip: KeyHash) -> Self {
        let bits = match choice {
            TrieHash::SipHash => None,
            TrieHash::Highway64 => Some(Bits::B64),
            TrieHash::Highway128 => Some(Bits::B128),
            TrieHash::Highway256 => Some(Bits::B256),
        };
        let key = [b"highway0", b"highway1", b"highway2", b"highway3"].map(|part| sip.hash(part));
        Self { sip, highway: bits.map(|bits| (bits, key)) }
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

    /// Hashes are in files: they never change.
    #[test]
    fn hashes_stay_what_they_are() {
        let sip = KeyHash::new([1, 2]);
        let choices =
            [TrieHash::SipHash, TrieHash::Highway64, TrieHash::Highway128, TrieHash::Highway256];
        let key = b"a key of some length, longer than a block";
        let hashes = choices.map(|choice| Hash::new(choice, sip).hash(key));
        let known = [
            0x777e_4ef1_f100_dd74,
            0xa91a_0299_88fc_5939,
            0x7cfa_554f_95e4_75a2,
            0x7e0b_5212_1a1c_9ab9,
        ];
        assert_eq!(hashes, known);
        let [one, other] = [[1, 2], [1, 3]]
            .map(|seed| Hash::new(TrieHash::Highway64, KeyHash::new(seed)).hash(b"key"));
        assert_ne!(one, other);
    }
}
