//! Range queries directly after many updates: the first one, and all in slices of 100 ms.
//!
//! `cargo run --release --example ranges_after_updates -- ENGINE RECORDS MILLISECONDS` loads
//! records of 128 bytes. It runs YCSB E (95 % ranges of up to 100 entries, 5 % inserts), then YCSB
//! A (50 % gets, 50 % updates), then E again, each for that time. Without arguments it runs all
//! ordered engines with few records.

use std::time::{Duration, Instant};

use quintet::{EngineKind, Options, Table, TableOptions};

/// Milliseconds of a slice.
const SLICE: u128 = 100;

fn main() -> quintet::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments.first().and_then(|name| name.parse::<EngineKind>().ok());
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<u64>().ok());
    let (records, time) = (number(1).unwrap_or(3_000), number(2).unwrap_or(50));
    let engines = [EngineKind::BTree, EngineKind::Slm, EngineKind::Tph];
    for kind in engines.into_iter().filter(|kind| named.is_none_or(|named| named == *kind)) {
        let path = std::env::temp_dir().join(format!("quintet-updates-{}", std::process::id()));
        let db = Options::new().memory_budget(2 << 30).open(&path)?;
        let table = db.create_table("records", TableOptions::new(kind))?;
        for number in 0..records {
            table.put(key(number), [1; 128])?;
        }
        // Flushes and merges of the load end.
        std::thread::sleep(Duration::from_millis(time * 3));
        let mut workload = Workload { table, records, time: time.into(), random: 0x1357_9bdf };
        workload.run_ranges(&format!("{kind}, E alone"))?;
        workload.run_updates(kind)?;
        workload.run_ranges(&format!("{kind}, E after A"))?;
        db.close()?;
        std::fs::remove_dir_all(&path).ok();
    }
    Ok(())
}

fn key(number: u64) -> String {
    format!("user{:020}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

struct Workload {
    table: Table,
    /// Keys in the table.
    records: u64,
    /// Milliseconds of each workload.
    time: u128,
    random: u64,
}

impl Workload {
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Returns a key by a zipfian distribution with a skew of 1, spread over the key space: each
    /// power of two of ranks is as likely as any other.
    fn zipfian_key(&mut self) -> String {
        let power = 1 << (self.random() % u64::from(self.records.ilog2() + 1));
        let rank = power + self.random() % power;
        key(rank.wrapping_mul(0xff51_afd7_ed55_8ccd) % self.records)
    }

    fn run_updates(&mut self, kind: EngineKind) -> quintet::Result<()> {
        let (began, mut count) = (Instant::now(), 0_u128);
        while began.elapsed().as_millis() < self.time {
            let key = self.zipfian_key();
            if self.random().is_multiple_of(2) {
                assert!(self.table.get(&key)?.is_some());
            } else {
                self.table.put(&key, [2; 128])?;
            }
            count += 1;
        }
        println!("{kind}, A: {} thousand/s", count / began.elapsed().as_millis());
        Ok(())
    }

    /// Runs E, and prints what the ranges take.
    fn run_ranges(&mut self, title: &str) -> quintet::Result<()> {
        let (began, mut times, mut slices) = (Instant::now(), Vec::new(), Vec::new());
        while began.elapsed().as_millis() < self.time {
            if times.len() % 20 == 19 {
                self.records += 1;
                self.table.put(key(self.records - 1), [3; 128])?;
            }
            let (start, most) = (self.zipfian_key(), 1 + self.random() % 100);
            let (call, mut found) = (Instant::now(), 0);
            for entry in self.table.range(start..)?.zip(0..most) {
                found += entry.0?.1.len();
            }
            times.push(call.elapsed());
            assert!(found > 0);
            slices.push(began.elapsed().as_millis() / SLICE);
        }
        let rate = times.len() * 1000 / usize::try_from(self.time).unwrap_or(1);
        let slices: Vec<_> = slices.chunk_by(|one, next| one == next).map(<[_]>::len).collect();
        let first = times.first().copied().unwrap_or_default();
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len() * percent / 100).copied();
        let [p50, p99] = [50, 99].map(|percent| at(percent).unwrap_or_default());
        println!(
            "{title}: {rate} ranges/s; first {first:.1?}, p50 {p50:.1?}, p99 {p99:.1?}, \
             longest {:.1?}; ranges of each {SLICE} ms: {slices:?}",
            times.last().copied().unwrap_or_default(),
        );
        Ok(())
    }
}
