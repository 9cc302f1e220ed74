//! The fallback to the keyed hash: switches a list of keys that agree in their paths.
//!
//! [`index`](super::index) decides when. This module supplies the keyed hashes of the records, from
//! memory or from disk. A write that made a list too long switches it before it returns. If a read
//! fails, the list stays as it is, and the next insert tries again: the write itself is done.

use super::{
    lookup::ColdRecord,
    record::{HEAD_BYTES, TrieRecordHead},
    table::Trie,
};
use crate::{
    engine::trie::{
        index::{KeyPath, Writer},
        store::regions::RegionRead,
    },
    util::words::copy_out,
};

impl Trie {
    /// Switches the list on a path, if `writer` made it too long. Reads records on disk without the
    /// lock.
    #[cold]
    pub(super) fn switch_list(&self, mut writer: Writer<'_>, path: KeyPath<'_>) {
        let keyed = |key: &[u8]| self.hash.siphash(key);
        let in_memory = |address| self.hash_in_memory(address, keyed);
        if !matches!(writer.switch(&in_memory), Ok(false)) {
            return;
        }
        let Ok(addresses) = writer.overfull() else { return };
        drop(writer);
        if addresses.is_empty() {
            return;
        }
        let mut cold = Vec::new();
        for address in addresses {
            let (region, _) = self.regions.split(address);
            let life = self.regions.life(region);
            if in_memory(address).is_some() {
                continue;
            }
            let Ok(record) = self.read_cold(address, life) else { return };
            if let Some(record) = record.as_ref().and_then(ColdRecord::record) {
                cold.push((address, life, keyed(record.key())));
            }
        }
        let mut writer = self.index.lock(path);
        // While the subtree is locked, the region of a record in it stays in its life.
        let is_it = |address, life| life == self.regions.life(self.regions.split(address).0);
        let read = |address| {
            let found = cold.iter().find(|(at, life, _)| *at == address && is_it(address, *life));
            in_memory(address).or(found.map(|(_, _, keyed)| *keyed))
        };
        let _ = writer.switch(&read);
    }

    /// The hash of the key of the record at an address; `None` if it is not in memory. The caller
    /// has its subtree locked.
    pub(super) fn hash_in_memory(&self, address: u64, hash: impl Fn(&[u8]) -> u64) -> Option<u64> {
        let found = self.regions.read_in_memory(address, |words| {
            let head = TrieRecordHead::load(words).filter(|head| head.fits(words))?;
            let mut key = vec![0; head.key_bytes];
            copy_out(words, HEAD_BYTES, &mut key);
            Some(hash(&key))
        });
        match found {
            RegionRead::Found(hash) => Some(hash),
            RegionRead::Changed | RegionRead::Cold(_) => None,
        }
    }
}
