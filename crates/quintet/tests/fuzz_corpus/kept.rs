//! Kept inputs of a fuzz target, and mutations of them.

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
};

/// Mutations tried of each kept input; `QUINTET_FUZZ_MUTATIONS` asks for more.
const MUTATIONS: u64 = 300;
/// A get through damaged hints waits for a compaction to move the entry, a thousand times. So an
/// eighth of the mutations.
const SLOW_TARGET: &str = "hashlog_hints";

/// Where the inputs of a target are kept.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target)
}

/// The kept inputs of a target, by name.
pub fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder(target)).expect("a folder of inputs");
    let mut inputs: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.expect("a readable folder"))
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("a readable input"))
        })
        .collect();
    inputs.sort();
    inputs
}

/// Runs the kept inputs of `target`, and mutations of each.
///
/// # Panics
///
/// With the panic of the first that fails, after a line that names it.
pub fn run(target: &str, one: impl Fn(&[u8])) {
    let share = if target == SLOW_TARGET { 8 } else { 1 };
    let mutations = std::env::var("QUINTET_FUZZ_MUTATIONS").ok();
    let mutations = mutations.and_then(|text| text.parse().ok()).unwrap_or(MUTATIONS / share);
    for (name, input) in inputs(target) {
        for number in 0..=mutations {
            let mutated = mutate(&input, number);
            let run = AssertUnwindSafe(|| one(&mutated));
            if let Err(panic) = panic::catch_unwind(run) {
                eprintln!("failed: target {target}, input {name}, mutation {number}");
                panic::resume_unwind(panic);
            }
        }
    }
}

/// The mutation `number` of `input`; 0 is the input itself.
fn mutate(input: &[u8], number: u64) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 8).unwrap_or(0) % below.max(1)
    };
    let rounds = if number == 0 { 0 } else { 1 + random(4) };
    for _ in 0..rounds {
        let at = random(bytes.len());
        match random(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, [0, 1, 0x7f, 0xff][random(4)]),
            2 => {
                // Copies a piece to another place.
                let length = random(bytes.len() - at + 1).min(64);
                let piece = bytes[at..at + length].to_vec();
                let to = random(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            3 if at < bytes.len() => {
                bytes.remove(at);
            }
            4 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)],
            _ if at < bytes.len() => bytes[at] ^= 1 << random(8),
            _ => bytes.push(0),
        }
    }
    bytes
}
