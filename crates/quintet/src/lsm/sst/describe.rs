//! Describes an SST as text, for `inspect`.

use std::sync::Arc;

use super::{
    block,
    footer::{self, SstKind, SstOwner},
    reader::Sst,
    slot_block::SlotBlock,
};
use crate::{
    Error, Result,
    io::{Dir, File},
    util::format::{LineSink, hex},
};

/// Maximum number of entries of a block that are printed.
const SHOWN_ENTRIES: usize = 8;

/// Describes an SST of this kind; `more` prints the parts that its engine adds to the blocks. Fails
/// at the first damaged block.
pub(crate) fn sst(
    (dir, file, label): (&Arc<dyn Dir>, &dyn File, &str),
    (kind, title): (SstKind, &str),
    say: &mut LineSink<'_>,
    more: impl FnOnce(&Sst, &mut LineSink<'_>) -> Result<()>,
) -> Result<()> {
    let io = |error| Error::io(format!("read {label}"), error);
    let head = footer::read_head(file).map_err(io)?;
    let damage = |what: &str| Error::corruption(label, 0, what);
    let identity = footer::decode_identity(&head);
    let (database_id, table_id, number) =
        identity.ok_or_else(|| damage("the checksum of the head does not match"))?;
    say(title);
    say(&format!("  database id  {}", hex(&database_id)));
    say(&format!("  table id     {table_id}"));
    say(&format!("  number       {number}"));
    let owner = SstOwner { kind, dir: Arc::clone(dir), database_id, table_id };
    let sst = Sst::open(&owner, number, file.len().map_err(io)?)?;
    say(&format!("  blocks       {}", sst.footer.blocks));
    say(&format!("  entries      {}", sst.footer.entries));
    say(&format!("  tombstones   {}", sst.footer.tombstones));
    more(&sst, say)?;
    for number in 0..sst.blocks() {
        let span = sst.span(number..number + 1);
        let buffer = sst.read(span)?;
        let open = sst.open_block(&buffer, span, (number, number))?;
        let mut entries = Vec::new();
        let damage = |what: &str| sst.damage(span.offset, what);
        let bytes = if kind.has_slots {
            let slots = SlotBlock::parse(open.entries());
            slots.ok_or_else(|| damage("a block has no table of slots"))?.entries()
        } else {
            open.entries()
        };
        block::all_entries(bytes, &mut entries).map_err(damage)?;
        let mut more = say(&format!("block {number}: {} entries", entries.len()));
        for entry in entries.iter().take(SHOWN_ENTRIES) {
            let key = bytes.get(entry.key.clone()).unwrap_or(&[]).escape_ascii();
            let what = if entry.tombstone {
                "deleted".to_owned()
            } else {
                format!("{} bytes", entry.value.len())
            };
            more &= say(&format!("  \"{key}\" {what}"));
        }
        if !more {
            break;
        }
    }
    Ok(())
}
