//! A subtree of another database, mounted for reading under a path of this one.

use quintet::{Database, EngineKind, Error, MountOptions, TableOptions};

fn main() -> quintet::Result<()> {
    let path = std::env::temp_dir().join(format!("quintet-mounts-{}", std::process::id()));
    let old = Database::open(path.join("old"))?;
    let orders = old.create_table("2025/orders", TableOptions::new(EngineKind::BTree))?;
    orders.put("1", "one teapot")?;
    old.close()?;

    let db = Database::open(path.join("new"))?;
    db.create_table("orders", TableOptions::new(EngineKind::BTree))?.put("2", "two cups")?;
    let target = MountOptions::new(path.join("old")).subtree("2025").read_only(true);
    db.mount("archive", target)?;

    // Its tables are found by path, as if they were here.
    let archived = db.table("archive/orders")?;
    assert!(archived.get("1")?.is_some_and(|value| value == "one teapot"));
    assert!(matches!(archived.put("3", "three"), Err(Error::ReadOnly)));

    // A batch is atomic within one database and cannot cross a mount.
    let mut batch = db.batch();
    batch.put(&db.table("orders")?, "4", "four").put(&archived, "4", "four");
    assert!(matches!(batch.commit(), Err(Error::OtherDatabase { .. })));
    db.close()?;
    std::fs::remove_dir_all(&path).ok();
    Ok(())
}
