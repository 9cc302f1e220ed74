//! Files in, files out.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::common::{Place, check_failure};

const ROWS: usize = 10_000;

/// Rows with everything that a format must quote.
fn records() -> Vec<[String; 4]> {
    (0..ROWS)
        .map(|n| {
            let awkward =
                ["plain", "a,b", "say \"no\"", "two\nlines", "tab\there", "", "\u{e9} \\x"];
            let text = awkward[n % awkward.len()];
            [format!("id-{n}"), text.to_owned(), n.to_string(), format!("{text}{n}")]
        })
        .collect()
}

const NAMES: [&str; 4] = ["id", "text", "number", "mix"];

fn delimited(delimiter: u8) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
    writer.write_record(NAMES).unwrap();
    for record in records() {
        writer.write_record(&record).unwrap();
    }
    writer.into_inner().unwrap()
}

/// The records of a delimited file, sorted; the first is the header.
fn parsed(bytes: &[u8], delimiter: u8) -> Vec<csv::StringRecord> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).delimiter(delimiter).from_reader(bytes);
    let mut records: Vec<_> = reader.records().map(|record| record.unwrap()).collect();
    records[1..].sort_by(|a, b| a.as_slice().cmp(b.as_slice()));
    records
}

fn sorted_lines(bytes: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(bytes).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn delimited_records_come_back_identical() {
    for (name, delimiter) in [("x.csv", b','), ("x.tsv", b'\t')] {
        let place = Place::with_table();
        let source = delimited(delimiter);
        let file = place.file(name, &source);
        let printed = place.ok(&["import", "DB", "t", &file, "--key", "id"]);
        assert_eq!(printed, "imported 10000 rows into t; 0 replaced a value\n");
        let target = format!("DIR/out-{name}");
        place.ok(&["export", "DB", "t", &target]);
        let found = place.read(&format!("out-{name}"));
        assert!(parsed(&found, delimiter) == parsed(&source, delimiter), "{name} differs");
        // And once more: what was exported imports to the same table.
        let place_again = Place::with_table();
        place_again.file(name, &found);
        place_again.ok(&["import", "DB", "t", &format!("DIR/{name}")]);
        let again = place_again.run(&["export", "DB", "t", "-", "--format", "jsonl"]);
        let first = place.run(&["export", "DB", "t"]);
        assert!(sorted_lines(&again.out) == sorted_lines(&first.out), "{name} differs");
    }
}

#[test]
fn json_records_come_back_letter_by_letter() {
    let place = Place::with_table();
    let mut source = String::new();
    for [id, text, number, mix] in records() {
        let text = serde_json::json!({ "id": id, "text": text, "mix": [mix, null, 1.5] });
        writeln!(source, "{{\"n\": {number}, {}", &text.to_string()[1..]).unwrap();
    }
    let file = place.file("x.jsonl", &source);
    place.ok(&["import", "DB", "t", &file, "--key", "id"]);
    place.ok(&["export", "DB", "t", "DIR/out.jsonl"]);
    let found = sorted_lines(&place.read("out.jsonl"));
    assert!(found == sorted_lines(source.as_bytes()), "the lines differ");
}

#[test]
fn pairs_of_any_bytes_come_back_in_every_format() {
    let place = Place::with_table();
    let mut dump = String::from("VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n");
    for n in 0..ROWS {
        let value: Vec<_> =
            (0..n % 7).map(|k| format!("{:02x}", (n * 31 + k * 97) % 256)).collect();
        let value = value.concat();
        writeln!(dump, " {:08x}\n {value}", n * 7919).unwrap();
    }
    dump.push_str("DATA=END\n");
    let file = place.file("x.dump", &dump);
    place.ok(&["import", "DB", "t", &file]);
    let all = sorted_pairs(&place.run(&["export", "DB", "t", "-", "--format", "dump"]).out);
    assert!(all == sorted_pairs(dump.as_bytes()), "the dump differs");
    for (number, (name, more)) in [
        ("p.csv", &["--key", "key", "--value", "value"][..]),
        ("p.tsv", &["--key", "1", "--value", "2"]),
        ("p.jsonl", &[]),
        ("p.dump", &[]),
        ("print.dump", &[]),
    ]
    .into_iter()
    .enumerate()
    {
        let target = format!("DIR/{name}");
        let mut export = vec!["export", "DB", "t", &target];
        if name == "print.dump" {
            export.push("--print");
        }
        place.ok(&export);
        let table = format!("copy{number}");
        let mut import = vec!["import", "DB", &table, &target, "--engine", "naive"];
        import.extend(more);
        place.ok(&import);
        let copy = place.run(&["export", "DB", &table, "-", "--format", "dump"]);
        assert!(sorted_pairs(&copy.out) == all, "{name} differs");
    }
}

/// Key and value lines of a dump.
fn sorted_pairs(dump: &[u8]) -> BTreeMap<String, String> {
    let text = std::str::from_utf8(dump).unwrap();
    let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(' ')).collect();
    lines.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

#[test]
fn standard_input_and_output_are_files_too() {
    let place = Place::with_table();
    let words = ["import", "DB", "t", "-", "--format", "csv", "--key", "b", "--value", "a"];
    assert_eq!(place.feed(&words, "a,b\nvalue,key").code, 0);
    assert_eq!(place.ok(&["export", "DB", "t"]), "{\"key\":\"key\",\"value\":\"value\"}\n");
    assert_eq!(place.ok(&["export", "DB", "t", "-", "--format", "csv"]), "key,value\nkey,value\n");
    let no_header = ["export", "DB", "t", "-", "--format", "tsv", "--no-header"];
    assert_eq!(place.ok(&no_header), "key\tvalue\n");
}

#[test]
fn the_last_of_equal_keys_wins_and_their_number_is_told() {
    let place = Place::with_table();
    place.ok(&["put", "DB", "t", "c", "old"]);
    let file = place.file("x.csv", "k,v\na,1\nb,1\na,2\nc,new\na,3\n");
    let words = ["import", "DB", "t", &file, "--value", "v", "--json"];
    let printed = place.ok(&words);
    assert_eq!(printed, "{\"rows\":5,\"replaced\":3,\"batches\":1}\n");
    assert_eq!(place.ok(&["get", "DB", "t", "a"]), "3\n");
    assert_eq!(place.ok(&["get", "DB", "t", "c"]), "new\n");
    assert_eq!(place.ok(&["count", "DB", "t"]), "3\n");
    // The same over batches.
    let words = ["import", "DB", "t", &file, "--value", "v", "--batch", "1", "--acknowledge"];
    let expected = "acknowledged 1\nacknowledged 2\nacknowledged 3\nacknowledged 4\n\
                    acknowledged 5\nimported 5 rows into t; 5 replaced a value\n";
    assert_eq!(place.ok(&words), expected);
    assert_eq!(place.ok(&["get", "DB", "t", "a"]), "3\n");
}

#[test]
fn a_bad_row_is_named_and_nothing_of_its_batch_is_written() {
    let place = Place::with_table();
    let long_key = "k".repeat(65_536);
    for (name, text, more, expected) in [
        ("r.csv", "k,v\na,1\nb\n", &[][..], ":3: the row has 1 fields, the first has 2"),
        ("m.csv", "k,v\na,1\n", &["--key", "id"], ":1: there is no column \"id\""),
        ("e.csv", "k,v\na,1\n,2\n", &[], ":3: the key is empty"),
        ("l.csv", &format!("k,v\na,1\n{long_key},2\n"), &[], ":3: the key has 65536 bytes"),
        ("h.csv", "", &[], ":1: the file is empty"),
        ("d.csv", "k,k\n", &[], "two columns are named \"k\""),
        ("q.csv", "k,v\n\"a,1\nb,2\n", &[], ":2: the row has 1 fields"),
        ("j.jsonl", "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":1}\n", &[], ":2: field \"key\""),
        ("x.jsonl", "{\"key\":\"a\",\"value\":\"1\"}\nnonsense\n", &[], ":2: not a JSON object"),
        ("t.dump", "VERSION=3\nHEADER=END\n 61\n 31\n 62\n", &[], ":6: the file ends early"),
        ("z.dump", "VERSION=3\nHEADER=END\n 6\n", &[], ":3: not an even number"),
        ("n.dump", "a,b\n", &[], ":1: a dump starts with VERSION=3"),
    ] {
        let file = place.file(name, text);
        let mut words = vec!["import", "DB", "t", &file];
        words.extend(more);
        place.fails(1, &words, expected);
        place.fails(1, &words, name);
        assert_eq!(place.ok(&["count", "DB", "t"]), "0\n", "{name}");
    }
    place.fails(1, &["import", "DB", "t", "DIR/missing.csv"], "no such file");
    place.fails(1, &["import", "DB", "t", "DIR/db", "--format", "csv"], "directory");
    place.fails(2, &["import", "DB", "t", "x.jsonl", "--value", "v"], "--key");
}

#[test]
fn batches_before_a_bad_row_stay_and_are_told() {
    let place = Place::with_table();
    let file = place.file("x.csv", "k,v\na,1\nb,2\nc,3\nd\n");
    let words = ["import", "DB", "t", &file, "--batch", "2"];
    place.fails(
        1,
        &words,
        ":5: the row has 1 fields, the first has 2; the first 2 rows were imported",
    );
    assert_eq!(place.ok(&["count", "DB", "t"]), "2\n");
}

#[test]
fn a_malformed_file_does_not_create_the_table() {
    let place = Place::empty();
    let file = place.file("x.csv", "k,v\na,1\n");
    place.fails(1, &["import", "DB", "t", &file, "--engine", "naive", "--key", "id"], "\"id\"");
    assert!(!place.path("db").exists());
    place.ok(&["import", "DB", "t", &file, "--engine", "naive"]);
    assert_eq!(place.ok(&["get", "DB", "t", "a"]), "{\"k\":\"a\",\"v\":\"1\"}\n");
}

#[test]
fn columns_can_be_chosen_and_what_would_be_lost_is_refused() {
    let place = Place::with_table();
    let file = place.file("x.csv", "k,v,w\na,1,x\n");
    place.ok(&["import", "DB", "t", &file]);
    let csv = |more: &[&str]| {
        let words: Vec<_> =
            ["export", "DB", "t", "-", "--format", "csv"].iter().chain(more).copied().collect();
        place.run(&words)
    };
    assert_eq!(csv(&[]).text(), "k,v,w\na,1,x\n");
    assert_eq!(csv(&["--columns", "w,nothing,k"]).text(), "w,nothing,k\nx,,a\n");
    assert_eq!(csv(&["--pairs"]).text().lines().count(), 2);
    place.ok(&["put", "DB", "t", "b", "no record"]);
    let file = "DIR/out.csv";
    place.fails(1, &["export", "DB", "t", file, "--rows"], "");
    assert!(!place.path("out.csv").exists());
    assert!(!place.path("out.csv.partial").exists());
    // A file that was there before stays when the export fails.
    place.file("out.csv", "before");
    place.fails(1, &["export", "DB", "t", file, "--rows"], "");
    assert_eq!(place.read("out.csv"), b"before");
    place.ok(&["export", "DB", "t", file, "--pairs"]);
    assert_ne!(place.read("out.csv"), b"before");
}

#[test]
fn an_empty_table_makes_a_file_that_imports() {
    let place = Place::with_table();
    for name in ["x.csv", "x.tsv", "x.jsonl", "x.dump"] {
        let file = format!("DIR/{name}");
        place.ok(&["export", "DB", "t", &file]);
        place.ok(&["import", "DB", "t", &file]);
    }
    assert_eq!(place.ok(&["count", "DB", "t"]), "0\n");
}

#[test]
fn long_values_survive_import_and_export() {
    // LogKV kept the length in 16 bits: 70,000 became 4,465.
    let place = Place::with_table();
    let value = "0123456789".repeat(7000);
    let file = place.file("x.csv", format!("k,v\nlong,{value}\nempty,\n"));
    place.ok(&["import", "DB", "t", &file, "--value", "v"]);
    assert!(place.ok(&["get", "DB", "t", "long", "--raw"]) == value, "the value differs");
    assert_eq!(place.ok(&["get", "DB", "t", "empty", "--raw"]), "");
    let found = place.run(&["import", "DB", "t", &file, "--value", "w"]);
    check_failure(&found, 1, "the columns are: k, v");
}

#[test]
fn the_example_data_goes_in_and_out() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data");
    for (name, key, rows) in
        [("countries", "code", 249), ("zones", "zone", 312), ("characters", "code", 4643)]
    {
        let place = Place::empty();
        let path = format!("{data}/{name}.csv");
        place.ok(&["import", "DB", name, &path, "--key", key, "--engine", "naive"]);
        assert_eq!(place.ok(&["count", "DB", name]), format!("{rows}\n"));
        place.ok(&["export", "DB", name, "DIR/out.csv"]);
        let source = std::fs::read(&path).unwrap();
        assert!(parsed(&place.read("out.csv"), b',') == parsed(&source, b','), "{name} differs");
    }
}

#[test]
fn sorted_rows_are_one_load() {
    let place = Place::with_table();
    let rows = |numbers: std::ops::Range<u32>| {
        numbers.fold("id,value\n".to_owned(), |mut text, number| {
            writeln!(text, "k{number:05},v{number}").unwrap();
            text
        })
    };
    place.ok(&["create", "DB", "b", "--engine", "btree"]);
    let file = place.file("sorted.csv", rows(0..5000).as_bytes());
    let words = ["--sorted", "--key", "id", "--value", "value"];
    let import = |file| [&["import", "DB", "b", file][..], &words].concat();
    let printed = place.ok(&import(file.as_str()));
    assert_eq!(printed, "imported 5000 rows into b; 0 replaced a value\n");
    let expected = "sorted.csv:2: key \"k00000\" is not above \"k04999\"";
    check_failure(&place.run(&import(file.as_str())), 1, expected);
    let more = place.file("more.csv", rows(5000..6000).as_bytes());
    assert_eq!(place.ok(&import(more.as_str())), "imported 1000 rows into b; 0 replaced a value\n");
    assert_eq!(place.ok(&["get", "DB", "b", "k05999"]), "v5999\n");
    assert_eq!(place.ok(&["get", "DB", "b", "k00000"]), "v0\n");
}
