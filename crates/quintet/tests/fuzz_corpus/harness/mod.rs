//! The fuzz targets, shared with the ordinary test over the kept inputs.
//!
//! Each target takes any bytes. It requires an error or a right answer, no panic, no hang, and
//! bounded memory. A checksum would refuse nearly every mutated file. So the targets build the file
//! around the input and compute its checksums ([`fix`]), unless the input keeps its own.

mod database;
mod desk;
mod fix;
mod hashlog;
mod log;
mod perfect_hash;
mod slm;
mod slm_pool;
mod snapshot;
mod ssts;
mod tph;
mod trie;

use std::time::{Duration, Instant};

use quintet::{
    Error,
    testing::{
        codec::{Decoder, VARINT_BYTES_MAX, put_bytes, put_varint},
        disk::{self, Dir, Open},
    },
};

/// Runs one input.
pub type Target = fn(&[u8]);

/// Every target of this crate, by the name of its fuzz target and of its folder of kept inputs.
pub const TARGETS: [(&str, Target); 17] = [
    ("codec", codec),
    ("log_segment", log::log_segment),
    ("record_body", database::record_body),
    ("envelope", database::envelope),
    ("catalog", database::catalog),
    ("naive_snapshot", snapshot::naive_snapshot),
    ("hashlog_chunk", hashlog::chunk),
    ("hashlog_manifest", hashlog::manifest),
    ("hashlog_hints", hashlog::hints),
    ("perfect_hash", perfect_hash::perfect_hash),
    ("slm_pool", slm_pool::pool),
    ("slm_run", slm::run),
    ("tph_manifest", tph::manifest),
    ("tph_piece", tph::sst),
    ("tph_slotted_piece", tph::slotted),
    ("trie_group", trie::group),
    ("trie_records", trie::records),
];

/// Longest time for one input, with sanitizers, on a machine with other work.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Runs the target `name` on `input`.
///
/// # Panics
///
/// If there is no such target, or the target fails.
pub fn run(name: &str, input: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a known target");
    let start = Instant::now();
    target(input);
    let took = start.elapsed();
    assert!(took < TIME_MAX, "{name} took {took:?} for {} bytes", input.len());
}

/// Inputs that the code itself makes, to be kept: target, name, bytes.
pub fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut samples = database::samples();
    samples.extend(hashlog::samples());
    samples.extend(perfect_hash::samples());
    samples.extend(slm::samples());
    samples.extend(slm_pool::samples());
    samples.extend(tph::samples());
    samples.extend(trie::samples());
    samples
}

/// Puts a file of these bytes into `dir`.
fn put_file(dir: &dyn Dir, name: &str, bytes: &[u8]) {
    let file = dir.open(name, Open::CREATE).expect("a new file");
    disk::write_all_at(&*file, bytes, 0).expect("room for the file");
    file.sync_all().expect("a sound disk");
    dir.sync().expect("a sound disk");
}

/// Asserts that the message of an error is one non-empty line.
fn explains_itself(error: &Error) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 4096 && !text.contains('\n'), "{text:?}");
}

/// Integers, varints and byte strings: reading never passes the end, and values that are written
/// again read the same.
fn codec(input: &[u8]) {
    let mut decoder = Decoder::new(input);
    while let Some(kind) = decoder.u8() {
        let before = decoder.rest().len();
        let read = match kind % 5 {
            0 => decoder.u32().map(|_| 4),
            1 => decoder.u64().map(|_| 8),
            2 => decoder.id().map(|_| 16),
            3 => varint(&mut decoder),
            _ => bytes(&mut decoder),
        };
        match read {
            Some(count) => assert_eq!(before - decoder.rest().len(), count),
            None if kind % 5 < 3 => break,
            None => {}
        }
    }
}

fn varint(decoder: &mut Decoder<'_>) -> Option<usize> {
    let mut ahead = decoder.clone();
    let value = ahead.varint()?;
    let used = decoder.rest().len() - ahead.rest().len();
    assert!(used <= VARINT_BYTES_MAX);
    let mut again = Vec::new();
    put_varint(&mut again, value);
    assert!(again.len() <= used, "the written form is the shortest");
    assert_eq!(Decoder::new(&again).varint(), Some(value));
    *decoder = ahead;
    Some(used)
}

fn bytes(decoder: &mut Decoder<'_>) -> Option<usize> {
    let before = decoder.rest().len();
    let text = decoder.bytes()?;
    assert!(text.len() < before);
    let mut again = Vec::new();
    put_bytes(&mut again, text);
    assert_eq!(Decoder::new(&again).bytes(), Some(text));
    Some(before - decoder.rest().len())
}
