//! Perfect hashes: cost of construction and lookup, compared with the baselines of the `CompassDB`
//! paper and with `PHast` by its authors (crate `ph`).
//!
//! `cargo bench -p quintet-bench --bench perfect_hash -- [--keys 10000000] [--runs 3]` `[--only
//! shift,cphash]`
//!
//! Methods run in turn, and the output shows the median of the runs. `bits` are those of the
//! function alone. Lookups are of random members in a loop; the processor overlaps them.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]
#![expect(clippy::cast_precision_loss, reason = "figures are shown with a few digits")]

mod baseline;
mod chd;
mod pthash;

use std::{hint::black_box, time::Instant};

use ph::{phast, seeds::Bits8};
use quintet::testing::{
    disk::{Env, os::OsEnv},
    perfect_hash::{BuildOptions, Lanes, Method, PerfectHash},
};

use baseline::mix;

/// Keys per bucket, and percentage of slots that are taken (paper, section 5.4).
const BUCKET_KEYS: u64 = 5;
const LOAD_PERCENT: u64 = 90;
/// Number of lookups of a measurement.
const LOOKUPS: u64 = 4_000_000;

/// `PHast` as published, with seeds of 8 bits.
type PHast = phast::Function<Bits8>;
/// Looks up hashes and returns the sum of their slots.
type Lookups = Box<dyn Fn(&[u64]) -> u64>;

/// A function of any method.
struct Built {
    slots: u64,
    bits: u64,
    slot: Lookups,
    each: Box<dyn Fn(u64) -> u64>,
}

type Build = Box<dyn Fn(&[u64]) -> Built>;

/// Wraps a function. Each method has its own copy of the lookup loop, so that lookups are inlined
/// as in an engine.
macro_rules! built {
    ($function:expr, $slots:expr, $bits:expr, $slot:expr) => {{
        let function = std::sync::Arc::new($function);
        let (other, slot) = (function.clone(), $slot);
        let (slots, bits) = ($slots(&*function), $bits(&*function));
        Built {
            slots,
            bits,
            slot: Box::new(move |hashes| {
                hashes.iter().fold(0, |sum: u64, hash| sum.wrapping_add(slot(&*function, *hash)))
            }),
            each: Box::new(move |hash| slot(&*other, hash)),
        }
    }};
}

fn ours(method: Method, parallel: bool) -> Build {
    Box::new(move |hashes| {
        let env = OsEnv::new();
        let run = |count: usize, task: &(dyn Fn(usize) + Sync)| env.parallel(count, task);
        let options = if parallel {
            BuildOptions { method, parallel: &run }
        } else {
            BuildOptions { method, ..BuildOptions::default() }
        };
        let function = PerfectHash::build(hashes, 1, &options).unwrap();
        built!(
            function,
            |function: &PerfectHash| u64::try_from(function.slot_count()).unwrap(),
            |function: &PerfectHash| function.memory_bytes() * 8,
            |function: &PerfectHash, hash| u64::try_from(function.slot(hash)).unwrap()
        )
    })
}

/// `PHast` of the crate `ph`: a minimal function with seeds of 8 bits, its default.
fn phast(parallel: bool) -> Build {
    Box::new(move |hashes| {
        let build = if parallel { PHast::from_slice_mt } else { PHast::from_slice_st };
        let keys = u64::try_from(hashes.len()).unwrap();
        built!(
            build(hashes),
            |_: &PHast| keys,
            |function: &PHast| u64::try_from(function.write_bytes()).unwrap() * 8,
            |function: &PHast, hash: u64| u64::try_from(function.get(&hash)).unwrap()
        )
    })
}

fn methods() -> Vec<(&'static str, Build)> {
    vec![
        ("shift", ours(Method::Shift, false)),
        ("shift parallel", ours(Method::Shift, true)),
        ("phast", phast(false)),
        ("phast parallel", phast(true)),
        ("cphash", ours(Method::CpHash(Lanes::Widest), false)),
        ("cphash scalar", ours(Method::CpHash(Lanes::One), false)),
        ("cphash parallel", ours(Method::CpHash(Lanes::Widest), true)),
        (
            "pthash",
            Box::new(|hashes| {
                let function = pthash::PtHash::build(hashes, BUCKET_KEYS, LOAD_PERCENT);
                let slot = |function: &pthash::PtHash, hash| function.slot(hash);
                built!(function, pthash::PtHash::slots, pthash::PtHash::bits, slot)
            }),
        ),
        (
            "chd",
            Box::new(|hashes| {
                let function = chd::Chd::build(hashes, BUCKET_KEYS, LOAD_PERCENT);
                let slot = |function: &chd::Chd, hash| function.slot(hash);
                built!(function, chd::Chd::slots, chd::Chd::bits, slot)
            }),
        ),
    ]
}

#[derive(Default)]
struct Figures {
    build: Vec<f64>,
    lookup: Vec<f64>,
    bits: f64,
    slots: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str, default: u64| {
        value(name).map_or(default, |text| text.replace('_', "").parse().unwrap())
    };
    let (keys, runs) = (number("--keys", 10_000_000), number("--runs", 3));
    let only = value("--only");
    let hashes: Vec<u64> = (0..keys).map(|number| mix(mix(1) ^ number)).collect();
    let asked: Vec<u64> =
        (0..LOOKUPS.min(keys)).map(|number| mix(mix(1) ^ (mix(number) % keys))).collect();
    let mut results: Vec<(&str, Build, Figures)> = methods()
        .into_iter()
        .filter(|(name, _)| only.as_deref().is_none_or(|only| only.split(',').any(|o| o == *name)))
        .map(|(name, build)| (name, build, Figures::default()))
        .collect();
    for _ in 0..runs {
        for (_, build, figures) in &mut results {
            measure(build, &hashes, &asked, figures);
        }
    }
    println!("{keys} keys, {runs} runs, medians");
    println!("method            build ns/key  bits/key  slots/key  lookup ns");
    for (name, _, figures) in &mut results {
        println!(
            "{name:16}  {:12.1}  {:8.3}  {:9.4}  {:9.1}",
            median(&mut figures.build),
            figures.bits,
            figures.slots,
            median(&mut figures.lookup),
        );
    }
}

fn measure(build: &Build, hashes: &[u64], asked: &[u64], figures: &mut Figures) {
    let keys = hashes.len() as f64;
    let start = Instant::now();
    let function = build(hashes);
    figures.build.push(start.elapsed().as_secs_f64() * 1e9 / keys);
    let start = Instant::now();
    black_box((function.slot)(asked));
    figures.lookup.push(start.elapsed().as_secs_f64() * 1e9 / asked.len() as f64);
    figures.bits = function.bits as f64 / keys;
    figures.slots = function.slots as f64 / keys;
    verify(&function, hashes);
}

/// Fails if the function is not a perfect hash.
fn verify(built: &Built, hashes: &[u64]) {
    let mut used = baseline::Bitmap::new(built.slots);
    for hash in hashes {
        assert!(used.take(&[(built.each)(*hash)]), "two keys share a slot");
    }
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
