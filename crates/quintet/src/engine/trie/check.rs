//! Verification of a table: every file, and the memory against the files.
//!
//! - Every record in the file is read and its checksum compared. The trie's images and the journal
//!   are read back.
//! - The trie is walked. Each of its words is part of one node, list or free object. Each record's
//!   tag agrees with its path and with its key's hash. Each address is a record. Where paths are
//!   bytes of keys, a note of the report tells how evenly the keys are distributed.
//! - The live units of each region are those of its records. Extents and holes do not overlap.
//!
//! Writers continue meanwhile. Findings of a walk are reported only if nothing changed during it.
//! If writers never pause, or the trie does not fit in memory, the walk locks one subtree at a
//! time. It then leaves out the comparisons that need a whole walk.

use std::collections::BTreeMap;

use super::{
    lookup::ColdRecord,
    record::{DiskRecord, ExtentAddr, HEAD_BYTES, TrieRecordHead},
    table::Trie,
};
use crate::{
    Error, Result,
    engine::trie::{
        index::{KeyPath, TrieShape},
        store::regions::RegionRead,
    },
    io::BLOCK_BYTES,
    util::{
        codec::{round_up, to_u64},
        report::{Finding, Report},
        sync::lock,
        words::copy_out,
    },
};

/// Walks without locks before subtrees are locked one by one.
const ATTEMPTS: usize = 3;
/// A subtree is noted as skewed with more records than this times the mean, and [`SKEW_MIN`]. The
/// mean of uniform keys is exceeded by less in tables of any size.
const SKEW_MAX: u64 = 3;
const SKEW_MIN: u64 = 64;

/// The sums of a walk.
#[derive(Debug, Default)]
struct WalkTotals {
    findings: Vec<Finding>,
    shape: TrieShape,
    /// Live units by region.
    live: BTreeMap<u64, u64>,
    extents: Vec<ExtentAddr>,
}

impl Trie {
    /// Verifies the table and adds its findings to `report`. Fails only with errors of the disk.
    pub(super) fn check_all(&self, report: &mut Report) -> Result<()> {
        self.merge_all()?;
        {
            let maintenance = lock(&self.maintenance);
            maintenance.redo.check(report);
            self.index.space().check(report)?;
        }
        self.check_data(report)?;
        // A trie that does not fit in memory is checked one subtree at a time.
        let fits = self.index.space_bytes() <= self.context.budget.limit() / 2;
        for _ in 0..if fits { ATTEMPTS } else { 0 } {
            let Some(versions) = self.index.versions() else { continue };
            let mut totals = WalkTotals::default();
            let outcome = self.walk_subtrees(0..256, &mut totals);
            if !self.index.is_unchanged(&versions) {
                continue;
            }
            outcome?;
            self.compare(&mut totals);
            if self.index.is_unchanged(&versions) {
                report.checked_entries += totals.shape.records;
                report.findings.append(&mut totals.findings);
                self.note_skew(&totals.shape, report);
                return Ok(());
            }
        }
        let mut shape = TrieShape::default();
        for root in 0..256_u64 {
            let writer = self.index.lock(KeyPath::of_hash(root << 56));
            let mut totals = WalkTotals { shape, ..WalkTotals::default() };
            self.walk_subtrees(root..root + 1, &mut totals)?;
            drop(writer);
            self.enforce_budget(0);
            shape = totals.shape;
            report.findings.append(&mut totals.findings);
        }
        report.checked_entries += shape.records;
        self.note_skew(&shape, report);
        Ok(())
    }

    /// Notes how evenly the keys are distributed, if their paths are bytes of keys.
    fn note_skew(&self, shape: &TrieShape, report: &mut Report) {
        if !self.hash.is_none() {
            return;
        }
        let TrieShape { records, switched, switched_records, subtree_records_max, .. } = *shape;
        let is_skewed = switched > 0 || subtree_records_max > records / 256 * SKEW_MAX + SKEW_MIN;
        let advice = if is_skewed {
            "; the keys are not uniform, so a table with the default hash suits them better"
        } else {
            ""
        };
        report.notes.push(format!(
            "tables/{}: hash=none: the largest of 256 subtrees has {subtree_records_max} of \
             {records} records, {switched_records} records are in {switched} subtrees that use the \
             keyed hash{advice}",
            self.context.table_id
        ));
    }

    /// Verifies every record in the file.
    fn check_data(&self, report: &mut Report) -> Result<()> {
        for region in self.regions.in_use() {
            let life = self.regions.life(region);
            if life == 0 || self.regions.written(region) == 0 {
                continue;
            }
            let outcome = self.regions.read_whole(region).map(|bytes| {
                report.checked_bytes += to_u64(bytes.len());
                Self::find_damage(bytes.as_slice(), life)
            });
            if self.regions.life(region) != life {
                continue;
            }
            let damage = match outcome {
                Ok(None) => continue,
                Ok(Some(unit)) => {
                    let what = "the checksum of a record does not match";
                    self.regions.damage(region, unit, what)
                }
                Err(error) => error,
            };
            match damage {
                Error::Corruption { file, offset, what } => report.add(file, offset, what),
                other => return Err(other),
            }
        }
        Ok(())
    }

    /// Walks these subtrees and checks their records.
    fn walk_subtrees(&self, roots: std::ops::Range<u64>, totals: &mut WalkTotals) -> Result<()> {
        let label = format!("tables/{}/nodes", self.context.table_id);
        let mut findings = Vec::new();
        let mut addresses = Vec::new();
        self.index.inspect(
            roots,
            &mut totals.shape,
            &mut |address| addresses.push(address),
            &mut |offset, what| {
                findings.push(Finding { file: label.clone(), offset, what: what.to_owned() });
            },
        )?;
        totals.findings.append(&mut findings);
        for address in addresses {
            self.check_record(address, totals)?;
        }
        Ok(())
    }

    /// Checks the record at an address of the trie: that it is one, that its key's hash leads to
    /// it, and its extent.
    fn check_record(&self, address: u64, totals: &mut WalkTotals) -> Result<()> {
        let (region, unit) = self.regions.split(address);
        let found = self.regions.read_in_memory(address, |words| {
            let head = TrieRecordHead::load(words).filter(|head| head.fits(words))?;
            let mut key = vec![0; head.key_bytes];
            copy_out(words, HEAD_BYTES, &mut key);
            Some((head, key, head.extent(words)))
        });
        let found = match found {
            RegionRead::Found(found) => Some(found),
            RegionRead::Changed => None,
            RegionRead::Cold(life) => match self.read_cold(address, life) {
                Ok(cold) => {
                    cold.as_ref().and_then(ColdRecord::record).map(|record: DiskRecord<'_>| {
                        let extent =
                            ExtentAddr::decode(record.value()).filter(|_| record.head.is_extent);
                        (record.head, record.key().to_vec(), extent)
                    })
                }
                // Reported with the data file.
                Err(Error::Corruption { .. }) => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        let mut note = |what: &str| {
            let (file, offset) = (self.regions.label(), self.regions.offset(region, unit));
            totals.findings.push(Finding { file, offset, what: what.to_owned() });
        };
        let Some((head, key, extent)) = found else {
            note("the trie has the address of something that is not a record");
            return Ok(());
        };
        if !self.index.leads_to(self.path(&key), address) {
            note("the path of the key's hash does not lead to its record");
        }
        *totals.live.entry(region).or_default() += head.units();
        if let Some(extent) = extent {
            totals.extents.push(extent);
            if self.read_large(extent)?.is_none() {
                let (file, what) = (self.extents.label(), "the checksum of a large value is wrong");
                totals.findings.push(Finding {
                    file,
                    offset: extent.offset,
                    what: what.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Compares the sums of a whole walk with the counts.
    fn compare(&self, totals: &mut WalkTotals) {
        let mut note = |file: String, offset, what: String| {
            totals.findings.push(Finding { file, offset, what });
        };
        for region in self.regions.in_use() {
            let (counted, found) =
                (self.regions.live(region), totals.live.get(&region).copied().unwrap_or(0));
            if counted != found {
                let what = format!("region {region} has {found} live units, {counted} are counted");
                note(self.regions.label(), self.regions.offset(region, 0), what);
            }
        }
        let (found, counted) = (totals.shape.records, self.index.len());
        if found != counted {
            let what = format!("{found} keys are found, {counted} counted");
            note(format!("tables/{}/nodes", self.context.table_id), 0, what);
        }
        let (found, counted) = (totals.shape.switched, self.index.switched().0);
        if found != counted {
            let what = format!("{found} switched subtrees are found, {counted} counted");
            note(format!("tables/{}/nodes", self.context.table_id), 0, what);
        }
        let extents = totals.extents.iter().map(|extent| (extent.offset, extent.bytes.max(1)));
        let mut ranges: Vec<(u64, u64)> = extents.chain(self.extents.holes()).collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let [(offset, bytes), (next, _)] = pair else { continue };
            if offset + round_up(*bytes, BLOCK_BYTES) > *next {
                note(self.extents.label(), *next, "two extents overlap".to_owned());
            }
        }
    }
}
