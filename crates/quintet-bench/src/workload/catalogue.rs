//! The workloads by name.

use super::{Body, Choice, Kind, Suite, Workload};
use crate::{
    data::KeyOrder,
    failure::{Failure, Outcome},
};

/// YCSB's workloads, with the proportions of its `workloads/` directory.
pub const YCSB: [&str; 7] = ["load", "a", "b", "c", "d", "e", "f"];
/// One kind of operation each.
pub const MICRO: [&str; 14] = [
    "read-uniform",
    "read-zipfian",
    "read-absent",
    "read-dependent",
    "insert",
    "update",
    "delete",
    "multi-get-16",
    "multi-get-32",
    "multi-get-256",
    "range-5",
    "range-10",
    "range-50",
    "range-100",
];
/// The names of `db_bench`, and a load as sorted runs.
pub const DB_BENCH: [&str; 10] = [
    "fillseq",
    "fillsorted",
    "fillrandom",
    "overwrite",
    "readrandom",
    "readseq",
    "readmissing",
    "seekrandom",
    "readwhilewriting",
    "deleterandom",
];

/// The workloads of a suite. LogKV's have parameters instead of names.
pub const fn names(suite: Suite) -> &'static [&'static str] {
    match suite {
        Suite::Ycsb => &YCSB,
        Suite::Micro => &MICRO,
        Suite::DbBench => &DB_BENCH,
        Suite::LogKv => &[],
    }
}

/// The workload of this name.
pub fn find(suite: Suite, name: &str) -> Outcome<Workload> {
    let found = match suite {
        Suite::Ycsb => ycsb(name),
        Suite::Micro => micro(name),
        Suite::DbBench => db_bench(name),
        Suite::LogKv => None,
    };
    let (about, order, body) = found.ok_or_else(|| {
        let names = names(suite).join(", ");
        Failure::Usage(format!("there is no workload {name:?} here; there are: {names}"))
    })?;
    let batch = match name {
        "multi-get-16" => 16,
        "multi-get-32" => 32,
        "multi-get-256" => 256,
        _ => 1,
    };
    Ok(Workload {
        suite,
        name: name.to_owned(),
        about: about.to_owned(),
        order,
        body,
        batch,
        range_entries: name.strip_prefix("range-").and_then(|count| count.parse().ok()),
        sorted: name == "fillsorted",
        background_writer: name == "readwhilewriting",
    })
}

type Description = (&'static str, KeyOrder, Body);

fn mix(shares: &[(Kind, f64)], choice: Choice) -> Body {
    Body::Mix { shares: shares.to_vec(), choice }
}

fn ycsb(name: &str) -> Option<Description> {
    use Kind::{Insert, Range, Read, ReadLatest, ReadModifyWrite, Update};
    let (about, body) = match name {
        "load" => ("inserts in random order", Body::Load),
        "a" => ("half reads, half updates", mix(&[(Read, 0.5), (Update, 0.5)], Choice::Zipfian)),
        "b" => ("95 % reads, 5 % updates", mix(&[(Read, 0.95), (Update, 0.05)], Choice::Zipfian)),
        "c" => ("reads", mix(&[(Read, 1.0)], Choice::Zipfian)),
        "d" => (
            "95 % reads of the latest, 5 % inserts",
            mix(&[(ReadLatest, 0.95), (Insert, 0.05)], Choice::Latest),
        ),
        "e" => (
            "95 % ranges of up to 100, 5 % inserts",
            mix(&[(Range, 0.95), (Insert, 0.05)], Choice::Zipfian),
        ),
        "f" => (
            "half reads, half read-modify-writes",
            mix(&[(Read, 0.5), (ReadModifyWrite, 0.5)], Choice::Zipfian),
        ),
        _ => return None,
    };
    Some((about, KeyOrder::Hashed, body))
}

fn micro(name: &str) -> Option<Description> {
    let one = |kind, choice| mix(&[(kind, 1.0)], choice);
    let (about, body) = match name {
        "read-uniform" => ("reads, uniform", one(Kind::Read, Choice::Uniform)),
        "read-zipfian" => ("reads, zipfian", one(Kind::Read, Choice::Zipfian)),
        "read-absent" => ("reads of absent keys", one(Kind::ReadAbsent, Choice::Uniform)),
        "read-dependent" => {
            ("reads, each key from the last value", one(Kind::ReadDependent, Choice::Uniform))
        }
        "insert" => ("inserts of new keys", one(Kind::Insert, Choice::Uniform)),
        "update" => ("updates of the same size, uniform", one(Kind::Update, Choice::Uniform)),
        "delete" => ("deletes of each record", one(Kind::Delete, Choice::InTurn)),
        "multi-get-16" => ("reads, uniform, 16 at once", one(Kind::Read, Choice::Uniform)),
        "multi-get-32" => ("reads, uniform, 32 at once", one(Kind::Read, Choice::Uniform)),
        "multi-get-256" => ("reads, uniform, 256 at once", one(Kind::Read, Choice::Uniform)),
        "range-5" => ("ranges of 5, uniform", one(Kind::Range, Choice::Uniform)),
        "range-10" => ("ranges of 10, uniform", one(Kind::Range, Choice::Uniform)),
        "range-50" => ("ranges of 50, uniform", one(Kind::Range, Choice::Uniform)),
        "range-100" => ("ranges of 100, uniform", one(Kind::Range, Choice::Uniform)),
        _ => return None,
    };
    Some((about, KeyOrder::Hashed, body))
}

fn db_bench(name: &str) -> Option<Description> {
    let one = |kind| mix(&[(kind, 1.0)], Choice::Uniform);
    let (about, order, body) = match name {
        "fillseq" => ("inserts in key order", KeyOrder::Ordered, Body::Load),
        "fillsorted" => ("sorted loads, each of up to 4 Mi records", KeyOrder::Ordered, Body::Load),
        "fillrandom" => ("inserts in random order", KeyOrder::Hashed, Body::Load),
        "overwrite" => ("updates, uniform", KeyOrder::Hashed, one(Kind::Update)),
        "readrandom" => ("reads, uniform", KeyOrder::Hashed, one(Kind::Read)),
        "readseq" => ("all entries, in key order if any", KeyOrder::Ordered, Body::ReadAll),
        "readmissing" => ("reads of absent keys", KeyOrder::Hashed, one(Kind::ReadAbsent)),
        "seekrandom" => ("ranges of up to 100, uniform", KeyOrder::Hashed, one(Kind::Range)),
        "readwhilewriting" => {
            ("reads, while another thread updates", KeyOrder::Hashed, one(Kind::Read))
        }
        "deleterandom" => ("deletes, uniform", KeyOrder::Hashed, one(Kind::Delete)),
        _ => return None,
    };
    Some((about, order, body))
}
