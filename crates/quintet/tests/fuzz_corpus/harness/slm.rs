//! The `slm` engine: footers, sections and blocks of a run, of arbitrary bytes.

use std::sync::OnceLock;

use quintet::{
    Result,
    testing::{
        codec::Lsn,
        disk::sim::SimEnv,
        engine::{EngineKind, TableOptions, slm::Slm},
    },
};

use super::{
    desk::{self, damaged, placed},
    explains_itself,
    ssts::{fill, laid_over, salt, use_table},
};

const DATABASE_ID: [u8; 16] = *b"fuzz-slm........";
const RUN: &str = "/table/00000002.run";
/// Where the footer names the sections that a run has: its bounds, and the offsets of blocks.
const SECTIONS: [usize; 2] = [80, 104];

fn open(env: &SimEnv) -> Result<(Slm, Lsn)> {
    let context = desk::context(env, DATABASE_ID);
    let options = TableOptions::new(EngineKind::Slm)
        .set("memtable_bytes", "65536")
        .set("run_bytes", "65536")
        .set("page_bytes", "4096")
        .set("block_bytes", "512");
    Slm::open(&options, context)
}

/// A closed table of two runs.
fn base() -> &'static SimEnv {
    static BASE: OnceLock<SimEnv> = OnceLock::new();
    BASE.get_or_init(|| {
        let env = SimEnv::new(1);
        let (table, _) = open(&env).expect("a new table");
        fill(&table, false);
        drop(table);
        env
    })
}

/// A run, changed by the input ([`laid_over`]).
pub(super) fn run(input: &[u8]) {
    let bytes = base().contents(RUN).expect("a file of the base");
    let places = (&SECTIONS[..], salt(DATABASE_ID));
    let Some(bytes) = laid_over(bytes, places, input, |_, _| {}) else { return };
    match open(&damaged(base(), RUN, bytes)) {
        Ok((table, _)) => use_table(&table),
        Err(error) => explains_itself(&error),
    }
}

pub(super) fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let run = |kind: u8, place, bytes: &[u8]| [&[kind][..], &placed(place, bytes)].concat();
    vec![
        ("slm_run", "untouched", vec![0]),
        ("slm_run", "blocks", run(0, 80, &[1, 2, 3])),
        ("slm_run", "counts", run(1, 0, &[255; 8])),
        ("slm_run", "section_beyond_the_end", run(1, 32, &[0, 0, 255])),
        ("slm_run", "bounds", run(2, 0, &[200, 1, 255])),
        ("slm_run", "bounds_swapped", run(2, 1, b"z")),
        ("slm_run", "offsets", run(3, 4, &[255, 255])),
        ("slm_run", "short_untouched", vec![4]),
        ("slm_run", "short_size", run(4, 4, &[255, 255, 127])),
        ("slm_run", "short_head", run(4, 6, &[255, 1])),
        ("slm_run", "short_key", run(4, 24, &[255, 255, 255, 127])),
        ("slm_run", "short_flags", run(4, 3, &[0])),
    ]
}
