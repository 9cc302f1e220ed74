//! The kept inputs of the fuzz targets, and some thousands of mutations of each, as an ordinary
//! test.
//!
//! `fuzz/seeds/TARGET/` holds the inputs: a few that reach the middle of each decoder, and every
//! input that ever found a bug. A failure prints target, file and mutation; the same call repeats
//! it.

mod harness;
mod kept;

use std::fs;

use kept::{folder, inputs};

#[test]
fn kept_inputs_of_codec() {
    run("codec");
}

#[test]
fn kept_inputs_of_log_segment() {
    run("log_segment");
}

#[test]
fn kept_inputs_of_record_body() {
    run("record_body");
}

#[test]
fn kept_inputs_of_envelope() {
    run("envelope");
}

#[test]
fn kept_inputs_of_catalog() {
    run("catalog");
}

#[test]
fn kept_inputs_of_naive_snapshot() {
    run("naive_snapshot");
}

#[test]
fn kept_inputs_of_hashlog_chunk() {
    run("hashlog_chunk");
}

#[test]
fn kept_inputs_of_hashlog_manifest() {
    run("hashlog_manifest");
}

#[test]
fn kept_inputs_of_slm_pool() {
    run("slm_pool");
}

#[test]
fn kept_inputs_of_slm_run() {
    run("slm_run");
}

#[test]
fn kept_inputs_of_tph_manifest() {
    run("tph_manifest");
}

#[test]
fn kept_inputs_of_tph_piece() {
    run("tph_piece");
}

#[test]
fn kept_inputs_of_tph_slotted_piece() {
    run("tph_slotted_piece");
}

#[test]
fn kept_inputs_of_trie_group() {
    run("trie_group");
}

#[test]
fn kept_inputs_of_trie_records() {
    run("trie_records");
}

#[test]
fn kept_inputs_of_perfect_hash() {
    run("perfect_hash");
}

#[test]
fn kept_inputs_of_hashlog_hints() {
    run("hashlog_hints");
}

/// The inputs that the code makes are kept as it makes them today; `UPDATE=1` rewrites them.
#[test]
fn samples_are_kept() {
    let update = std::env::var("UPDATE").is_ok_and(|value| value == "1");
    for (target, name, bytes) in harness::samples() {
        let path = folder(target).join(name);
        if update {
            fs::create_dir_all(folder(target)).expect("a folder");
            fs::write(&path, &bytes).expect("a file");
        }
        let kept = fs::read(&path).expect("a kept input; UPDATE=1 writes it");
        assert!(kept == bytes, "{} is not what the code writes; see UPDATE=1", path.display());
    }
}

#[test]
fn every_target_has_kept_inputs() {
    for (name, _) in harness::TARGETS {
        assert!(!inputs(name).is_empty(), "no inputs in {}", folder(name).display());
    }
}

fn run(target: &str) {
    kept::run(target, |input| harness::run(target, input));
}
