//! Scans in the order of hashes.
//!
//! A cursor is a path of the trie. Where paths are bytes of keys, the order is by path and then by
//! the keyed hash, whether a subtree is switched to the keyed hash or not. A scan reads the records
//! of a list without a lock. If writers change the subtree again and again, it locks the subtree.

use super::{
    record::{ExtentAddr, HEAD_BYTES, TrieRecordHead},
    table::Trie,
};
use crate::{
    Result,
    contract::{Cursor, Entry, HashOrder, Value},
    engine::trie::{index::KeyPath, store::regions::RegionRead},
    util::{codec::Decoder, mutant::mutant, words::copy_out},
};

/// Times that a scan reads a list without a lock before it locks the subtree.
const SCAN_ATTEMPTS: u32 = 8;

impl HashOrder for Trie {
    fn position(&self, key: &[u8], hash: u64) -> u64 {
        if self.hash.is_siphash() {
            return hash & self.hash_mask;
        }
        let path = self.path(key).hash;
        if self.hash.is_none() { self.index.walk_position(path, hash) } else { path }
    }

    fn cursor_position(&self, cursor: &Cursor) -> Result<u64> {
        if cursor.is_start() {
            return Ok(0);
        }
        let mut rest = Decoder::new(&cursor.0);
        let path = rest.u64().filter(|path| rest.is_empty() && *path != 0);
        path.ok_or_else(Cursor::unknown)
    }
}

impl Trie {
    /// Returns a page of a scan in the order of hashes. A cursor is the path at which the scan
    /// continues.
    pub(super) fn scan_from(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        self.merge_all()?;
        let mut path = self.cursor_position(from)?;
        let mut entries = Vec::new();
        loop {
            match self.scan_list(path, &mut entries)? {
                None => return Ok((entries, Cursor::START)),
                Some(next) => path = next,
            }
            if entries.len() >= limit.max(1) {
                mutant!(TrieScanSkips => path = self.skip_path(path)?);
                return Ok((entries, Cursor(path.to_le_bytes().to_vec())));
            }
        }
    }

    /// Appends the entries at one path and returns the next path.
    fn scan_list(&self, path: u64, entries: &mut Vec<Entry>) -> Result<Option<u64>> {
        let before = entries.len();
        let mut addresses = Vec::new();
        for _ in 0..SCAN_ATTEMPTS {
            let version = self.index.version(path);
            addresses.clear();
            let next = self.index.walk(path, &mut addresses, |at| self.load_index(at))?;
            let whole = self.read_entries(&addresses, entries, false)?;
            if whole && self.index.is_version(path, version) {
                return Ok(next);
            }
            entries.truncate(before);
        }
        let mut retries = 0;
        loop {
            let writer = self.index.lock(KeyPath::of_hash(path));
            addresses.clear();
            let next = writer.walk(path, &mut addresses)?;
            if self.read_entries(&addresses, entries, true)? {
                return Ok(next);
            }
            entries.truncate(before);
            self.count_retry(addresses.first().copied().unwrap_or(0), &mut retries)?;
        }
    }

    /// Appends the entries at these addresses; `false` if one of them is no longer a record.
    fn read_entries(
        &self,
        addresses: &[u64],
        entries: &mut Vec<Entry>,
        is_locked: bool,
    ) -> Result<bool> {
        for address in addresses {
            let Some((key, value)) = self.read_entry(*address, is_locked)? else {
                return Ok(false);
            };
            entries.push(Entry { key, value });
        }
        Ok(true)
    }

    /// Returns key and value at an address, or `None` if there is no record now. `is_locked` says
    /// that the caller holds the subtree's lock.
    fn read_entry(&self, address: u64, is_locked: bool) -> Result<Option<(Vec<u8>, Value)>> {
        let found = self.regions.read_in_memory(address, |words| {
            let head = TrieRecordHead::load(words).filter(|head| head.fits(words))?;
            let mut key = vec![0; head.key_bytes];
            copy_out(words, HEAD_BYTES, &mut key);
            let value = Value::fill_with(head.value_bytes, |out| head.copy_value(words, out));
            Some((key, head.is_extent, value))
        });
        let (key, is_extent, value) = match found {
            RegionRead::Found(found) => found,
            RegionRead::Changed => return Ok(None),
            RegionRead::Cold(life) => {
                let Some(cold) = self.read_cold(address, life)? else { return Ok(None) };
                let Some(record) = cold.record() else { return Ok(None) };
                let value = record.value();
                let value = Value::fill_with(value.len(), |out| out.copy_from_slice(value));
                (record.key().to_vec(), record.head.is_extent, value)
            }
        };
        if !is_extent {
            return Ok(Some((key, value)));
        }
        let Some(extent) = ExtentAddr::decode(&value) else { return Ok(None) };
        if let Some(value) = self.read_large(extent)? {
            return Ok(Some((key, value)));
        }
        if is_locked {
            return Err(self.extent_damage(extent));
        }
        // Replaced since, or damaged: a get finds out which.
        Ok(self.read_value(&key)?.map(|value| (key, value)))
    }
}
