//! Atomic operations on one key: a counter, a compare-and-swap, an update with a function.
//!
//! `cargo run --release --example atomic_update -- ENGINE KEYS` prints what an update takes beside
//! a get and a put, for example `-- btree 1000000`. Without arguments it runs all engines with few
//! keys.

use std::time::{Duration, Instant};

use quintet::{CasOutcome, Database, EngineKind, Options, Table, TableOptions};

/// Operations of one run, and the number of runs of each kind, which alternate.
const OPERATIONS: usize = 200_000;
const RUNS: usize = 9;
const VALUE: [u8; 128] = [7; 128];

fn main() -> quintet::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments.first().and_then(|name| name.parse::<EngineKind>().ok());
    let keys = arguments.get(1).and_then(|count| count.parse().ok()).unwrap_or(1_000);
    for kind in EngineKind::ALL.into_iter().filter(|kind| named.is_none_or(|named| named == *kind))
    {
        let path = std::env::temp_dir().join(format!("quintet-atomic-{}", std::process::id()));
        let db = Options::new().memory_budget(1 << 30).open(&path)?;
        show(&db, kind)?;
        let table = db.create_table("measured", TableOptions::new(kind))?;
        table.extend((0..keys).map(|number| (key(number), VALUE)))?;
        measure(&table, keys, if named.is_some() { OPERATIONS } else { 100 })?;
        db.close()?;
        std::fs::remove_dir_all(&path).ok();
    }
    Ok(())
}

fn show(db: &Database, kind: EngineKind) -> quintet::Result<()> {
    let table = db.create_table("shown", TableOptions::new(kind))?;
    assert_eq!(table.fetch_and_add("visits", 1)?, 0);
    assert_eq!(table.fetch_and_add("visits", 2)?, 1);
    assert!(table.compare_and_swap("lock", None, Some(b"worker 1"))?.is_swapped());
    let CasOutcome::Different { current } =
        table.compare_and_swap("lock", None, Some(b"worker 2"))?
    else {
        panic!("two workers hold the lock");
    };
    assert_eq!(current.as_deref(), Some(&b"worker 1"[..]));
    table.update("log", |old| Some([old.unwrap_or_default(), b"one line\n"].concat()))?;
    assert_eq!(table.take("log")?.as_deref(), Some(&b"one line\n"[..]));
    Ok(())
}

fn key(number: usize) -> [u8; 16] {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Changes the first byte of random values: by a get and a put, and by an update.
fn measure(table: &Table, keys: usize, operations: usize) -> quintet::Result<()> {
    let mut times: [Vec<Duration>; 2] = [Vec::new(), Vec::new()];
    let mut random = 1_usize;
    for run in 0..RUNS * 2 {
        let began = Instant::now();
        for _ in 0..operations {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = key((random >> 33) % keys);
            if run % 2 == 0 {
                let changed = changed(table.get(key)?.as_deref());
                table.put(key, changed)?;
            } else {
                table.update(key, |old| Some(changed(old)))?;
            }
        }
        times[run % 2].push(began.elapsed());
    }
    let [both, update] = times.map(|mut times| {
        times.sort_unstable();
        times[RUNS / 2].as_nanos() / operations as u128
    });
    let percent = update * 100 / both.max(1);
    println!("{}: get and put {both} ns, update {update} ns, {percent} %", table.kind());
    Ok(())
}

fn changed(old: Option<&[u8]>) -> [u8; 128] {
    let mut new: [u8; 128] = old.and_then(|old| old.try_into().ok()).unwrap_or(VALUE);
    new[0] = new[0].wrapping_add(1);
    new
}
