//! Descriptions of the files, for `quintet inspect`.

use super::{manifest::decode, two_tiers::local::LocalIndex};
use crate::{
    Error, Result,
    io::{Dir, File, read_up_to},
    lsm::sst::{SstKind, describe},
    util::{
        codec::to_usize,
        format::{LineSink, hex},
    },
};

use std::sync::Arc;

/// Describes a manifest, line by line.
pub fn manifest(file: &dyn File, label: &str, say: &mut LineSink<'_>) -> Result<()> {
    let io = |error| Error::io(format!("read {label}"), error);
    let mut bytes = vec![0; to_usize(file.len().map_err(io)?)];
    let count = read_up_to(file, &mut bytes, 0).map_err(io)?;
    bytes.truncate(count);
    let found = decode(&bytes).map_err(|(at, what)| Error::corruption(label, at, what))?;
    let contents = found.contents;
    let mut more = say("tph manifest");
    let (database_id, table_id, number) = found.identity;
    more &= say(&format!("  database id  {}", hex(&database_id)));
    more &= say(&format!("  table id     {table_id}"));
    more &= say(&format!("  number       {number}"));
    more &= say(&format!("  edits        {}, to offset {}", found.edits, found.end));
    if found.is_torn {
        more &= say("  after them   bytes that are no edit");
    }
    more &= say(&format!("  complete to  {}", contents.complete));
    more &= say(&format!("  next piece   {}", contents.next_sst));
    for (number, level) in contents.levels.iter().enumerate() {
        more &= say(&format!("level {number}: {} tables", level.len()));
        for table in level.iter().take_while(|_| more) {
            let low = table.lower_bound.escape_ascii();
            say(&format!("  from \"{low}\": {} tombstones", table.tombstones));
            for one in &table.ssts {
                say(&format!(
                    "    {}: {} bytes, {} live entries of {} bytes",
                    SstKind::PIECE.name_of(one.number),
                    one.file_bytes,
                    one.live,
                    one.live_bytes
                ));
            }
        }
    }
    Ok(())
}

/// Describes a piece of a table with two tiers, line by line.
pub fn piece(
    dir: &Arc<dyn Dir>,
    file: &dyn File,
    label: &str,
    say: &mut LineSink<'_>,
) -> Result<()> {
    let kind = (SstKind::SLOTTED, "tph piece of two tiers");
    describe::sst((dir, file, label), kind, say, |sst, say| {
        let footer = &sst.footer;
        let local = LocalIndex::decode(
            &sst.section(footer.fences)?,
            sst.blocks(),
            (label, footer.fences.offset),
        )?;
        say(&format!("  global hash  {} bytes", footer.index.bytes));
        say(&format!("  local hash   {} bytes", footer.fences.bytes));
        say(&format!("  segments     {}", local.segments()));
        say(&format!("  key order    {} bytes", footer.order.bytes));
        say(&format!("  keys apart   {} bytes", footer.keys.bytes));
        for section in [footer.index, footer.keys, footer.order] {
            sst.section(section)?;
        }
        Ok(())
    })
}

/// Describes an SST, line by line.
pub fn sst(dir: &Arc<dyn Dir>, file: &dyn File, label: &str, say: &mut LineSink<'_>) -> Result<()> {
    describe::sst((dir, file, label), (SstKind::PIECE, "tph piece"), say, |sst, say| {
        say(&format!("  index        {} bytes", sst.footer.index.bytes));
        say(&format!("  keys apart   {} bytes", sst.footer.keys.bytes));
        let _ = sst.section(sst.footer.keys)?;
        sst.section(sst.footer.index).map(drop)
    })
}
