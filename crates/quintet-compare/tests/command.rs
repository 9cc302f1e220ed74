//! The whole tool, as a user runs it, on stores that are always there.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use quintet_bench::{
    comparison::read,
    result::{Metric, ResultLine, RunResult},
};

fn compare(dir: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quintet-compare"));
    command.current_dir(dir).args(words.split_whitespace()).output().unwrap()
}

fn runs(path: &Path) -> Vec<RunResult> {
    let lines = read(path).unwrap().into_iter();
    lines
        .filter_map(|line| if let ResultLine::Run(run) = line { Some(*run) } else { None })
        .collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SMALL: &str = "--records 2k --operations 4k --dir . --out results --no-limits";

#[test]
fn stores_take_turns_and_every_step_is_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let words = format!("run --store naive,null --workload load,a,c --runs 2 {SMALL}");
    let output = compare(dir.path(), &words);
    assert!(output.status.success(), "{}", said(&output));
    let runs = runs(&dir.path().join("results"));
    let order: Vec<_> =
        runs.iter().map(|run| (run.store.name.as_str(), run.workload.name.as_str())).collect();
    let one = [("naive", "load"), ("naive", "a"), ("naive", "c")];
    let other = [("null", "load"), ("null", "a"), ("null", "c")];
    assert_eq!(order, [one, other, one, other].concat());
    for run in &runs {
        let figures = run.figures.as_ref().unwrap();
        assert!(figures.ops_per_second > 0.0 && figures.peak_resident_bytes > 0);
        assert!(run.conditions.load_average_before.is_some());
        assert!(run.conditions.fsync_p50_ns.is_some());
        let writes = figures.writes.histogram().unwrap();
        assert_eq!(writes.map_or(0, |all| all.len()), figures.writes.samples);
        let is_naive = run.store.name == "naive";
        assert_eq!(run.figure(Metric::SpaceAmplification).is_some(), is_naive);
    }
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(names.len(), 1, "only the results are left: {names:?}");
}

#[test]
fn transactions_run_on_all_stores_that_have_them() {
    let dir = tempfile::tempdir().unwrap();
    let words = format!("run --suite txn --runs 1 {SMALL}");
    let output = compare(dir.path(), &words);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("redb: no atomic update"), "{}", said(&output));
    let runs = runs(&dir.path().join("results"));
    for store in ["hashlog", "btree", "redb", "sled"] {
        let of_store = runs.iter().filter(|run| run.store.name == store);
        assert!(of_store.count() >= 3, "{store}");
    }
    for run in &runs {
        let (store, name) = (&run.store.name, &run.workload.name);
        assert!(store != "floor" && store != "rocksdb" && store != "leveldb", "{store}");
        let all = run.figures.as_ref().unwrap().transactions.unwrap();
        assert_eq!(all.commits, 4000, "{store}, {name}");
        let added = all.sum_after.wrapping_sub(all.sum_before);
        assert_eq!(added, if name == "txn-transfer" { 0 } else { 4000 }, "{store}, {name}");
        assert_eq!(run.workload.threads, if name.starts_with("txn-hot") { 8 } else { 1 });
        assert!(run.figure(Metric::AbortRate).is_some_and(|rate| (0.0..1.0).contains(&rate)));
        if run.workload.threads == 1 || matches!(store.as_str(), "lmdb" | "redb") {
            assert_eq!(all.conflicts, 0, "{store}, {name}");
        }
    }
}

#[test]
fn a_resumed_comparison_runs_only_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let words = format!("run --store naive,null --workload a --runs 2 {SMALL}");
    assert!(compare(dir.path(), &words).status.success());
    let again = compare(dir.path(), &words);
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("--resume"), "{}", said(&again));
    let path = dir.path().join("results");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    // The last run is lost, and the one before it was cut in the middle.
    let kept = lines[..2].concat() + &lines[2][..50];
    fs::write(&path, kept).unwrap();
    let resumed = compare(dir.path(), &format!("{words} --resume"));
    assert!(resumed.status.success(), "{}", said(&resumed));
    let runs = runs(&path);
    assert_eq!(runs.len(), 4);
    assert!(runs.iter().all(|run| run.run_id == runs[0].run_id));
    let last: Vec<_> =
        runs[2..].iter().map(|run| (run.store.name.as_str(), run.repetition)).collect();
    assert_eq!(last, [("naive", 1), ("null", 1)]);
}

#[test]
fn short_workloads_are_run_again_until_they_have_taken_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let floor = "run --store floor --workload a --runs 1 --seconds-min 1 --records 2k --dir . \
                 --out floor --no-limits";
    let output = compare(dir.path(), floor);
    assert!(output.status.success(), "a store that reuses nothing has room: {}", said(&output));
    let words = format!("run --store null --workload load,c,d --runs 1 --seconds-min 0.05 {SMALL}");
    let output = compare(dir.path(), &words);
    assert!(output.status.success(), "{}", said(&output));
    let runs = runs(&dir.path().join("results"));
    let figures: Vec<_> = runs.iter().map(|run| run.figures.clone().unwrap()).collect();
    assert!(figures[1].seconds >= 0.05 && figures[1].absent + figures[1].found > 4000);
    assert!(figures[2].absent + figures[2].found < 4000, "inserts change the records");
}

#[test]
fn a_store_comes_to_rest_before_it_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let words = |seconds: u64, out: &str| {
        let size = "--records 2k --operations 4k --dir . --no-limits";
        format!("run --store tph --workload c --runs 1 --settle {seconds} {size} --out {out}")
    };
    let output = compare(dir.path(), &words(60, "rested"));
    assert!(output.status.success(), "{}", said(&output));
    assert!(runs(&dir.path().join("rested"))[0].workload.is_settled);
    // Rest is three seconds.
    let output = compare(dir.path(), &words(1, "hurried"));
    assert!(!output.status.success());
    let error = runs(&dir.path().join("hurried"))[0].error.clone().unwrap();
    assert!(error.contains("not at rest 1 s after loading"), "{error}");
}

#[test]
fn recovery_and_reopening_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let words = format!("run --store naive --workload a --runs 1 --recovery --reopen {SMALL}");
    let output = compare(dir.path(), &words);
    assert!(output.status.success(), "{}", said(&output));
    let runs = runs(&dir.path().join("results"));
    let recovery = runs[0].figures.as_ref().unwrap().recovery.unwrap();
    assert_eq!((recovery.checked, recovery.missing, recovery.mismatching), (2000, 0, 0));
    assert!(runs[0].figure(Metric::RecoverySeconds).unwrap() > 0.0);
}

#[test]
fn a_limit_is_for_what_is_measured_where_stores_are_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    // More than the limit is loaded, by a store that keeps all of it in memory.
    let words = "run --store naive,trie --workload c --runs 1 --records 800k --operations 1k \
                 --memory limit:64MiB --budget 24MiB --reopen --dir . --out results --no-limits";
    let output = compare(dir.path(), words);
    let runs = runs(&dir.path().join("results"));
    let failed = runs[1].error.as_deref();
    if failed.is_some_and(|error| error.contains("control group")) {
        eprintln!("skipped: no control groups here");
        return;
    }
    assert!(runs[0].error.is_some(), "it cannot be opened under the limit");
    let figures = runs[1].figures.as_ref().unwrap_or_else(|| panic!("{}", said(&output)));
    assert_eq!((figures.found, figures.absent), (1000, 0));
    assert!(figures.load_ops_per_second > 0.0 && figures.load_user_bytes > 100_000_000);
    // What is resident counts the program's own pages too, which need not count for the limit.
    assert!(figures.peak_resident_bytes < 80 << 20, "{}", figures.peak_resident_bytes);
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    for (words, code, expected) in [
        (format!("run --store rockdb {SMALL}"), 2, "there is no engine \"rockdb\""),
        (format!("run --store naive --workload x {SMALL}"), 2, "there is no workload \"x\""),
        (format!("run --store null,null {SMALL}"), 2, "twice"),
        ("run --store null --dir nowhere --out results".to_owned(), 2, "no such directory"),
        ("run --store null --out nowhere/results".to_owned(), 1, "nowhere/results"),
        ("run --preset cedrusdb-fig99 --out results".to_owned(), 2, "no preset"),
        (format!("run --store naive --option no=1 --runs 1 {SMALL}"), 1, "no"),
    ] {
        let output = compare(dir.path(), &words);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{words}: {said}");
        let last = said.lines().last().unwrap();
        let first = said.lines().next().unwrap();
        assert!(first.contains(expected) || last.contains(expected), "{words}: {said}");
        assert!(!said.contains("panicked"), "{words}: {said}");
    }
}

#[test]
fn a_store_that_takes_too_long_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    // At this rate the run would take minutes.
    let words = "run --store naive,null --workload c --runs 1 --records 1k --operations 400 --rate \
                 2 --limit 1 --dir . --out results --no-limits";
    let output = compare(dir.path(), words);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let runs = runs(&dir.path().join("results"));
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|run| run.error.as_ref().unwrap().contains("--limit")));
}

#[test]
fn a_peer_that_is_missing_or_does_not_load_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("liblmdb.so"), "no library").unwrap();
    let words = format!("run --store lmdb,rocksdb,null --workload c --runs 1 {SMALL}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_quintet-compare"));
    command.env("QUINTET_PEERS", dir.path()).current_dir(dir.path());
    let output = command.args(words.split_whitespace()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let runs = runs(&dir.path().join("results"));
    let errors: Vec<_> = runs.iter().map(|run| run.error.clone().unwrap_or_default()).collect();
    assert!(errors[0].starts_with("lmdb does not load"), "{errors:?}");
    assert!(errors[1].contains("`setup rocksdb` makes it"), "{errors:?}");
    assert!(errors[2].is_empty() && runs[2].figures.is_some(), "{errors:?}");
    assert!(errors.iter().all(|error| error.lines().count() <= 1), "{errors:?}");
}

/// Processes whose parent is `parent`, in the order of their numbers.
fn children(parent: u32) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name, in parentheses, may hold anything; the state and the parent follow it.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        if rest.split_whitespace().nth(1) == Some(&parent.to_string()) {
            found.push(id);
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn a_store_that_crashes_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    // At this rate the first would take minutes.
    let words = "run --store naive --workload c --runs 1 --records 1k --operations 400 --rate 2 \
                 --dir . --out results --no-limits";
    let mut command = Command::new(env!("CARGO_BIN_EXE_quintet-compare"));
    let command = command.current_dir(dir.path()).args(words.split_whitespace());
    let runner = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let start = std::time::Instant::now();
    loop {
        assert!(start.elapsed().as_secs() < 60, "no run was started");
        // The first removes files if the tool is killed.
        if let [_, child] = children(runner.id())[..] {
            let child = rustix::process::Pid::from_raw(child).unwrap();
            rustix::process::kill_process(child, rustix::process::Signal::ABORT).unwrap();
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let output = runner.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let words = format!("run --store naive,null --workload c --runs 1 {SMALL} --resume");
    assert!(compare(dir.path(), &words).status.success());
    let runs = runs(&dir.path().join("results"));
    let error = runs[0].error.as_ref().unwrap();
    assert!(error.starts_with("naive: the run died (signal: 6"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(runs[1..].iter().all(|run| run.figures.is_some()));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(left.len(), 1, "only the results are left: {left:?}");
}

/// Runs the tool in a file system of its own of so many MiB, where namespaces are allowed.
fn compare_on_small_disk(dir: &Path, mib: u64, words: &str) -> Option<Output> {
    fs::create_dir(dir.join("small")).unwrap();
    let tool = env!("CARGO_BIN_EXE_quintet-compare");
    let script =
        format!("mount -t tmpfs -o size={mib}m none small || exit 99; {tool} {words} --dir small");
    let mut command = Command::new("unshare");
    let output = command.args(["-r", "-m", "sh", "-c", &script]).current_dir(dir).output().ok()?;
    if !dir.join("results").exists() {
        eprintln!("skipped: no namespaces here: {}", said(&output));
        return None;
    }
    assert!(!said(&output).contains("panicked"), "{}", said(&output));
    Some(output)
}

#[test]
fn a_full_disk_fails_one_run_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    // What is asked for first is free, and what the store's log takes at once is not; `null`
    // writes nothing.
    let words = "run --store naive,null --workload c --runs 1 --records 115k --operations 10 \
                 --out results --no-limits";
    let Some(output) = compare_on_small_disk(dir.path(), 104, words) else { return };
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let runs = runs(&dir.path().join("results"));
    let error = runs[0].error.as_ref().unwrap();
    assert!(error.contains("space"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(runs[1].figures.is_some() && runs[1].store.name == "null");
}

#[test]
fn a_disk_too_full_for_the_probe_stops_no_store_that_has_room() {
    let dir = tempfile::tempdir().unwrap();
    // Less than the probe's file, and enough for neither its rest nor 300k records.
    let words = "run --store naive,null --workload c --runs 2 --records 300k --operations 10 \
                 --out results --no-limits";
    let Some(output) = compare_on_small_disk(dir.path(), 40, words) else { return };
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("the disk's conditions are not known").count(), 1, "{said}");
    let runs = runs(&dir.path().join("results"));
    assert_eq!(runs.len(), 4, "{said}");
    for run in &runs {
        assert_eq!(run.figures.is_some(), run.store.name == "null", "{:?}", run.error);
        let error = run.error.as_deref().unwrap_or_default();
        assert!(run.figures.is_some() || error.contains("bytes are free"), "{error}");
        assert!(run.conditions.fsync_p50_ns.is_none() && error.lines().count() <= 1, "{error}");
    }
}

#[test]
fn stores_and_presets_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    for (words, expected) in
        [("stores", "memory_budget"), ("presets", "smoke"), ("presets cedrusdb-table1", "RocksDB")]
    {
        let output = compare(dir.path(), words);
        assert!(output.status.success(), "{}", said(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(expected), "{words}: {text}");
    }
}

#[test]
fn the_papers_are_one_command_that_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let plan = compare(dir.path(), "papers --dry-run");
    let plan = String::from_utf8(plan.stdout).unwrap();
    for text in ["cedrusdb-fig12-base (", "trie, hashlog, trie-cedrusdb", "slm-slmdb", "read 4 KiB"]
    {
        assert!(plan.contains(text), "{text} of {plan}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "a dry run writes nothing");
    let wrong = compare(dir.path(), "papers --only cedarsdb");
    assert!(said(&wrong).contains("there are: cedrusdb, slmdb"), "{}", said(&wrong));

    let words = "papers --only slmdb-buffered,ckvs,logkv-fig3 --scale 1e-9 --runs 1 --dir . \
                 --pmem-dir .";
    let first = compare(dir.path(), words);
    assert!(first.status.success(), "{}", said(&first));
    let results = dir.path().join("papers.jsonl");
    let all = runs(&results);
    let slm = all.iter().find(|run| run.store.name == "slm-slmdb").unwrap();
    let has = |name: &str, value: &str| {
        slm.store.settings.iter().any(|set| set.name == name && set.value.ends_with(value))
    };
    assert!(
        has("medium", "pmem") && has("pmem_path", "/quintet-papers"),
        "{:?}",
        slm.store.settings
    );
    assert!(!dir.path().join("quintet-papers").exists(), "the pools are removed");
    for (name, text) in [
        ("papers.md", "## SLM-DB"),
        ("papers.md", "| ckvs | the paper's design |"),
        ("papers.html", "<svg"),
    ] {
        let report = fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(report.contains(text), "{name} has no {text}");
    }
    let again = compare(dir.path(), words);
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
    let resumed = compare(dir.path(), &format!("{words} --resume"));
    assert!(resumed.status.success(), "{}", said(&resumed));
    assert_eq!(runs(&results).len(), all.len(), "nothing ran again");
}
