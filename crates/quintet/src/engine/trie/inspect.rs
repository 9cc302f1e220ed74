//! Descriptions of a table's files for `inspect`. Opens, locks and writes nothing.
//!
//! Some facts are in the state in the journal only: which slot is whose image, and the life of a
//! region. The description of a journal ends with the last state as the four spaces of the paper
//! (CedrusDB, figure 7). Records and words of other files are shown unverified; `check` compares
//! their checksums.

use std::sync::Arc;

use super::record::{DiskRecord, walk};
use crate::{
    Error, Result,
    engine::trie::{
        checkpoint_state::{STATE, STATE_VERSION},
        index::{LazyTrie, count_words},
        store::{
            extents::Extents,
            regions::{Regions, UNIT_BYTES},
            space::{SPACE, WordSpace},
        },
    },
    io::{AlignedBuffer, BLOCK_BYTES, Dir, File, read_up_to},
    journal::{
        FileHead, HeadFields,
        redo::{RedoGroup, RedoJournal},
    },
    util::{
        codec::{Decoder, to_u64, to_usize},
        format::{LineSink, hex},
    },
};

/// Bytes. Regions are not larger, so one read holds any.
const REGION_BYTES_MAX: u64 = 16 << 20;

/// Describes a file with a head of pages: images of the trie, records, or large values.
///
/// Fails with [`Error::Corruption`] if the head is damaged, and with [`Error::Io`].
pub fn pages(file: &dyn File, name: &str, say: &mut LineSink<'_>) -> Result<()> {
    let io = |error| Error::io(format!("read {name}"), error);
    let mut block = AlignedBuffer::zeroed(to_usize(BLOCK_BYTES));
    read_up_to(file, block.as_mut_slice(), 0).map_err(io)?;
    let head = FileHead::decode(block.as_slice())
        .filter(|head| (BLOCK_BYTES..=REGION_BYTES_MAX).contains(&head.region_bytes));
    let Some(HeadFields { magic, database_id, table_id, region_bytes }) = head else {
        return Err(Error::corruption(name, 0, "the head of the file is damaged"));
    };
    let (kind, part) = match &magic {
        b"QTRIENOD" => ("images of a trie", "slot"),
        b"QTRIEDAT" => ("records of a trie table", "region"),
        _ => ("large values of a trie table", "block"),
    };
    let size = file.len().map_err(io)?;
    say(kind);
    say(&format!("  database id  {}", hex(&database_id)));
    say(&format!("  table id     {table_id}"));
    say(&format!("  {part} size  {region_bytes}"));
    say(&format!("  file size    {size}"));
    if part == "block" {
        return Ok(());
    }
    let mut buffer = AlignedBuffer::zeroed(to_usize(region_bytes));
    for number in 0..size.saturating_sub(BLOCK_BYTES).div_ceil(region_bytes) {
        let offset = BLOCK_BYTES + number * region_bytes;
        let count = read_up_to(file, buffer.as_mut_slice(), offset).map_err(io)?;
        let bytes = buffer.as_slice().get(..count).unwrap_or(&[]);
        let line = if part == "slot" { words(bytes) } else { records(bytes) };
        if let Some(line) = line
            && !say(&format!("{part} {number}: {line}"))
        {
            break;
        }
    }
    Ok(())
}

/// The figures of an image; `None` if it is empty.
fn words(bytes: &[u8]) -> Option<String> {
    let (chunks, _) = bytes.as_chunks::<8>();
    let counts = count_words(chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)));
    let [records, lists, nodes, switched] = counts;
    let used = counts.iter().any(|count| *count > 0);
    used.then(|| {
        let switched = match switched {
            0 => String::new(),
            count => format!(", {count} to switched nodes"),
        };
        format!("{records} records, {lists} links to lists, {nodes} links to nodes{switched}")
    })
}

/// The figures of a region; `None` if it is empty.
fn records(bytes: &[u8]) -> Option<String> {
    let (mut records, mut sizes, mut unknown) = (0_u64, [0; 3], 0);
    walk(bytes, 0, |unit, head| match head {
        Some(head) => {
            records += 1;
            let rest = bytes.get(to_usize(unit * UNIT_BYTES)..).unwrap_or(&[]);
            let large = DiskRecord::head(rest).is_some_and(|head| head.is_extent);
            let [keys, values, extents] = &mut sizes;
            *keys += to_u64(head.key_bytes);
            *values += to_u64(head.value_bytes);
            *extents += u64::from(large);
        }
        None => unknown += 1,
    });
    let [keys, values, extents] = sizes;
    (records + unknown > 0).then(|| {
        format!(
            "{records} records, {keys} bytes of keys, {values} of values, {extents} of large \
             values elsewhere, {unknown} places that are no record"
        )
    })
}

/// Describes a file of the journal, one line for each group.
///
/// Fails with [`Error::Corruption`] if a group is damaged and others follow it, and with
/// [`Error::Io`].
pub fn journal(
    dir: &Arc<dyn Dir>,
    file: &dyn File,
    name: &str,
    say: &mut LineSink<'_>,
) -> Result<()> {
    let (mut is_first, mut last) = (true, None);
    RedoJournal::read_all(dir, file, name, &mut |owner, group: &RedoGroup| {
        if std::mem::take(&mut is_first) {
            say("journal of a table");
            say(&format!("  database id  {}", hex(&owner.database_id)));
            say(&format!("  table id     {}", owner.table_id));
        }
        if group.has_page_patches() {
            let (mut pages, mut bytes, mut freed) = (0_u64, 0, 0_u64);
            for (_, _, size) in group.page_entries().flatten() {
                let is_freed = size == 0;
                (pages, bytes, freed) =
                    (pages + u64::from(!is_freed), bytes + size, freed + u64::from(is_freed));
            }
            return say(&format!(
                "group {}: needs {}, complete to {}, {bytes} bytes of {pages} pages, {freed} free",
                group.sequence(),
                group.needed(),
                group.lsn(),
            ));
        }
        let (mut patches, mut bytes, mut state) = (0_u64, 0, 0);
        for patch in group.patches().flatten() {
            match patch.space {
                STATE => {
                    state += to_u64(patch.bytes.len());
                    last = Some((group.sequence(), patch.bytes.to_vec()));
                }
                SPACE => (patches, bytes) = (patches + 1, bytes + to_u64(patch.bytes.len())),
                _ => {}
            }
        }
        say(&format!(
            "group {}: needs {}, complete to {}, {} words in {patches} runs, a state of {state} \
             bytes",
            group.sequence(),
            group.needed(),
            group.lsn(),
            bytes / 8,
        ))
    })?;
    if let Some((sequence, state)) = last {
        say(&format!("state of group {sequence}:"));
        let Some(lines) = spaces(&state) else {
            return Err(Error::corruption(name, 0, "the state in the last group does not parse"));
        };
        for line in lines {
            if !say(&line) {
                break;
            }
        }
    }
    Ok(())
}

/// Describes the four spaces in the state of a checkpoint. Returns `None` if it is not one.
fn spaces(state: &[u8]) -> Option<Vec<String>> {
    let mut rest = Decoder::new(state);
    if rest.varint()? != STATE_VERSION {
        return None;
    }
    let _live_bytes = rest.varint()?;
    let (mut trie, mut images) = (Vec::new(), Vec::new());
    LazyTrie::describe_state(&mut rest, &mut trie)?;
    WordSpace::describe_state(&mut rest, &mut images)?;
    let (mut data, mut free) = (vec!["  data space:".to_owned()], Vec::new());
    Regions::describe_state(&mut rest, &mut data, &mut free)?;
    Extents::describe_state(&mut rest, &mut data, &mut free)?;
    let free_list = trie.iter().position(|line| line.starts_with("  trie free list"))?;
    trie.splice(free_list..free_list, images);
    let title = format!("  data free list: {} entries", free.len());
    rest.is_empty().then(|| [trie, data, vec![title], free].concat())
}
