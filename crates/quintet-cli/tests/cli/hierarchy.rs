//! Directories of tables: listing, default options, mounts.

use crate::common::Place;

#[test]
fn directories_are_listed() {
    let place = Place::with_table();
    place.ok(&["create", "DB", "app/eu/users", "--engine", "naive"]);
    assert_eq!(place.ok(&["list", "DB"]), "app\tdirectory\nt\tnaive\n");
    assert_eq!(place.ok(&["list", "DB", "app/eu"]), "users\tnaive\n");
    let json = place.ok(&["list", "DB", "--json"]);
    assert!(json.contains(r#"{"name":"t","kind":"table","engine":"naive"}"#), "{json}");
    place.fails(1, &["list", "DB", "t"], "no directory of tables is named");
    let answer = place.feed(&["shell", "DB"], "list app\n");
    assert_eq!(answer.text(), "eu\tdirectory\n");
}

#[test]
fn a_directory_has_default_options() {
    let place = Place::with_table();
    let set = ["defaults", "DB", "app", "--engine", "hashlog", "--key-type", "u64"];
    place.ok(&set);
    assert_eq!(
        place.ok(&["defaults", "DB", "app/x"]),
        "--engine hashlog --key-type u64 --value-type blob\n"
    );
    place.ok(&["create", "DB", "app/numbers"]);
    assert_eq!(place.ok(&["tables", "DB"]), "app/numbers\thashlog\tu64 -> blob\nt\tnaive\n");
    place.fails(2, &["create", "DB", "u"], "--engine");
    place.fails(2, &["create", "DB", "u", "--option", "a=b"], "need --engine");
    place.fails(2, &["defaults", "DB", "app", "--clear", "--engine", "naive"], "--clear");
    place.ok(&["defaults", "DB", "app", "--clear"]);
    assert_eq!(place.ok(&["defaults", "DB", "app"]), "");
}

#[test]
fn another_database_is_mounted() {
    let place = Place::with_table();
    place.ok(&["create", "DIR/far", "eu/users", "--engine", "naive"]);
    place.ok(&["put", "DIR/far", "eu/users", "k", "v"]);
    place.ok(&["mount", "DB", "archive", "DIR/far", "--subtree", "eu", "--read-only"]);
    assert_eq!(place.ok(&["get", "DB", "archive/users", "k"]), "v\n");
    assert_eq!(place.ok(&["list", "DB", "archive"]), "users\tnaive\n");
    let mounts = place.ok(&["mounts", "DB"]);
    assert!(mounts.starts_with("archive\t/") && mounts.ends_with("/far\teu\tread-only\n"));
    place.fails(1, &["put", "DB", "archive/users", "k", "w"], "read-only");
    place.fails(1, &["mount", "DB", "self", "DB"], "leads back to this database");
    let missing = place.run(&["mount", "DB", "none", "DIR/none"]);
    crate::common::check_failure(&missing, 1, "none cannot be found: no such file");
    assert!(!missing.error.contains("os error"), "{missing:?}");
    std::fs::rename(place.path("far"), place.path("away")).unwrap();
    assert_eq!(place.ok(&["count", "DB", "t"]), "0\n");
    place.fails(1, &["get", "DB", "archive/users", "k"], "mount archive: ");
    place.ok(&["unmount", "DB", "archive"]);
    assert_eq!(place.ok(&["mounts", "DB"]), "");
}
