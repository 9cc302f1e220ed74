//! The state of the simulated disk: for each file and directory, what a process sees, what is
//! durable, and the changes in between.
//!
//! Invariants:
//! - The visible content is the durable one with every pending change applied in order. A `lossy`
//!   file is an exception: part of its visible content never reached the disk (a failed sync, a
//!   lost write).
//! - A pending change carries the number of its event. One event touches one file or directory, so
//!   events order all changes of the disk.
//! - A clone shares everything; changes copy what they touch.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    sync::Arc,
};

use rustix::io::Errno;

use super::{content::FileContent, random::mix};
use crate::{
    io::{BLOCK_BYTES, SECTOR_BYTES, persistence::LINE_BYTES},
    util::codec::to_u64,
};

/// Bytes that persistent memory stores atomically.
const WORD_BYTES: u64 = 8;

pub(super) type InodeId = u64;
/// The root directory.
pub(super) const ROOT: InodeId = 1;

/// The kind of memory of mapped files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MappingKind {
    /// Pages of the page cache: they reach the disk sector by sector, and are synced by blocks.
    Pages,
    /// Persistent memory: words reach it one by one, and are written back by lines.
    Memory,
    /// Persistent memory whose owner orders the stores within a line: a line reaches it as it was
    /// at some event.
    Lines,
}

impl MappingKind {
    /// Returns the bytes of one pending change.
    pub(super) const fn unit(self) -> u64 {
        match self {
            Self::Pages => SECTOR_BYTES,
            Self::Memory | Self::Lines => LINE_BYTES,
        }
    }

    /// Returns the bytes that a sync of one byte makes durable.
    const fn synced(self) -> u64 {
        match self {
            Self::Pages => BLOCK_BYTES,
            Self::Memory | Self::Lines => LINE_BYTES,
        }
    }

    /// Returns the bytes that a sync of a range makes durable.
    pub(super) fn to_sync(self, range: &Range<u64>) -> Range<u64> {
        let unit = self.synced();
        range.start / unit * unit..range.end.next_multiple_of(unit)
    }
}

/// The source of the bytes of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Write,
    Mapping(MappingKind),
}

impl Origin {
    /// Bytes that survive a power loss atomically.
    pub(super) const fn grain(self) -> u64 {
        match self {
            Self::Write | Self::Mapping(MappingKind::Pages) => SECTOR_BYTES,
            Self::Mapping(MappingKind::Memory) => WORD_BYTES,
            Self::Mapping(MappingKind::Lines) => LINE_BYTES,
        }
    }
}

/// A change of one file that no sync has covered yet.
#[derive(Clone, Debug)]
pub(super) enum FileChange {
    /// Bytes: a write, or one unit of a mapping.
    Data { offset: u64, bytes: Arc<[u8]>, origin: Origin },
    /// The size went up; `written` by the write that follows, else by `set_len`.
    Grow { size: u64, written: bool },
    /// The size went down.
    Shrink { size: u64 },
    /// A range was deallocated.
    Punch { offset: u64, length: u64 },
    /// Space was allocated, and the file extended if it was shorter.
    Allocate { size: u64 },
}

impl FileChange {
    pub(super) fn apply(&self, content: &mut FileContent) {
        match self {
            Self::Data { offset, bytes, .. } => content.write(*offset, bytes),
            Self::Grow { size, .. } => content.resize(content.size().max(*size)),
            Self::Shrink { size } => content.resize(content.size().min(*size)),
            Self::Punch { offset, length } => content.punch(*offset, *length),
            Self::Allocate { size } => content.allocate(*size),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct PendingChange<T> {
    pub(super) event: u64,
    pub(super) change: T,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileNode {
    pub(super) visible: FileContent,
    pub(super) durable: FileContent,
    pub(super) pending: Vec<PendingChange<FileChange>>,
    pub(super) lossy: bool,
}

impl FileNode {
    pub(super) fn durable(content: FileContent) -> Self {
        Self { visible: content.clone(), durable: content, ..Self::default() }
    }

    pub(super) fn change(&mut self, event: u64, change: FileChange) {
        change.apply(&mut self.visible);
        self.pending.push(PendingChange { event, change });
    }

    pub(super) fn write(&mut self, event: u64, offset: u64, bytes: &[u8]) {
        let end = offset + to_u64(bytes.len());
        if end > self.visible.size() {
            self.change(event, FileChange::Grow { size: end, written: true });
        }
        self.change(event, FileChange::Data { offset, bytes: bytes.into(), origin: Origin::Write });
    }

    /// A process sees `bytes`; the disk gets `stored` (somewhere else, something else, or
    /// nothing).
    pub(super) fn write_wrongly(
        &mut self,
        event: u64,
        offset: u64,
        bytes: &[u8],
        stored: Option<(u64, Vec<u8>)>,
    ) {
        self.lossy = true;
        self.visible.write(offset, bytes);
        if let Some((offset, bytes)) = stored {
            let size = offset + to_u64(bytes.len());
            let grow = FileChange::Grow { size, written: true };
            self.pending.push(PendingChange { event, change: grow });
            let data = FileChange::Data { offset, bytes: bytes.into(), origin: Origin::Write };
            self.pending.push(PendingChange { event, change: data });
        }
    }

    /// Returns what the disk would read: what a process sees, unless something was lost.
    pub(super) fn on_disk(&self) -> FileContent {
        if !self.lossy {
            return self.visible.clone();
        }
        let mut content = self.durable.clone();
        for pending in &self.pending {
            pending.change.apply(&mut content);
        }
        content
    }

    /// Makes everything durable, or everything up to the last bytes written (the contract of
    /// `sync_data` does not cover sizes that no data needs).
    pub(super) fn sync(&mut self, all: bool) {
        let is_data =
            |pending: &PendingChange<FileChange>| matches!(pending.change, FileChange::Data { .. });
        let count = if all {
            self.pending.len()
        } else {
            self.pending.iter().rposition(is_data).map_or(0, |last| last + 1)
        };
        if count == self.pending.len() && !self.lossy {
            self.durable = self.visible.clone();
            self.pending.clear();
        } else {
            for pending in self.pending.drain(..count) {
                pending.change.apply(&mut self.durable);
            }
        }
    }

    /// Makes changes that overlap a range durable; all of them if a size is pending too.
    pub(super) fn sync_range(&mut self, range: &Range<u64>) {
        let is_data =
            |pending: &PendingChange<FileChange>| matches!(pending.change, FileChange::Data { .. });
        let is_in_range = |pending: &PendingChange<FileChange>| match &pending.change {
            FileChange::Data { offset, bytes, .. } => {
                *offset < range.end && range.start < offset + to_u64(bytes.len())
            }
            _ => true,
        };
        if self.pending.iter().all(is_in_range) || !self.pending.iter().all(is_data) {
            return self.sync(false);
        }
        for pending in self.pending.extract_if(.., |pending| is_in_range(pending)) {
            pending.change.apply(&mut self.durable);
        }
    }

    /// Applies a failed sync: the kernel marks the pages clean. They stay readable and are never
    /// written.
    pub(super) fn lose_pending(&mut self) {
        self.lossy |= !self.pending.is_empty();
        self.pending.clear();
    }
}

/// A change of names that no sync of the directory has covered yet.
#[derive(Clone, Debug)]
pub(super) enum Naming {
    Link { name: String, inode: InodeId },
    Unlink { name: String, inode: InodeId },
    Rename { from: String, to: String, inode: InodeId },
}

pub(super) type Entries = BTreeMap<String, InodeId>;

impl Naming {
    pub(super) fn apply(&self, entries: &mut Entries) {
        let mut unlink = |name: &String, inode: &InodeId| {
            if entries.get(name) == Some(inode) {
                entries.remove(name);
            }
        };
        match self {
            Self::Unlink { name, inode } => unlink(name, inode),
            Self::Link { name, inode } => {
                entries.insert(name.clone(), *inode);
            }
            Self::Rename { from, to, inode } => {
                unlink(from, inode);
                entries.insert(to.clone(), *inode);
            }
        }
    }

    const fn inode(&self) -> InodeId {
        match self {
            Self::Link { inode, .. } | Self::Unlink { inode, .. } | Self::Rename { inode, .. } => {
                *inode
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct DirNode {
    pub(super) visible: Entries,
    pub(super) durable: Entries,
    pub(super) pending: Vec<PendingChange<Naming>>,
}

impl DirNode {
    pub(super) fn change(&mut self, event: u64, change: Naming) {
        change.apply(&mut self.visible);
        self.pending.push(PendingChange { event, change });
    }

    pub(super) fn sync(&mut self) {
        self.durable = self.visible.clone();
        self.pending.clear();
    }
}

#[derive(Clone, Debug)]
pub(super) enum Inode {
    File(FileNode),
    Dir(DirNode),
}

/// The whole disk.
#[derive(Clone, Debug)]
pub(super) struct DiskState {
    inodes: BTreeMap<InodeId, Arc<Inode>>,
    next: InodeId,
    pub(super) mapped: MappingKind,
}

impl DiskState {
    pub(super) fn new(mapped: MappingKind) -> Self {
        let root = Arc::new(Inode::Dir(DirNode::default()));
        Self { inodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, mapped }
    }

    pub(super) fn add(&mut self, inode: Inode) -> InodeId {
        let id = self.next;
        self.next += 1;
        self.inodes.insert(id, Arc::new(inode));
        id
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (InodeId, &Inode)> {
        self.inodes.iter().map(|(id, inode)| (*id, &**inode))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (InodeId, &mut Arc<Inode>)> {
        self.inodes.iter_mut().map(|(id, inode)| (*id, inode))
    }

    pub(super) fn is_dir(&self, id: InodeId) -> bool {
        self.dir(id).is_ok()
    }

    pub(super) fn file(&self, id: InodeId) -> io::Result<&FileNode> {
        match self.inodes.get(&id).map(|inode| &**inode) {
            Some(Inode::File(file)) => Ok(file),
            Some(Inode::Dir(_)) => Err(Errno::ISDIR.into()),
            None => Err(Errno::STALE.into()),
        }
    }

    pub(super) fn file_mut(&mut self, id: InodeId) -> io::Result<&mut FileNode> {
        match self.inodes.get_mut(&id).map(Arc::make_mut) {
            Some(Inode::File(file)) => Ok(file),
            Some(Inode::Dir(_)) => Err(Errno::ISDIR.into()),
            None => Err(Errno::STALE.into()),
        }
    }

    pub(super) fn dir(&self, id: InodeId) -> io::Result<&DirNode> {
        match self.inodes.get(&id).map(|inode| &**inode) {
            Some(Inode::Dir(dir)) => Ok(dir),
            Some(Inode::File(_)) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    pub(super) fn dir_mut(&mut self, id: InodeId) -> io::Result<&mut DirNode> {
        match self.inodes.get_mut(&id).map(Arc::make_mut) {
            Some(Inode::Dir(dir)) => Ok(dir),
            Some(Inode::File(_)) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// Returns the blocks of the files that have a name, or are `open`. A removed file takes no
    /// space, although a power loss may bring it back: file systems free space without a sync.
    pub(super) fn blocks_used(&self, open: impl Iterator<Item = InodeId>) -> u64 {
        let (mut seen, mut blocks) = (BTreeSet::new(), 0);
        let mut queue: Vec<InodeId> = open.chain([ROOT]).collect();
        while let Some(id) = queue.pop() {
            if !seen.insert(id) {
                continue;
            }
            match self.inodes.get(&id).map(|inode| &**inode) {
                Some(Inode::File(file)) => blocks += file.visible.blocks_used(),
                Some(Inode::Dir(dir)) => queue.extend(dir.visible.values()),
                None => {}
            }
        }
        blocks
    }

    /// Drops files that no name, no pending change and no open handle refers to.
    pub(super) fn sweep(&mut self, open: impl Iterator<Item = InodeId>) {
        let mut reached: BTreeSet<InodeId> = BTreeSet::new();
        let mut queue: Vec<InodeId> = open.chain([ROOT]).collect();
        while let Some(id) = queue.pop() {
            if !reached.insert(id) {
                continue;
            }
            if let Some(Inode::Dir(dir)) = self.inodes.get(&id).map(|inode| &**inode) {
                queue.extend(dir.visible.values().chain(dir.durable.values()));
                queue.extend(dir.pending.iter().map(|pending| pending.change.inode()));
            }
        }
        self.inodes.retain(|id, _| reached.contains(id));
    }

    /// Returns a 64-bit hash of names and contents, as a process sees them or as they are durable.
    pub(super) fn hash(&self, durable: bool) -> u64 {
        self.hash_node(ROOT, durable)
    }

    fn hash_node(&self, id: InodeId, durable: bool) -> u64 {
        match self.inodes.get(&id).map(|inode| &**inode) {
            Some(Inode::File(file)) if durable => file.durable.hash(),
            Some(Inode::File(file)) => file.visible.hash(),
            Some(Inode::Dir(dir)) => {
                let entries = if durable { &dir.durable } else { &dir.visible };
                entries.iter().fold(mix(1), |hash, (name, child)| {
                    let name = u64::from(crate::util::codec::crc32c(name.as_bytes()));
                    mix(hash ^ mix(name) ^ self.hash_node(*child, durable).rotate_left(17))
                })
            }
            None => 0,
        }
    }

    /// Returns every file: path without a leading slash, and inode.
    pub(super) fn files(&self) -> Vec<(String, InodeId)> {
        let mut found = Vec::new();
        let mut queue = vec![(String::new(), ROOT)];
        while let Some((path, id)) = queue.pop() {
            match self.inodes.get(&id).map(|inode| &**inode) {
                Some(Inode::File(_)) => found.push((path, id)),
                Some(Inode::Dir(dir)) => queue.extend(dir.visible.iter().map(|(name, child)| {
                    let slash = if path.is_empty() { "" } else { "/" };
                    (format!("{path}{slash}{name}"), *child)
                })),
                None => {}
            }
        }
        found.sort();
        found
    }
}
