//! The meta page: page 0 of a table's file.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | | the cache's ([`crate::bptree::page_cache`]) |
//! | 8 | 1 | kind | 4 |
//! | 16 | 8 | magic | `QBPTREE\0` |
//! | 24 | 4 | format | 1, or 2 where leaves may be packed |
//! | 28 | 4 | page size | in bytes |
//! | 32 | 16 | database id | |
//! | 48 | 8 | table id | |
//! | 56 | 8 | lsn | the file is complete to it |
//! | 64 | 8 | granularity | pages of an extent |
//! | 72 | 8 | end | pages of the file |
//! | 80 | 8 | keys | |
//! | 88 | 8 | bytes | of keys and values |
//! | 96 | 8 | leaves | leaf pages |
//! | 104 | 8 | inner | pages of inner nodes |
//! | 112 | 8 | placed | the group of the redo journal that is in place, or 0 |
//!
//! All fields are in the first sector, checksum included. After a crash the page is thus the old or
//! the new one.

use crate::{
    Error, Result,
    bptree::node::META,
    util::codec::{Decoder, Lsn, low_u32, put_u32, put_u64, to_u64},
};

const MAGIC: &[u8; 8] = b"QBPTREE\0";
const FORMAT: u32 = 2;
/// Format number of files without packed leaves.
const FORMAT_PLAIN: u32 = 1;

/// The content of the meta page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Whether leaves may be packed.
    pub(crate) packs: bool,
    pub(crate) page_bytes: usize,
    pub(crate) database_id: [u8; 16],
    pub(crate) table_id: u64,
    pub(crate) lsn: Lsn,
    pub(crate) granularity: u64,
    pub(crate) end: u64,
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
    pub(crate) leaves: u64,
    pub(crate) inner: u64,
    pub(crate) written_back: u64,
}

impl Meta {
    /// Returns the page's bytes, without the checksum and number, which the cache sets.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; 8];
        page.extend_from_slice(&[META, 0, 0, 0, 0, 0, 0, 0]);
        page.extend_from_slice(MAGIC);
        put_u32(&mut page, if self.packs { FORMAT } else { FORMAT_PLAIN });
        put_u32(&mut page, low_u32(to_u64(self.page_bytes)));
        page.extend_from_slice(&self.database_id);
        let words = [self.table_id, self.lsn.0, self.granularity, self.end, self.keys, self.bytes];
        for word in words.into_iter().chain([self.leaves, self.inner, self.written_back]) {
            put_u64(&mut page, word);
        }
        page.resize(self.page_bytes, 0);
        page
    }

    /// Decodes a page whose checksum is right; `label` names the file. Fails with `Corruption`, or
    /// `NewerFormat` for a newer version.
    pub(crate) fn decode(page: &[u8], label: &str) -> Result<Self> {
        let damage = |what: &str| Error::corruption(label, 0, what);
        let mut rest = Decoder::new(page);
        let mut read = || {
            rest.take(16)?;
            let (magic, format) = (rest.take(8)?, rest.u32()?);
            let page_bytes = usize::try_from(rest.u32()?).ok()?;
            let meta = Self {
                packs: format == FORMAT,
                page_bytes,
                database_id: rest.id()?,
                table_id: rest.u64()?,
                lsn: Lsn(rest.u64()?),
                granularity: rest.u64()?,
                end: rest.u64()?,
                keys: rest.u64()?,
                bytes: rest.u64()?,
                leaves: rest.u64()?,
                inner: rest.u64()?,
                written_back: rest.u64()?,
            };
            Some((magic == MAGIC, format, meta))
        };
        match read() {
            Some((true, FORMAT_PLAIN | FORMAT, meta)) => Ok(meta),
            Some((true, found, _)) if found > FORMAT => {
                Err(Error::NewerFormat { file: label.to_owned(), found, supported: FORMAT })
            }
            _ => Err(damage("page 0 is no meta page")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_pinned_and_round_trips() {
        let meta = Meta {
            packs: false,
            page_bytes: 4096,
            database_id: [9; 16],
            table_id: 1,
            lsn: Lsn(2),
            granularity: 3,
            end: 4,
            keys: 5,
            bytes: 6,
            leaves: 7,
            inner: 8,
            written_back: 9,
        };
        let page = meta.encode();
        assert_eq!(page.len(), 4096);
        let words: Vec<u8> = (1..10).flat_map(|word: u64| word.to_le_bytes()).collect();
        let expected =
            [&[0; 8][..], &[4, 0, 0, 0, 0, 0, 0, 0], b"QBPTREE\0", &[1, 0, 0, 0, 0, 16, 0, 0]];
        assert_eq!(page[..120], [expected.concat(), vec![9; 16], words].concat());
        assert_eq!(Meta::decode(&page, "x").unwrap(), meta);
        let mut newer = page.clone();
        newer[24] = 3;
        assert!(matches!(Meta::decode(&newer, "x"), Err(Error::NewerFormat { found: 3, .. })));
        let packing = Meta { packs: true, ..meta };
        let page_of_packing = packing.encode();
        assert_eq!(page_of_packing[24], 2);
        assert_eq!(page_of_packing[25..], page[25..]);
        assert_eq!(Meta::decode(&page_of_packing, "x").unwrap(), packing);
        assert!(Meta::decode(&page[..110], "x").unwrap_err().is_corruption());
        assert!(Meta::decode(&[0; 4096], "x").unwrap_err().is_corruption());
    }
}
