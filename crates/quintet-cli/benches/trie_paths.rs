//! Gets of the engine `trie` with and without a hash: keys of 32 random bytes, as hashes of a block
//! chain are.
//!
//! `cargo bench -p quintet-cli --bench trie_paths -- [--records 10000000] [--rounds 200]
//! [--dir DIRECTORY] [--option NAME=VALUE]...`
//!
//! It is in this crate because others build the library with its planted bugs, which cost
//! instructions.
//!
//! Two tables of one database have the same records, one with `hash=siphash` and one with
//! `hash=none`. Bursts of gets alternate between them, so that a noise of the machine meets both.
//! The keys of a burst are made before it. Prints nanoseconds a get (the median, and the tenth of
//! the bursts that was least disturbed), and the median of the ratios of neighbouring bursts.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

use std::{hint::black_box, path::PathBuf, time::Instant};

use quintet::{Database, EngineKind, Options, Table, TableOptions};
use quintet_bench::{
    data::{KeyOrder, RecordShape},
    distribution::Distribution,
    random::Random,
};

/// Gets of a burst: some 10 ms.
const BURST: usize = 20_000;
const BATCH: u64 = 1_000;

fn main() {
    let (mut records, mut rounds, mut dir) = (10_000_000, 200, std::env::temp_dir());
    let mut options = TableOptions::new(EngineKind::Trie);
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        match name.as_str() {
            "--records" => records = value.parse().unwrap(),
            "--rounds" => rounds = value.parse().unwrap(),
            "--dir" => dir = PathBuf::from(value),
            "--option" => {
                let (name, value) = value.split_once('=').unwrap();
                options = options.set(name, value);
            }
            other => panic!("there is no option {other}"),
        }
    }
    let path = dir.join(format!("quintet-trie-paths-{}", std::process::id()));
    let db = Options::new().memory_budget(records * 600 + (256 << 20)).open(&path).unwrap();
    let shape = RecordShape {
        key_bytes: 32,
        value_bytes: vec![128],
        repeated_percent: 0,
        order: KeyOrder::Random,
    };
    let tables = ["siphash", "none"].map(|hash| {
        let table = db.create_table(hash, options.clone().set("hash", hash)).unwrap();
        load(&db, &table, &shape, records);
        table
    });
    db.persist().unwrap();
    println!("{records} records of 32 + 128 bytes, {rounds} bursts of {BURST}");
    println!(
        "choice, keys at once: siphash, none (least tenth: siphash, none); median of the ratios"
    );
    for batch in [1, 32] {
        let choices = [("uniform", Distribution::Uniform), ("zipfian", Distribution::scrambled())];
        for (name, choice) in choices {
            compare((name, batch), &tables, (&shape, records, rounds), choice);
        }
    }
    db.close().unwrap();
    drop((tables, db));
    std::fs::remove_dir_all(&path).unwrap();
}

fn load(db: &Database, table: &Table, shape: &RecordShape, records: u64) {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for first in (0..records).step_by(usize::try_from(BATCH).unwrap()) {
        let mut batch = db.batch();
        for number in first..(first + BATCH).min(records) {
            shape.key(number, &mut key);
            shape.value(number, 0, &mut value);
            batch.put(table, &key, &value);
        }
        batch.commit().unwrap();
    }
}

/// Runs bursts of gets on both tables in turn, `batch` keys at once, and prints their times.
fn compare(
    (name, batch): (&str, usize),
    tables: &[Table; 2],
    (shape, records, rounds): (&RecordShape, u64, u64),
    mut choice: Distribution,
) {
    let mut random = Random::new(7, 0);
    let mut times = [Vec::new(), Vec::new()];
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let mut of_round = [0.0; 2];
        for turn in 0..2 {
            // Each is first in half of the rounds.
            let which = usize::try_from((round + turn) % 2).unwrap();
            let keys: Vec<Vec<u8>> = (0..BURST)
                .map(|_| {
                    let mut key = Vec::new();
                    shape.key(choice.draw(&mut random, records), &mut key);
                    key
                })
                .collect();
            let start = Instant::now();
            get_all(&tables[which], &keys, batch);
            let burst = u32::try_from(BURST).unwrap();
            of_round[which] = start.elapsed().as_secs_f64() * 1e9 / f64::from(burst);
        }
        times.iter_mut().zip(of_round).for_each(|(times, time)| times.push(time));
        ratios.push(of_round[0] / of_round[1]);
    }
    let [hashed, none] = [0, 1].map(|which| [2, 10].map(|part| quantile(&mut times[which], part)));
    println!(
        "{name}, {batch}: {:.0}, {:.0} ({:.0}, {:.0}); {:.3}",
        hashed[0],
        none[0],
        hashed[1],
        none[1],
        quantile(&mut ratios, 2)
    );
}

fn get_all(table: &Table, keys: &[Vec<u8>], batch: usize) {
    if batch == 1 {
        let mut buffer = Vec::new();
        for key in keys {
            assert!(table.get_into(key, &mut buffer).unwrap());
        }
        black_box(&buffer);
        return;
    }
    for keys in keys.chunks(batch) {
        let values = table.multi_get(keys).unwrap();
        assert!(black_box(values).iter().all(Option::is_some));
    }
}

/// The value that one of `part` values is below.
fn quantile(values: &mut [f64], part: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / part]
}
