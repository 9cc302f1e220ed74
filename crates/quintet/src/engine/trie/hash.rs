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
//!
//! With `none` no hash is computed: the path of a key is its first eight bytes XOR its last eight
//! in reverse order. Both ends count, so a constant prefix or suffix of uniform keys does no harm,
//! and neither does the order of bytes in a counter. A key of fewer bytes is padded with zeros.
//! Paths that agree are no error: see [`super::index`] for the fallback.

use highway::{HighwayHash as _, HighwayHasher, Key};

use super::options::TrieHash;
use crate::util::codec::{KeyHash, key_prefix};

/// The hash function of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash {
    sip: KeyHash,
    kind: HashKind,
}

#[derive(Clone, Copy, Debug)]
enum HashKind {
    SipHash,
    /// The bytes of the key.
    None,
    /// Length and key of `HighwayHash`.
    Highway(Bits, [u64; 4]),
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
        let key = [b"highway0", b"highway1", b"highway2", b"highway3"].map(|part| sip.hash(part));
        let kind = match choice {
            TrieHash::SipHash => HashKind::SipHash,
            TrieHash::None => HashKind::None,
            TrieHash::Highway64 => HashKind::Highway(Bits::B64, key),
            TrieHash::Highway128 => HashKind::Highway(Bits::B128, key),
            TrieHash::Highway256 => HashKind::Highway(Bits::B256, key),
        };
        Self { sip, kind }
    }

    /// Returns the keyed hash of switched subtrees, if paths are bytes of keys.
    pub(super) fn fallback(&self) -> Option<KeyHash> {
        self.is_none().then_some(self.sip)
    }

    /// Returns whether paths are bytes of keys.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        matches!(self.kind, HashKind::None)
    }

    /// Returns whether it is the database's own hash of a key.
    #[inline]
    pub(super) fn is_siphash(&self) -> bool {
        matches!(self.kind, HashKind::SipHash)
    }

    /// The hash of a key's path.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        // The order matters: a `match` would cost the default more instructions.
        if self.is_siphash() {
            return self.sip.hash(key);
        }
        match self.kind {
            HashKind::Highway(bits, seed) => highway(bits, seed, key),
            HashKind::SipHash | HashKind::None => path_of(key),
        }
    }

    /// The database's own hash of a key.
    pub(super) fn siphash(&self, key: &[u8]) -> u64 {
        self.sip.hash(key)
    }
}

/// The path of a key that is not hashed.
#[inline]
fn path_of(key: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk()) {
        return u64::from_be_bytes(*first) ^ u64::from_le_bytes(*last);
    }
    let padded = key_prefix(key);
    padded ^ padded.swap_bytes()
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

    /// Paths are in files: they never change.
    #[test]
    fn paths_of_keys_stay_what_they_are() {
        let hash = Hash::new(TrieHash::None, KeyHash::new([1, 2]));
        assert_eq!(hash.hash(b"a"), 0x6100_0000_0000_0061);
        assert_eq!(hash.hash(b"\x01\x02\x03"), 0x0102_0300_0003_0201);
        assert_eq!(hash.hash(b"\x01\x02\x03\x04\x05\x06\x07\x08"), 0x0905_0501_0105_0509);
        assert_eq!(hash.hash(&(0..=31).collect::<Vec<u8>>()), 0x1f1f_1f1f_1f1f_1f1f);
    }

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
