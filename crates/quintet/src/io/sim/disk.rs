//! The disk of a simulation: state, events, history, open handles.

use std::{
    collections::BTreeMap,
    fmt, io,
    ops::Range,
    path::{Component, Path},
    sync::Arc,
};

use rustix::io::Errno;

use super::{
    Call,
    fault::FaultPlan,
    jobs::{Scheduler, SimClock},
    random::Random,
    state::{DiskState, FileChange, InodeId, MappingKind, Origin, ROOT},
};
use crate::io::Mapping;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The start of the history.
    Start,
    /// Stores into a mapping, detected at this point.
    Store,
    /// A call that changed the disk or lost pending changes.
    Call(Call),
}

/// One change of the disk.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its number, unique across nested crashes.
    pub number: u64,
    /// Its kind.
    pub kind: EventKind,
    /// The file or directory.
    pub path: Arc<str>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {}", self.number, self.kind, self.path)
    }
}

/// The disk after one event.
#[derive(Debug)]
pub(super) struct DiskSnapshot {
    pub(super) event: Event,
    pub(super) state: DiskState,
    pub(super) clock: SimClock,
}

#[derive(Debug)]
pub(super) struct LiveMapping {
    pub(super) inode: InodeId,
    pub(super) path: Arc<str>,
    pub(super) mapping: Arc<Mapping>,
    pub(super) kind: MappingKind,
}

#[derive(Debug)]
pub(super) struct LockState {
    pub(super) exclusive: bool,
    pub(super) holders: usize,
}

/// The state that the lock of a simulated disk guards.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) state: DiskState,
    pub(super) event: u64,
    pub(super) history: Option<Vec<DiskSnapshot>>,
    pub(super) mappings: Vec<LiveMapping>,
    pub(super) locks: BTreeMap<InodeId, LockState>,
    pub(super) open: BTreeMap<InodeId, usize>,
    pub(super) plan: FaultPlan,
    pub(super) random: Random,
    pub(super) capacity_blocks: Option<u64>,
    pub(super) scheduler: Arc<Scheduler>,
}

impl Disk {
    pub(super) fn new(
        state: DiskState,
        event: u64,
        plan: FaultPlan,
        random: Random,
        scheduler: Arc<Scheduler>,
    ) -> Self {
        Self {
            state,
            event,
            history: None,
            mappings: Vec::new(),
            locks: BTreeMap::new(),
            open: BTreeMap::new(),
            plan,
            random,
            capacity_blocks: None,
            scheduler,
        }
    }

    /// Turns stores into mappings since the last check into pending changes, one event for each
    /// mapping.
    pub(super) fn capture(&mut self) {
        self.capture_of(|_| true, &(0..u64::MAX));
    }

    /// Does this for a range of some files. Releases mappings that have no other holder.
    fn capture_of(&mut self, chosen: impl Fn(InodeId) -> bool, range: &Range<u64>) {
        let mappings = std::mem::take(&mut self.mappings);
        for live in mappings {
            if !chosen(live.inode) {
                self.mappings.push(live);
                continue;
            }
            // Check before the comparison: without another holder there can be no further store.
            let held = Arc::strong_count(&live.mapping) > 1;
            let Ok(file) = self.state.file(live.inode) else { continue };
            let origin = Origin::Mapping(live.kind);
            let differences = file.visible.differences(&live.mapping, live.kind.unit(), range);
            if !differences.is_empty() {
                self.event += 1;
                if let Ok(file) = self.state.file_mut(live.inode) {
                    for (offset, bytes) in differences {
                        file.change(self.event, FileChange::Data { offset, bytes, origin });
                    }
                }
                self.snap(EventKind::Store, &live.path);
            }
            if held {
                self.mappings.push(live);
            } else if let Ok(file) = self.state.file(live.inode) {
                let is_missed = file.visible.differs_from(&live.mapping, live.kind.unit());
                assert!(!is_missed, "a store into {} was not told", live.path);
            }
        }
    }

    /// Returns the mapping of a file, if one is alive.
    pub(super) fn mapping(&self, inode: InodeId) -> Option<&Arc<Mapping>> {
        self.mappings.iter().find(|live| live.inode == inode).map(|live| &live.mapping)
    }

    /// Begins an event on a file or directory and returns its number. Detects earlier stores first:
    /// all if a history is kept, else those into the same file.
    pub(super) fn begin(&mut self, inode: InodeId) -> u64 {
        let keeps_all = self.history.is_some();
        self.capture_of(|mapped| keeps_all || mapped == inode, &(0..u64::MAX));
        self.event += 1;
        self.event
    }

    /// As [`begin`](Self::begin), for an event that needs only the stores into a range of the file.
    pub(super) fn begin_in(&mut self, inode: InodeId, range: &Range<u64>) {
        if self.history.is_some() {
            self.begin(inode);
        } else {
            self.capture_of(|mapped| mapped == inode, range);
            self.event += 1;
        }
    }

    /// Ends the event and adds the resulting state to the history.
    pub(super) fn end(&mut self, call: Call, path: &Arc<str>) {
        self.snap(EventKind::Call(call), path);
    }

    pub(super) fn snap(&mut self, kind: EventKind, path: &Arc<str>) {
        if let Some(history) = &mut self.history {
            let event = Event { number: self.event, kind, path: path.clone() };
            let clock = self.scheduler.clock();
            history.push(DiskSnapshot { event, state: self.state.clone(), clock });
        }
    }

    pub(super) fn snapshot(&self, event: u64) -> &DiskSnapshot {
        let history = self.history.as_deref().expect("no history was recorded");
        let index = history.binary_search_by_key(&event, |snapshot| snapshot.event.number);
        index.map_or_else(|_| panic!("the history has no event {event}"), |index| &history[index])
    }

    /// Returns the inode of the entry's directory, its name and its own inode.
    pub(super) fn find(&self, path: &Path) -> io::Result<(InodeId, String, InodeId)> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(Errno::INVAL)?;
        let mut dir = ROOT;
        for part in components(path.parent().unwrap_or(Path::new("")))? {
            dir = *self.state.dir(dir)?.visible.get(&part).ok_or(Errno::NOENT)?;
        }
        let inode = *self.state.dir(dir)?.visible.get(name).ok_or(Errno::NOENT)?;
        Ok((dir, name.to_owned(), inode))
    }

    /// Returns the blocks that files take.
    pub(super) fn blocks_used(&self) -> u64 {
        self.state.blocks_used(self.open.keys().copied())
    }

    /// Fails with ENOSPC if a disk of limited size lacks the space.
    pub(super) fn need_room(&self, inode: InodeId, offset: u64, length: u64) -> io::Result<()> {
        let Some(capacity) = self.capacity_blocks else { return Ok(()) };
        let missing = self.state.file(inode)?.visible.blocks_missing(offset, length);
        if missing > 0 && self.blocks_used() + missing > capacity {
            return Err(Errno::NOSPC.into());
        }
        Ok(())
    }
}

/// Returns the names on a path. The root and the current directory are the same.
pub(super) fn components(path: &Path) -> io::Result<Vec<String>> {
    path.components()
        .filter_map(|component| match component {
            Component::RootDir | Component::CurDir => None,
            Component::Normal(name) => match name.to_str() {
                Some(name) => Some(Ok(name.to_owned())),
                None => Some(Err(Errno::INVAL.into())),
            },
            Component::ParentDir | Component::Prefix(_) => Some(Err(Errno::INVAL.into())),
        })
        .collect()
}
