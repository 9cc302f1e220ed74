//! Sizes of ranges and of tables, as the originals report them.

use quintet::{KeyRange, Table, TableStats};

use crate::{keys, status::Status};

/// Returns about how many bytes the entries from `start` to `end` take. The estimate is the part of
/// the keys that is in the range, of the size of the table. Returns at least 1 if the engine finds
/// a key there.
pub fn approximate_bytes(table: &Table, start: &[u8], end: &[u8]) -> Result<u64, Status> {
    if start >= end {
        return Ok(0);
    }
    let range = KeyRange {
        start: Some(keys::stored(start).into_owned()),
        end: Some(keys::stored(end).into_owned()),
    };
    let keys_in_range = table.estimate_count(range)?;
    if keys_in_range == 0 {
        return Ok(0);
    }
    let stats = table.stats()?;
    let total = u128::from(table_bytes(&stats));
    let part = total * u128::from(keys_in_range) / u128::from(stats.keys.max(keys_in_range));
    Ok(u64::try_from(part).unwrap_or(u64::MAX).max(1))
}

/// Returns the size of a table in bytes: in files, or in memory before the first flush.
pub fn table_bytes(stats: &TableStats) -> u64 {
    stats.file_bytes.max(stats.live_bytes)
}

/// Returns the number of files with entries of a table.
pub fn files(stats: &TableStats) -> u64 {
    let detail = |name| stats.details.iter().find(|(other, _)| *other == name).map(|(_, n)| *n);
    detail("runs").or_else(|| detail("tables")).unwrap_or(u64::from(stats.file_bytes > 0))
}

/// Returns the lines of a table of statistics, with one level, in LevelDB's layout.
pub fn levels_text(stats: &TableStats) -> String {
    let mib = 1_048_576;
    format!(
        "                               Compactions\n\
         Level  Files Size(MB) Time(sec) Read(MB) Write(MB)\n\
         --------------------------------------------------\n\
         {:3} {:8} {:8} {:9} {:8} {:9}\n",
        0,
        files(stats),
        table_bytes(stats) / mib,
        0,
        0,
        stats.written_bytes_total / mib,
    )
}
