//! Reads from the disk: single records, whole regions, and large values.
//!
//! A get from disk makes one direct read of the blocks around the record and verifies the record's
//! checksum. If the budget has room and the region is read often, it loads the whole region, which
//! then stays in memory.

use super::{
    lookup::ColdRecord,
    record::{DiskRecord, ExtentAddr, walk},
    table::Trie,
};
use crate::{
    Error, Result,
    contract::Value,
    engine::trie::store::regions::UNIT_BYTES,
    io::AlignedBuffer,
    util::{
        codec::to_usize,
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// Single-record reads from a region before the whole region is loaded, if there is room.
const COLD_READS_MAX: u64 = 8;

impl Trie {
    /// Reads a record from disk: one read, or two if it is larger than its region's span. Returns
    /// `None` if its region was reused or the record is not in the file: the caller looks the key
    /// up again.
    pub(super) fn read_cold(&self, address: u64, life: u64) -> Result<Option<ColdRecord>> {
        let (region, unit) = self.regions.split(address);
        if life == 0 || unit >= self.regions.written(region) {
            return Ok(None);
        }
        self.counters.cold_reads_total.fetch_add(1, Ordering::Relaxed);
        let (buffer, skip) = self.regions.read(region, unit, self.regions.span(region))?;
        self.finish_cold(address, life, buffer, skip)
    }

    /// Verifies the record at `skip` in `buffer`, and reads more if the buffer does not hold all of
    /// it. Returns `None` if the region was reused; fails with [`Error::Corruption`] if it was not
    /// and the checksum does not match.
    pub(super) fn finish_cold(
        &self,
        address: u64,
        life: u64,
        mut buffer: AlignedBuffer,
        mut skip: usize,
    ) -> Result<Option<ColdRecord>> {
        let (region, unit) = self.regions.split(address);
        let head = DiskRecord::head(buffer.as_slice().get(skip..).unwrap_or(&[]));
        let units = head.map_or(0, |head| head.units());
        let whole = unit + units <= self.regions.written(region);
        if skip + to_usize(units * UNIT_BYTES) > buffer.len() && whole {
            (buffer, skip) = self.regions.read(region, unit, units)?;
        }
        let cold = ColdRecord { buffer, skip, life, unit };
        if cold.record().is_some() {
            return Ok(Some(cold));
        }
        if self.regions.life(region) != life {
            return Ok(None);
        }
        Err(self.regions.damage(region, unit, "the checksum of a record does not match"))
    }

    /// Counts a read of a record that is on disk only. Returns whether the whole region should be
    /// loaded: it is read often, and there is room.
    pub(super) fn wants_load(&self, address: u64) -> bool {
        let (region, _) = self.regions.split(address);
        self.regions.count_cold(region) >= COLD_READS_MAX && self.make_room_to_load()
    }

    /// Loads a region if the budget has room for it. Returns whether it is in memory now.
    pub(super) fn load_region(&self, region: u64) -> Result<bool> {
        let _one = lock(&self.loading);
        if self.regions.is_resident(region) {
            return Ok(true);
        }
        let life = self.regions.life(region);
        let Some(frame) = self.regions.reserve_frame(false) else { return Ok(false) };
        let _buffer = self.context.budget.reserve_transient(self.regions.segment_bytes());
        match self.fill_frame(region, life, frame) {
            Ok(true) => {
                self.regions.attach_to(region, life, frame);
                self.counters.loaded_total.fetch_add(1, Ordering::Relaxed);
                Ok(true)
            }
            Ok(false) => {
                self.regions.release_frame(frame);
                Ok(false)
            }
            Err(error) => {
                self.regions.release_frame(frame);
                Err(error)
            }
        }
    }

    /// Reads and verifies all of a region into a frame; `false` if the region was reused meanwhile.
    fn fill_frame(&self, region: u64, life: u64, frame: u64) -> Result<bool> {
        let bytes = self.regions.read_whole(region)?;
        let damage = Self::find_damage(bytes.as_slice(), life);
        if self.regions.life(region) != life || life == 0 {
            return Ok(false);
        }
        if let Some(unit) = damage {
            let what = "the checksum of a record does not match";
            return Err(self.regions.damage(region, unit, what));
        }
        let (chunks, _) = bytes.as_slice().as_chunks::<8>();
        for (word, chunk) in self.regions.frame(frame).iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Returns the first unit in the bytes of a region at which a record fails to verify.
    pub(super) fn find_damage(bytes: &[u8], life: u64) -> Option<u64> {
        mutant!(TrieSkipsRecordChecksum => return None);
        let mut damage = None;
        walk(bytes, 0, |unit, head| {
            let record = bytes.get(to_usize(unit * UNIT_BYTES)..).unwrap_or(&[]);
            let sound = head.is_some() && DiskRecord::verify(record, life, unit).is_some();
            if !sound {
                damage = damage.or(Some(unit));
            }
        });
        damage
    }

    /// Reads a value from the extents. Returns `None` if its checksum does not match.
    pub(super) fn read_large(&self, extent: ExtentAddr) -> Result<Option<Value>> {
        let bytes = self.extents.read(extent.offset, extent.bytes, extent.crc)?;
        Ok(bytes.map(Value::shared))
    }

    pub(super) fn extent_damage(&self, extent: ExtentAddr) -> Error {
        let what = "the checksum of a large value does not match";
        Error::corruption(self.extents.label(), extent.offset, what)
    }
}
