//! The file of regions, and their part of the table's state.
//!
//! Only maintenance writes the file. Its layout is in the head of [`super`].

use std::{io, mem::take, sync::Arc};

use super::region::{BLOCK_UNITS, Regions, UNIT_BYTES};
use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, File, write_all_at},
    journal::{FileHead, read_all_blocks, read_blocks},
    util::{
        codec::{Decoder, put_varint, round_up, to_usize},
        sync::{Ordering, lock},
    },
};

const NAME: &str = "data";
const MAGIC: &[u8; 8] = b"QTRIEDAT";

impl Regions {
    /// Returns the space of free regions to the file system: truncates the file after the last
    /// region in use, and punches holes for other free regions. Keeps a few of the first for reuse,
    /// unless the table is idle. Only maintenance calls this.
    pub(crate) fn release_file_space(&self, is_idle: bool) {
        let Some(file) = lock(&self.kind.file).clone() else { return };
        let (end, empty) = {
            let mut lives = lock(&self.kind.lives);
            let before = lives.count;
            while let Some(last) = lives.free.last().copied()
                && last + 1 == lives.count
            {
                lives.free.remove(&last);
                lives.count = last;
            }
            let keep = if is_idle { 0 } else { to_usize(lives.count / 16 + 4) };
            let empty: Vec<u64> = lives.free.iter().skip(keep).copied().collect();
            let end = (lives.count < before).then_some(lives.count);
            (end, empty)
        };
        // Only maintenance writes a region that is reused meanwhile, so it does so after this.
        if let Some(end) = end {
            let _ = file.set_len(self.offset(end, 0));
        }
        for region in empty {
            if self.row(region, 7).swap(1, Ordering::Relaxed) & 1 == 0 {
                let _ = file.punch_hole(self.offset(region, 0), self.segment_bytes());
            }
        }
    }

    /// Offset of a unit in the file.
    pub(crate) fn offset(&self, region: u64, unit: u64) -> u64 {
        BLOCK_BYTES + region * self.segment_bytes() + unit * UNIT_BYTES
    }

    pub(crate) fn label(&self) -> String {
        self.kind.owner.label(NAME)
    }

    /// A [`Error::Corruption`] at this unit of the file.
    pub(crate) fn damage(&self, region: u64, unit: u64, what: impl Into<String>) -> Error {
        Error::corruption(self.label(), self.offset(region, unit), what)
    }

    fn head(&self) -> FileHead {
        FileHead::new(*MAGIC, &self.kind.owner, self.segment_bytes())
    }

    /// Returns the file, and creates it if there is none.
    pub(crate) fn file(&self) -> Result<Arc<dyn File>> {
        let mut file = lock(&self.kind.file);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        Ok(Arc::clone(file.insert(self.head().create(&self.kind.owner, NAME)?)))
    }

    /// Opens the file, after the state was decoded. Fails with [`Error::Corruption`] if a region is
    /// in use and there is no file.
    pub(crate) fn open_file(&self) -> Result<()> {
        if self.in_use().is_empty() {
            // It may be incomplete: the first checkpoint creates it again.
            return Ok(());
        }
        let file = self.head().open(&self.kind.owner, NAME, self.kind.read_only)?;
        if file.is_none() {
            return Err(Error::corruption(self.label(), 0, "the file is missing"));
        }
        *lock(&self.kind.file) = file;
        Ok(())
    }

    /// Allocates the disk space of `units` more than a region has, by writing zeros behind what is
    /// written. The caller keeps other writers of the file out. Fails with [`Error::DiskFull`].
    pub(crate) fn allocate_units(&self, region: u64, units: u64) -> Result<()> {
        let (used, _) = self.used(region);
        let (from, to) = (self.written(region), (used + units).min(self.segment_units()));
        let bytes = to.saturating_sub(from) * UNIT_BYTES;
        let zeros = AlignedBuffer::zeroed(to_usize(round_up(bytes, BLOCK_BYTES)));
        write_all_at(&*self.file()?, zeros.as_slice(), self.offset(region, from))
            .map_err(|error| Error::io(format!("write {}", self.label()), error))
    }

    /// Reads units of a region from the file, in whole blocks. Returns the blocks and the offset of
    /// the first unit in them. Returns less at the end of what is written.
    pub(crate) fn read(
        &self,
        region: u64,
        unit: u64,
        units: u64,
    ) -> Result<(AlignedBuffer, usize)> {
        let end = (unit + units).min(round_up(self.written(region), BLOCK_UNITS));
        let first = unit & !(BLOCK_UNITS - 1);
        let blocks = round_up(end.saturating_sub(first).max(1), BLOCK_UNITS);
        let mut buffer = AlignedBuffer::zeroed(to_usize(blocks * UNIT_BYTES));
        let file = self.file()?;
        read_blocks(&*file, buffer.as_mut_slice(), self.offset(region, first))
            .map_err(|error| Error::io(format!("read {}", self.label()), error))?;
        Ok((buffer, to_usize((unit - first) * UNIT_BYTES)))
    }

    /// Reads all of a region that is in the file.
    pub(crate) fn read_whole(&self, region: u64) -> Result<AlignedBuffer> {
        let mut buffer = AlignedBuffer::zeroed(to_usize(self.written(region) * UNIT_BYTES));
        read_all_blocks(&*self.file()?, buffer.as_mut_slice(), self.offset(region, 0)).map_err(
            |error| match error.kind() {
                io::ErrorKind::UnexpectedEof => self.damage(region, 0, "the file ends early"),
                _ => Error::io(format!("read {}", self.label()), error),
            },
        )?;
        Ok(buffer)
    }

    /// Appends which regions are in use, and their rows. Regions in `freed` are encoded as free.
    /// The caller keeps writers out.
    pub(crate) fn encode(&self, freed: &[u64], out: &mut Vec<u8>) {
        let lives = lock(&self.kind.lives);
        put_varint(out, lives.last_life);
        put_varint(out, lives.count);
        for region in 0..lives.count {
            let life = if freed.contains(&region) { 0 } else { self.life(region) };
            put_varint(out, life);
            if life != 0 {
                let (used, sealed) = self.used(region);
                for word in [used, u64::from(sealed), self.live(region), self.span(region)] {
                    put_varint(out, word);
                }
            }
        }
    }

    /// Decodes what [`Self::encode`] wrote. Returns `None` for anything else.
    pub(crate) fn decode(&self, rest: &mut Decoder<'_>) -> Option<()> {
        let mut lives = lock(&self.kind.lives);
        let old = take(&mut *lives);
        for region in 0..old.count {
            self.row(region, 4).store(0, Ordering::Relaxed);
        }
        lives.last_life = rest.varint()?;
        lives.count = rest.varint()?;
        if lives.count >= self.count_max() {
            return None;
        }
        for region in 0..lives.count {
            let RegionState { life, used, sealed, live_units, span } = RegionState::decode(rest)?;
            self.row(region, 4).store(life, Ordering::Relaxed);
            if life == 0 {
                lives.free.insert(region);
                continue;
            }
            let units = self.segment_units();
            let sound = used <= units
                && used.is_multiple_of(BLOCK_UNITS)
                && live_units <= used
                && span <= units;
            if !sound || life > lives.last_life || sealed > 1 {
                return None;
            }
            self.row(region, 1).store(used, Ordering::Relaxed);
            self.row(region, 2).store(live_units, Ordering::Relaxed);
            self.row(region, 3).store(used | sealed << 63, Ordering::Relaxed);
            self.row(region, 5).store(used, Ordering::Relaxed);
            self.row(region, 6).store(span, Ordering::Relaxed);
        }
        Some(())
    }

    /// Bytes of regions in use that the file has.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.in_use().into_iter().map(|region| self.written(region) * UNIT_BYTES).sum()
    }
}

/// The encoded row of a region.
struct RegionState {
    /// 0: the region is free, and the rest is 0.
    life: u64,
    used: u64,
    sealed: u64,
    live_units: u64,
    span: u64,
}

impl RegionState {
    fn decode(rest: &mut Decoder<'_>) -> Option<Self> {
        let life = rest.varint()?;
        if life == 0 {
            return Some(Self { life, used: 0, sealed: 0, live_units: 0, span: 0 });
        }
        Some(Self {
            life,
            used: rest.varint()?,
            sealed: rest.varint()?,
            live_units: rest.varint()?,
            span: rest.varint()?,
        })
    }
}

impl Regions {
    /// Describes the state that [`Regions::encode`] wrote: the data space, and its free regions
    /// (CedrusDB, figure 7). Returns `None` for anything else.
    pub(crate) fn describe_state(
        rest: &mut Decoder<'_>,
        space: &mut Vec<String>,
        free: &mut Vec<String>,
    ) -> Option<()> {
        let (last_life, count) = (rest.varint()?, rest.varint()?);
        space.push(format!("    {count} regions, {last_life} lives"));
        for region in 0..count {
            let RegionState { life, used, sealed, live_units, .. } = RegionState::decode(rest)?;
            if life == 0 {
                free.push(format!("    region {region}"));
                continue;
            }
            let kind = if sealed == 0 { "receives records" } else { "sealed" };
            space.push(format!(
                "    region {region}: life {life}, {live_units} of {used} units live, {kind}"
            ));
        }
        Some(())
    }
}
