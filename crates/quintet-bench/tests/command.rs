//! The command as users run it: child processes, output, exit codes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

fn bench(words: &str, dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quintet-bench"))
        .args(words.split(' '))
        .arg("--dir")
        .arg(dir)
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text<'a>(line: &'a Value, name: &str) -> &'a str {
    line[name].as_str().unwrap_or_else(|| panic!("no text {name}: {line}"))
}

fn number(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap_or_else(|| panic!("no number {name}: {line}"))
}

#[test]
fn json_is_one_object_a_line_with_all_figures() {
    let dir = tempfile::tempdir().unwrap();
    let words = "ycsb --engine naive,floor,hashbrown,null --workload load,a,c --records 500 \
                 --operations 2_000 --threads 2 --value-bytes 40,100 --seed 7 --json";
    let lines = lines(&bench(words, dir.path()));
    let names: Vec<_> =
        lines.iter().map(|line| (text(line, "workload"), text(line, "engine"))).collect();
    let stores = ["naive", "floor", "hashbrown", "null"];
    let expected: Vec<_> =
        ["load", "a", "c"].into_iter().flat_map(|w| stores.map(|store| (w, store))).collect();
    assert_eq!(names, expected);
    for line in &lines {
        let operations = if text(line, "workload") == "load" { 500 } else { 2000 };
        assert_eq!(line["records"], 500);
        assert_eq!(line["operations"], operations);
        assert_eq!(line["threads"], 2);
        assert!(number(line, "ops_per_second") > 0.0);
        assert!(number(line, "p50_ns") <= number(line, "p99_ns"));
        assert!(number(line, "p99_ns") <= number(line, "p999_ns"));
        assert!(number(line, "cpu_seconds") >= 0.0);
        assert!(number(line, "resident_bytes") > 0.0);
        let is_real = text(line, "engine") != "null";
        assert_eq!(number(line, "index_bytes_per_key") > 0.0, is_real);
        let is_persistent = text(line, "engine") == "naive";
        assert_eq!(number(line, "write_amplification") > 0.0, is_persistent, "{line}");
        assert_eq!(number(line, "space_amplification") > 0.0, is_persistent, "{line}");
        assert!(line["machine"]["timer_ns"].is_u64());
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn the_table_shows_multiples_of_the_floor_and_what_was_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let words = "ycsb --engine floor,hashbrown --workload c,e --records 500 --runs 2";
    let output = bench(words, dir.path());
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let floor = text.lines().find(|line| line.starts_with("c  ") && line.contains("floor"));
    assert!(floor.unwrap().contains(" 1.00 "), "{text}");
    assert!(text.contains("hashbrown: no key order, so no workload e"), "{text}");
    assert!(text.contains("2 run(s)") && text.contains("load average"), "{text}");
    let table: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(table.len(), 3, "{text}");
}

#[test]
fn verified_runs_of_every_suite_pass() {
    let dir = tempfile::tempdir().unwrap();
    for words in [
        "micro --engine naive,floor --records 300 --operations 1000 --verify --json",
        "dbbench --engine naive,floor --records 300 --operations 1000 --verify --json --threads 2",
        "logkv --engine naive --records 300 --operations 1000 --verify --json",
        "ycsb --engine naive --workload a --records 300 --durability sync --operations 50 --json",
    ] {
        let lines = lines(&bench(words, dir.path()));
        assert!(!lines.is_empty());
        for line in lines {
            assert_eq!(line["verified"], words.contains("--verify"));
        }
    }
}

#[test]
fn transactions_preserve_sums_and_count_conflicts() {
    let dir = tempfile::tempdir().unwrap();
    let words = "txn --engine hashlog,btree,floor --records 500 --operations 4000 --json";
    let output = bench(words, dir.path());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("floor: no transactions, so no workload txn-rmw"), "{message}");
    assert!(message.contains("floor: no atomic update of a key"), "{message}");
    let lines = lines(&output);
    assert_eq!(lines.len(), 2 * 7);
    for line in lines {
        let (name, all) = (text(&line, "workload"), &line["transactions"]);
        let sum = |name: &str| all[name].as_u64().unwrap();
        assert_eq!(sum("commits"), 4000, "{line}");
        let (before, added) = if name == "txn-transfer" { (1000, 0) } else { (500, 4000) };
        assert_eq!((sum("sum_before"), sum("sum_after")), (before, before + added), "{line}");
        let threads = if name.starts_with("txn-hot") { 8 } else { 1 };
        assert_eq!(line["threads"], threads, "{line}");
        let (conflicts, rate) = (number(all, "conflicts"), number(all, "abort_rate"));
        assert!((rate - conflicts / (4000.0 + conflicts)).abs() < 1e-9, "{line}");
        let conflicts_max = match name {
            // Of transactions that share a stripe, not a key.
            "txn-hot-locked" => 200.0,
            name if name.starts_with("txn-hot") => f64::INFINITY,
            _ => 0.0,
        };
        assert!(conflicts <= conflicts_max, "{line}");
    }
}

#[test]
fn transfers_are_between_the_engines_that_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let words = "txn --engine btree --workload txn-transfer --records 300 --operations 1000 \
                 --threads 2 --verify --json --option btree.second_engine=slm";
    let line = lines(&bench(words, dir.path())).remove(0);
    assert_eq!(line["options"][0], "second_engine=slm");
    assert_eq!(line["transactions"]["sum_after"], 600);
}

#[test]
fn the_cost_of_expiry_is_measured_and_all_that_expires_goes() {
    let dir = tempfile::tempdir().unwrap();
    let words = "expiry --engine naive --records 2000 --expiring 500 --window 1 --idle 1 \
                 --rate 1000 --json";
    let output = bench(words, dir.path());
    assert!(output.status.success(), "{output:?}");
    let line = &lines(&output)[0];
    assert_eq!((number(line, "records"), number(line, "expiring")), (2000.0, 500.0));
    assert!(number(line, "p99_ratio") > 0.0);
    let bytes = |index: usize| line["live_bytes"][index].as_u64().unwrap();
    assert!(bytes(1) < bytes(0), "{line}");
}

#[test]
fn the_tests_of_ckvs_pass() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench("ckvs --scale 0.0005", dir.path());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 10);
}

#[test]
fn nothing_is_lost_when_the_process_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let words = "ycsb --engine naive,floor --workload a,d --records 2000 --threads 2 --recovery \
                 --json --option naive.snapshot_bytes=65536";
    for line in lines(&bench(words, dir.path())) {
        if text(&line, "engine") == "floor" {
            assert!(line.get("recovery").is_none());
            continue;
        }
        let recovery = &line["recovery"];
        assert_eq!(recovery["error_rate"], 0.0, "{line}");
        assert!(number(recovery, "checked") >= 2000.0);
        assert!(number(recovery, "seconds") >= number(recovery, "open_seconds"));
    }
}

#[test]
fn the_papers_recovery_experiment_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let words = "logkv --preset table3 --operations 2000 --json";
    let lines = lines(&bench(words, dir.path()));
    assert!(lines.len() >= 3);
    for line in lines {
        assert_eq!(line["recovery"]["error_rate"], 0.0, "{line}");
        assert_eq!(line["logkv"]["read_fraction"], 0.2);
        assert_eq!(line["key_bytes"], 100);
        assert!(number(&line, "memory_utilisation") > 0.0);
    }
}

#[test]
fn presets_of_logkv_run_at_a_small_scale() {
    let dir = tempfile::tempdir().unwrap();
    let searched = lines(&bench("logkv --preset search --operations 300 --json", dir.path()));
    // Twelve stores under two scenarios.
    assert_eq!(searched.len(), 24);
    for line in &searched {
        assert!(number(line, "ops_per_second") > 0.0, "{line}");
        assert_eq!(line["logkv"]["delete_fraction"], 0.1);
    }
    let words = "logkv --preset report --engine hashlog,naive --operations 300 --json";
    let report = lines(&bench(words, dir.path()));
    // Twelve points of throughput and four recoveries, of two stores.
    assert_eq!(report.len(), 32);
    for line in &report {
        assert_eq!(line["recovery"]["error_rate"], 0.0, "{line}");
    }
    let deletes = |line: &&Value| line["logkv"]["delete_fraction"] == 0.5;
    assert_eq!(report.iter().filter(deletes).count(), 8);
}

#[test]
fn limits_of_the_log_reach_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let words = "logkv --engine hashlog,naive,floor --records 300 --operations 3000 \
                 --delete-fraction 0.5 --hit-rate 0.7 --recovery --json --sync-interval 5ms \
                 --recovery-budget 128KiB --checkpoint-interval 20ms";
    let lines = lines(&bench(words, dir.path()));
    assert_eq!(lines.len(), 3);
    for line in lines.iter().filter(|line| line["engine"] != "floor") {
        assert_eq!(line["recovery"]["error_rate"], 0.0, "{line}");
    }
}

#[test]
fn the_same_seed_does_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let words = "logkv --engine hashbrown --records 300 --operations 3000 --hit-rate 0.6 --json";
    let run = |seed: u32| {
        let line = lines(&bench(&format!("{words} --seed {seed}"), dir.path())).remove(0);
        (line["found"].clone(), line["absent"].clone(), line["user_bytes_written"].clone())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn wrong_usage_is_one_clear_line_and_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    for (words, expected) in [
        ("ycsb --engine rocks", "floor"),
        ("ycsb --workload z", "load, a, b"),
        ("ycsb --engine floor --workload e", "no key order"),
        ("ycsb --engine floor --records 0 --workload c", "--records"),
        ("ycsb --engine floor --threads 0", "--threads"),
        ("ycsb --engine floor --records many", "not a count"),
        ("ycsb --engine floor --key-bytes 3", "8 to 65535"),
        ("ycsb --engine floor,floor --workload c", "twice"),
        ("ycsb --durability maybe", "buffered"),
        ("ycsb --engine floor --option naive.snapshot_bytes=1 --workload c", "not measured"),
        ("ycsb --engine naive --option no_such=1 --workload c --records 10", "no_such"),
        ("txn --engine hashlog --value-bytes 8", "24 bytes"),
        ("txn --engine hashlog --workload txn-rmw --recovery", "after a kill"),
        ("txn --engine floor --workload txn-hot", "no transactions"),
        ("txn --engine hashlog --option second_engine=x --records 10", "not an engine"),
        ("logkv --hit-rate 2 --engine floor", "--hit-rate"),
        ("logkv --preset fig9", "fig3"),
        ("logkv --delete-fraction 2 --engine floor", "--delete-fraction"),
        ("logkv --preset report --delete-fraction 0.5", "--delete-fraction"),
        ("ycsb --engine naive --sync-interval 5", "not a time such as 500ms"),
        ("ycsb --engine naive --records 10 --sync-interval 2h", "sync_interval"),
        ("ycsb --engine naive --records 10 --recovery-budget 1", "recovery_budget"),
        ("ycsb --engine naive --records 10 --checkpoint-interval 1ms", "checkpoint_interval"),
        ("ckvs --test query-1m-8192 --scale 0.0001 --recovery-budget 1", "recovery_budget"),
        ("unknown", "unknown"),
    ] {
        let output = bench(words, dir.path());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}: {message}");
        assert!(message.contains(expected), "{words}: {message}");
        assert!(!message.contains("panicked"), "{words}: {message}");
        assert!(output.stdout.is_empty(), "{words}");
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let output = bench("ycsb --engine floor --workload c --records 10", &file.join("below"));
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("--dir"), "{message}");
}

#[test]
fn a_run_that_fails_does_not_take_the_others_along() {
    let dir = tempfile::tempdir().unwrap();
    // The budget is too small for what is loaded; the other store does not have one.
    let words = "ycsb --engine naive,hashbrown --workload c --records 20000 --memory-budget 2M \
                 --json";
    let output = bench(words, dir.path());
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("naive, workload c"), "{message}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    assert!(text.contains("\"engine\":\"hashbrown\""));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_run_that_is_killed_leaves_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_quintet-bench"))
        .args("ycsb --engine hashlog --workload a --records 1M --operations 1G --json".split(' '))
        .arg("--dir")
        .arg(dir.path())
        .spawn()
        .unwrap();
    let entries = || fs::read_dir(dir.path()).unwrap().count();
    let waits = |done: &dyn Fn() -> bool| {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !done() {
            assert!(std::time::Instant::now() < until, "{} entries", entries());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let store = || {
        fs::read_dir(dir.path())
            .unwrap()
            .any(|run| run.unwrap().path().join("store").join("catalog").exists())
    };
    waits(&store);
    bench.kill().unwrap();
    bench.wait().unwrap();
    waits(&|| entries() == 0);
}
