//! Replay of a recorded trace on another environment.

use std::{collections::HashMap, io, sync::Arc};

use super::{
    super::{AlignedBuffer, Dir, Env, File, LockGuard, Mapping, write_all_at},
    trace::TraceEvent,
};
use crate::util::{
    codec::{to_u64, to_usize},
    sync::Ordering,
};

/// All handles that are open at the end of the replayed part. Keep it until the crash has been
/// simulated: dropping it closes the files and frees the locks, as an orderly shutdown would.
#[derive(Debug, Default)]
pub struct TraceReplay {
    dirs: HashMap<u64, Arc<dyn Dir>>,
    files: HashMap<u64, OpenFile>,
    mappings: HashMap<u64, Arc<Mapping>>,
    locks: HashMap<u64, Box<dyn LockGuard>>,
    marks: Vec<u64>,
}

#[derive(Debug)]
struct OpenFile {
    file: Arc<dyn File>,
    direct: bool,
}

impl TraceReplay {
    /// The marks passed, in order.
    pub fn marks(&self) -> &[u64] {
        &self.marks
    }

    /// Replays one more event of the same trace.
    ///
    /// Fails if `env` refuses it (a planned fault), and with `InvalidData` if the event names a
    /// handle that no earlier event opened.
    pub fn step(&mut self, event: &TraceEvent, env: &dyn Env) -> io::Result<()> {
        match event {
            TraceEvent::OpenRoot { dir, path } => {
                self.dirs.insert(*dir, env.open_dir(path, true)?);
            }
            TraceEvent::OpenDir { dir, parent, name, create } => {
                let opened = self.dir(*parent)?.open_dir(name, *create)?;
                self.dirs.insert(*dir, opened);
            }
            TraceEvent::Open { file, dir, name, how } => {
                let opened = self.dir(*dir)?.open(name, *how)?;
                self.files.insert(*file, OpenFile { file: opened, direct: how.direct });
            }
            TraceEvent::Rename { dir, from, to } => self.dir(*dir)?.rename(from, to)?,
            TraceEvent::Remove { dir, name } => self.dir(*dir)?.remove(name)?,
            TraceEvent::RemoveDir { dir, name } => self.dir(*dir)?.remove_dir(name)?,
            TraceEvent::SyncDir { dir } => self.dir(*dir)?.sync()?,
            TraceEvent::Lock { lock, dir, name, exclusive } => {
                let guard = self.dir(*dir)?.lock(name, *exclusive)?;
                self.locks.insert(*lock, guard);
            }
            TraceEvent::Write { file, offset, bytes } => self.file(*file)?.write(*offset, bytes)?,
            TraceEvent::SetLen { file, size } => self.file(*file)?.file.set_len(*size)?,
            TraceEvent::Allocate { file, size } => self.file(*file)?.file.allocate(*size)?,
            TraceEvent::PunchHole { file, offset, length } => {
                self.file(*file)?.file.punch_hole(*offset, *length)?;
            }
            TraceEvent::SyncData { file } => self.file(*file)?.file.sync_data()?,
            TraceEvent::SyncAll { file } => self.file(*file)?.file.sync_all()?,
            TraceEvent::Map { mapping, file, size } => {
                let mapped = self.file(*file)?.file.map(*size)?;
                self.mappings.insert(*mapping, mapped);
            }
            TraceEvent::Store { mapping, first, words } => {
                let mapped = self.mappings.get(mapping).ok_or_else(|| unknown(*mapping))?;
                store(mapped, *first, words)?;
            }
            TraceEvent::Close { file } => drop(self.files.remove(file)),
            TraceEvent::Unmap { mapping } => drop(self.mappings.remove(mapping)),
            TraceEvent::Unlock { lock } => drop(self.locks.remove(lock)),
            TraceEvent::Mark { value } => self.marks.push(*value),
        }
        Ok(())
    }

    fn dir(&self, number: u64) -> io::Result<&Arc<dyn Dir>> {
        self.dirs.get(&number).ok_or_else(|| unknown(number))
    }

    fn file(&self, number: u64) -> io::Result<&OpenFile> {
        self.files.get(&number).ok_or_else(|| unknown(number))
    }
}

impl OpenFile {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.direct {
            return write_all_at(&*self.file, bytes, offset);
        }
        let mut buffer = AlignedBuffer::zeroed(bytes.len());
        let aligned = buffer.as_mut_slice().get_mut(..bytes.len()).unwrap_or(&mut []);
        aligned.copy_from_slice(bytes);
        write_all_at(&*self.file, aligned, offset)
    }
}

/// Replays the first `upto` events of a trace (all, if there are fewer) on `env`.
///
/// Opens roots at their recorded paths and creates missing ones. Fails as [`TraceReplay::step`]
/// does.
pub fn replay(events: &[TraceEvent], upto: usize, env: &dyn Env) -> io::Result<TraceReplay> {
    let mut replayed = TraceReplay::default();
    for event in events.iter().take(upto) {
        replayed.step(event, env)?;
    }
    Ok(replayed)
}

fn store(mapping: &Mapping, first: u64, words: &[u64]) -> io::Result<()> {
    let target = mapping.words().get(to_usize(first)..).unwrap_or(&[]);
    if target.len() < words.len() {
        let what = format!("word {} is not mapped", first.saturating_add(to_u64(words.len())));
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    for (word, value) in target.iter().zip(words) {
        word.store(*value, Ordering::Release);
    }
    Ok(())
}

fn unknown(number: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("handle {number} is not open in the trace"))
}
