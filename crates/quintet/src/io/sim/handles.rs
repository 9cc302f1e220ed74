//! Directories, files and locks of the simulated disk.

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::io::Errno;

use super::{
    content,
    disk::{Disk, LiveMapping, LockState},
    fault::{self, Call, Effect, Ruling},
    shared::SimShared,
    state::{DirNode, FileChange, FileNode, Inode, InodeId, MappingKind, Naming},
};
use crate::{
    io::{BLOCK_BYTES, Dir, DirEntry, File, LockGuard, Mapping, Open},
    util::{
        codec::{to_u64, to_usize},
        sync::{MutexGuard, lock},
    },
};

/// Maximum bytes of a name on common file systems.
const NAME_BYTES_MAX: usize = 255;

/// An open directory.
#[derive(Debug)]
pub(super) struct SimDir {
    shared: Arc<SimShared>,
    inode: InodeId,
    path: PathBuf,
    label: Arc<str>,
}

fn check_name(name: &str) -> io::Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(Errno::INVAL.into());
    }
    Ok(())
}

impl SimDir {
    pub(super) fn new(shared: Arc<SimShared>, inode: InodeId, path: PathBuf) -> Self {
        let label = path.to_string_lossy().trim_start_matches('/').into();
        *lock(&shared.disk).open.entry(inode).or_insert(0) += 1;
        Self { shared, inode, path, label }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.shared.disk)
    }

    fn label(&self, name: &str) -> Arc<str> {
        if self.label.is_empty() { name.into() } else { format!("{}/{name}", self.label).into() }
    }

    /// Returns the inode of `name`.
    fn entry(&self, disk: &Disk, name: &str) -> io::Result<Option<InodeId>> {
        check_name(name)?;
        Ok(disk.state.dir(self.inode)?.visible.get(name).copied())
    }

    /// Adds a name as one event.
    fn link(&self, disk: &mut Disk, call: Call, name: &str, node: Inode) -> io::Result<InodeId> {
        let label = self.label(name);
        self.shared.allow(disk, call, &label)?;
        let event = disk.begin(self.inode);
        let inode = disk.state.add(node);
        let change = Naming::Link { name: name.to_owned(), inode };
        disk.state.dir_mut(self.inode)?.change(event, change);
        disk.end(call, &label);
        Ok(inode)
    }

    fn unlink(&self, disk: &mut Disk, name: &str, inode: InodeId) -> io::Result<()> {
        let label = self.label(name);
        self.shared.allow(disk, Call::Remove, &label)?;
        let event = disk.begin(self.inode);
        let change = Naming::Unlink { name: name.to_owned(), inode };
        disk.state.dir_mut(self.inode)?.change(event, change);
        disk.end(Call::Remove, &label);
        Ok(())
    }
}

impl Drop for SimDir {
    fn drop(&mut self) {
        close(&self.shared, self.inode);
    }
}

/// Removes one open handle.
fn close(shared: &SimShared, inode: InodeId) {
    let mut disk = lock(&shared.disk);
    if let Some(count) = disk.open.get_mut(&inode) {
        *count -= 1;
        if *count == 0 {
            disk.open.remove(&inode);
        }
    }
}

impl Dir for SimDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>> {
        let mut disk = self.disk();
        let inode = match self.entry(&disk, name)? {
            Some(_) if how.create_new => return Err(Errno::EXIST.into()),
            Some(inode) if disk.state.is_dir(inode) => return Err(Errno::ISDIR.into()),
            Some(inode) => {
                self.shared.allow(&mut disk, Call::Open, &self.label(name))?;
                inode
            }
            None if how.create_new => {
                self.link(&mut disk, Call::Create, name, Inode::File(FileNode::default()))?
            }
            None => return Err(Errno::NOENT.into()),
        };
        *disk.open.entry(inode).or_insert(0) += 1;
        drop(disk);
        Ok(Arc::new(SimFile {
            shared: self.shared.clone(),
            inode,
            path: self.path.join(name),
            label: self.label(name),
            how,
        }))
    }

    fn open_dir(&self, name: &str, create: bool) -> io::Result<Arc<dyn Dir>> {
        let mut disk = self.disk();
        let inode = match self.entry(&disk, name)? {
            Some(inode) => {
                disk.state.dir(inode)?;
                self.shared.allow(&mut disk, Call::OpenDir, &self.label(name))?;
                inode
            }
            None if create => {
                self.link(&mut disk, Call::CreateDir, name, Inode::Dir(DirNode::default()))?
            }
            None => return Err(Errno::NOENT.into()),
        };
        drop(disk);
        Ok(Arc::new(Self::new(self.shared.clone(), inode, self.path.join(name))))
    }

    fn list(&self) -> io::Result<Vec<DirEntry>> {
        let mut disk = self.disk();
        self.shared.allow(&mut disk, Call::List, &self.label)?;
        let entries = &disk.state.dir(self.inode)?.visible;
        Ok(entries
            .iter()
            .map(|(name, inode)| DirEntry { name: name.clone(), is_dir: disk.state.is_dir(*inode) })
            .collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.disk();
        let source = self.entry(&disk, from)?.ok_or(Errno::NOENT)?;
        let target = self.entry(&disk, to)?;
        if let Some(target) = target {
            match (disk.state.is_dir(source), disk.state.dir(target)) {
                (false, Ok(_)) => return Err(Errno::ISDIR.into()),
                (true, Err(_)) => return Err(Errno::NOTDIR.into()),
                (true, Ok(dir)) if !dir.visible.is_empty() => return Err(Errno::NOTEMPTY.into()),
                _ => {}
            }
        }
        let label = self.label(to);
        self.shared.allow(&mut disk, Call::Rename, &label)?;
        if target == Some(source) {
            return Ok(());
        }
        let event = disk.begin(self.inode);
        let change = Naming::Rename { from: from.to_owned(), to: to.to_owned(), inode: source };
        disk.state.dir_mut(self.inode)?.change(event, change);
        disk.end(Call::Rename, &label);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.disk();
        let inode = self.entry(&disk, name)?.ok_or(Errno::NOENT)?;
        disk.state.file(inode)?;
        self.unlink(&mut disk, name, inode)
    }

    fn remove_dir(&self, name: &str) -> io::Result<()> {
        let mut disk = self.disk();
        let inode = self.entry(&disk, name)?.ok_or(Errno::NOENT)?;
        if !disk.state.dir(inode)?.visible.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.unlink(&mut disk, name, inode)
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk();
        match self.shared.rule(&mut disk, Call::SyncDir, &self.label) {
            Ruling::Proceed(Some(Effect::Phantom)) => return Ok(()),
            Ruling::Proceed(_) => {}
            Ruling::Fail(_, error) => return Err(error),
        }
        disk.begin(self.inode);
        let dir = disk.state.dir_mut(self.inode)?;
        let may_free = dir.pending.iter().any(|p| !matches!(p.change, Naming::Link { .. }));
        dir.sync();
        if may_free {
            let open: Vec<InodeId> = disk.open.keys().copied().collect();
            disk.state.sweep(open.into_iter());
        }
        disk.end(Call::SyncDir, &self.label);
        Ok(())
    }

    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn LockGuard>> {
        let mut disk = self.disk();
        self.shared.allow(&mut disk, Call::Lock, &self.label(name))?;
        let inode = match self.entry(&disk, name)? {
            Some(inode) => inode,
            None => self.link(&mut disk, Call::Create, name, Inode::File(FileNode::default()))?,
        };
        disk.state.file(inode)?;
        match disk.locks.get_mut(&inode) {
            Some(held) if exclusive || held.exclusive => return Err(Errno::AGAIN.into()),
            Some(held) => held.holders += 1,
            None => {
                disk.locks.insert(inode, LockState { exclusive, holders: 1 });
            }
        }
        *disk.open.entry(inode).or_insert(0) += 1;
        drop(disk);
        Ok(Box::new(SimLock { shared: self.shared.clone(), inode }))
    }
}

#[derive(Debug)]
struct SimLock {
    shared: Arc<SimShared>,
    inode: InodeId,
}

impl LockGuard for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut disk = lock(&self.shared.disk);
        if let Some(held) = disk.locks.get_mut(&self.inode) {
            held.holders -= 1;
            if held.holders == 0 {
                disk.locks.remove(&self.inode);
            }
        }
        drop(disk);
        close(&self.shared, self.inode);
    }
}

/// An open file.
struct SimFile {
    shared: Arc<SimShared>,
    inode: InodeId,
    path: PathBuf,
    label: Arc<str>,
    how: Open,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        close(&self.shared, self.inode);
    }
}

impl SimFile {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.shared.disk)
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.how.write { Ok(()) } else { Err(Errno::BADF.into()) }
    }

    /// Fails if direct I/O is not aligned, address included, as the kernel does.
    fn check_aligned(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let aligned = [offset, to_u64(bytes.len()), to_u64(bytes.as_ptr().addr())]
            .iter()
            .all(|number| number % BLOCK_BYTES == 0);
        if aligned || !self.how.direct { Ok(()) } else { Err(Errno::INVAL.into()) }
    }

    /// Returns the length of a short transfer.
    fn short(&self, length: usize) -> usize {
        let unit = if self.how.direct { to_usize(BLOCK_BYTES) } else { 1 };
        if length <= unit { length } else { (length / 2 / unit * unit).max(unit) }
    }

    /// Changes the file as one event.
    fn change(&self, disk: &mut Disk, call: Call, change: FileChange) -> io::Result<()> {
        let event = disk.begin(self.inode);
        if let (Some(mapping), FileChange::Punch { offset, length }) =
            (disk.mapping(self.inode), &change)
        {
            content::store(mapping, *offset, &vec![0; to_usize(*length)]);
        }
        disk.state.file_mut(self.inode)?.change(event, change);
        disk.end(call, &self.label);
        Ok(())
    }

    /// Returns what a faulty write stores in place of `bytes` at `offset`.
    fn stored(
        disk: &mut Disk,
        file: InodeId,
        effect: Effect,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<Option<(u64, Vec<u8>)>> {
        let mut stored = bytes.to_vec();
        let block = to_usize(BLOCK_BYTES).min(stored.len());
        let mut target = offset;
        match effect {
            Effect::Phantom => return Ok(None),
            Effect::FlipBits(count) => fault::flip_bits(&mut disk.random, &mut stored, count),
            Effect::ZeroBlock => stored[..block].fill(0),
            Effect::DuplicateBlock => {
                let from = offset.checked_sub(BLOCK_BYTES).unwrap_or(offset + BLOCK_BYTES);
                stored[..block].fill(0);
                disk.state.file(file)?.visible.read(from, &mut stored[..block]);
            }
            Effect::Misdirect(blocks) => target = misdirected(offset, blocks),
            _ => {}
        }
        Ok(Some((target, stored)))
    }

    /// Performs a sync; `work` decides what becomes durable.
    fn sync(&self, work: impl FnOnce(&mut FileNode)) -> io::Result<()> {
        let mut disk = self.disk();
        match self.shared.rule(&mut disk, Call::Sync, &self.label) {
            Ruling::Proceed(Some(Effect::Phantom)) => Ok(()),
            Ruling::Proceed(_) => {
                disk.begin(self.inode);
                work(disk.state.file_mut(self.inode)?);
                disk.end(Call::Sync, &self.label);
                Ok(())
            }
            Ruling::Fail(effect, error) => {
                if !effect.is_harmless() {
                    disk.begin(self.inode);
                    disk.state.file_mut(self.inode)?.lose_pending();
                    disk.end(Call::Sync, &self.label);
                }
                Err(error)
            }
        }
    }
}

fn misdirected(offset: u64, blocks: i64) -> u64 {
    offset.saturating_add_signed(blocks.saturating_mul(BLOCK_BYTES.cast_signed()))
}

impl SimFile {
    fn map_as(&self, size: u64, kind: MappingKind) -> io::Result<Arc<Mapping>> {
        self.check_writable()?;
        let mut disk = self.disk();
        self.shared.allow(&mut disk, Call::Map, &self.label)?;
        disk.capture();
        if let Some(mapping) = disk.mapping(self.inode) {
            assert_eq!(mapping.bytes(), size, "{} has a mapping of another size", self.label);
            return Ok(mapping.clone());
        }
        let file = disk.state.file(self.inode)?;
        assert!(size <= file.visible.size(), "{} is shorter than its mapping", self.label);
        let mapping = Arc::new(file.visible.to_mapping(size));
        disk.mappings.push(LiveMapping {
            inode: self.inode,
            path: self.label.clone(),
            mapping: mapping.clone(),
            kind,
        });
        Ok(mapping)
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check_aligned(buffer, offset)?;
        let mut disk = self.disk();
        let effect = match self.shared.rule(&mut disk, Call::Read, &self.label) {
            Ruling::Proceed(effect) => effect,
            Ruling::Fail(_, error) => return Err(error),
        };
        let buffer = match effect {
            Some(Effect::Short) => {
                let length = self.short(buffer.len());
                &mut buffer[..length]
            }
            _ => buffer,
        };
        let from = match effect {
            Some(Effect::Misdirect(blocks)) => misdirected(offset, blocks),
            _ => offset,
        };
        let count = if self.how.direct && disk.state.file(self.inode)?.lossy {
            disk.capture();
            disk.state.file(self.inode)?.on_disk().read(from, buffer)
        } else {
            let count = disk.state.file(self.inode)?.visible.read(from, buffer);
            if let Some(mapping) = disk.mapping(self.inode) {
                content::overlay(mapping, from, &mut buffer[..count]);
            }
            count
        };
        match effect {
            Some(Effect::FlipBits(bits)) => {
                fault::flip_bits(&mut disk.random, &mut buffer[..count], bits);
            }
            Some(Effect::ZeroBlock) => buffer[..count.min(to_usize(BLOCK_BYTES))].fill(0),
            _ => {}
        }
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.check_writable()?;
        self.check_aligned(bytes, offset)?;
        let mut disk = self.disk();
        let effect = match self.shared.rule(&mut disk, Call::Write, &self.label) {
            Ruling::Proceed(effect) => effect,
            Ruling::Fail(_, error) => return Err(error),
        };
        let bytes = match effect {
            Some(Effect::Short) => &bytes[..self.short(bytes.len())],
            _ => bytes,
        };
        if bytes.is_empty() {
            return Ok(0);
        }
        disk.need_room(self.inode, offset, to_u64(bytes.len()))?;
        let event = disk.begin(self.inode);
        if let Some(mapping) = disk.mapping(self.inode) {
            content::store(mapping, offset, bytes);
        }
        match effect {
            Some(effect) if effect != Effect::Short => {
                let stored = Self::stored(&mut disk, self.inode, effect, bytes, offset)?;
                let file = disk.state.file_mut(self.inode)?;
                file.write_wrongly(event, offset, bytes, stored);
            }
            _ => disk.state.file_mut(self.inode)?.write(event, offset, bytes),
        }
        disk.end(Call::Write, &self.label);
        Ok(bytes.len())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk().state.file(self.inode)?.visible.size())
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut disk = self.disk();
        self.shared.allow(&mut disk, Call::SetLen, &self.label)?;
        disk.capture();
        if let Some(mapping) = disk.mapping(self.inode) {
            assert!(size >= mapping.bytes(), "{} is mapped and must not shrink", self.label);
        }
        let change = match size.cmp(&disk.state.file(self.inode)?.visible.size()) {
            std::cmp::Ordering::Less => FileChange::Shrink { size },
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Greater => FileChange::Grow { size, written: false },
        };
        self.change(&mut disk, Call::SetLen, change)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut disk = self.disk();
        self.shared.allow(&mut disk, Call::Allocate, &self.label)?;
        let length = disk.state.file(self.inode)?.visible.size();
        disk.need_room(self.inode, length, size.saturating_sub(length))?;
        self.change(&mut disk, Call::Allocate, FileChange::Allocate { size })
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut disk = self.disk();
        self.shared.allow(&mut disk, Call::Punch, &self.label)?;
        self.change(&mut disk, Call::Punch, FileChange::Punch { offset, length })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(|file| file.sync(false))
    }

    fn sync_range(&self, _: &Mapping, range: Range<u64>) -> io::Result<()> {
        let range = self.disk().state.mapped.to_sync(&range);
        self.sync(|file| file.sync_range(&range))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(|file| file.sync(true))
    }

    fn map(&self, size: u64) -> io::Result<Arc<Mapping>> {
        let kind = self.disk().state.mapped;
        self.map_as(size, kind)
    }

    /// A simulated disk has persistent memory if it was created so.
    fn map_persistent(&self, size: u64) -> io::Result<Arc<Mapping>> {
        if self.disk().state.mapped == MappingKind::Pages {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.map_as(size, MappingKind::Lines)
    }

    fn map_private(&self, size: u64) -> io::Result<Arc<Mapping>> {
        let mut disk = self.disk();
        self.shared.allow(&mut disk, Call::Map, &self.label)?;
        disk.capture();
        Ok(Arc::new(disk.state.file(self.inode)?.visible.to_mapping(size)))
    }

    fn line_written_back(&self, range: Range<u64>) {
        let mut disk = self.disk();
        let is_lines =
            |live: &LiveMapping| live.inode == self.inode && live.kind == MappingKind::Lines;
        if !disk.mappings.iter().any(is_lines) {
            return;
        }
        let range = MappingKind::Lines.to_sync(&range);
        disk.begin_in(self.inode, &range);
        if let Ok(file) = disk.state.file_mut(self.inode) {
            file.sync_range(&range);
        }
        disk.end(Call::Sync, &self.label);
    }

    fn drop_cache(&self) -> io::Result<()> {
        let mut disk = self.disk();
        disk.capture();
        if disk.state.file(self.inode)?.lossy && disk.mapping(self.inode).is_none() {
            let file = disk.state.file_mut(self.inode)?;
            file.visible = file.on_disk();
            file.lossy = false;
        }
        Ok(())
    }
}
