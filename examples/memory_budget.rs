//! One memory budget for the whole database, and the statistics that show who uses it.

use quintet::{EngineKind, Error, Options, TableOptions};

fn main() -> quintet::Result<()> {
    let path = std::env::temp_dir().join(format!("quintet-budget-{}", std::process::id()));
    let db = Options::new().memory_budget(16 << 20).open(&path)?;
    let large = db.create_table("large", TableOptions::new(EngineKind::Tph))?;
    let small = db.create_table("small", TableOptions::new(EngineKind::Naive))?;

    // 32 MB through 16 MiB: `tph` keeps values in files.
    for number in 0..32_000_u32 {
        large.put(number.to_be_bytes(), [7; 1000])?;
    }
    let stats = db.stats();
    assert!(stats.memory_bytes <= stats.memory_budget_bytes);
    assert_eq!(stats.memory_budget_bytes, 16 << 20);
    for table in &stats.tables {
        println!("{}: {} keys, {} bytes in memory", table.name, table.keys, table.memory_bytes);
    }

    // `naive` keeps all values in memory, so it refuses what does not fit and stays usable.
    let refused = (0..32_000_u32).find_map(|n| small.put(n.to_be_bytes(), [7; 1000]).err());
    assert!(matches!(refused, Some(Error::OutOfMemory { .. })), "{refused:?}");
    assert!(small.contains(0_u32.to_be_bytes())? && large.contains(0_u32.to_be_bytes())?);
    db.close()?;
    std::fs::remove_dir_all(&path).ok();
    Ok(())
}
