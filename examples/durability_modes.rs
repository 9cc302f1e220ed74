//! Durability for the database, for one write, and on demand.

use std::time::Duration;

use quintet::{Durability, EngineKind, Options, PutOptions, TableOptions};

fn main() -> quintet::Result<()> {
    let path = std::env::temp_dir().join(format!("quintet-durability-{}", std::process::id()));
    // `Buffered`, the default: a returned write survives the death of the process. A power loss
    // loses at most the commits of the last `sync_interval`.
    let options = Options::new().sync_interval(Duration::from_millis(20));
    let db = options.open(&path)?;
    let table = db.create_table("t", TableOptions::new(EngineKind::HashLog))?;
    table.put("buffered", "1")?;

    // `Sync`: this write, and all commits before it, survive a power loss when the call returns.
    table.put_with("synced", "2", PutOptions::new().durability(Durability::Sync))?;

    // All writes so far survive a power loss when this returns. One sync serves many writes.
    table.put("last", "3")?;
    db.sync()?;
    let log = db.stats().log;
    assert!(log.durable >= log.end, "the whole log is on the disk");

    // Moves the content to the tables' own files, so that opening replays nothing.
    db.persist()?;
    db.close()?;
    let db = options.durability(Durability::Sync).open(&path)?; // for every write
    assert_eq!(
        db.table("t")?.multi_get(&["buffered", "synced", "last"])?.iter().flatten().count(),
        3
    );
    db.close()?;
    std::fs::remove_dir_all(&path).ok();
    Ok(())
}
