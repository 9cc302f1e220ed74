//! Typed tables: numbers and composite keys as text, in and out.

use crate::common::{Place, check_failure};

fn numbers() -> Place {
    let place = Place::empty();
    let types = ["--key-type", "i64", "--value-type", "f64"];
    let words = [&["create", "DB", "n", "--engine", "naive"][..], &types].concat();
    place.ok(&words);
    place
}

#[test]
fn a_typed_table_takes_and_shows_numbers() {
    let place = numbers();
    assert_eq!(place.ok(&["tables", "DB"]), "n\tnaive\ti64 -> f64\n");
    assert!(place.ok(&["tables", "DB", "--json"]).contains(r#""types":"i64 -> f64""#));
    place.ok(&["put", "DB", "n", "-5", "0.5"]);
    assert_eq!(place.ok(&["get", "DB", "n", "-5"]), "0.5\n");
    assert_eq!(place.ok(&["get", "DB", "n", "-5", "--json"]), "{\"key\":-5,\"value\":0.5}\n");
    assert_eq!(place.ok(&["scan", "DB", "n"]), "-5\t0.5\n");
    let hex = place.ok(&["scan", "DB", "n", "--hex"]);
    assert_eq!(hex, "7ffffffffffffffb\t000000000000e03f\n");
    place.ok(&["put", "DB", "n", "6", "NaN"]);
    assert_eq!(place.ok(&["get", "DB", "n", "6", "--json"]), "{\"key\":6,\"value\":\"NaN\"}\n");
    assert_eq!(place.ok(&["del", "DB", "n", "-5", "7"]), "deleted 1 of 2\n");
    place.fails(1, &["get", "DB", "n", "-5"], "no key -5 in table n");
}

#[test]
fn text_that_is_not_of_the_type_is_refused_and_changes_nothing() {
    let place = numbers();
    place.ok(&["put", "DB", "n", "1", "1"]);
    place.fails(2, &["put", "DB", "n", "one", "1"], "\"one\" is not an i64: a whole number from");
    place.fails(2, &["put", "DB", "n", "1", "x"], "\"x\" is not an f64: a number");
    place.fails(1, &["put", "DB", "n", "00", "00", "--hex"], "types i64 -> f64");
    place.fails(1, &["get", "DB", "n", "1", "--key-type", "u64"], "not u64 -> blob");
    place.fails(2, &["scan", "DB", "n", "--prefix", "1"], "no prefix");
    place.fails(2, &["create", "DB", "m", "--engine", "naive", "--key-type", "u16"], "u16");
    let many = "u32,u32,u32,u32,u32";
    place.fails(2, &["create", "DB", "m", "--engine", "naive", "--key-type", many], "1 to 4 parts");
    assert_eq!(place.ok(&["scan", "DB", "n"]), "1\t1\n");
}

#[test]
fn composite_keys_are_json_arrays() {
    let place = Place::empty();
    let create = ["create", "DB", "c", "--engine", "naive", "--key-type", "string,u64"];
    place.ok(&create);
    place.ok(&["put", "DB", "c", r#"["a",7]"#, "text"]);
    assert_eq!(place.ok(&["scan", "DB", "c"]), "[\"a\",7]\ttext\n");
    assert_eq!(
        place.ok(&["scan", "DB", "c", "--json"]),
        "{\"key\":[\"a\",7],\"value\":\"text\"}\n"
    );
    place.fails(2, &["put", "DB", "c", "a,7", "text"], "a JSON array of 2 values");
}

#[test]
fn a_table_without_types_is_read_as_the_user_says() {
    let place = Place::with_table();
    place.ok(&["put", "DB", "t", "7", "8", "--key-type", "u32", "--value-type", "u32"]);
    assert_eq!(place.ok(&["scan", "DB", "t", "--hex"]), "00000007\t08000000\n");
    let typed = ["scan", "DB", "t", "--key-type", "u32", "--value-type", "u32"];
    assert_eq!(place.ok(&typed), "7\t8\n");
}

#[test]
fn typed_tables_are_imported_and_exported_as_text() {
    let place = numbers();
    let rows = place.file("rows.csv", "key,value\n-1,0.5\n2,-inf\n");
    place.ok(&["import", "DB", "n", &rows, "--key", "key", "--value", "value"]);
    let mut shown: Vec<_> = place.ok(&["scan", "DB", "n"]).lines().map(str::to_owned).collect();
    shown.sort();
    assert_eq!(shown, ["-1\t0.5", "2\t-inf"]);
    for format in ["csv", "jsonl", "dump"] {
        let out = format!("DIR/out.{format}");
        place.ok(&["export", "DB", "n", &out, "--pairs"]);
        let copy = format!("copy-{format}");
        let create = ["create", "DB", &copy, "--engine", "naive"];
        place.ok(&[&create[..], &["--key-type", "i64", "--value-type", "f64"]].concat());
        let columns: &[&str] =
            if format == "csv" { &["--key", "key", "--value", "value"] } else { &[] };
        place.ok(&[&["import", "DB", &copy, &out][..], columns].concat());
        let mut copied: Vec<_> =
            place.ok(&["scan", "DB", &copy]).lines().map(str::to_owned).collect();
        copied.sort();
        assert_eq!(copied, shown, "{format}");
    }
    let bad = place.file("bad.csv", "key,value\n5,1\nfive,1\n");
    let words = ["import", "DB", "n", &bad, "--key", "key", "--value", "value"];
    let expected = "bad.csv:3: key: \"five\" is not an i64: a whole number from \
                    -9223372036854775808 to 9223372036854775807; nothing was imported";
    place.fails(1, &words, expected);
}

#[test]
fn the_shell_knows_types() {
    let place = Place::empty();
    place.ok(&["create", "DB", "t", "--engine", "naive"]);
    let script = "create n naive key-type=u64,string value-type=i64\n\
                  put [7,\"x\"] -3\nget [7,\"x\"]\nscan\nput 7 1\n";
    // A key with a quote in it stands in quotes itself.
    let script = script.replace("[7,\"x\"]", r#""[7,\"x\"]""#);
    let answer = place.feed(&["shell", "DB"], script);
    assert_eq!(answer.text(), "ok\nok\n-3\n[7,\"x\"]\t-3\n");
    check_failure(&answer, 1, "a JSON array of 2 values");
}
