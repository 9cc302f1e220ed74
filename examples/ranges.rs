//! Ranges of an ordered table: forwards, backwards, by prefix, and in pages.

use quintet::{Cursor, Database, EngineKind, KeyRange, TableOptions};

fn main() -> quintet::Result<()> {
    let path = std::env::temp_dir().join(format!("quintet-ranges-{}", std::process::id()));
    let db = Database::open(&path)?;
    // `btree`, `slm` and `tph` keep keys in order.
    let events = db.create_table("events", TableOptions::new(EngineKind::Slm))?;
    for day in 1..=9 {
        events.put(format!("2026-01-{day:02}"), format!("event {day}"))?;
    }

    let keys = |entry: quintet::Result<(Vec<u8>, _)>| entry.map(|(key, _)| key);
    let days: Vec<_> =
        events.range("2026-01-03".."2026-01-05")?.map(keys).collect::<Result<_, _>>()?;
    assert_eq!(days, [b"2026-01-03", b"2026-01-04"]);
    let last = events.range(KeyRange::prefix(b"2026-01-"))?.next_back().transpose()?;
    assert!(last.is_some_and(|(key, value)| key == b"2026-01-09" && value == "event 9"));

    // A page at a time. A cursor holds no resources and may be kept between requests.
    let (first_page, cursor) = events.scan(Cursor::START, 4)?;
    let (second_page, _) = events.scan(&cursor, 4)?;
    assert!(!first_page.is_empty() && !second_page.is_empty());

    events.delete_range("2026-01-01"..="2026-01-07")?;
    assert_eq!(events.range(..)?.count(), 2);
    db.close()?;
    std::fs::remove_dir_all(&path).ok();
    Ok(())
}
