//! Regions of records: append-only storage of one size, evictable, in one file.
//!
//! Problem: a get must cost the record's cache lines and no write, while regions are evicted,
//! reused and loaded. A checkpoint should add one run of bytes to the file for each region. Updates
//! in place would be a random write each (62 thousand a second here, against gigabytes of appends).
//!
//! How: an address is a region's number and a position in units of 16 bytes.
//! [`crate::record_store::segments`] has the addresses, the frames and the protocol of readers. In
//! the file a region's offset follows from its number. CedrusDB (section 3.1) has the logical
//! addresses, but fills holes one by one; here a region with enough of them is emptied and reused
//! whole. A region's row has these words more:
//!
//! | word | bits | meaning |
//! |---|---|---|
//! | 2 | | live units |
//! | 4 | | life: a number for each time the region is used, never used again; 0: free |
//! | 5 | | units that are in the file |
//! | 6 | | units that a read of one record fetches |
//! | 7 | 0 | free, and the file is empty there |
//! | 7 | 32 to 63 | reads of single records from the disk since it left memory |
//!
//! | offset in `data` | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 64 | head | see [`crate::journal::FileHead`], magic `QTRIEDAT` |
//! | 4096 | | regions | region `r` at 4096 + `r` times the region size |
//!
//! Invariants: a region with units that are not in the file is in memory. A block of the file is
//! written once a life.
//!
//! Thread rules: any thread may read and reserve. Regions begin and end, and are loaded and
//! evicted, under `lives` or by maintenance.

mod file;
mod region;

pub(crate) use self::region::{AppendedUnits, BLOCK_UNITS, RegionRead, Regions, UNIT_BYTES};
