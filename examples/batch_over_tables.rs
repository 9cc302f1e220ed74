//! One atomic batch over tables of different engines: all of it takes effect or nothing.

use quintet::{Database, Durability, EngineKind, TableOptions};

fn main() -> quintet::Result<()> {
    let path = std::env::temp_dir().join(format!("quintet-batch-{}", std::process::id()));
    let db = Database::open(&path)?;
    let orders = db.create_table("orders", TableOptions::new(EngineKind::BTree))?;
    let carts = db.create_table("carts", TableOptions::new(EngineKind::HashLog))?;
    let stock = db.create_table("stock", TableOptions::new(EngineKind::Trie))?;
    carts.put("alice", "one teapot")?;
    stock.put("teapot", "12")?;

    let mut batch = db.batch();
    batch.put(&orders, "1001", "alice: one teapot");
    batch.delete(&carts, "alice");
    batch.put(&stock, "teapot", "11");
    assert_eq!(batch.len(), 3);
    assert!(!orders.contains("1001")?, "nothing is written before the commit");
    batch.commit_with(Durability::Sync)?; // one record of the log for all three tables

    assert!(orders.get("1001")?.is_some_and(|value| value == "alice: one teapot"));
    assert!(!carts.contains("alice")?);
    assert!(stock.get("teapot")?.is_some_and(|value| value == "11"));
    db.close()?;
    std::fs::remove_dir_all(&path).ok();
    Ok(())
}
