//! A table with types: keys of numbers and text sort by value, and other types are refused.

use quintet::{Database, EngineKind, Error, TableOptions};

fn main() -> quintet::Result<()> {
    let path = std::env::temp_dir().join(format!("quintet-typed-keys-{}", std::process::id()));
    let db = Database::open(&path)?;
    let options = TableOptions::new(EngineKind::BTree);
    let readings = db.create_typed::<(String, i64), f64>("readings", options)?;
    let key = |sensor: &str, hour: i64| (sensor.to_owned(), hour);
    for hour in [10, -1, 2] {
        readings.put(&key("roof", hour), &0.5)?;
    }
    readings.put(&key("cellar", 7), &12.25)?;
    assert_eq!(readings.get(&key("cellar", 7))?, Some(12.25));

    // Numbers sort as numbers: -1, 2, 10. A prefix is the first parts of the key.
    let mut hours = Vec::new();
    for entry in readings.prefix(&("roof".to_owned(),))? {
        let ((_, hour), _) = entry?;
        hours.push(hour);
    }
    assert_eq!(hours, [-1, 2, 10]);

    // The catalog keeps the types, so another program cannot misread the table.
    let refused = db.typed::<u64, f64>("readings");
    assert!(matches!(refused, Err(Error::TypeMismatch { .. })));
    db.close()?;
    std::fs::remove_dir_all(&path).ok();
    Ok(())
}
