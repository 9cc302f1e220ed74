//! Goal: the report of a small results file is what was reviewed, byte for byte, and whatever is
//! wrong with a results file is said with file, line and reason. `UPDATE=1` writes the reviewed
//! files anew: `golden/results.jsonl`, `golden/report.html`, `golden/report.md`.

use hdrhistogram::Histogram;

use super::*;
use crate::{
    limits::{Limits, LimitsRecord},
    machine::{Conditions, IoCounters, Machine},
    numbers::to_f64,
    random::Random,
    result::{
        Figures, Latency, Metric, PaperFigure, Recovery, ResultLine, RunResult, SCHEMA,
        WorkloadInfo,
    },
    store::{Durability, Family, MemoryMode, Setting, StoreInfo},
    workload::Workload,
};

fn store(name: &str, family: Family) -> StoreInfo {
    let reason = "the memory that every store gets";
    StoreInfo {
        name: name.to_owned(),
        version: "1.2.3".to_owned(),
        family,
        is_ordered: name != "hashlog",
        is_persistent: family != Family::Reference,
        promise: if name == "lmdb" { "loses its structure after power loss" } else { "" }
            .to_owned(),
        settings: vec![Setting {
            name: "cache_size".to_owned(),
            value: "64 MiB".to_owned(),
            reason: reason.to_owned(),
        }],
    }
}

fn workload(name: &str, threads: u64) -> WorkloadInfo {
    let operations = 1_000_000;
    WorkloadInfo {
        suite: "ycsb".to_owned(),
        name: name.to_owned(),
        about: format!("what {name} does"),
        records: 1_000_000,
        operations,
        threads,
        key_bytes: 23,
        random_keys: false,
        value_bytes: vec![128],
        batch: 1,
        load_batch: 1,
        is_settled: false,
        rate: None,
        timed_one_in: 16,
        seconds_min: 0.0,
        seed: 1,
    }
}

fn latency(ns: f64, seed: u64) -> Latency {
    let mut histogram = Histogram::<u64>::new(2).unwrap();
    let mut random = Random::new(seed, 0);
    for _ in 0..2_000 {
        let tail = random.fraction().max(1e-4).powf(-0.3);
        histogram.record(crate::numbers::truncate(ns * (0.8 + 0.2 * tail))).unwrap();
    }
    Latency::of(&histogram).unwrap()
}

/// A run of `rate` operations a second.
fn run(store: StoreInfo, workload: WorkloadInfo, repetition: u64, rate: f64) -> RunResult {
    let ns = 1e9 / rate;
    let io = IoCounters {
        device_bytes_written: Some(500_000_000),
        device_bytes_read: Some(0),
        device_reads: Some(0),
        ..IoCounters::default()
    };
    let persistent = store.is_persistent;
    RunResult {
        schema: SCHEMA,
        run_id: "20261121-a".to_owned(),
        started_unix_ms: 1_795_272_300_000 + 60_000 * repetition,
        elapsed_seconds: 3.5,
        built: "quintet 0.1.0 (abcdef0)".to_owned(),
        machine: Machine {
            cpu: Some("Example processor".to_owned()),
            cpus: Some(2),
            memory_bytes: Some(24 << 30),
            kernel: Some("6.18.5".to_owned()),
            huge_pages: Some("madvise".to_owned()),
            read_ahead_bytes: Some(128 << 10),
            fsync_p50_ns: Some(120_000),
            timer_ns: 40,
        },
        conditions: Conditions {
            load_average_before: Some(0.5),
            load_average_after: Some(1.0),
            fsync_p50_ns: Some(120_000 + 1_000_000 * repetition),
            fsync_p99_ns: Some(400_000),
            raw_read_iops: Some(15_000.0),
        },
        preset: None,
        point: None,
        durability: Durability::Buffered,
        memory: MemoryMode::Fits { budget_bytes: 1 << 30 },
        repetition,
        figures: Some(Figures {
            ops_per_second: rate,
            seconds: to_f64(workload.operations) / rate,
            cpu_seconds: to_f64(workload.operations) / rate,
            load_ops_per_second: rate / 2.0,
            reads: latency(ns, repetition),
            writes: if workload.name == "c" { Latency::default() } else { latency(ns * 2.0, 7) },
            found: workload.operations,
            resident_bytes: 300 << 20,
            peak_resident_bytes: 400 << 20,
            store_memory_bytes: Some(200 << 20),
            index_bytes: (store.family == Family::Ours).then_some(16_000_000),
            keys: workload.records,
            load_user_bytes: 151_000_000,
            load_io: io,
            io: IoCounters { device_bytes_written: Some(50_000_000), ..io },
            live_bytes: 151_000_000,
            disk_bytes: persistent.then_some(250_000_000),
            recovery: persistent.then_some(Recovery {
                seconds: 0.25,
                open_seconds: 0.2,
                checked: 1_000_000,
                ..Recovery::default()
            }),
            ..Figures::default()
        }),
        store,
        workload,
        error: None,
    }
}

/// Repetitions of one run, with these rates.
pub(super) fn repetitions(rates: &[f64]) -> Vec<RunResult> {
    let one = |(repetition, rate): (u64, &f64)| {
        run(store("hashlog", Family::Ours), workload("c", 1), repetition, *rate)
    };
    (0..).zip(rates).map(one).collect()
}

/// A results file with everything in it once.
fn lines() -> Vec<ResultLine> {
    let stores = [
        ("floor", Family::Reference, 9e6),
        ("rocksdb", Family::Peer, 0.2e6),
        ("hashlog", Family::Ours, 2e6),
        ("naive", Family::Ours, 0.9e6),
        ("lmdb", Family::Peer, 1.0e6),
    ];
    let limits = Limits {
        dram_4k_ns: Some(330.0),
        dram_2m_ns: Some(200.0),
        memcpy_bytes_per_second: Some(13e9),
        write_bytes_per_second: Some(1.9e9),
        fdatasync_p50_ns: Some(94_000),
        load_average_before: Some(0.25),
        errors: vec!["random direct reads, one at a time: not here".to_owned()],
        ..Limits::default()
    };
    let record = LimitsRecord::new("20261121-a".to_owned(), 1_795_272_200_000, limits);
    let mut lines = vec![record.line().unwrap()];
    for repetition in 0..2 {
        for (name, threads) in [("a", 1), ("c", 1), ("c", 2)] {
            for (index, (who, family, rate)) in stores.into_iter().enumerate() {
                let noise = 1.0 + 0.05 * to_f64(repetition) * (1.0 + to_f64(index as u64));
                let rate = rate * noise * if threads == 2 { 1.8 } else { 1.0 };
                let run = run(store(who, family), workload(name, threads), repetition, rate);
                lines.push(ResultLine::Run(Box::new(run)));
            }
        }
    }
    let mut failed = run(store("leveldb", Family::Peer), workload("a", 1), 0, 1.0);
    failed.figures = None;
    failed.error = Some("<open>: cannot load \"libleveldb.so\" & friends".to_owned());
    lines.push(ResultLine::Run(Box::new(failed)));
    for (who, family, rate) in [stores[2], stores[3], stores[1]] {
        let mut run = run(store(who, family), workload("c", 1), 0, rate);
        (run.preset, run.point) = (Some("example".to_owned()), Some("L".to_owned()));
        lines.push(ResultLine::Run(Box::new(run)));
    }
    let mut again = run(store("hashlog", Family::Ours), workload("c", 1), 0, 2.1e6);
    again.run_id = "20261121-b".to_owned();
    lines.push(ResultLine::Run(Box::new(again.clone())));
    again.store = store("rocksdb", Family::Peer);
    lines.push(ResultLine::Run(Box::new(again)));
    lines
}

const fn figure(store: &'static str, stands_for: &'static str, value: f64) -> PaperFigure {
    PaperFigure {
        point: "L",
        store,
        stands_for,
        relative_to: "",
        metric: Metric::OpsPerSecond,
        value,
        note: "read off the plot",
    }
}

const FIGURES: [PaperFigure; 4] = [
    figure("LogKV", "hashlog", 500_000.0),
    figure("RocksDB 6", "rocksdb", 100_000.0),
    figure("FASTER", "faster", 900_000.0),
    PaperFigure {
        relative_to: "rocksdb",
        metric: Metric::PeakResidentBytes,
        ..figure("LogKV", "hashlog", 0.5)
    },
];

const REMARKS: [Remark; 1] = [Remark {
    point: "L",
    peer: "",
    metric: Some(Metric::PeakResidentBytes),
    text: "the memory was there",
}];

/// The presets that the tests know. The naive store has the design of the paper.
struct KnownExperiments;

impl Experiments for KnownExperiments {
    fn of_papers(&self) -> Vec<&'static str> {
        vec!["example", "example-alone"]
    }

    fn find(&self, preset: &str) -> Option<Experiment> {
        let (origin, about) = ("Example, figure 1", "What the example shows.");
        preset.starts_with("example").then_some(Experiment {
            origin,
            about,
            paper: Some("Example"),
            metrics: &[Metric::OpsPerSecond],
            figures: &FIGURES,
            remarks: &REMARKS,
        })
    }

    fn design(&self, _: &str, engine: &str) -> Option<&'static str> {
        (engine == "hashlog").then_some("naive")
    }

    fn workload(&self, _: &str, _: &str) -> Option<Workload> {
        None
    }
}

fn text_of(lines: &[ResultLine]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect()
}

fn input_of(text: &str) -> ReportInput {
    let mut input = ReportInput::default();
    for (index, line) in text.lines().enumerate() {
        input.add_line("results.jsonl", index as u64 + 1, line.as_bytes());
    }
    input
}

#[test]
fn the_report_is_the_reviewed_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/golden");
    let results = folder.join("results.jsonl");
    let updates = std::env::var_os("UPDATE").is_some();
    if updates {
        fs::create_dir_all(&folder).unwrap();
        fs::write(&results, text_of(&lines())).unwrap();
    }
    let input = input_of(&fs::read_to_string(&results).unwrap());
    assert_eq!(input.rejected, []);
    let document = document("Example", &input, &KnownExperiments);
    for (name, text) in
        [("report.html", html::write(&document)), ("report.md", markdown::write(&document))]
    {
        let path = folder.join(name);
        if updates {
            fs::write(&path, &text).unwrap();
        }
        let reviewed = fs::read_to_string(&path).unwrap();
        let differs = text.lines().zip(reviewed.lines()).position(|(a, b)| a != b);
        assert!(text == reviewed, "{name} differs from line {differs:?} on; UPDATE=1 accepts it");
    }
}

#[test]
fn the_page_stands_alone_and_is_well_formed() {
    let input = input_of(&text_of(&lines()));
    let page = html::write(&document("Example <&>", &input, &KnownExperiments));
    for foreign in ["http", "src=", "url(", "<script", "@import", "<link", "NaN", "inf "] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.contains("Example &lt;&amp;&gt;"));
    assert!(page.contains("&lt;open&gt;: cannot load &quot;libleveldb.so&quot; &amp; friends"));
    // Every element that is opened is closed, in order.
    let mut open: Vec<&str> = Vec::new();
    for part in page.split('<').skip(1) {
        let tag = part.split('>').next().unwrap();
        let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{part}");
        } else if !(tag.ends_with('/') || ["!DOCTYPE", "meta"].contains(&name)) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn losing_and_failing_are_shown() {
    let input = input_of(&text_of(&lines()));
    let text = markdown::write(&document("Example", &input, &KnownExperiments));
    // naive is slower than lmdb on a: 0.9 to 1.0 million.
    assert!(text.contains("| a | naive | lmdb | **\u{25bc} 0.8"), "{text}");
    assert!(text.contains("| leveldb | 1 | &lt;open&gt;: cannot load"), "{text}");
    // The paper's 5 times and ours, 10 times.
    let ratio = "| L | throughput | hashlog | RocksDB 6 | 5.00x | 10.0x | better | 4.50x | \
                 **\u{25bc} worse** |";
    assert!(text.contains(ratio), "{text}");
    // Half the memory is twice as good; here they are alike.
    let memory = "| L | peak memory | hashlog | rocksdb | 2.00x | 1.00x | **\u{25bc} worse** | \
                  1.00x | **\u{25bc} worse** | the memory";
    assert!(text.contains(memory), "{text}");
    assert!(text.contains("| the memory was there |"), "{text}");
    assert!(text.contains(
        "| L | throughput | hashlog | FASTER | 0.56x | - | not comparable (not run) | -"
    ));
    assert!(text.contains("| faster | not run |"), "{text}");
    assert!(text.contains("## Repeatability"), "{text}");
    assert!(text.contains("ratios are within 15 %."), "{text}");
    assert!(text.contains("In 15 of 36 runs a bare fdatasync took more than 1 ms"), "{text}");
}

#[test]
fn a_disk_that_reads_far_ahead_is_named() {
    let mut far = run(store("lmdb", Family::Peer), workload("c", 1), 0, 1e5);
    far.machine.read_ahead_bytes = Some(8 << 20);
    let text = text_of(&[ResultLine::Run(Box::new(far))]);
    let report =
        |text: &str| markdown::write(&document("Example", &input_of(text), &KnownExperiments));
    assert!(report(&text).contains("| read-ahead of the disk | 8 MiB |"));
    assert!(report(&text).contains("In 1 of 1 runs the disk read more than the usual 128 KiB"));
    // Lines of before it was recorded say nothing.
    let older = text.replace("\"read_ahead_bytes\":8388608,", "");
    assert_ne!(older, text);
    assert!(report(&older).contains("| read-ahead of the disk | - |"), "{}", report(&older));
}

#[test]
fn lines_that_cannot_be_used_are_named() {
    let good = text_of(&lines()[1..2]);
    let good = good.trim_end();
    let newer = good.replacen("\"schema\":1", "\"schema\":2", 1);
    let cut = &good[..good.len() / 2];
    let null = good.replacen("\"ops_per_second\":", "\"ops_per_second\":null,\"x\":", 1);
    let nan = good.replacen("\"ops_per_second\":", "\"ops_per_second\":NaN,\"x\":", 1);
    let negative = good.replacen("\"ops_per_second\":", "\"ops_per_second\":-", 1);
    let garbled = good.replacen("\"histogram\":\"", "\"histogram\":\"!", 1);
    let text = [
        good,
        "",
        &newer,
        cut,
        &null,
        &nan,
        &negative,
        &garbled,
        "{}",
        "[]",
        "{\"schema\":1,\"kind\":\"other\"}",
        good,
    ]
    .join("\n");
    let input = input_of(&text);
    assert_eq!(input.runs.len(), 2, "the good ones are kept");
    let found: Vec<(u64, &str)> =
        input.rejected.iter().map(|line| (line.line, line.what.as_str())).collect();
    let wanted = [
        (3, "schema 2; this program reads schema 1"),
        (4, "the line is cut off"),
        (5, "invalid type: null, expected f64"),
        (6, "not JSON: expected"),
        (7, "ops_per_second is -"),
        (8, "latency histogram: "),
        (9, "no schema version"),
        (10, "no schema version"),
        (11, "unknown variant `other`"),
    ];
    assert_eq!(found.len(), wanted.len(), "{found:?}");
    for ((line, what), (wanted_line, wanted)) in found.iter().zip(wanted) {
        assert_eq!((*line, what.starts_with(wanted)), (wanted_line, true), "{what}");
    }
    // They are in the report as well.
    let report = markdown::write(&document("x", &input, &KnownExperiments));
    assert!(report.contains("| results.jsonl | 3 | schema 2; this program reads schema 1 |"));
}

#[test]
fn files_are_written_or_the_reason_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results.jsonl");
    let args = |results: &Path, output: &Path| ReportArgs {
        results: vec![results.to_path_buf()],
        output: output.to_path_buf(),
        title: "x".to_owned(),
    };
    let page = dir.path().join("page.html");
    let mut said = Vec::new();
    let run_to = |args: &ReportArgs| super::run(args, &KnownExperiments, &mut Vec::new());
    let fails = |args: &ReportArgs| run_to(args).unwrap_err().to_string();

    assert!(fails(&args(&results, &page)).contains("results.jsonl"), "no such file");
    fs::write(&results, "\n").unwrap();
    assert!(fails(&args(&results, &page)).ends_with("results.jsonl: no results"));
    fs::write(&results, "broken\n").unwrap();
    assert!(super::run(&args(&results, &page), &KnownExperiments, &mut said).is_err());
    let told = String::from_utf8(said).unwrap();
    assert!(told.contains("results.jsonl:1: left out: not JSON"), "{told}");
    fs::write(&results, text_of(&lines()) + "{\"cut").unwrap();
    assert!(fails(&args(&results, &dir.path().join("page.md"))).contains(".md"));
    assert!(fails(&args(&results, &dir.path().join("none/page.html"))).contains("none"));
    run_to(&args(&results, &page)).unwrap();
    assert!(fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
    let tables = fs::read_to_string(dir.path().join("page.md")).unwrap();
    assert!(tables.contains("the line is cut off"), "{tables}");
}

#[test]
fn one_store_alone_and_stores_without_figures_make_a_report() {
    let mut alone = run(store("hashlog", Family::Ours), workload("a", 1), 0, 0.0);
    alone.conditions = Conditions::default();
    alone.machine = Machine::default();
    if let Some(figures) = &mut alone.figures {
        *figures = Figures::default();
    }
    let input = input_of(&text_of(&[ResultLine::Run(Box::new(alone))]));
    let document = document("x", &input, &KnownExperiments);
    let page = html::write(&document);
    assert!(page.contains("No store of ours ran beside a peer."));
    assert!(!page.contains("NaN") && !markdown::write(&document).contains("inf"));
}

#[test]
fn the_report_of_papers_has_every_experiment() {
    let input = input_of(&text_of(&lines()));
    let text = markdown::write(&papers_only("Papers", &input, &KnownExperiments));
    assert!(text.contains("| Example | our default | 1 | 0 | 1 | 1 |"), "{text}");
    assert!(text.contains("| Example | the paper's design | 0 | 0 | 2 | 1 |"), "{text}");
    assert!(text.contains("What the example shows. Not run."), "{text}");
    assert!(!text.contains("Ratios of ours to each peer"), "{text}");
}
