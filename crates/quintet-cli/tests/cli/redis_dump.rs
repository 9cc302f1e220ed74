//! `import --rdb` and `export --rdb`. The tests of the server compare contents with Redis.

use crate::common::{Place, check_failure};

/// A dump with a string that expires in the far future and a set, without a checksum.
const DUMP: &[u8] =
    b"REDIS0010\xfa\x09redis-ver\x067.0.15\xfe\x00\xfc\x00\x98\x07\xba\xe8\x08\x00\x00\
    \x00\x03key\x05value\x02\x03set\x02\x01a\xc0\x07\xff\0\0\0\0\0\0\0\0";

#[test]
fn a_dump_is_imported_and_exported_again() {
    let place = Place::empty();
    let file = place.file("dump.rdb", DUMP);
    assert_eq!(place.ok(&["import", "DB", "--rdb", &file]), "imported 2 keys; 0 had expired\n");
    place.ok(&["check", "DB"]);
    let printed = place.ok(&["export", "DB", "--rdb", "DIR/out.rdb"]);
    assert!(printed.starts_with("exported 2 keys to ") && printed.ends_with("; 0 had expired\n"));
    let exported = place.read("out.rdb");
    assert!(exported.starts_with(b"REDIS0010"));
    // What was exported is imported with the same result.
    let file = place.file("again.rdb", &exported);
    let printed = place.ok(&["import", "DIR/other", "--rdb", &file, "--json"]);
    let expected = "{\"keys\":2,\"expired\":0,\"functions\":0,\"modules\":0}\n";
    assert_eq!(printed, expected);
    let printed = place.ok(&["export", "DIR/other", "--rdb", "DIR/third.rdb", "--json"]);
    assert_eq!(printed, "{\"keys\":2,\"expired\":0}\n");
    assert_eq!(place.read("third.rdb").len(), exported.len());
    let named = ["export", "DIR/other", "--rdb", "DIR/named.rdb", "--namespace", "default"];
    place.ok(&named);
    assert_eq!(place.read("named.rdb").len(), exported.len());
    let answer =
        place.run(&["export", "DIR/other", "--rdb", "DIR/none.rdb", "--namespace", "none"]);
    check_failure(&answer, 1, "has no namespace \"none\"; it has default");
    assert!(!place.path("none.rdb").exists());
    let import = ["import", "DIR/other", "--rdb", &file, "--namespace", "shop"];
    assert_eq!(place.ok(&import), "imported 2 keys; 0 had expired\n");
    check_failure(&place.run(&import), 1, "the namespace \"shop\" of");
    let named = ["export", "DIR/other", "--rdb", "DIR/shop.rdb", "--namespace", "shop"];
    place.ok(&named);
    assert_eq!(place.read("shop.rdb").len(), exported.len());
    let answer = place.run(&["import", "DB", "table", &file, "--namespace", "shop"]);
    check_failure(&answer, 2, "cannot be used with");
    for of_dumps in [&["--namespace", "default"][..], &["--json"]] {
        let answer = place.run(&[&["export", "DIR/other", "table"][..], of_dumps].concat());
        check_failure(&answer, 2, "cannot be used with");
        let answer = place.run(&[&["export", "DIR/other"][..], of_dumps].concat());
        check_failure(&answer, 2, "--rdb");
    }
}

#[test]
fn what_is_no_dump_is_refused() {
    let place = Place::empty();
    let file = place.file("text.rdb", "hello");
    let answer = place.run(&["import", "DB", "--rdb", &file]);
    check_failure(&answer, 1, "does not begin with REDIS");
    assert!(!place.path("DB").exists() && !place.path("db").exists());
    let file = place.file("cut.rdb", &DUMP[..DUMP.len() - 20]);
    let answer = place.run(&["import", "DB", "--rdb", &file]);
    check_failure(&answer, 1, "ends too early");
    let answer = place.run(&["export", "DB", "--rdb", "DIR/out.rdb"]);
    check_failure(&answer, 1, "did not end");
    assert!(!place.path("out.rdb").exists() && !place.path("out.rdb.partial").exists());
    let answer = place.run(&["import", "DB", "table", "--rdb", &file]);
    check_failure(&answer, 2, "cannot be used with");
    let answer = place.run(&["import", "DB", "--rdb", "DIR/missing.rdb"]);
    check_failure(&answer, 1, "missing.rdb");
}
