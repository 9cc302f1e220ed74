//! Runs one kind of operation many times, for an instruction counter.
//!
//! Times on a shared machine vary by tens of percent, but instruction counts repeat. `cargo xtask
//! instructions` runs this module under callgrind. Callgrind counts only within the functions whose
//! names begin with `measured_`. The task compares the counts with those in the repository.

use std::{hint::black_box, io::Write};

use crate::{
    data::{KeyOrder, RecordShape},
    failure::{Failure, Outcome},
    numbers::to_usize,
    random::Random,
    store::{Durability, Store, StoreOptions, Stores},
    workload::VERSION_FIRST,
};

/// Keys of one `multi_get`.
const BATCH: usize = 32;

/// Arguments of `quintet bench instructions`.
#[derive(Clone, Debug, clap::Args)]
pub struct InstructionArgs {
    /// Store.
    #[arg(long)]
    engine: String,
    /// Kind of operation.
    #[arg(long, value_enum)]
    operation: Operation,
    /// Records loaded first.
    #[arg(long, default_value_t = 20_000)]
    records: u64,
    /// Operations counted.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Operation {
    /// Gets of records.
    Get,
    /// Gets of absent keys.
    GetAbsent,
    /// Gets of 32 keys in one call; each key counts as one.
    MultiGet,
    /// Updates of the same size.
    Put,
    /// Inserts of new keys.
    Insert,
}

/// Loads a store in a temporary directory and runs the operation.
pub(crate) fn run(stores: &dyn Stores, args: &InstructionArgs, out: &mut dyn Write) -> Outcome {
    let dir = std::env::temp_dir().join(format!("quintet-instructions-{}", std::process::id()));
    std::fs::create_dir(&dir).map_err(|error| Failure::io(dir.display(), &error))?;
    let outcome = run_in(stores, args, &dir);
    std::fs::remove_dir_all(&dir).map_err(|error| Failure::io(dir.display(), &error))?;
    outcome?;
    writeln!(out, "{} operations", args.count)?;
    Ok(())
}

fn run_in(stores: &dyn Stores, args: &InstructionArgs, dir: &std::path::Path) -> Outcome {
    let shape = RecordShape {
        key_bytes: 23,
        value_bytes: vec![128],
        repeated_percent: 0,
        order: KeyOrder::Hashed,
    };
    let options = StoreOptions {
        dir: dir.to_path_buf(),
        durability: Durability::Buffered,
        records_max: args.records + args.count,
        bytes_written_max: (args.records + 2 * args.count) * 256,
        memory: None,
        settings: Vec::new(),
    };
    let store = stores.open(&args.engine, &options)?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for number in 0..args.records {
        shape.key(number, &mut key);
        shape.value(number, VERSION_FIRST, &mut value);
        store.put(&key, &value)?;
    }
    let mut random = Random::new(1, 1);
    let keys: Vec<Vec<u8>> = (0..args.count)
        .map(|index| {
            match args.operation {
                Operation::GetAbsent => shape.absent_key(index, &mut key),
                Operation::Insert => shape.key(args.records + index, &mut key),
                _ => shape.key(random.below(args.records), &mut key),
            }
            key.clone()
        })
        .collect();
    let found = match args.operation {
        Operation::Get | Operation::GetAbsent => measured_get(store.as_ref(), &keys)?,
        Operation::MultiGet => {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            measured_multi_get(store.as_ref(), &keys)?
        }
        Operation::Put | Operation::Insert => {
            measured_put(store.as_ref(), &keys, &value)?;
            0
        }
    };
    let expected = match args.operation {
        Operation::Get | Operation::MultiGet => to_usize(args.count),
        _ => 0,
    };
    // `null` finds no key; its count is that of the loops.
    if found != expected && args.engine != "null" {
        return Err(Failure::Damage(format!("{found} keys found, not {expected}")));
    }
    store.close()
}

#[inline(never)]
fn measured_get(store: &dyn Store, keys: &[Vec<u8>]) -> Outcome<usize> {
    let mut value = Vec::with_capacity(256);
    let mut found = 0;
    for key in keys {
        found += usize::from(store.get_into(key, &mut value)?);
        black_box(&value);
    }
    Ok(found)
}

#[inline(never)]
fn measured_multi_get(store: &dyn Store, keys: &[&[u8]]) -> Outcome<usize> {
    let mut found = 0;
    for keys in keys.chunks(BATCH) {
        store.multi_get(keys, &mut |_, value| found += usize::from(black_box(value).is_some()))?;
    }
    Ok(found)
}

#[inline(never)]
fn measured_put(store: &dyn Store, keys: &[Vec<u8>], value: &[u8]) -> Outcome {
    keys.iter().try_for_each(|key| store.put(key, value))
}
