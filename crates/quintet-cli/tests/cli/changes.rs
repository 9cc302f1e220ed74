//! `changes`: what the log still has.

use crate::common::Place;

#[test]
fn changes_are_printed_in_their_order() {
    let place = Place::with_table();
    place.ok(&["create", "DB", "app/o", "--engine", "btree"]);
    place.ok(&["put", "DB", "t", "k", "a\tb"]);
    place.ok(&["put", "DB", "app/o", "1", "one", "--type", "string"]);
    place.ok(&["del", "DB", "app/o", "--from", "0", "--to", "5"]);
    place.ok(&["del", "DB", "t", "k"]);
    let text = place.ok(&["changes", "DB"]);
    let fields: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let shown: Vec<_> = fields.iter().map(|fields| &fields[1..]).collect();
    let expected: [&[&str]; 4] = [
        &["t", "put", "k", "a\\tb"],
        &["app/o", "put", "1", "one"],
        &["app/o", "delete-range", "0", "5"],
        &["t", "delete", "k"],
    ];
    assert_eq!(shown, expected, "{text}");
    let lsns: Vec<u64> = fields.iter().map(|fields| fields[0].parse().unwrap()).collect();
    assert!(lsns.is_sorted(), "{lsns:?}");
    let from = (lsns[1] + 1).to_string();
    let rest = place.ok(&["changes", "DB", "--from", &from, "--table", "app", "--hex"]);
    assert_eq!(rest, format!("{}\tapp/o\tdelete-range\t30\t35\n", lsns[2]));
    let json = place.ok(&["changes", "DB", "--json", "--limit", "2"]);
    let second: serde_json::Value = serde_json::from_str(json.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&second["table"], &second["type"]), (&"app/o".into(), &"string".into()));
    assert_eq!(json.lines().count(), 2);
    place.fails(1, &["changes", "DB", "--table", "missing"], "no table named");
    place.fails(1, &["changes", "DB", "--from", "99999999999"], "position 99999999999");
    place.fails(2, &["changes", "DB", "--from", "x"], "invalid value");
}
