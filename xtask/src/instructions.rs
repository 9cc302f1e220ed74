//! Compares the instruction counts of the hot paths with recorded counts.
//!
//! Times on a shared machine vary by tens of percent; instruction counts vary by less than 1 %.
//! `quintet-bench instructions` runs one kind of operation in a separate function, and callgrind
//! counts only that function, so background threads do not count. A figure is the median of three
//! counts: the random seed of a table determines the shape of the trie, and the counts of its
//! inserts differ by 1 %. A figure out of tolerance fails in both directions: `--update` records a
//! gain, so that a later change cannot lose it unnoticed.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, ExitCode, Stdio},
    thread,
};

/// The file of the recorded counts.
const FILE: &str = "crates/quintet-bench/instructions.txt";
/// Maximum deviation of a figure from the recorded one, in percent.
const TOLERANCE_PERCENT: u64 = 2;
/// Operations in one count. With this number, the start and end of the loop are negligible.
const COUNT: u64 = 10_000;
/// Number of counts of each operation.
const ROUNDS: usize = 3;
/// The stores: the empty store (`null`), the floor, and every engine.
const STORES: &[&str] = &["null", "floor", "naive", "hashlog", "trie", "btree", "tph", "slm"];
const OPERATIONS: &[&str] = &["get", "get-absent", "multi-get", "put", "insert"];

type Figures = BTreeMap<(String, String), u64>;

/// Counts, and compares the counts with the recorded ones. With `update`, records the new counts.
pub(crate) fn run(root: &Path, update: bool) -> ExitCode {
    if !has_valgrind() {
        println!("instructions: skipped: valgrind is not installed (apt-get install valgrind)");
        return ExitCode::SUCCESS;
    }
    match count_all(root).and_then(|counted| compare_or_update(root, &counted, update)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("instructions: {message}");
            ExitCode::FAILURE
        }
    }
}

fn has_valgrind() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

fn count_all(root: &Path) -> Result<Figures, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--package", "quintet-bench"])
        .current_dir(root)
        .status()
        .map_err(|error| format!("cargo build: {error}"))?;
    if !built.success() {
        return Err("the build failed".to_owned());
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let program = target.join("release/quintet-bench");
    // Counts do not depend on other processes, so the stores are counted in parallel.
    thread::scope(|scope| {
        let counting: Vec<_> =
            STORES.iter().map(|store| scope.spawn(|| count_store(&program, store))).collect();
        let mut figures = Figures::new();
        for store in counting {
            figures.extend(store.join().map_err(|_| "a count panicked".to_owned())??);
        }
        Ok(figures)
    })
}

fn count_store(program: &Path, store: &str) -> Result<Figures, String> {
    let mut figures = Figures::new();
    for operation in OPERATIONS {
        let counts = (0..ROUNDS).map(|_| count(program, store, operation));
        if let Some(mut counts) = counts.collect::<Result<Option<Vec<_>>, _>>()? {
            figures.insert((store.to_owned(), (*operation).to_owned()), median(&mut counts));
        }
    }
    Ok(figures)
}

/// Returns the instructions of one operation, or `None` if the build does not have the store.
fn count(program: &Path, store: &str, operation: &str) -> Result<Option<u64>, String> {
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*measured_*",
        ])
        .arg(program)
        .args(["instructions", "--engine", store, "--operation", operation])
        .args(["--count", &COUNT.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) && text.contains("there is no engine") {
        return Ok(None);
    }
    if !output.status.success() {
        return Err(format!("{store} {operation}: {}\n{text}", output.status));
    }
    let total =
        collected(&text).ok_or_else(|| format!("{store} {operation}: no count:\n{text}"))?;
    Ok(Some(total / COUNT))
}

fn median(counts: &mut [u64]) -> u64 {
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().unwrap_or(0)
}

/// Returns the figure of callgrind's line `==pid== Collected : figure`.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once("Collected :"))?.1;
    line.split_whitespace().next()?.parse().ok()
}

/// Compares and prints, or records the counts. Returns false if a figure is out of tolerance.
fn compare_or_update(root: &Path, counted: &Figures, update: bool) -> Result<bool, String> {
    let path = root.join(FILE);
    if update {
        fs::write(&path, render(counted)).map_err(|error| format!("{FILE}: {error}"))?;
        println!("instructions: {} figures written to {FILE}", counted.len());
        return Ok(true);
    }
    let text = fs::read_to_string(&path).map_err(|error| {
        format!("{FILE}: {error}; `cargo xtask instructions --update` creates it")
    })?;
    let recorded =
        parse(&text).ok_or_else(|| format!("{FILE}: a line is not `store operation figure`"))?;
    let complaints = compare(&recorded, counted);
    for complaint in &complaints {
        println!("instructions: {complaint}");
    }
    println!("instructions: {} figures, {} out of tolerance", counted.len(), complaints.len());
    Ok(complaints.is_empty())
}

fn compare(recorded: &Figures, counted: &Figures) -> Vec<String> {
    let mut complaints = Vec::new();
    for ((store, operation), figure) in counted {
        match recorded.get(&(store.clone(), operation.clone())) {
            None => {
                complaints.push(format!("{store} {operation}: {figure}, not recorded"));
            }
            Some(expected) if figure.abs_diff(*expected) * 100 > expected * TOLERANCE_PERCENT => {
                complaints.push(format!(
                    "{store} {operation}: {figure}, recorded {expected} (+-{TOLERANCE_PERCENT} %)"
                ));
            }
            Some(_) => {}
        }
    }
    for (store, operation) in recorded.keys().filter(|key| !counted.contains_key(key)) {
        complaints.push(format!("{store} {operation}: recorded, but not counted"));
    }
    complaints
}

fn render(figures: &Figures) -> String {
    let mut text = String::from(
        "# Instructions of an operation (of one key of a multi-get), `cargo xtask instructions`:\n\
         # 20,000 records, keys 23 bytes, values 128 bytes. `null` is the loop itself.\n",
    );
    for ((store, operation), figure) in figures {
        let _ = writeln!(text, "{store} {operation} {figure}");
    }
    text
}

fn parse(text: &str) -> Option<Figures> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let mut words = line.split(' ');
            let key = (words.next()?.to_owned(), words.next()?.to_owned());
            Some((key, words.next()?.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(get: u64, put: u64) -> Figures {
        let key = |operation: &str| ("naive".to_owned(), operation.to_owned());
        Figures::from([(key("get"), get), (key("put"), put)])
    }

    #[test]
    fn figures_round_trip_through_the_file() {
        let figures = figures(200, 900);
        assert_eq!(parse(&render(&figures)), Some(figures));
        assert_eq!(parse("naive get many"), None);
    }

    #[test]
    fn one_odd_count_of_three_does_not_matter() {
        assert_eq!(median(&mut [5_474, 5_596, 5_500]), 5_500);
        assert_eq!(median(&mut [100, 1, 101]), 100);
    }

    #[test]
    fn two_percent_pass_and_three_do_not() {
        assert!(compare(&figures(200, 900), &figures(204, 882)).is_empty());
        assert_eq!(compare(&figures(200, 900), &figures(205, 900)).len(), 1, "slower");
        assert_eq!(compare(&figures(200, 900), &figures(200, 870)).len(), 1, "faster");
    }

    #[test]
    fn missing_and_new_figures_are_found() {
        let one = Figures::from([(("naive".to_owned(), "get".to_owned()), 200)]);
        assert_eq!(compare(&one, &figures(200, 900)).len(), 1);
        assert_eq!(compare(&figures(200, 900), &one).len(), 1);
    }

    #[test]
    fn the_count_is_read_from_the_summary() {
        let text = "==1== \n==1== Events    : Ir\n==1== Collected : 2110000\n==1== I refs: 5\n";
        assert_eq!(collected(text), Some(2_110_000));
        assert_eq!(collected("nothing"), None);
    }
}
