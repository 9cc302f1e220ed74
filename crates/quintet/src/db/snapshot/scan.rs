//! Scans of a snapshot, page by page. Each entry is returned exactly once.

use std::collections::HashMap;

use super::range::StoredEntry;
use crate::{
    Result,
    contract::{Cursor, Direction, Engine as _, HashOrder, KeyRange, Value},
    db::{
        core::Core,
        tables::state::TableState,
        versions::{POSITION_BYTES, SnapshotState, high_half},
    },
    io::process::ProcessArc,
};

impl Core {
    /// Returns about `count` entries of a table in a snapshot from `cursor` on, with their stored
    /// values, and the cursor of the next page: [`Cursor::START`] at the end.
    pub(crate) fn snapshot_scan(
        &self,
        snapshot: &ProcessArc<SnapshotState>,
        table: &TableState,
        cursor: &Cursor,
        count: usize,
    ) -> Result<(Vec<StoredEntry>, Cursor)> {
        if let Some(order) = table.engine.hash_order() {
            self.begin_snapshot_read(snapshot, table)?;
            let page = self.scan_by_hashes((snapshot, table), order, cursor, count)?;
            snapshot.check()?;
            return Ok(page);
        }
        let start = cursor.key()?;
        let start = (!start.is_empty()).then(|| start.to_vec());
        let mut range = self.snapshot_range(snapshot, table, KeyRange { start, end: None })?;
        let mut entries = Vec::with_capacity(count.min(1024));
        while let Some(entry) = range.next(self, table, Direction::Up)? {
            entries.push(entry);
            if entries.len() >= count {
                let next = entries.last().map(|(key, _)| Cursor::after_key(key));
                return Ok((entries, next.unwrap_or_default()));
            }
        }
        Ok((entries, Cursor::START))
    }

    /// A page of an engine that scans by hashes: the positions between two cursors.
    fn scan_by_hashes(
        &self,
        (snapshot, table): (&SnapshotState, &TableState),
        order: &dyn HashOrder,
        cursor: &Cursor,
        count: usize,
    ) -> Result<(Vec<StoredEntry>, Cursor)> {
        let start = order.cursor_position(cursor)?;
        let (stored, next) = table.engine.scan(cursor, count)?;
        let end = if next.is_start() { None } else { Some(order.cursor_position(&next)?) };
        let is_in = |key: &[u8]| {
            let position = order.position(key, table.hash.hash(key));
            position >= start && end.is_none_or(|end| position < end)
        };
        // After the page: every key in it that was written since the snapshot has a version now.
        let mut versions = self.versions_between((snapshot, table), (start, end), is_in)?;
        let mut entries = Vec::with_capacity(stored.len());
        for entry in stored {
            // A table that has shrunk returns entries of earlier pages again.
            if is_in(&entry.key) && !versions.contains_key(&entry.key) {
                entries.push((entry.key, entry.value));
            }
        }
        entries.extend(versions.drain().filter_map(|(key, value)| Some((key, value?))));
        Ok((entries, next))
    }

    /// Returns the keys with a version for the snapshot from one position to another.
    fn versions_between(
        &self,
        (snapshot, table): (&SnapshotState, &TableState),
        (start, end): (u64, Option<u64>),
        is_in: impl Fn(&[u8]) -> bool,
    ) -> Result<HashMap<Vec<u8>, Option<Value>>> {
        let mut versions = HashMap::new();
        // Places have the high half of a position: the first and the last may be of other pages.
        let mut start = high_half(start).to_vec();
        let end = end.and_then(|end| end.checked_add(1 << 32)).map(high_half);
        let end = end.as_ref().map(<[u8; POSITION_BYTES]>::as_slice);
        while let Some(version) =
            self.versions.nearest_between((snapshot, table), (&start, end), Direction::Up)?
        {
            start.clear();
            start.extend_from_slice(&version.place);
            start.push(0);
            let key = version.place.get(POSITION_BYTES..).unwrap_or(&[]);
            if is_in(key) {
                versions.insert(key.to_vec(), version.value);
            }
        }
        Ok(versions)
    }
}
