//! The generator of the LogKV paper (section 4), and its experiments as presets.
//!
//! A command is a read with probability `read_fraction`, otherwise a write. A write is a delete
//! with probability `delete_fraction`, of a key that has been in the store. Other commands use such
//! a key with probability `hit_rate`. Other reads use an absent key; other writes insert a new one.
//! Of the keys that have been in the store, the first `hot_fraction` receive `hot_rate` of the
//! commands (0 and 0: no key is hot). A read of a deleted key finds nothing, until an update sets
//! it again.
//!
//! How we differ from the paper: it does not state the initial content of the store, and an empty
//! store has no hits. The harness loads `--records` records first and does not measure that. The
//! default is one record for each command. Keys have 100 bytes and values 500, as in the authors'
//! program.

use serde::{Deserialize, Serialize};

use super::definition::{Body, OperationKind, RecordChoice, Suite, Workload};
use crate::{
    data::KeyOrder,
    failure::{Failure, Outcome},
    store::TransactionMode,
};

/// Size of a key in the authors' program.
pub const KEY_BYTES: usize = 100;
/// Size of a value in the authors' program.
pub const VALUE_BYTES: usize = 500;

/// Parameters of the generator, each from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogKvPoint {
    /// Probability that a command's key is in the store.
    pub hit_rate: f64,
    /// Probability that a command is a read.
    pub read_fraction: f64,
    /// Share of the keys that are hot.
    pub hot_fraction: f64,
    /// Share of the commands that go to hot keys.
    pub hot_rate: f64,
    /// Probability that a write is a delete. Results of releases without deletes have none.
    #[serde(default)]
    pub delete_fraction: f64,
}

/// Share of deletes among the writes of the authors' script.
pub const DELETE_FRACTION: f64 = 0.1;

impl LogKvPoint {
    /// Returns the workload of these parameters. A parameter out of range is a usage failure.
    pub fn workload(self, name: &str) -> Outcome<Workload> {
        for (what, value) in [
            ("--hit-rate", self.hit_rate),
            ("--read-fraction", self.read_fraction),
            ("--hot-fraction", self.hot_fraction),
            ("--hot-rate", self.hot_rate),
            ("--delete-fraction", self.delete_fraction),
        ] {
            if !(0.0..=1.0).contains(&value) {
                return Err(Failure::Usage(format!("{what} is a number from 0 to 1, not {value}")));
            }
        }
        let (read, write) = (self.read_fraction, 1.0 - self.read_fraction);
        let (hit, miss) = (self.hit_rate, 1.0 - self.hit_rate);
        let (deletes, puts) = (write * self.delete_fraction, write * (1.0 - self.delete_fraction));
        let shares = vec![
            (OperationKind::Read, read * hit),
            (OperationKind::ReadAbsent, read * miss),
            (OperationKind::Insert, puts * miss),
            (OperationKind::Update, puts * hit),
            (OperationKind::Delete, deletes),
        ];
        let Self { hot_fraction, hot_rate, delete_fraction, .. } = self;
        Ok(Workload {
            suite: Suite::LogKv,
            name: name.to_owned(),
            about: format!(
                "hits {hit}, reads {read}, deletes {delete_fraction} of the writes; {hot_fraction} \
                 of the keys take {hot_rate} of it"
            ),
            order: KeyOrder::Hashed,
            body: Body::Mix {
                shares: shares.into_iter().filter(|(_, share)| *share > 0.0).collect(),
                choice: RecordChoice::HotCold { hot_fraction, hot_rate },
            },
            batch: 1,
            sorted: false,
            range_entries: None,
            background_writer: false,
            threads: 1,
            mode: TransactionMode::default(),
        })
    }
}

/// Experiments of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogKvPreset {
    /// The whole product of Table 1 (240 points), 100,000 commands each.
    Table1,
    /// The four scenarios of Table 2, 1,000,000 commands each.
    Table2,
    /// Figure 3: throughput at a hot rate of 0.9, 100,000 commands, the naive store without
    /// snapshots.
    Fig3,
    /// Figure 4: the same with 400,000 commands and with snapshots.
    Fig4,
    /// Figure 5: memory utilisation in the runs of Figure 4.
    Fig5,
    /// Table 3: recovery after `kill -9` for three snapshot thresholds, 100,000 commands.
    Table3,
    /// The search over chunk size and live ratio that section 7 leaves open: twelve stores under
    /// the write-heavy scenarios of Table 2, 1,000,000 commands.
    Search,
    /// The report in the authors' repository: throughput of 500,000 commands at a hit rate of 0.1
    /// and a hot rate of 0.05. Then recovery after 100,000 to 1,000,000 commands, half puts and
    /// half deletes, for snapshots every 32 KiB, 1 MiB and 32 MiB.
    Report,
}

/// A point of a preset.
#[derive(Clone, Debug, PartialEq)]
pub struct PresetPoint {
    /// Name.
    pub name: String,
    /// Parameters.
    pub point: LogKvPoint,
    /// Commands in the paper.
    pub operations: u64,
}

/// A store of a preset and its options.
pub type PresetVariant = (&'static str, &'static [(&'static str, &'static str)]);

/// A threshold that no run reaches: no snapshots.
const NEVER: &[(&str, &str)] = &[("snapshot_bytes", "1099511627776")];

/// The stores of the search: chunk sizes around the default, and live ratios.
const SEARCHED: &[PresetVariant] = &[
    ("hashlog", &[("chunk_bytes", "131072"), ("live_ratio", "30")]),
    ("hashlog", &[("chunk_bytes", "131072"), ("live_ratio", "50")]),
    ("hashlog", &[("chunk_bytes", "131072"), ("live_ratio", "80")]),
    ("hashlog", &[("chunk_bytes", "524288"), ("live_ratio", "30")]),
    ("hashlog", &[("chunk_bytes", "524288"), ("live_ratio", "50")]),
    ("hashlog", &[("chunk_bytes", "524288"), ("live_ratio", "80")]),
    ("hashlog", &[("chunk_bytes", "2097152"), ("live_ratio", "30")]),
    ("hashlog", &[("chunk_bytes", "2097152"), ("live_ratio", "50")]),
    ("hashlog", &[("chunk_bytes", "2097152"), ("live_ratio", "80")]),
    ("hashlog", &[("chunk_bytes", "8388608"), ("live_ratio", "30")]),
    ("hashlog", &[("chunk_bytes", "8388608"), ("live_ratio", "50")]),
    ("hashlog", &[("chunk_bytes", "8388608"), ("live_ratio", "80")]),
];

impl LogKvPreset {
    /// Returns the commands of a point in the paper.
    const fn operations(self) -> u64 {
        match self {
            Self::Table1 | Self::Fig3 | Self::Table3 => 100_000,
            Self::Report => 500_000,
            Self::Fig4 | Self::Fig5 => 400_000,
            Self::Table2 | Self::Search => 1_000_000,
        }
    }

    /// Returns whether each run kills and reopens the store.
    pub const fn recovers(self) -> bool {
        matches!(self, Self::Table3 | Self::Report)
    }

    /// Returns the stores of the paper: the log-structured one and the naive one.
    pub const fn variants(self) -> &'static [PresetVariant] {
        match self {
            Self::Table1 | Self::Table2 | Self::Fig4 | Self::Fig5 => {
                &[("hashlog", &[]), ("naive", &[("snapshot_bytes", "2097152")])]
            }
            Self::Fig3 => &[("hashlog", &[]), ("naive", NEVER)],
            Self::Table3 => &[
                ("hashlog", &[]),
                ("naive", &[("snapshot_bytes", "65536")]),
                ("naive", &[("snapshot_bytes", "2097152")]),
                ("naive", &[("snapshot_bytes", "67108864")]),
            ],
            Self::Search => SEARCHED,
            Self::Report => &[
                ("hashlog", &[]),
                ("naive", &[("snapshot_bytes", "32768")]),
                ("naive", &[("snapshot_bytes", "1048576")]),
                ("naive", &[("snapshot_bytes", "33554432")]),
            ],
        }
    }

    /// Returns the result that the paper reports, for a note below the table.
    pub const fn paper(self) -> &'static str {
        match self {
            Self::Table1 => "paper: the product of Table 1; only figures 3 to 5 show parts of it",
            Self::Table2 => "paper: scenarios of Table 2; results not printed",
            Self::Fig3 => "paper, figure 3: naive without persistence is ahead of LogKV throughout",
            Self::Fig4 => "paper, figure 4: the curves of LogKV and NaiveKV overlap",
            Self::Fig5 => {
                "paper, figure 5: utilisation peaks at a read fraction of 0.2 (called doubtful)"
            }
            Self::Table3 => {
                "paper, table 3 (thousand ops/s, recovery error): LogKV 2 MB 50, 3.55 %; \
                 NaiveKV 64 KB 1, 0.17 %; 2 MB 17, 4.53 %; 64 MB inf, 99.18 %"
            }
            Self::Search => "paper: chunks of 2 MB; the search is left to later work",
            Self::Report => {
                "report (thousand ops/s, recovery ms, recovery error) after 1,000,000 commands: \
                 LogKV 58, 1126, 0.34 %; NaiveKV 2^15 0.2, 2252, 0.01 %; 2^20 6.3, 2177, 0.41 %; \
                 2^25 148, 2102, 4.11 %"
            }
        }
    }

    /// Returns the points with their names.
    pub fn points(self) -> Vec<PresetPoint> {
        let point = |(name, point)| PresetPoint { name, point, operations: self.operations() };
        let mut points: Vec<_> = self.named_points().into_iter().map(point).collect();
        if self == Self::Report {
            points.extend(RECOVERED.map(recovery_of_report));
        }
        points
    }

    fn named_points(self) -> Vec<(String, LogKvPoint)> {
        const HIT: [f64; 4] = [0.2, 0.6, 0.8, 0.99];
        const READ: [f64; 5] = [0.2, 0.4, 0.6, 0.8, 0.99];
        const FRACTION: [f64; 4] = [0.01, 0.05, 0.1, 0.2];
        match self {
            Self::Table1 => product(&HIT, &READ, &FRACTION, &[0.7, 0.8, 0.9]),
            Self::Fig3 | Self::Fig4 | Self::Fig5 => product(&HIT, &READ, &FRACTION, &[0.9]),
            Self::Table2 => scenarios(&[READ_HEAVY, WRITE_HEAVY].concat()),
            Self::Search => scenarios(&WRITE_HEAVY),
            Self::Report => product(&[0.1], &[0.2, 0.4, 0.6, 0.8], &[0.05, 0.1, 0.2], &[0.05]),
            Self::Table3 => {
                let point = LogKvPoint {
                    hit_rate: 0.8,
                    read_fraction: 0.2,
                    hot_fraction: 0.2,
                    hot_rate: 0.6,
                    delete_fraction: DELETE_FRACTION,
                };
                vec![("recovery".to_owned(), point)]
            }
        }
    }
}

/// The numbers of commands before a recovery in the report.
const RECOVERED: [u64; 4] = [100_000, 400_000, 700_000, 1_000_000];

/// Returns a recovery of the report: half of the commands put new keys, half delete keys. The
/// original deletes keys that never existed.
fn recovery_of_report(operations: u64) -> PresetPoint {
    let point = LogKvPoint {
        hit_rate: 0.0,
        read_fraction: 0.0,
        hot_fraction: 0.0,
        hot_rate: 0.0,
        delete_fraction: 0.5,
    };
    PresetPoint { name: format!("recovery-{}k", operations / 1000), point, operations }
}

/// A scenario of Table 2: its name, read fraction, hot fraction and hot rate.
type Scenario = (&'static str, f64, f64, f64);

const READ_HEAVY: [Scenario; 2] =
    [("read-heavy-hot", 0.8, 0.2, 0.6), ("read-heavy", 0.8, 0.0, 0.0)];
const WRITE_HEAVY: [Scenario; 2] =
    [("write-heavy-hot", 0.2, 0.2, 0.6), ("write-heavy", 0.2, 0.0, 0.0)];

fn scenarios(scenarios: &[Scenario]) -> Vec<(String, LogKvPoint)> {
    let point = |(name, read_fraction, hot_fraction, hot_rate): &Scenario| {
        let (read_fraction, hot_fraction) = (*read_fraction, *hot_fraction);
        let point = LogKvPoint {
            hit_rate: 0.95,
            read_fraction,
            hot_fraction,
            hot_rate: *hot_rate,
            delete_fraction: DELETE_FRACTION,
        };
        ((*name).to_owned(), point)
    };
    scenarios.iter().map(point).collect()
}

fn product(hit: &[f64], read: &[f64], fraction: &[f64], rate: &[f64]) -> Vec<(String, LogKvPoint)> {
    let mut points = Vec::new();
    for hot_rate in rate.iter().copied() {
        for hot_fraction in fraction.iter().copied() {
            for hit_rate in hit.iter().copied() {
                for read_fraction in read.iter().copied() {
                    let name = format!(
                        "hit-{hit_rate}-read-{read_fraction}-hot-{hot_fraction}-{hot_rate}"
                    );
                    let delete_fraction = DELETE_FRACTION;
                    let point = LogKvPoint {
                        hit_rate,
                        read_fraction,
                        hot_fraction,
                        hot_rate,
                        delete_fraction,
                    };
                    points.push((name, point));
                }
            }
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn presets_have_the_points_of_the_paper() {
        assert_eq!(LogKvPreset::Table1.points().len(), 240);
        assert_eq!(LogKvPreset::Table2.points().len(), 4);
        assert_eq!(LogKvPreset::Search.points().len(), 2);
        assert_eq!(LogKvPreset::Search.variants().len(), 12);
        assert_eq!(LogKvPreset::Fig3.points().len(), 80);
        assert!(LogKvPreset::Fig4.points().iter().all(|one| one.point.hot_rate > 0.89));
        let report = LogKvPreset::Report.points();
        let commands: Vec<u64> = report.iter().map(|one| one.operations).collect();
        assert_eq!(commands[..12], [500_000; 12]);
        assert_eq!(commands[12..], [100_000, 400_000, 700_000, 1_000_000]);
        for preset in LogKvPreset::value_variants() {
            for PresetPoint { name, point, operations } in preset.points() {
                let workload = point.workload(&name).unwrap();
                assert!(workload.share(OperationKind::Delete) > 0.0, "{name}");
                assert!(operations >= 100_000, "{name}");
            }
        }
    }

    #[test]
    fn shares_follow_the_parameters() {
        let point = LogKvPoint {
            hit_rate: 0.8,
            read_fraction: 0.25,
            hot_fraction: 0.1,
            hot_rate: 0.9,
            delete_fraction: 0.4,
        };
        let workload = point.workload("x").unwrap();
        for (kind, share) in [
            (OperationKind::Read, 0.2),
            (OperationKind::ReadAbsent, 0.05),
            (OperationKind::Update, 0.36),
            (OperationKind::Insert, 0.09),
            (OperationKind::Delete, 0.3),
        ] {
            assert!((workload.share(kind) - share).abs() < 1e-12, "{kind:?}");
        }
        let wrong = LogKvPoint { hit_rate: 1.5, ..point }.workload("x").unwrap_err();
        assert_eq!(wrong.code(), 2);
        assert!(wrong.to_string().contains("--hit-rate"));
        let wrong = LogKvPoint { delete_fraction: -0.1, ..point }.workload("x").unwrap_err();
        assert!(wrong.to_string().contains("--delete-fraction"));
        let old = r#"{"hit_rate":0.8,"read_fraction":0.2,"hot_fraction":0,"hot_rate":0}"#;
        let old: LogKvPoint = serde_json::from_str(old).unwrap();
        assert!(old.delete_fraction.abs() < 1e-12, "results without deletes are read");
    }
}
