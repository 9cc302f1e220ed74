//! Lists of many tables: filter, pages, order.

use crate::common::Place;

fn place_with_tables() -> Place {
    let place = Place::with_table();
    for name in ["app/a", "app/b", "app/c", "log/a"] {
        place.ok(&["create", "DB", name, "--engine", "naive"]);
    }
    for (name, keys) in [("app/b", 3), ("log/a", 2), ("app/c", 1)] {
        for key in 0..keys {
            place.ok(&["put", "DB", name, &format!("k{key}"), "v"]);
        }
    }
    place
}

/// Returns the first column.
fn names(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.split('\t').next()).collect()
}

#[test]
fn tables_are_filtered_and_listed_in_pages() {
    let place = place_with_tables();
    let list = |words: &[&str]| place.ok(&[&["tables", "DB"], words].concat());
    assert_eq!(names(&list(&[])), ["app/a", "app/b", "app/c", "log/a", "t"]);
    assert_eq!(names(&list(&["--match", "app/*"])), ["app/a", "app/b", "app/c"]);
    assert_eq!(names(&list(&["--match", "*/?"])), ["app/a", "app/b", "app/c", "log/a"]);
    assert_eq!(names(&list(&["--limit", "2"])), ["app/a", "app/b"]);
    assert_eq!(names(&list(&["--from", "app/b", "--limit", "2"])), ["app/b", "app/c"]);
    assert_eq!(names(&list(&["--from", "app/b", "--match", "*a"])), ["log/a"]);
    assert_eq!(list(&["--limit", "0"]), "");
    assert_eq!(list(&["--limit", "1", "--json"]).lines().count(), 1);
    place.fails(2, &["tables", "DB", "--limit", "many"], "--limit");
    let answer = place.feed(&["shell", "DB"], "tables app/*\n");
    assert_eq!(names(answer.text()), ["app/a", "app/b", "app/c"]);
}

#[test]
fn statistics_of_tables_are_sorted() {
    let place = place_with_tables();
    let list = |words: &[&str]| place.ok(&[&["stats", "DB", "--tables"], words].concat());
    let by_name = list(&[]);
    let first = "table\tengine\tkeys\tlive_bytes\tdead_bytes\tfile_bytes\tmemory_bytes\n";
    assert!(by_name.starts_with(first), "{by_name}");
    assert_eq!(names(&by_name), ["table", "app/a", "app/b", "app/c", "log/a", "t"]);
    let by_keys = list(&["--sort", "keys", "--limit", "3"]);
    assert_eq!(names(&by_keys), ["table", "app/b", "log/a", "app/c"]);
    assert_eq!(by_keys.lines().nth(1).unwrap().split('\t').nth(2), Some("3"));
    let equal = list(&["--sort", "dead-bytes", "--from", "b"]);
    assert_eq!(names(&equal), ["table", "log/a", "t"]);
    let json = list(&["--match", "log/*", "--json"]);
    let table: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&table["table"], &table["keys"]), (&"log/a".into(), &2.into()));
    place.fails(2, &["stats", "DB", "--limit", "1"], "--tables");
    place.fails(2, &["stats", "DB", "--sort", "keys"], "--tables");
    place.fails(2, &["stats", "DB", "t", "--tables"], "--tables");
}
