//! The journal: committing groups, retiring them, and its sizes.

#![deny(clippy::indexing_slicing)]

use std::io;

use super::{
    file::{JournalFile, PREFIX, name_of},
    group::{GroupHead, GroupWriter, HEAD_BYTES},
    owner::Owner,
};
use crate::{
    Error, Result,
    io::{BLOCK_BYTES, Open},
    util::{
        codec::{Lsn, crc32c, round_up, to_u64},
        mutant::mutant,
    },
};

/// Smallest preallocation of a file, in bytes. It doubles from there, so small tables stay small.
const FILE_BYTES_MIN: u64 = 64 << 10;

/// The journal. See the module head.
#[derive(Debug)]
pub(crate) struct RedoJournal {
    pub(super) owner: Owner,
    /// Oldest first; the last one takes groups.
    pub(super) files: Vec<JournalFile>,
    /// Number of the next file.
    pub(super) next_number: u64,
    /// Sequence of the next group. A failed group uses its number up.
    pub(super) next_sequence: u64,
    /// Sequence of the newest durable group; 0: none.
    pub(super) newest: u64,
    /// Sequence of the oldest group that recovery needs.
    pub(super) needed: u64,
    /// A file that has reached this size takes no more groups: half of the limit.
    pub(super) file_bytes_max: u64,
    /// The disk had no space for the last preallocation.
    pub(super) lacks_space: bool,
}

impl RedoJournal {
    /// Commits as [`RedoJournal::commit_group`] does. With `retire`, no earlier group is needed
    /// from now on.
    #[cfg(all(test, not(model)))]
    pub(crate) fn commit(&mut self, group: GroupWriter, lsn: Lsn, retire: bool) -> Result<u64> {
        let needed = if retire { self.next_sequence } else { self.needed };
        self.commit_group(group, lsn, needed)
    }

    /// Writes a group and syncs it. With it the table is complete to `lsn`. Returns its sequence.
    ///
    /// `needed` is the sequence of the oldest group that is needed from now on, at least the
    /// current one, at most the new group. All patches of groups before it must be in place and
    /// synced, or in later groups.
    ///
    /// After an error the group may be durable or not. Until another one is, its files must not
    /// change. The next group must have its changes too.
    pub(crate) fn commit_group(
        &mut self,
        group: GroupWriter,
        lsn: Lsn,
        needed: u64,
    ) -> Result<u64> {
        let sequence = self.next_sequence;
        let needed = needed.clamp(self.needed.min(sequence), sequence);
        let mut bytes = group.bytes;
        let patches = bytes.get(HEAD_BYTES..).unwrap_or(&[]);
        let (size, crc) = (to_u64(patches.len()), crc32c(patches));
        let head = GroupHead { sequence, needed, lsn, size, follows: self.newest, crc, index: 0 };
        if let Some(room) = bytes.get_mut(..HEAD_BYTES) {
            room.copy_from_slice(&head.encode(&self.owner));
        }
        let space = round_up(to_u64(bytes.len()), BLOCK_BYTES);
        let (before, end) = self.open_file().map(|file| (file.size, file.end + space))?;
        let size = self.grown_size(before, end);
        let file = self.open_file()?;
        let written = file.append(&bytes, size);
        file.is_closed = written.is_err();
        let (name, lacks_space) = (file.name.clone(), file.size < size);
        if end > before {
            self.lacks_space = lacks_space;
        }
        // Even if it failed, its number is used up.
        self.next_sequence += 1;
        written.map_err(|error| Error::io(format!("write {}", self.owner.label(&name)), error))?;
        self.finish_commit(sequence, needed);
        Ok(sequence)
    }

    /// Records that a group is durable, and removes the files whose groups are all before `needed`.
    pub(super) fn finish_commit(&mut self, sequence: u64, needed: u64) {
        if let Some(file) = self.files.last_mut() {
            file.last = sequence;
        }
        self.newest = sequence;
        self.needed = needed;
        let is_unneeded =
            |file: &JournalFile| mutant!(RedoRemovesNeeded: true, else file.last < needed);
        let (unneeded, kept) = std::mem::take(&mut self.files)
            .into_iter()
            .partition(|file| file.number + 1 != self.next_number && is_unneeded(file));
        self.files = kept;
        for file in unneeded {
            // Best effort: recovery ignores a file that remains, because no group in it is needed.
            let _: io::Result<()> = self.owner.dir.remove(&file.name);
        }
    }

    /// Returns the size in bytes that a file of `size` bytes grows to when it must reach `end`.
    pub(super) fn grown_size(&self, size: u64, end: u64) -> u64 {
        let size = (size * 2).clamp(FILE_BYTES_MIN, self.file_bytes_max.max(FILE_BYTES_MIN));
        round_up(size.max(end), BLOCK_BYTES)
    }

    /// Returns the file that takes the next group. Creates one if the last is full or has failed.
    pub(super) fn open_file(&mut self) -> Result<&mut JournalFile> {
        if self.files.last().is_none_or(|file| self.takes_no_groups(file)) {
            // Best effort: what remains takes space until its file is removed.
            let _: io::Result<()> = self.give_back_space();
            let (number, name) = (self.next_number, name_of(self.next_number));
            let io = |error| Error::io(format!("create {}", self.owner.label(&name)), error);
            self.next_number += 1;
            let file = self.owner.dir.open(&name, Open::CREATE.direct()).map_err(io)?;
            self.owner.dir.sync().map_err(io)?;
            let (end, size, last, is_closed) = (0, 0, 0, false);
            self.files.push(JournalFile { name, number, file, end, size, last, is_closed });
        }
        self.files.last_mut().ok_or_else(|| Error::corruption(PREFIX, 0, "the journal has no file"))
    }

    fn takes_no_groups(&self, file: &JournalFile) -> bool {
        file.is_closed || file.end >= self.file_bytes_max
    }

    /// Gives back the space of groups that failed and, in a file that takes no more groups, what
    /// was preallocated: a full disk would stay full. Recovery may find those groups or not; the
    /// next one has their changes too.
    fn give_back_space(&mut self) -> io::Result<()> {
        mutant!(RedoKeepsFailedSpace => return Ok(()));
        while let Some(file) = self.files.last().filter(|file| self.takes_no_groups(file)) {
            if file.last != 0 {
                return self.files.last_mut().map_or(Ok(()), JournalFile::shrink);
            }
            self.owner.dir.remove(&file.name)?;
            self.files.pop();
        }
        Ok(())
    }

    /// Takes back the groups whose commit failed: after `Ok`, a crash finds the newest durable
    /// group and none after it. After an error it may find them or not.
    pub(crate) fn revoke_failed(&mut self) -> io::Result<()> {
        self.give_back_space()?;
        mutant!(RedoRevokesUnsynced => return Ok(()));
        self.owner.dir.sync()?;
        self.files.last().map_or(Ok(()), |file| file.file.sync_all())
    }

    /// Returns the sequence of the oldest group that recovery needs.
    pub(crate) fn needed(&self) -> u64 {
        self.needed
    }

    /// Returns the sequence of the newest durable group; 0 if there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns about how many bytes of groups recovery would read. Counts whole files.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.end).sum()
    }

    /// Makes the next group begin a new file.
    pub(crate) fn start_new_file(&mut self) {
        if let Some(file) = self.files.last_mut() {
            file.is_closed = true;
        }
    }

    /// Returns whether the patches should be written back in place and their groups retired: the
    /// groups take more than half of the limit.
    pub(crate) fn is_full(&self) -> bool {
        self.live_bytes() > self.file_bytes_max
    }

    /// If the journal is full, returns the sequence of the last group of the oldest file; else 0.
    /// Once all patches up to it are in place, that file can be removed.
    pub(crate) fn overdue_group(&self) -> u64 {
        let oldest = self.files.first().filter(|_| self.files.len() > 1 && self.is_full());
        oldest.map_or(0, |file| file.last)
    }

    /// Returns whether the disk is so full that the files should not grow.
    pub(crate) fn lacks_space(&self) -> bool {
        self.lacks_space
    }

    /// Returns the size at which a file takes no more groups: half of the limit, in bytes.
    pub(crate) fn file_bytes_max(&self) -> u64 {
        self.file_bytes_max
    }

    /// Returns the bytes that the files take.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}
