//! Opens a database, writes a value, reads it back, and finds it again after reopening.

use quintet::{Database, EngineKind, TableOptions};

fn main() -> quintet::Result<()> {
    let path = std::env::temp_dir().join(format!("quintet-open-{}", std::process::id()));
    let db = Database::open(&path)?;
    // A path names a table. The engine is chosen once, when the table is created.
    let users = db.open_or_create_table("app/users", TableOptions::new(EngineKind::HashLog))?;
    users.put("alice", "Alice Liddell")?;
    users.put("bob", "Bob")?;
    users.delete("bob")?;
    assert!(users.get("alice")?.is_some_and(|value| value == "Alice Liddell"));
    assert!(!users.contains("bob")?);
    db.close()?;

    let db = Database::open(&path)?;
    let users = db.table("app/users")?;
    assert!(users.get("alice")?.is_some_and(|value| value == "Alice Liddell"));
    assert!(users.get("bob")?.is_none());
    db.close()?;
    std::fs::remove_dir_all(&path).ok();
    Ok(())
}
