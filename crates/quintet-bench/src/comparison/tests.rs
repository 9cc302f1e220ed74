//! Tests of the runner that need no child process. Integration tests run the whole command.

use super::*;
use std::fs;

use crate::{
    builtin::BuiltinStores,
    result::ResultLine,
    store::{Durability, MemoryMode},
    workload::{Suite, WorkloadSpec},
};

fn job() -> Job {
    Job {
        store: "naive".to_owned(),
        settings: Vec::new(),
        is_persistent: true,
        preset: None,
        steps: vec![Step {
            point: None,
            spec: WorkloadSpec::Named { suite: Suite::Ycsb, name: "a".to_owned() },
            operations: 100,
        }],
        records: 100,
        threads: 1,
        key_bytes: 23,
        value_bytes: vec![100],
        random_keys: false,
        value_repeated_percent: 0,
        durability: Durability::Buffered,
        memory: Some(MemoryMode::Fits { budget_bytes: 1 << 30 }),
        seed: 1,
        load_batch: 1,
        timed_one_in: 16,
        rate: None,
        seconds_min: 0.0,
        settle_seconds: 0,
        rest_seconds: 0,
        verify: false,
        reopens: false,
        recovers: false,
    }
}

fn comparison(dir: &Path) -> Comparison<'static> {
    Comparison {
        groups: vec![JobGroup { jobs: vec![job()], runs: 1 }],
        dir: dir.to_path_buf(),
        emptied_dir: None,
        out: dir.join("results"),
        resumes: false,
        measures_limits: false,
        limit: Duration::from_mins(1),
        notes: Vec::new(),
    }
}

fn results(dir: &Path, resumes: bool) -> Outcome<ResultsFile> {
    ResultsFile::open(&dir.join("results"), resumes)
}

#[test]
fn a_results_file_is_gone_on_with_only_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let comparison = comparison(dir.path());
    let runner = ComparisonRunner::new(&BuiltinStores, &comparison).unwrap();
    let mut line = runner.template(&job(), 0).unwrap().remove(0);
    drop(runner);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the results are left");
    let mut file = results(dir.path(), false).unwrap();
    line.run_id = file.run_id().to_owned();
    line.error = Some("it failed".to_owned());
    file.append(line.clone()).unwrap();
    assert_eq!(results(dir.path(), false).unwrap_err().code(), 2);
    let file = results(dir.path(), true).unwrap();
    assert_eq!(file.run_id(), line.run_id);
    assert!(file.has(&line), "a failed run is not run again");
    assert!(!file.has(&RunResult { repetition: 1, ..line.clone() }));
    line.durability = Durability::Sync;
    assert!(!file.has(&line));
}

#[test]
fn a_torn_last_line_is_cut_and_a_broken_one_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    fs::write(&path, "{\"kind\":\"limits\",\"x\":1}\n{\"kind\":\"ru").unwrap();
    assert!(matches!(read(&path).unwrap().as_slice(), [ResultLine::Limits(_)]));
    drop(results(dir.path(), true).unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
    fs::write(&path, "{\"kind\":\"limits\"}\nnonsense\n").unwrap();
    let message = read(&path).unwrap_err().to_string();
    assert!(message.contains("line 2"), "{message}");
}

#[test]
fn a_missing_directory_and_a_missing_disk_are_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = comparison(dir.path());
    wrong.dir = dir.path().join("none");
    let failure = ComparisonRunner::new(&BuiltinStores, &wrong).map(drop).unwrap_err();
    assert_eq!(failure.code(), 2);
    assert!(failure.to_string().contains("no such directory"), "{failure}");
    let huge = Job { records: 1 << 40, value_bytes: vec![1 << 20], ..job() };
    let failure = check_space(dir.path(), &huge).unwrap_err().to_string();
    assert!(failure.contains("bytes are free"), "{failure}");
    assert_eq!(failure.lines().count(), 1);
}
