//! A sorted load: `btree` builds its leaves from the entries and writes nothing to the log.

use quintet::{Database, EngineKind, LoadOptions, TableOptions};

fn main() -> quintet::Result<()> {
    let path = std::env::temp_dir().join(format!("quintet-load-{}", std::process::id()));
    let db = Database::open(&path)?;
    let table = db.create_table("numbers", TableOptions::new(EngineKind::BTree))?;
    let log_before = db.stats().log.appended_bytes_total;

    // Keys in strictly ascending order, here from an iterator.
    let entries = (0..100_000_u32).map(|number| (number.to_be_bytes(), number.to_string()));
    assert_eq!(table.load_sorted(entries)?, 100_000);
    let logged = db.stats().log.appended_bytes_total - log_before;
    assert!(logged < 4096, "{logged} bytes in the log for 100,000 entries");
    assert!(table.get(777_u32.to_be_bytes())?.is_some_and(|value| value == "777"));

    // Entry by entry: nothing is visible before the commit, and a dropped loader changes nothing.
    let mut loader = table.sorted_loader(LoadOptions::new())?;
    loader.put(100_000_u32.to_be_bytes(), "last")?;
    assert!(loader.put(5_u32.to_be_bytes(), "out of order").is_err());
    drop(loader);
    assert_eq!(table.range(..)?.count(), 100_000);
    db.close()?;
    std::fs::remove_dir_all(&path).ok();
    Ok(())
}
