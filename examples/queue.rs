//! A queue in an ordered table: take the first entry, append one, behind many deleted keys.
//!
//! `cargo run --release --example queue -- ENGINE DELETED` prints what a step takes, for example
//! `-- slm 200000`. Without arguments it runs all ordered engines with few entries.

use std::time::{Duration, Instant};

use quintet::{Database, EngineKind, Table, TableOptions};

/// Steps that are measured.
const STEPS: usize = 2_000;

fn main() -> quintet::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments.first().and_then(|name| name.parse::<EngineKind>().ok());
    let deleted = arguments.get(1).and_then(|count| count.parse().ok()).unwrap_or(3_000);
    let engines = [EngineKind::BTree, EngineKind::Slm, EngineKind::Tph];
    for kind in engines.into_iter().filter(|kind| named.is_none_or(|named| named == *kind)) {
        let path = std::env::temp_dir().join(format!("quintet-queue-{}", std::process::id()));
        let db = Database::open(&path)?;
        let queue = db.create_table("queue", TableOptions::new(kind))?;
        for number in 0..deleted + 1_000 {
            queue.put(key(number), [0; 100])?;
        }
        db.persist()?;
        for number in 0..deleted {
            queue.delete(key(number))?;
        }
        measure(&queue, kind, deleted)?;
        db.close()?;
        std::fs::remove_dir_all(&path).ok();
    }
    Ok(())
}

fn key(number: usize) -> String {
    format!("{number:010}")
}

/// Takes and appends, and prints what the ranges take.
fn measure(queue: &Table, kind: EngineKind, deleted: usize) -> quintet::Result<()> {
    let mut times = Vec::with_capacity(STEPS);
    for step in 0..STEPS {
        let began = Instant::now();
        let first = queue.range(..)?.next().transpose()?.map(|(key, _)| key);
        let found = began.elapsed();
        assert_eq!(first, Some(key(deleted + step).into_bytes()));
        queue.delete(key(deleted + step))?;
        queue.put(key(deleted + 1_000 + step), "appended")?;
        times.push((found, began.elapsed()));
    }
    let first = times.first().map_or(Duration::ZERO, |(found, _)| *found);
    let total: Duration = times.iter().skip(1).map(|(_, step)| *step).sum();
    let mut found: Vec<_> = times.iter().skip(1).map(|(found, _)| *found).collect();
    found.sort_unstable();
    let mut steps: Vec<_> = times.iter().skip(1).map(|(_, step)| *step).collect();
    steps.sort_unstable();
    let at = |sorted: &[Duration], percent: usize| {
        sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
    };
    println!(
        "{kind}, {deleted} deleted: first range {first:.1?}; then a range {:.1?} (p50), \
         {:.1?} (p99); a step {:.1?} (p50), {:.1?} (mean)",
        at(&found, 50),
        at(&found, 99),
        at(&steps, 50),
        total / u32::try_from(STEPS).unwrap_or(1),
    );
    Ok(())
}
