//! The figures of the chart: panels, groups and bars.

/// A panel and its figures.
#[derive(Debug, PartialEq)]
pub(super) struct PanelFigures {
    pub(super) engine: &'static str,
    pub(super) about: &'static str,
    pub(super) groups: Vec<Group>,
}

/// The bars of one workload; the first bar is a Quintet engine.
#[derive(Debug, PartialEq)]
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) date: String,
    pub(super) runs: usize,
    pub(super) bars: Vec<Bar>,
}

/// The throughput of one store.
#[derive(Debug, PartialEq)]
pub(super) struct Bar {
    pub(super) label: &'static str,
    pub(super) ops_per_second: f64,
}
