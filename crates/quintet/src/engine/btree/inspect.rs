//! Describes a table's file of pages as text. It opens, locks and writes nothing.

use crate::{
    Error, Result,
    bptree::{
        checkpoint::{meta::Meta, salt_of},
        node::{EXTENT, INNER, LEAF, MAP, NodeView},
        page_allocator::MAP_HEAD_BYTES,
        page_cache::{checksum, page_bytes::PageWords},
    },
    io::{AlignedBuffer, File, read_up_to},
    util::{
        codec::{Decoder, to_u64, to_usize},
        format::{LineSink, hex},
        sync::AtomicU64,
    },
};

/// Number of bytes of the meta page that identify the file.
pub const HEAD_BYTES: usize = 4096;

/// Whether a file that begins with these bytes is a table's file of pages.
pub fn is_pages(head: &[u8]) -> bool {
    Meta::decode(head, "").is_ok()
}

/// Describes a file of pages: the meta page, and a line for each node, map page and part of an
/// extent. Pages of direct extents have no header and are left out, as are free ones.
///
/// Fails with [`Error::Corruption`] if the meta page, or one of the first pages of the tree, is
/// damaged. Lines given before are valid.
pub fn describe(file: &dyn File, name: &str, say: &mut LineSink<'_>) -> Result<()> {
    let io = |error| Error::io(format!("read {name}"), error);
    let mut head = AlignedBuffer::zeroed(HEAD_BYTES);
    read_up_to(file, head.as_mut_slice(), 0).map_err(io)?;
    let meta = Meta::decode(head.as_slice(), name)?;
    if !matches!(meta.page_bytes, 4096 | 8192 | 16_384 | 32_768 | 65_536) {
        return Err(Error::corruption(name, 28, "the page size is none"));
    }
    say("pages of a btree table");
    say(&format!("  database id  {}", hex(&meta.database_id)));
    say(&format!("  table id     {}", meta.table_id));
    say(&format!("  complete to  {}", meta.lsn));
    say(&format!("  page size    {}", meta.page_bytes));
    say(&format!("  pages        {} in extents of {}", meta.end, meta.granularity));
    say(&format!("  entries      {} with {} bytes", meta.keys, meta.bytes));
    say(&format!("  nodes        {} leaves, {} inner", meta.leaves, meta.inner));
    let salt = salt_of(&meta.database_id, meta.table_id);
    let mut buffer = AlignedBuffer::zeroed(meta.page_bytes);
    let mut damage = None;
    for page in 0..meta.end {
        let offset = page * to_u64(meta.page_bytes);
        let count = read_up_to(file, buffer.as_mut_slice(), offset).map_err(io)?;
        if count < meta.page_bytes {
            break;
        }
        let bytes = buffer.as_slice();
        let mut decoder = Decoder::new(bytes);
        let (sum, number) = (decoder.u32(), decoder.u32());
        let own = number.is_some_and(|number| u64::from(number) == page);
        if sum == Some(checksum(salt, bytes)) && own {
            let line = line_of(bytes, to_usize(meta.granularity));
            if line.is_some_and(|line| !say(&format!("page {page}: {line}"))) {
                break;
            }
        } else if page <= 2 {
            damage.get_or_insert((offset, page));
        }
    }
    match damage {
        None => Ok(()),
        Some((offset, page)) => {
            Err(Error::corruption(name, offset, format!("the checksum of page {page} is wrong")))
        }
    }
}

fn line_of(bytes: &[u8], granularity: usize) -> Option<String> {
    match *bytes.get(8)? {
        LEAF | INNER => {
            let words: Vec<AtomicU64> = bytes
                .chunks_exact(8)
                .map(|chunk| {
                    let mut word = [0; 8];
                    word.copy_from_slice(chunk);
                    AtomicU64::new(u64::from_le_bytes(word))
                })
                .collect();
            let view = NodeView::new(PageWords::new(&words))?;
            let kind = if view.is_leaf() { "leaf" } else { "inner node" };
            let prefix = view.prefix()?;
            Some(format!(
                "{kind}, level {}, {} entries, prefix \"{}\", {} bytes free",
                view.level(),
                view.count(),
                prefix.escape_ascii(),
                view.free()
            ))
        }
        MAP => {
            let map = bytes.get(MAP_HEAD_BYTES..MAP_HEAD_BYTES + granularity / 8)?;
            let used: u32 = map.iter().map(|byte| byte.count_ones()).sum();
            Some(format!("map, {used} of {granularity} pages used"))
        }
        EXTENT => Some("part of an extent".to_owned()),
        _ => None,
    }
}
