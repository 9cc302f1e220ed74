//! Processes that die in the middle of their work.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
};

use crate::common::{Place, QUINTET};

fn spawn(place: &Place, words: &[&str]) -> Child {
    Command::new(QUINTET)
        .args(place.words(words))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Rows that an import is fed which nobody interrupts: seconds' worth.
const ROWS_MAX: u64 = 3_000_000;

/// Feeds an import row by row until it has acknowledged `wanted` rows, then ends it with `signal`.
/// Returns the last count acknowledged.
fn interrupted_import(place: &Place, batch: u64, wanted: u64, signal: Option<&str>) -> u64 {
    let batch = batch.to_string();
    let mut child = spawn(
        place,
        &[
            "import",
            "DB",
            "t",
            "-",
            "--format",
            "csv",
            "--value",
            "v",
            "--batch",
            &batch,
            "--acknowledge",
        ],
    );
    let mut input = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        let _ = writeln!(input, "k,v");
        // Until the import dies and the pipe breaks.
        for row in 0..ROWS_MAX {
            if writeln!(input, "key{row},value{row}").is_err() {
                return;
            }
        }
    });
    let mut acknowledged = 0;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut count = |line: String| {
        acknowledged = line.strip_prefix("acknowledged ").unwrap().parse::<u64>().unwrap();
        acknowledged
    };
    while count(lines.next().unwrap().unwrap()) < wanted {}
    match signal {
        None => child.kill().unwrap(),
        Some(name) => {
            let id = child.id().to_string();
            assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
        }
    }
    // What it had written to the pipe before it died was acknowledged too.
    let rest: Vec<_> = lines.map_while(Result::ok).filter(|line| !line.is_empty()).collect();
    let output = child.wait_with_output().unwrap();
    // Jobs that a script starts in the background ignore SIGINT, and so does what they start.
    assert!(!output.status.success(), "all rows were imported: is {signal:?} ignored here?");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    for line in rest {
        count(line);
    }
    feeder.join().unwrap();
    acknowledged
}

/// The table must hold the first rows of the import, in whole batches, and all acknowledged ones.
fn check_rows(place: &Place, batch: u64, acknowledged: u64) {
    let count: u64 = place.ok(&["count", "DB", "t"]).trim().parse().unwrap();
    assert!(count >= acknowledged, "{count} rows, {acknowledged} were acknowledged");
    assert_eq!(count % batch, 0, "{count} rows are not whole batches of {batch}");
    let mut rows: Vec<_> =
        place.ok(&["scan", "DB", "t"]).lines().map(|line| line.replace('\t', ",")).collect();
    let mut expected: Vec<_> = (0..count).map(|row| format!("key{row},value{row}")).collect();
    rows.sort();
    expected.sort();
    assert!(rows == expected, "the rows are not the first {count} of the import");
    assert!(place.ok(&["check", "DB"]).starts_with("sound"));
}

#[test]
fn a_killed_import_leaves_every_acknowledged_batch() {
    for (batch, wanted) in [(1, 50), (10, 3000), (1000, 1), (1000, 20_000), (777, 10_000)] {
        let place = Place::with_table();
        let acknowledged = interrupted_import(&place, batch, wanted, None);
        check_rows(&place, batch, acknowledged);
        // And the import can be run again over what is there.
        let file = place.file("x.csv", "k,v\nkey0,again\n");
        place.ok(&["import", "DB", "t", &file, "--value", "v"]);
        assert_eq!(place.ok(&["get", "DB", "t", "key0"]), "again\n");
    }
}

#[test]
fn an_interrupted_import_leaves_whole_batches() {
    let place = Place::with_table();
    let acknowledged = interrupted_import(&place, 500, 5000, Some("-INT"));
    check_rows(&place, 500, acknowledged);
}

#[test]
fn every_acknowledged_put_of_a_killed_shell_is_found() {
    let place = Place::with_table();
    let mut next = 0;
    for round in 0..5 {
        let mut child = spawn(&place, &["shell", "DB"]);
        let mut input = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        for _ in 0..(50 + round * 37) {
            writeln!(input, "put key{next} value{next}").unwrap();
            line.clear();
            answers.read_line(&mut line).unwrap();
            assert_eq!(line, "ok\n");
            next += 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(place.ok(&["count", "DB", "t"]), format!("{next}\n"));
    }
    for key in 0..next {
        if key % 50 == 0 {
            let found = place.ok(&["get", "DB", "t", &format!("key{key}")]);
            assert_eq!(found, format!("value{key}\n"));
        }
    }
}
