//! A manifest as text, record by record, for `quintet inspect`.

use std::sync::Arc;

use crate::{
    Error, Result,
    engine::hashlog::{
        files::TableIdentity,
        manifest::{HEAD_BYTES, HashLogManifest, ManifestRecord, Window},
    },
    io::{Dir, File, SECTOR_BYTES, read_up_to},
    util::{
        codec::Decoder,
        format::{LineSink, hex},
    },
};

/// Describes each record of a manifest. Fails with `Corruption` at the first damage.
pub(super) fn describe(
    dir: &Arc<dyn Dir>,
    file: Arc<dyn File>,
    name: &str,
    say: &mut LineSink<'_>,
) -> Result<()> {
    let io = |error| Error::io(format!("read {name}"), error);
    let mut head = vec![0; HEAD_BYTES];
    read_up_to(&*file, &mut head, 0).map_err(io)?;
    let length = file.len().map_err(io)?;
    let mut decoder = Decoder::new(head.get(16..).unwrap_or(&[]));
    let ids = || Some((decoder.id()?, decoder.u64()?, decoder.u64()?));
    let (database_id, table_id, number) = { ids }().unwrap_or_default();
    let owner = TableIdentity { database_id, table_id };
    let mut manifest =
        HashLogManifest::with_file(Arc::clone(dir), owner, number, file, name.to_owned());
    manifest.verify_head()?;
    say("manifest of a hashlog table");
    say(&format!("  database id  {}", hex(&database_id)));
    say(&format!("  table id     {table_id}"));
    say(&format!("  number       {number}"));
    let mut window = Window::new(Arc::clone(&manifest.file));
    while let Some((records, next)) = manifest.read_checkpoint(&mut window, length)? {
        for (offset, record) in records {
            if !say(&format!("byte {offset}: {}", text_of(&manifest, &record)?)) {
                return Ok(());
            }
        }
        manifest.end = next;
        manifest.sequence += 1;
    }
    manifest.refuse_damage(&mut window, length)?;
    if manifest.sequence == 0 {
        return Err(Error::corruption(name, SECTOR_BYTES, "the manifest has no readable commit"));
    }
    if manifest.end < length {
        say(&format!("byte {}: no checkpoint from here on", manifest.end));
    }
    Ok(())
}

/// Returns the text for a record.
fn text_of(manifest: &HashLogManifest, record: &ManifestRecord) -> Result<String> {
    Ok(match record {
        ManifestRecord::Begin(sequence) => format!("begin of checkpoint {sequence}"),
        ManifestRecord::Extent(extent, hints) => {
            let whole = if manifest.hints(hints)?.is_some() { "" } else { " (damaged)" };
            let packed = match extent.packing_bytes() {
                0 => String::new(),
                bytes => format!(", packed, {bytes} bytes of directory"),
            };
            let sealed = if extent.sealed & 1 == 1 { ", sealed" } else { "" };
            format!(
                "extent of chunk {} serial {} order {}, units {} to {}, {} entries, lsn {} to \
                 {}, in file {} at {} of {} bytes{sealed}{packed}, {} bytes of hints{whole}",
                extent.chunk,
                extent.serial,
                extent.order,
                extent.start,
                extent.end,
                extent.entry_count,
                extent.first_lsn,
                extent.last_lsn,
                extent.file,
                extent.offset,
                extent.range_bytes,
                hints.bytes - extent.packing_bytes().min(hints.bytes),
            )
        }
        ManifestRecord::Drop { chunk, serial } => {
            format!("drop of chunk {chunk} serial {serial}")
        }
        ManifestRecord::Large(large) => format!(
            "large value {} of {} bytes, lsn {}, in file {} at {} of {} bytes",
            large.number, large.bytes, large.lsn, large.file, large.offset, large.range_bytes
        ),
        ManifestRecord::DropLarge(number) => format!("drop of large value {number}"),
        ManifestRecord::Commit(commit) => format!(
            "commit of checkpoint {}, complete to {}, next serial {}, next large value {}, \
             next file {}{}",
            commit.sequence,
            commit.complete,
            commit.next_serial,
            commit.next_large,
            commit.next_file,
            if commit.collided == 0 { "" } else { ", keys share hashes" },
        ),
    })
}
