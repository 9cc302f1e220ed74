//! Stand-in for snapshots.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Result,
    contract::{self, Cursor, Engine as _, KeyRange, Op},
    db::{
        core::Core,
        tables::{
            state::TableState,
            value::{Key, Value},
        },
    },
    util::{
        codec::Lsn,
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

type SavedVersions = BTreeMap<(u64, Vec<u8>), Vec<(u64, Option<contract::Value>)>>;

#[derive(Debug, Default)]
pub(crate) struct VersionStore {
    open: AtomicU64,
    versions: Mutex<SavedVersions>,
}

#[derive(Debug)]
pub(crate) struct SnapshotState {
    pub(crate) lsn: Lsn,
    pub(crate) time: u64,
    store: Arc<VersionStore>,
}

impl Drop for SnapshotState {
    fn drop(&mut self) {
        let mut versions = lock(&self.store.versions);
        if self.store.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            versions.clear();
        }
    }
}

pub(crate) type SnapshotEntries = Box<dyn DoubleEndedIterator<Item = Result<(Key, Value)>> + Send>;

impl Core {
    pub(crate) fn take_snapshot(&self) -> Result<Arc<SnapshotState>> {
        let _every = self.stripes.hold_every();
        self.tables.check_open()?;
        self.versions.open.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(SnapshotState {
            lsn: self.log.end(),
            time: self.host.clock.now(),
            store: Arc::clone(&self.versions),
        }))
    }

    pub(crate) fn save_version(&self, table: &TableState, lsn: Lsn, op: &Op<'_>) -> Result<()> {
        if self.versions.open.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let mut versions = lock(&self.versions.versions);
        match *op {
            Op::Put { key, .. } | Op::Delete { key } => {
                let old = table.engine.get(key)?;
                versions.entry((table.id, key.to_vec())).or_default().push((lsn.0, old));
            }
            Op::DeleteRange { start, end } => {
                let end = (!end.is_empty()).then(|| end.to_vec());
                let range = KeyRange { start: Some(start.to_vec()), end };
                let Some(engine) = table.engine.ordered() else { return Ok(()) };
                for entry in engine.range(range)? {
                    let entry = entry?;
                    let saved = versions.entry((table.id, entry.key)).or_default();
                    saved.push((lsn.0, Some(entry.value)));
                }
            }
        }
        Ok(())
    }

    fn shown(s: &SnapshotState, stored: Option<contract::Value>) -> Option<Value> {
        stored.and_then(Value::open).filter(|value| !value.is_expired(s.time))
    }

    pub(crate) fn snapshot_get(
        &self,
        s: &SnapshotState,
        table: &TableState,
        key: &[u8],
    ) -> Result<Option<Value>> {
        let stored = table.engine.get(key)?;
        let versions = lock(&self.versions.versions);
        let saved = versions.get(&(table.id, key.to_vec()));
        let saved = saved.and_then(|saved| saved.iter().find(|(lsn, _)| *lsn >= s.lsn.0));
        Ok(Self::shown(s, saved.map_or(stored, |(_, old)| old.clone())))
    }

    fn all(&self, s: &SnapshotState, table: &TableState) -> Result<BTreeMap<Key, Value>> {
        let mut all = BTreeMap::new();
        let mut cursor = Cursor::START;
        loop {
            let (entries, next) = table.engine.scan(&cursor, 1000)?;
            all.extend(entries.into_iter().map(|entry| (entry.key, Some(entry.value))));
            if next.is_start() {
                break;
            }
            cursor = next;
        }
        for ((_, key), saved) in
            lock(&self.versions.versions).range((table.id, Vec::new())..(table.id + 1, Vec::new()))
        {
            if let Some((_, old)) = saved.iter().find(|(lsn, _)| *lsn >= s.lsn.0) {
                all.insert(key.clone(), old.clone());
            }
        }
        let shown = |(key, stored)| Self::shown(s, stored).map(|value| (key, value));
        Ok(all.into_iter().filter_map(shown).collect())
    }

    pub(crate) fn snapshot_range(
        &self,
        s: &Arc<SnapshotState>,
        table: &TableState,
        range: KeyRange,
    ) -> Result<SnapshotEntries> {
        let entries = self.all(s, table)?.into_iter().filter(move |(key, _)| {
            range.start.as_ref().is_none_or(|start| key >= start)
                && range.end.as_ref().is_none_or(|end| key < end)
        });
        Ok(Box::new(entries.map(Ok).collect::<Vec<_>>().into_iter()))
    }

    pub(crate) fn snapshot_scan(
        &self,
        s: &SnapshotState,
        table: &TableState,
        cursor: &Cursor,
        count: usize,
    ) -> Result<(Vec<(Key, Value)>, Cursor)> {
        let from = cursor.key()?.to_vec();
        let all = self.all(s, table)?;
        let entries: Vec<_> = all.into_iter().filter(|(key, _)| *key >= from).take(count).collect();
        let next = match entries.last() {
            Some((key, _)) if entries.len() == count => Cursor::after_key(key),
            _ => Cursor::START,
        };
        Ok((entries, next))
    }

    fn any_changed(&self, s: &SnapshotState, mut wanted: impl FnMut(&(u64, Vec<u8>)) -> bool) -> bool {
        lock(&self.versions.versions)
            .iter()
            .any(|(key, saved)| wanted(key) && saved.iter().any(|(lsn, _)| *lsn >= s.lsn.0))
    }

    pub(crate) fn is_key_changed(
        &self,
        s: &SnapshotState,
        table: &TableState,
        key: &[u8],
    ) -> Result<bool> {
        let versions = lock(&self.versions.versions);
        let saved = versions.get(&(table.id, key.to_vec()));
        Ok(saved.is_some_and(|saved| saved.iter().any(|(lsn, _)| *lsn >= s.lsn.0)))
    }

    pub(crate) fn is_range_changed(
        &self,
        s: &SnapshotState,
        table: &TableState,
        range: &KeyRange,
    ) -> Result<bool> {
        Ok(self.any_changed(s, |(id, key)| {
            *id == table.id
                && range.start.as_ref().is_none_or(|start| key >= start)
                && range.end.as_ref().is_none_or(|end| key < end)
        }))
    }

    pub(crate) fn is_table_changed(&self, s: &SnapshotState, table: &TableState) -> Result<bool> {
        Ok(self.any_changed(s, |(id, _)| *id == table.id))
    }
}
