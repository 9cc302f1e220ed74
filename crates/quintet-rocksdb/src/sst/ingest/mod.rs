//! Ingests files of sorted entries.

mod reader;

use std::{
    fs,
    path::{Path, PathBuf},
};

use quintet::{Durability, PutOptions};
use quintet_compat::{
    files::failed,
    keys,
    operations::{Action, Operations, Record},
    status::Status,
};

use reader::SstBlocks;

use crate::core::{Core, Family};

/// Size in bytes of the files that are ingested at one moment: a quarter of the largest batch.
const ATOMIC_BYTES_MAX: u64 = 256 << 20;
/// Size in bytes of the batches in which more is ingested.
const BATCH_BYTES: usize = 4 << 20;

/// How files are ingested.
#[derive(Clone, Copy, Debug)]
pub struct IngestRules {
    /// Whether the files are removed after that.
    pub moves_files: bool,
    /// Whether entries that exist stay as they are.
    pub is_behind: bool,
}

/// Returns why a file, with timestamps or without, does not suit a family.
fn other_keys(path: &Path, family: &Family, has_timestamps: bool) -> Status {
    let (path, name) = (path.display(), &family.name);
    Status::invalid(match family.history {
        Some(_) if has_timestamps => {
            format!("{path}: the byte order of timestamps is not that of column family {name}")
        }
        Some(_) => format!("{path}: has no timestamps, and column family {name} has them"),
        None => format!("{path}: has timestamps, and column family {name} has none"),
    })
}

/// Returns the size of files in bytes, and their range deletes. Fails if one is damaged, or
/// if its timestamps are not those of the family.
fn check(paths: &[PathBuf], family: &Family) -> Result<(u64, Operations), Status> {
    let mut bytes = 0_u64;
    let mut ranges = Operations::default();
    for path in paths {
        let metadata = fs::metadata(path).map_err(|error| failed(path, &error))?;
        bytes = bytes.saturating_add(metadata.len());
        let blocks = SstBlocks::open(path)?;
        let timestamps = blocks.timestamps();
        if timestamps != family.history.as_ref().map(|history| history.order) {
            return Err(other_keys(path, family, timestamps.is_some()));
        }
        for block in blocks {
            for record in block?.records() {
                let record = record?;
                if record.action == Action::DeleteRange {
                    ranges.add(Record { family: family.id, ..record });
                }
            }
        }
    }
    Ok((bytes, ranges))
}

/// Ingests files into a column family. The entries are durable then.
pub fn ingest(
    core: &Core,
    family: &Family,
    paths: &[PathBuf],
    rules: IngestRules,
) -> Result<(), Status> {
    core.check_writable()?;
    let (bytes, ranges) = check(paths, family)?;
    if rules.is_behind {
        ingest_behind(core, family, paths)?;
    } else {
        let is_atomic = bytes <= ATOMIC_BYTES_MAX;
        // The range deletes of all files are before the other entries.
        let mut batch = ranges;
        for path in paths {
            add_entries(core, family, path, (&mut batch, is_atomic))?;
        }
        core.write_with(Durability::Sync, &batch)?;
    }
    if rules.moves_files {
        for path in paths {
            fs::remove_file(path).map_err(|error| failed(path, &error))?;
        }
    }
    Ok(())
}

/// Adds the entries of a file to a batch. One that is too large is written before the end.
fn add_entries(
    core: &Core,
    family: &Family,
    path: &Path,
    (batch, is_atomic): (&mut Operations, bool),
) -> Result<(), Status> {
    for block in SstBlocks::open(path)? {
        for record in block?.records() {
            let record = record?;
            if record.action != Action::DeleteRange {
                batch.add(Record { family: family.id, ..record });
            }
        }
        if !is_atomic && batch.bytes().len() >= BATCH_BYTES {
            core.write_with(Durability::Buffered, batch)?;
            batch.clear();
        }
    }
    Ok(())
}

/// Stores the entries of files whose keys are absent.
fn ingest_behind(core: &Core, family: &Family, paths: &[PathBuf]) -> Result<(), Status> {
    if !family.allows_ingest_behind {
        let message = "Can't ingest_behind file in DB with allow_ingest_behind=false";
        return Err(Status::invalid(message));
    }
    for path in paths {
        for block in SstBlocks::open(path)? {
            for record in block?.records() {
                let record = record?;
                if let Some((key, value)) = family.target().version(&record)? {
                    family.table.put_with(key, value, PutOptions::new().if_absent())?;
                    continue;
                }
                match record.action {
                    Action::Put => {
                        let options = family.target().put_options().if_absent();
                        put(family, &record, options)?;
                    }
                    Action::Merge => {
                        return Err(Status::unsupported("a merge cannot be ingested behind"));
                    }
                    // There is nothing behind the entries that a delete would remove.
                    _ => {}
                }
            }
        }
    }
    Ok(core.store.database.sync()?)
}

fn put(family: &Family, record: &Record<'_>, options: PutOptions) -> Result<(), Status> {
    family.table.put_with(keys::stored(record.key), record.value, options)?;
    Ok(())
}
