//! The limit that binds an operation, and the distance of a result from it.
//!
//! An operation needs several resources; the slowest one binds it. *r* is the bytes of a record,
//! key and value:
//!
//! | operation | cost | reason |
//! |-----------|------|--------|
//! | point read of a present key | 2 dependent loads; *r* bytes copied | an index slot leads to the record, and the caller gets a copy of the value |
//! | point read of an absent key | 1 load | a tag in the slot can exclude the key |
//! | `multi_get` | as point reads, with overlapped loads | the keys are known in advance, so misses overlap |
//! | read of a record that is not in memory | 1 random read of the device, at a depth of keys in flight | with an index in memory one block contains the record |
//! | overwrite, delete, read-modify-write | 2 dependent loads; *r* bytes to the device in sequence | the key is compared; the record goes to the log once |
//! | insert | 1 load; *r* bytes to the device in sequence | an empty slot; the log again |
//! | the same, each synced | one `fdatasync` per group of all threads | a group commit includes at most all writers |
//! | range of *n* entries | 2 dependent loads; *n* x *r* bytes copied | records may be stored in key order |
//! | visit of all entries | *r* bytes copied | as above |
//!
//! All threads share copying, the device and the sync; each thread has its own loads.
//!
//! A multiple below 1 of the DRAM latency is possible for three reasons. The processor overlaps the
//! loads of independent reads (`read-dependent` excludes that). Zipfian keys hit the processor's
//! caches. Writes that are not synced may reach the device after the measurement.

use std::fmt;

use crate::{
    distribution::THETA,
    limits::{Limits, READ_DEPTH},
    numbers::to_f64,
    workload::{Body, OperationKind, RecordChoice, Workload},
};
use serde::{Deserialize, Serialize};

/// Mean number of entries of a range of YCSB: 1 to 100 with the same probability.
const RANGE_ENTRIES: f64 = 50.5;
/// Number of ranks whose weights are added one by one; an integral approximates the others.
const RANKS_EXACT: u32 = 1000;

/// A limit of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Latency of dependent loads.
    DramLatency,
    /// Latency of loads with many in flight.
    DramOverlapped,
    /// Bandwidth of copying.
    Memcpy,
    /// Random reads of the device.
    RandomReads,
    /// Sequential writes to the device.
    SequentialWrites,
    /// Latency of syncs.
    Fdatasync,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DramLatency => "DRAM latency",
            Self::DramOverlapped => "DRAM latency, overlapped",
            Self::Memcpy => "copying",
            Self::RandomReads => "random reads",
            Self::SequentialWrites => "sequential writes",
            Self::Fdatasync => "fdatasync",
        })
    }
}

/// Properties of a run that determine its cost.
#[derive(Clone, Copy, Debug)]
pub struct RunProfile<'a> {
    /// Workload.
    pub workload: &'a Workload,
    /// Threads.
    pub threads: u64,
    /// Records at the start.
    pub records: u64,
    /// Mean bytes of a record, key and value.
    pub record_bytes: f64,
    /// Whether each write is durable before it returns.
    pub synced: bool,
    /// Memory for records; `None` if all records fit.
    pub memory_bytes: Option<u64>,
}

/// The limit that binds a run, and its time per operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binding {
    /// Limit.
    pub limit: Limit,
    /// Nanoseconds between operations, all threads together.
    pub ns_per_operation: f64,
}

impl Binding {
    /// Returns the measured time of an operation as a multiple of the limit; `None` if the
    /// throughput is not a positive number.
    pub fn multiple(&self, operations_per_second: f64) -> Option<f64> {
        let took = 1e9 / operations_per_second;
        let multiple = took / self.ns_per_operation;
        (took > 0.0 && multiple.is_finite()).then_some(multiple)
    }
}

/// Cost of a mean operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct OperationCost {
    /// Dependent loads that miss the caches.
    loads: f64,
    bytes_copied: f64,
    reads: f64,
    bytes_written: f64,
    syncs: f64,
}

/// Returns the limit that binds `run`; `None` if no limit that it needs was measured.
pub fn bind(run: RunProfile<'_>, limits: &Limits) -> Option<Binding> {
    let needs = needs(run);
    let threads = to_f64(run.threads.max(1));
    let rate_ns = |per_second: Option<f64>| per_second.map(|rate| 1e9 / rate);
    let (loads, load_ns) = if run.workload.batch > 1 {
        (Limit::DramOverlapped, limits.dram_overlapped_ns)
    } else {
        (Limit::DramLatency, limits.dram_2m_ns.or(limits.dram_4k_ns))
    };
    let in_flight = threads * to_f64(crate::numbers::to_u64(run.workload.batch.max(1)));
    let candidates = [
        (loads, needs.loads / threads, load_ns),
        (Limit::Memcpy, needs.bytes_copied, rate_ns(limits.memcpy_bytes_per_second)),
        (Limit::RandomReads, needs.reads, rate_ns(reads_at(in_flight, limits))),
        (Limit::SequentialWrites, needs.bytes_written, rate_ns(limits.write_bytes_per_second)),
        (Limit::Fdatasync, needs.syncs / threads, limits.fdatasync_p50_ns.map(to_f64)),
    ];
    let bindings = candidates.into_iter().filter_map(|(limit, count, ns)| {
        let ns_per_operation = count * ns?;
        (ns_per_operation > 0.0 && ns_per_operation.is_finite())
            .then_some(Binding { limit, ns_per_operation })
    });
    bindings.max_by(|a, b| a.ns_per_operation.total_cmp(&b.ns_per_operation))
}

/// Returns the random reads per second at a queue depth, at most those at full depth.
fn reads_at(in_flight: f64, limits: &Limits) -> Option<f64> {
    match (limits.read_iops_1, limits.read_iops_32) {
        (Some(one), Some(many)) if in_flight >= f64::from(READ_DEPTH) => Some(many.max(one)),
        (Some(one), Some(many)) => Some((one * in_flight).min(many.max(one))),
        (one, many) => one.or(many),
    }
}

fn needs(run: RunProfile<'_>) -> OperationCost {
    match &run.workload.body {
        Body::Load => of_kind(OperationKind::Insert, run, 0.0),
        Body::ReadAll => {
            OperationCost { bytes_copied: run.record_bytes, ..OperationCost::default() }
        }
        Body::Mix { shares, choice } => {
            let cold = cold_share(*choice, run);
            let each = shares.iter().map(|(kind, share)| (of_kind(*kind, run, cold), *share));
            each.fold(OperationCost::default(), |sum, (needs, share)| OperationCost {
                loads: sum.loads + needs.loads * share,
                bytes_copied: sum.bytes_copied + needs.bytes_copied * share,
                reads: sum.reads + needs.reads * share,
                bytes_written: sum.bytes_written + needs.bytes_written * share,
                syncs: sum.syncs + needs.syncs * share,
            })
        }
    }
}

/// Returns the cost of an operation of `kind`. `cold` is the share of records that are not in
/// memory.
fn of_kind(kind: OperationKind, run: RunProfile<'_>, cold: f64) -> OperationCost {
    let syncs = if run.synced { 1.0 } else { 0.0 };
    let record = run.record_bytes;
    match kind {
        OperationKind::Read | OperationKind::ReadLatest | OperationKind::ReadDependent => {
            OperationCost {
                loads: 2.0,
                bytes_copied: record,
                reads: cold,
                ..OperationCost::default()
            }
        }
        OperationKind::ReadAbsent => OperationCost { loads: 1.0, ..OperationCost::default() },
        OperationKind::Insert => {
            OperationCost { loads: 1.0, bytes_written: record, syncs, ..OperationCost::default() }
        }
        OperationKind::Update | OperationKind::Delete => {
            OperationCost { loads: 2.0, bytes_written: record, syncs, ..OperationCost::default() }
        }
        OperationKind::ReadModifyWrite
        | OperationKind::TransactionalUpdate
        | OperationKind::AtomicUpdate => OperationCost {
            loads: 2.0,
            bytes_copied: record,
            reads: cold,
            bytes_written: record,
            syncs,
        },
        OperationKind::Transfer => OperationCost {
            loads: 4.0,
            bytes_copied: 2.0 * record,
            reads: 2.0 * cold,
            bytes_written: 2.0 * record,
            syncs,
        },
        OperationKind::Range => OperationCost {
            loads: 2.0,
            bytes_copied: RANGE_ENTRIES * record,
            // One read returns a block of records in key order.
            reads: cold,
            ..OperationCost::default()
        },
    }
}

/// Returns the share of reads whose record is not in memory, if memory holds the most popular
/// records.
fn cold_share(choice: RecordChoice, run: RunProfile<'_>) -> f64 {
    let Some(memory) = run.memory_bytes else { return 0.0 };
    let records = to_f64(run.records);
    let held = to_f64(memory) / run.record_bytes.max(1.0);
    if held >= records || records <= 0.0 {
        return 0.0;
    }
    match choice {
        RecordChoice::Uniform | RecordChoice::InTurn => 1.0 - held / records,
        RecordChoice::Zipfian | RecordChoice::Latest => {
            1.0 - zipfian_sum(held) / zipfian_sum(records)
        }
        RecordChoice::Hot(hot) => {
            let hot = to_f64(hot).min(records);
            1.0 - zipfian_sum(held.min(hot)) / zipfian_sum(hot)
        }
        RecordChoice::HotCold { hot_fraction, hot_rate } => {
            let hot = records * hot_fraction;
            let hot_held = if hot > 0.0 { (held / hot).min(1.0) } else { 1.0 };
            let rest = records - hot;
            let rest_held = if rest > 0.0 { ((held - hot).max(0.0) / rest).min(1.0) } else { 1.0 };
            1.0 - hot_rate * hot_held - (1.0 - hot_rate) * rest_held
        }
    }
}

/// Returns the sum of `1 / rank^theta` over the first `count` ranks. An integral approximates the
/// later ones with an error below 0.1 %.
fn zipfian_sum(count: f64) -> f64 {
    let exact = f64::from(RANKS_EXACT).min(count.max(0.0).floor());
    let mut sum = 0.0;
    let mut rank = 1.0;
    while rank <= exact {
        sum += f64::powf(rank, -THETA);
        rank += 1.0;
    }
    if count > f64::from(RANKS_EXACT) {
        let power = 1.0 - THETA;
        let from = f64::from(RANKS_EXACT) + 0.5;
        sum += ((count + 0.5).powf(power) - from.powf(power)) / power;
    }
    sum
}

#[cfg(test)]
mod tests {
    use crate::workload::{Suite, find};

    use super::*;

    fn limits() -> Limits {
        Limits {
            dram_4k_ns: Some(300.0),
            dram_2m_ns: Some(200.0),
            dram_overlapped_ns: Some(20.0),
            memcpy_bytes_per_second: Some(10e9),
            read_iops_1: Some(10_000.0),
            read_iops_32: Some(60_000.0),
            write_bytes_per_second: Some(1e9),
            fdatasync_p50_ns: Some(100_000),
            ..Limits::default()
        }
    }

    fn bound(workload: &Workload, change: impl FnOnce(&mut RunProfile<'_>)) -> (Limit, f64) {
        let mut run = RunProfile {
            workload,
            threads: 1,
            records: 1_000_000,
            record_bytes: 150.0,
            synced: false,
            memory_bytes: None,
        };
        change(&mut run);
        let binding = bind(run, &limits()).unwrap();
        (binding.limit, binding.ns_per_operation)
    }

    #[test]
    fn each_kind_of_workload_is_bound_by_what_the_table_says() {
        let of = |suite, name| find(suite, name).unwrap();
        let read = of(Suite::Micro, "read-uniform");
        assert_eq!(bound(&read, |_| {}), (Limit::DramLatency, 400.0));
        assert_eq!(bound(&read, |run| run.threads = 2), (Limit::DramLatency, 200.0));
        let absent = of(Suite::Micro, "read-absent");
        assert_eq!(bound(&absent, |_| {}), (Limit::DramLatency, 200.0));
        let many = of(Suite::Micro, "multi-get-32");
        assert_eq!(bound(&many, |_| {}), (Limit::DramOverlapped, 40.0));
        let load = of(Suite::Ycsb, "load");
        assert_eq!(bound(&load, |_| {}), (Limit::DramLatency, 200.0));
        assert_eq!(bound(&load, |run| run.threads = 2), (Limit::SequentialWrites, 150.0));
        assert_eq!(bound(&load, |run| run.synced = true), (Limit::Fdatasync, 100_000.0));
        let a = of(Suite::Ycsb, "a");
        assert_eq!(bound(&a, |run| run.synced = true), (Limit::Fdatasync, 50_000.0));
        let e = of(Suite::Ycsb, "e");
        let (limit, ns) = bound(&e, |_| {});
        assert_eq!((limit, ns.round()), (Limit::Memcpy, 720.0));
        let all = of(Suite::DbBench, "readseq");
        assert_eq!(bound(&all, |_| {}), (Limit::Memcpy, 15.0));
    }

    #[test]
    fn records_beyond_memory_cost_reads_of_the_device() {
        let read = find(Suite::Micro, "read-uniform").unwrap();
        let (limit, ns) = bound(&read, |run| run.memory_bytes = Some(15_000_000));
        assert_eq!((limit, ns.round()), (Limit::RandomReads, 90_000.0));
        let (_, deep) = bound(&read, |run| {
            run.memory_bytes = Some(15_000_000);
            run.threads = 64;
        });
        assert!((deep - 15_000.0).abs() < 1.0, "the device's full depth: {deep}");
        let c = find(Suite::Ycsb, "c").unwrap();
        let (_, zipfian) = bound(&c, |run| run.memory_bytes = Some(15_000_000));
        assert!((10_000.0..25_000.0).contains(&zipfian), "skew keeps more in memory: {zipfian}");
        assert_eq!(bound(&c, |run| run.memory_bytes = Some(1 << 30)).0, Limit::DramLatency);
    }

    #[test]
    fn the_shortened_sum_is_the_long_one() {
        let long: f64 = (1..=1_000_000).map(|rank| f64::from(rank).powf(-THETA)).sum();
        assert!((zipfian_sum(1e6) / long - 1.0).abs() < 1e-4, "{long}");
        assert!((zipfian_sum(2.0) - 1.0 - 2_f64.powf(-THETA)).abs() < 1e-12);
        assert!(zipfian_sum(-1.0).abs() < 1e-12);
    }

    #[test]
    fn what_was_not_measured_binds_nothing() {
        let read = find(Suite::Ycsb, "c").unwrap();
        let run = RunProfile {
            workload: &read,
            threads: 0,
            records: 0,
            record_bytes: 0.0,
            synced: true,
            memory_bytes: Some(0),
        };
        assert_eq!(bind(run, &Limits::default()), None);
        let binding = bind(run, &limits()).unwrap();
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(binding.multiple(wrong), None, "{wrong}");
        }
        assert_eq!(binding.multiple(1e9 / 800.0), Some(2.0));
    }
}
