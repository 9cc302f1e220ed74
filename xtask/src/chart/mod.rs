//! Draws the throughput chart of `README.md` from results files.
//!
//! Each panel shows one engine beside the stores that were measured in turns with it on the same
//! machine. A group of bars is one workload; its rates come from one results file. The output
//! depends on the results files alone, so a test compares the committed images with it.

mod panel;
mod picture;
mod results;

use std::{collections::BTreeMap, fs, path::Path, process::ExitCode};

use panel::{Bar, Group, PanelFigures};
use results::{Median, RunFilter};

/// Folder of the results files, below the repository's root.
const RESULTS: &str = "docs/results";
/// The images, below the repository's root, one for each colour scheme.
const IMAGES: [(&str, picture::Scheme); 2] = [
    ("docs/images/throughput-light.svg", picture::LIGHT),
    ("docs/images/throughput-dark.svg", picture::DARK),
];

/// Results files, one for each group of bars.
const POINT: &str = "2026-11-22-point.jsonl";
const TRIE: &str = "2026-11-22-trie-rounds.jsonl";
const TPH: &str = "2026-11-24-memory-settled-again.jsonl";
const BTREE: &str = "2026-11-22-btree-redb.jsonl";
const BTREE_RANGES: &str = "2026-11-22-btree-third.jsonl";
const SLM: &str = "2026-11-26-memory-shortcuts.jsonl";
/// The call of `quintet-compare` in [`SLM`] that measured the newest build.
const SLM_RUN: &str = "1a215d4b600-32532";

/// A Quintet engine and the stores that it is compared with.
struct Panel {
    engine: &'static str,
    about: &'static str,
    peers: &'static [Peer],
    sources: &'static [RunFilter],
}

/// Another store: its name in the picture, and its names in results files. The chart shows the
/// fastest of them for each workload.
#[derive(Clone, Copy)]
struct Peer {
    label: &'static str,
    names: &'static [&'static str],
}

const ROCKSDB: Peer = Peer { label: "RocksDB", names: &["rocksdb"] };
const LEVELDB: Peer = Peer { label: "LevelDB", names: &["leveldb"] };
const LMDB: Peer = Peer { label: "LMDB", names: &["lmdb", "lmdb-readahead"] };
const REDB: Peer = Peer { label: "redb", names: &["redb"] };

const fn source(file: &'static str, workload: &'static str, operations: f64) -> RunFilter {
    RunFilter { file, workload, operations, run_prefix: "" }
}

const fn slm(workload: &'static str, operations: f64) -> RunFilter {
    RunFilter { file: SLM, workload, operations, run_prefix: SLM_RUN }
}

const PANELS: [Panel; 5] = [
    Panel {
        engine: "hashlog",
        about: "point access, ingest",
        peers: &[ROCKSDB, LMDB],
        sources: &[source(POINT, "load", 1e7), source(POINT, "c", 1e6), source(POINT, "a", 1e6)],
    },
    Panel {
        engine: "trie",
        about: "point access in memory",
        peers: &[ROCKSDB, LMDB],
        sources: &[source(TRIE, "load", 1e7), source(TRIE, "c", 1e6), source(TRIE, "a", 1e6)],
    },
    Panel {
        engine: "tph",
        about: "point access, large data",
        peers: &[ROCKSDB, LMDB, LEVELDB],
        sources: &[
            source(TPH, "load", 1e7),
            source(TPH, "c", 1e6),
            source(TPH, "a", 1e6),
            source(TPH, "e", 1e6),
        ],
    },
    Panel {
        engine: "btree",
        about: "ordered data, ranges",
        peers: &[ROCKSDB, LMDB, REDB],
        sources: &[
            source(BTREE, "load", 1e7),
            source(BTREE, "c", 1e6),
            source(BTREE, "a", 1e6),
            source(BTREE_RANGES, "e", 5e5),
        ],
    },
    Panel {
        engine: "slm",
        about: "heavy writes, ranges",
        peers: &[ROCKSDB, LMDB, LEVELDB],
        sources: &[slm("load", 1e7), slm("c", 1e6), slm("a", 1e6), slm("e", 1e6)],
    },
];

/// Writes the images. With `check`, compares the committed images with the results instead.
pub(crate) fn run(repository: &Path, check: bool) -> ExitCode {
    match draw_all(repository).and_then(|images| {
        images.into_iter().try_for_each(|(path, image)| finish(repository, path, &image, check))
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chart: {error}");
            ExitCode::FAILURE
        }
    }
}

fn finish(repository: &Path, path: &str, image: &str, check: bool) -> Result<(), String> {
    let full = repository.join(path);
    if check {
        let current = fs::read_to_string(&full).map_err(|error| format!("{path}: {error}"))?;
        if current != image {
            return Err(format!("{path} is out of date; run `cargo xtask chart`"));
        }
        return Ok(());
    }
    if let Some(folder) = full.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{path}: {error}"))?;
    }
    fs::write(&full, image).map_err(|error| format!("{path}: {error}"))?;
    println!("{path}");
    Ok(())
}

/// Returns each image with its path.
fn draw_all(repository: &Path) -> Result<Vec<(&'static str, String)>, String> {
    let panels = collect(repository)?;
    IMAGES
        .iter()
        .map(|(path, scheme)| {
            let image = picture::draw(&panels, scheme).map_err(|error| error.to_string())?;
            Ok((*path, image))
        })
        .collect()
}

fn collect(repository: &Path) -> Result<Vec<PanelFigures>, String> {
    let mut texts = BTreeMap::new();
    for source in PANELS.iter().flat_map(|panel| panel.sources) {
        if !texts.contains_key(source.file) {
            let text = fs::read_to_string(repository.join(RESULTS).join(source.file))
                .map_err(|error| format!("{RESULTS}/{}: {error}", source.file))?;
            texts.insert(source.file, text);
        }
    }
    PANELS
        .iter()
        .map(|panel| {
            let groups = panel
                .sources
                .iter()
                .map(|source| group(panel, *source, &texts[source.file]))
                .collect::<Result<_, _>>()?;
            Ok(PanelFigures { engine: panel.engine, about: panel.about, groups })
        })
        .collect()
}

/// Returns the bars of one workload. Omits a peer without runs in the file, and fails if the engine
/// has no runs.
fn group(panel: &Panel, source: RunFilter, text: &str) -> Result<Group, String> {
    let ours = results::median(text, source, panel.engine)?.ok_or_else(|| {
        format!("{}: no run of {} for `{}`", source.file, panel.engine, source.workload)
    })?;
    let mut bars = vec![Bar { label: panel.engine, ops_per_second: ours.ops_per_second }];
    for peer in panel.peers {
        let mut best: Option<Median> = None;
        for name in peer.names {
            let found = results::median(text, source, name)?;
            best = best
                .into_iter()
                .chain(found)
                .max_by(|a, b| a.ops_per_second.total_cmp(&b.ops_per_second));
        }
        bars.extend(
            best.map(|best| Bar { label: peer.label, ops_per_second: best.ops_per_second }),
        );
    }
    let title = match source.workload {
        "load" => "load",
        "a" => "YCSB A",
        "c" => "YCSB C",
        "e" => "YCSB E",
        other => return Err(format!("no title for the workload `{other}`")),
    };
    // Results files begin with their date.
    Ok(Group { title, date: source.file.chars().take(10).collect(), runs: ours.runs, bars })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_up_to_date() {
        let repository = crate::repository();
        let images = draw_all(&repository).unwrap();
        assert_eq!(images, draw_all(&repository).unwrap(), "drawing is deterministic");
        for (path, image) in images {
            let current = fs::read_to_string(repository.join(path)).unwrap();
            assert!(current == image, "{path} is out of date; run `cargo xtask chart`");
        }
    }

    #[test]
    fn every_peer_of_a_group_is_drawn_once() {
        let panels = collect(&crate::repository()).unwrap();
        let hashlog = &panels[0].groups[0];
        let labels: Vec<_> = hashlog.bars.iter().map(|bar| bar.label).collect();
        assert_eq!(labels, ["hashlog", "RocksDB", "LMDB"]);
        assert_eq!((hashlog.date.as_str(), hashlog.runs), ("2026-11-22", 3));
        // The better LMDB of this load is the one with read-ahead.
        assert!((330e3..331e3).contains(&hashlog.bars[2].ops_per_second), "{hashlog:?}");
    }
}
