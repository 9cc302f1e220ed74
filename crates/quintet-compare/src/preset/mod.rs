//! Presets: the experiments of the papers, and Quintet's own comparisons, by name.
//!
//! A [`Preset`] (in `definition`) names the stores, the points at the paper's size, and the figures
//! that the paper prints for them. A report shows both side by side. Each paper has a file.
//!
//! Sizes are those of the papers. `--scale` multiplies records and operations; the default of each
//! preset suits a machine with two processors and 24 GiB. Hardware differs, so the figures to
//! compare are ratios to the same peer. Reports put these first.
//!
//! How we differ from the papers: all stores of a preset run the same operations from the same
//! seed. Keys have 23 bytes if the paper gives no size. A store of a paper that is not available
//! (FASTER, Masstree, `KVell`, `PebblesDB`) is left out, and its figures appear without a
//! measurement.

mod cedrusdb;
mod ckvs;
mod compassdb;
mod definition;
mod logkv;
mod own;
mod slmdb;

use quintet_bench::{
    failure::{Failure, Outcome},
    report::{Experiment, Experiments},
    workload::Workload,
};

use crate::{design, paper::Paper};

pub use definition::{PointWorkload, Preset, PresetPoint};

/// Returns all presets, ours first.
pub fn all() -> impl Iterator<Item = &'static Preset> {
    [
        own::PRESETS,
        cedrusdb::PRESETS,
        slmdb::PRESETS,
        compassdb::PRESETS,
        ckvs::PRESETS,
        logkv::PRESETS,
    ]
    .into_iter()
    .flatten()
}

/// Returns the preset of this name. An unknown name is a usage failure.
pub fn find(name: &str) -> Outcome<&'static Preset> {
    all().find(|preset| preset.name == name).ok_or_else(|| {
        Failure::Usage(format!("there is no preset {name:?}; `quintet-compare presets` lists them"))
    })
}

/// The presets of this build, for reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownPresets;

impl Experiments for KnownPresets {
    fn of_papers(&self) -> Vec<&'static str> {
        all().filter(|preset| preset.paper().is_some()).map(|preset| preset.name).collect()
    }

    fn find(&self, preset: &str) -> Option<Experiment> {
        let known = find(preset).ok()?;
        let Preset { origin, about, metrics, figures, remarks, .. } = *known;
        let paper = known.paper().map(Paper::title);
        Some(Experiment { origin, about, paper, metrics, figures, remarks })
    }

    fn design(&self, preset: &str, engine: &str) -> Option<&'static str> {
        let paper = find(preset).ok()?.paper()?;
        design::of(paper, engine).map(|design| design.name)
    }

    fn workload(&self, preset: &str, point: &str) -> Option<Workload> {
        let points = find(preset).ok()?.points;
        points.iter().find(|known| known.name == point)?.spec().workload().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quintet_bench::result::PaperFigure;

    #[test]
    fn names_are_unique_and_workloads_exist() {
        let mut names = Vec::new();
        for preset in all() {
            assert!(!names.contains(&preset.name), "{}", preset.name);
            names.push(preset.name);
            assert!(!preset.origin.is_empty() && preset.about.len() > 20, "{}", preset.name);
            assert!(preset.scale > 0.0 && preset.scale <= 1.0, "{}", preset.name);
            for point in preset.points {
                let workload = point.spec().workload();
                let workload =
                    workload.unwrap_or_else(|failure| panic!("{}: {failure}", preset.name));
                assert!(workload.check(point.records).is_ok(), "{} {}", preset.name, point.name);
            }
            let points: Vec<_> = preset.points.iter().map(|point| point.name).collect();
            let unique: std::collections::BTreeSet<_> = points.iter().collect();
            assert_eq!(points.len(), unique.len(), "{}: {points:?}", preset.name);
        }
        assert!(find("smoke").is_ok());
        assert_eq!(find("cedrusdb-fig99").unwrap_err().code(), 2);
    }

    #[test]
    fn figures_belong_to_points_and_known_stores() {
        for preset in all() {
            for figure in preset.figures {
                let known = [PaperFigure::MEAN, PaperFigure::BEST].contains(&figure.point)
                    || preset.points.iter().any(|point| point.name == figure.point);
                assert!(known, "{}: no point {}", preset.name, figure.point);
                assert!(figure.value.is_finite() && figure.value > 0.0, "{figure:?}");
                let stores: Vec<_> = preset.engines.iter().chain(preset.peers).collect();
                for name in [figure.stands_for, figure.relative_to] {
                    let there = name.is_empty() || stores.contains(&&name);
                    assert!(there, "{}: {figure:?}", preset.name);
                }
            }
        }
    }

    #[test]
    fn every_experiment_of_the_checklist_has_a_preset() {
        for name in [
            "smoke",
            "cedrusdb-fig4",
            "cedrusdb-fig9",
            "cedrusdb-fig10",
            "cedrusdb-fig11",
            "cedrusdb-fig12",
            "cedrusdb-fig13",
            "cedrusdb-fig14",
            "cedrusdb-fig15",
            "cedrusdb-fig16",
            "cedrusdb-fig17",
            "cedrusdb-fig18a",
            "cedrusdb-fig18b",
            "cedrusdb-fig19",
            "cedrusdb-table1",
            "slmdb-sync",
            "slmdb-table1",
            "slmdb-fig2",
            "slmdb-fig4",
            "slmdb-fig5",
            "slmdb-fig6",
            "slmdb-table2",
            "slmdb-fig7",
            "slmdb-thresholds",
            "slmdb-fig8",
            "slmdb-20gb",
            "compassdb-table2",
            "compassdb-ycsb-c",
            "compassdb-dbbench",
            "compassdb-fig13",
            "compassdb-fig14",
            "compassdb-memory",
            "compassdb-one-level",
            "compassdb-single-tier",
            "compassdb-hash-range",
            "ckvs-perf",
            "logkv-table1",
            "logkv-table2",
            "logkv-fig3",
            "logkv-fig4",
            "logkv-fig5",
            "logkv-table3",
        ] {
            assert!(find(name).is_ok(), "{name}");
        }
    }
}
