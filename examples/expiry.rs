//! Values that expire, and conditional writes that treat an expired value as absent.

use std::time::Duration;

use quintet::{Database, EngineKind, PutOptions, TableOptions};

fn main() -> quintet::Result<()> {
    let path = std::env::temp_dir().join(format!("quintet-expiry-{}", std::process::id()));
    let db = Database::open(&path)?;
    let locks = db.create_table("locks", TableOptions::new(EngineKind::HashLog))?;
    let lease = PutOptions::new().ttl(Duration::from_hours(1)).if_absent();

    assert!(locks.put_with("job", "worker 1", lease)?, "the lock is free");
    assert!(!locks.put_with("job", "worker 2", lease)?, "worker 1 holds the lock");
    assert!(locks.get("job")?.is_some_and(|lock| lock.expires_at().is_some()));

    // Renewing a lease is a put: it replaces the value and its expiry.
    let short = PutOptions::new().ttl(Duration::from_millis(50)).if_present();
    assert!(locks.put_with("job", "worker 1", short)?);
    std::thread::sleep(Duration::from_millis(60));
    assert!(locks.get("job")?.is_none(), "no read returns an expired value");
    assert!(locks.put_with("job", "worker 2", lease)?, "an expired lock is free");
    db.close()?;
    std::fs::remove_dir_all(&path).ok();
    Ok(())
}
