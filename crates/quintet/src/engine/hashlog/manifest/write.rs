//! Writes of a manifest: checkpoints, and whole manifests that replace others.

#![deny(clippy::indexing_slicing)]

use std::{io, mem, sync::Arc};

use super::{
    file::{HashLogManifest, UNFINISHED, name_of},
    record::{
        BEGIN, COMMIT, Commit, DROP, DROP_LARGE, EXTENT, Extent, LARGE, LargeRecord,
        ManifestContents,
    },
};
use crate::{
    Error, Result,
    engine::hashlog::files::{TableIdentity, label},
    io::{Dir, Open, SECTOR_BYTES, write_all_at},
    util::{
        codec::{crc32c, low_u32, put_u32, round_up, to_u64, to_usize},
        mutant::mutant,
    },
};

/// Bytes of hints that a rewrite buffers before a write.
const WRITE_BYTES: usize = 1 << 20;

impl HashLogManifest {
    /// Adds a record of these words to the buffer.
    fn words(&mut self, kind: u8, words: &[u64]) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let crc = self.checksum(kind, &body);
        put_u32(&mut self.buffer, low_u32(to_u64(body.len())));
        put_u32(&mut self.buffer, crc);
        self.buffer.push(kind);
        self.buffer.extend_from_slice(&body);
    }

    /// Starts a checkpoint. Discards the buffer of an earlier, failed one.
    pub(in crate::engine::hashlog) fn begin(&mut self) {
        debug_assert!(!self.in_doubt, "another manifest may be the one that a crash leaves");
        self.buffer.clear();
        self.hints.clear();
        self.words(BEGIN, &[self.sequence]);
    }

    /// Adds an extent with its hints.
    pub(in crate::engine::hashlog) fn add_extent(&mut self, extent: &Extent, hints: &[u8]) {
        debug_assert_eq!(extent.hint_bytes, to_u64(hints.len()), "the extent's hints");
        self.words(EXTENT, &extent.words(crc32c(hints)));
        self.hints.extend_from_slice(hints);
    }

    /// Adds a drop of all extents of a chunk so far. Extents that follow are in another file range.
    pub(in crate::engine::hashlog) fn add_drop(&mut self, chunk: u64, serial: u64) {
        self.words(DROP, &[chunk, serial]);
    }

    /// Adds a large value.
    pub(in crate::engine::hashlog) fn add_large(&mut self, large: &LargeRecord) {
        let &LargeRecord { number, lsn, file, offset, range_bytes, bytes } = large;
        self.words(LARGE, &[number, lsn, file, offset, range_bytes, bytes]);
    }

    /// Adds a drop of a large value.
    pub(in crate::engine::hashlog) fn add_drop_large(&mut self, number: u64) {
        self.words(DROP_LARGE, &[number]);
    }

    /// Ends the checkpoint and makes it durable. A failed write has no effect: the next checkpoint
    /// overwrites it. After a failed sync the manifest is in doubt.
    pub(in crate::engine::hashlog) fn commit(&mut self, commit: Commit) -> Result<()> {
        self.end_records(commit);
        let hints = mem::take(&mut self.hints);
        self.buffer.extend_from_slice(&hints);
        self.fill_sector();
        self.write_buffer(self.end)?;
        let synced = mutant!(HashlogSkipsManifestSync: Ok(()), else self.file.sync_data());
        if let Err(error) = synced {
            self.in_doubt = true;
            return Err(Error::io(format!("sync {}", self.label), error));
        }
        self.advance(self.end + to_u64(self.buffer.len()));
        Ok(())
    }

    /// Adds the last record of a checkpoint to the buffer.
    fn end_records(&mut self, commit: Commit) {
        let Commit { complete, next_serial, next_large, next_file, collided, .. } = commit;
        let words = [self.sequence, complete, next_serial, next_large, next_file, collided];
        self.words(COMMIT, &words);
        self.fill_sector();
    }

    fn fill_sector(&mut self) {
        let size = round_up(to_u64(self.buffer.len()), SECTOR_BYTES);
        self.buffer.resize(to_usize(size), 0);
    }

    /// Advances to the next checkpoint.
    fn advance(&mut self, end: u64) {
        self.end = end;
        self.sequence += 1;
        // The buffer may be large: free it.
        self.buffer = Vec::new();
    }

    fn write_buffer(&mut self, at: u64) -> Result<()> {
        write_all_at(&*self.file, &self.buffer, at)
            .map_err(|error| Error::io(format!("write {}", self.label), error))?;
        self.written_bytes += to_u64(self.buffer.len());
        Ok(())
    }

    /// Writes a manifest under a temporary name: the first of a table, or one with the live content
    /// of `from`. Its content is durable on return. [`Self::install`] renames it.
    pub(in crate::engine::hashlog) fn prepare(
        dir: &Arc<dyn Dir>,
        owner: TableIdentity,
        number: u64,
        from: Option<(&Self, &ManifestContents)>,
        commit: Commit,
    ) -> Result<Self> {
        let label = label(owner.table_id, &name_of(number));
        let doing = |error| Error::io(format!("create {label}"), error);
        match dir.remove(UNFINISHED) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(doing(error)),
            _ => {}
        }
        let file = dir.open(UNFINISHED, Open::CREATE).map_err(doing)?;
        let mut new = Self::with_file(Arc::clone(dir), owner, number, file, label.clone());
        let written = new.write_all_of(from, commit);
        if written.is_err() {
            // The disk may be full: release the space.
            let _ = dir.remove(UNFINISHED);
        }
        written.map(|()| new)
    }

    /// Writes the head, and one checkpoint with the live content of `from`.
    fn write_all_of(
        &mut self,
        from: Option<(&Self, &ManifestContents)>,
        commit: Commit,
    ) -> Result<()> {
        let mut head = self.head();
        head.resize(to_usize(SECTOR_BYTES), 0);
        let doing = |label: &str, error| Error::io(format!("create {label}"), error);
        write_all_at(&*self.file, &head, 0).map_err(|error| doing(&self.label, error))?;
        self.begin();
        let nothing = ManifestContents::default();
        let contents = from.map_or(&nothing, |(_, contents)| contents);
        for (extent, hints) in &contents.extents {
            self.words(EXTENT, &extent.words(hints.crc));
        }
        contents.larges.iter().for_each(|large| self.add_large(large));
        self.end_records(commit);
        let mut at = self.end;
        if let Some((old, contents)) = from {
            for (_, hints) in &contents.extents {
                // Damaged hints are copied as they are: their checksum still shows the damage.
                let bytes = old.unverified_hints(hints)?;
                self.buffer.extend_from_slice(&bytes);
                if self.buffer.len() >= WRITE_BYTES {
                    self.write_buffer(at)?;
                    at += to_u64(self.buffer.len());
                    self.buffer.clear();
                }
            }
        }
        // The records before the hints fill whole sectors.
        let end = round_up(at + to_u64(self.buffer.len()), SECTOR_BYTES);
        self.buffer.resize(to_usize(end - at), 0);
        self.write_buffer(at)?;
        self.file.sync_all().map_err(|error| doing(&self.label, error))?;
        self.advance(end);
        Ok(())
    }

    /// Renames a prepared manifest to its final name, durably. After an error, a crash may leave
    /// this one or the one before.
    pub(in crate::engine::hashlog) fn install(&self) -> Result<()> {
        let renamed = self.dir.rename(UNFINISHED, &name_of(self.number));
        renamed
            .and_then(|()| self.dir.sync())
            .map_err(|error| Error::io(format!("rename {}", self.label), error))
    }

    /// Removes the file of a replaced manifest. If that fails, the next open does it.
    pub(in crate::engine::hashlog) fn discard(self) {
        let _ = self.dir.remove(&name_of(self.number));
    }
}
