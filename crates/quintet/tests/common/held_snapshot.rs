//! A snapshot with what it must show.

use std::collections::{BTreeMap, VecDeque};

use quintet::{Cursor, Error, Snapshot, Table};

use crate::random::Random;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A snapshot, and the rows of each table at its moment.
pub(crate) struct HeldSnapshot {
    pub(crate) snapshot: Snapshot,
    pub(crate) tables: Vec<(Table, Rows)>,
}

impl HeldSnapshot {
    /// Reads a table in all ways. Returns `false` if the snapshot has ended. Panics if an answer
    /// differs from the rows.
    pub(crate) fn check(&self, random: &mut Random) -> bool {
        if self.tables.is_empty() {
            return true;
        }
        let (table, rows) = &self.tables[random.index(self.tables.len())];
        let outcome = self.check_points(table, rows, random).and_then(|()| {
            self.check_scan(table, rows)?;
            if table.kind().is_ordered() {
                self.check_ranges(table, rows, random)?;
            }
            Ok(())
        });
        match outcome {
            Ok(()) => true,
            Err(Error::SnapshotExpired { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn check_points(&self, table: &Table, rows: &Rows, random: &mut Random) -> quintet::Result<()> {
        let mut keys: Vec<_> = rows.keys().cloned().collect();
        keys.extend((0..8_u8).map(|number| vec![number; usize::from(number) + 1]));
        let values = self.snapshot.multi_get(table, &keys)?;
        for (key, value) in keys.iter().zip(values) {
            assert_eq!(value.as_deref(), rows.get(key).map(Vec::as_slice), "multi-get of {key:?}");
        }
        let key = &keys[random.index(keys.len())];
        let expected = rows.get(key);
        assert_eq!(self.snapshot.get(table, key)?.as_deref(), expected.map(Vec::as_slice));
        assert_eq!(self.snapshot.contains(table, key)?, expected.is_some());
        let mut into = b"before".to_vec();
        assert_eq!(self.snapshot.get_into(table, key, &mut into)?, expected.is_some());
        assert_eq!(into, expected.cloned().unwrap_or_default());
        Ok(())
    }

    /// A scan returns each entry exactly once.
    fn check_scan(&self, table: &Table, rows: &Rows) -> quintet::Result<()> {
        let (mut found, mut cursor) = (Rows::new(), Cursor::START);
        loop {
            let (page, next) = self.snapshot.scan(table, &cursor, 5)?;
            for (key, value) in page {
                let again = found.insert(key, value.to_vec());
                assert!(again.is_none(), "a scan returned an entry twice");
            }
            if next.is_start() {
                break;
            }
            cursor = next;
        }
        assert!(found == *rows, "scan: {:?}, expected {:?}", found.keys(), rows.keys());
        Ok(())
    }

    fn check_ranges(&self, table: &Table, rows: &Rows, random: &mut Random) -> quintet::Result<()> {
        let mut expected: VecDeque<_> = rows.iter().collect();
        let mut range = self.snapshot.range(table, ..)?;
        loop {
            let is_forward = random.chance(2);
            let one = if is_forward { range.next() } else { range.next_back() };
            let other = if is_forward { expected.pop_front() } else { expected.pop_back() };
            let one = one.transpose()?;
            let one = one.as_ref().map(|(key, value)| (&**key, &**value));
            let other = other.map(|(key, value)| (&**key, &**value));
            assert!(one == other, "{:?}, expected {:?}", one.map(|o| o.0), other.map(|o| o.0));
            if other.is_none() {
                break;
            }
        }
        let start = vec![random.next().to_le_bytes()[0] % 50];
        let mut visited = Rows::new();
        self.snapshot.visit(table, start.clone().., |key, value| {
            visited.insert(key.to_vec(), value.to_vec());
            if visited.len() < 20 {
                std::ops::ControlFlow::Continue(())
            } else {
                std::ops::ControlFlow::Break(())
            }
        })?;
        assert!(visited.iter().eq(rows.range(start..).take(20)), "visit");
        Ok(())
    }
}
