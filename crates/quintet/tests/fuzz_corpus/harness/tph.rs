//! The `tph` engine: manifests, footers, sections and blocks of arbitrary bytes.

use std::sync::OnceLock;

use quintet::{
    Result,
    testing::{
        codec::{Lsn, crc32c},
        disk::sim::SimEnv,
        engine::{EngineKind, TableOptions, tph::Tph},
    },
};

use super::{
    desk::{self, damaged, overlay, placed},
    explains_itself,
    ssts::{SstParts, fill, laid_over, laid_over_parts, salt, sign_block, use_table},
};

const DATABASE_ID: [u8; 16] = *b"fuzz-tph........";
const MANIFEST: &str = "/table/manifest-00000001";
const SECTOR_BYTES: usize = 512;
const PIECE: &str = "/table/00000002.ph";
/// Where the footer names the sections: offset, bytes and CRC of each.
const SECTIONS: [usize; 4] = [80, 104, 128, 152];
const KEYS_SECTION: usize = 152;
/// Tells a chunk of keys from a block of the same number.
const KEYS_SALT: u32 = 0x6b65_7973;
/// Those of a piece of two tiers: global hash, offsets, local hash, keys, key order.
const SLOTTED_SECTIONS: [usize; 5] = [80, 104, 128, 152, ORDER_SECTION];
const ORDER_SECTION: usize = 184;
const SLOTTED_FOOT_BYTES: usize = 216;
/// Tells a chunk of the key order from a block of the same number.
const ORDER_SALT: u32 = 0x6f72_6472;

fn open(env: &SimEnv, tiers: &str) -> Result<(Tph, Lsn)> {
    let context = desk::context(env, DATABASE_ID);
    let options = TableOptions::new(EngineKind::Tph)
        .set("mode", "one_level")
        .set("tiers", tiers)
        .set("memtable_bytes", "65536")
        .set("block_bytes", "512");
    Tph::open(&options, context)
}

/// A closed table of two SSTs.
fn base(tiers: &str) -> &'static SimEnv {
    static ONE: OnceLock<SimEnv> = OnceLock::new();
    static TWO: OnceLock<SimEnv> = OnceLock::new();
    let base = if tiers == "two" { &TWO } else { &ONE };
    base.get_or_init(|| {
        let env = SimEnv::new(1);
        let (table, _) = open(&env, tiers).expect("a new table");
        fill(&table, true);
        drop(table);
        env
    })
}

fn contents(name: &str) -> Vec<u8> {
    base("one").contents(name).expect("a file of the base")
}

/// Opens the base with a file replaced, and uses the table if that succeeds.
fn open_with(name: &str, bytes: Vec<u8>) {
    open_tiers_with("one", name, bytes);
}

fn open_tiers_with(tiers: &str, name: &str, bytes: Vec<u8>) {
    match open(&damaged(base(tiers), name, bytes), tiers) {
        Ok((table, _)) => use_table(&table),
        Err(error) => explains_itself(&error),
    }
}

/// The manifest with the input laid over its edits, and their checksums made right.
pub(super) fn manifest(input: &[u8]) {
    let mut bytes = contents(MANIFEST);
    overlay(&mut bytes[SECTOR_BYTES..], input);
    let mut at = SECTOR_BYTES;
    while let Some((size, _)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<4>()) {
        let size = usize::try_from(u32::from_le_bytes(*size)).expect("64 bits");
        let Some(body) = bytes.get(at + 8..at.saturating_add(8).saturating_add(size)) else {
            break;
        };
        if size == 0 {
            break;
        }
        let offset = u64::try_from(at).expect("64 bits").to_le_bytes();
        let parts = [&bytes[16..48], &offset, &bytes[at..at + 4], body];
        let crc = crc32c(&parts.concat()).to_le_bytes();
        bytes[at + 4..at + 8].copy_from_slice(&crc);
        at = (at + 8 + size).next_multiple_of(SECTOR_BYTES);
    }
    open_with(MANIFEST, bytes);
}

/// The newest SST, changed by the input ([`laid_over`]).
pub(super) fn sst(input: &[u8]) {
    let sign_section = |at, section: &mut [u8]| {
        if at == KEYS_SECTION {
            sign_block(section, salt(DATABASE_ID) ^ KEYS_SALT);
        }
    };
    let places = (&SECTIONS[..], salt(DATABASE_ID));
    if let Some(bytes) = laid_over(contents(PIECE), places, input, sign_section) {
        open_with(PIECE, bytes);
    }
}

/// The newest piece of a table with two tiers, changed by the input ([`laid_over_parts`]).
pub(super) fn slotted(input: &[u8]) {
    let salt = salt(DATABASE_ID);
    let sign_section = |at, section: &mut [u8]| match at {
        KEYS_SECTION => sign_block(section, salt ^ KEYS_SALT),
        ORDER_SECTION => sign_block(section, salt ^ ORDER_SALT),
        _ => {}
    };
    let sections = &SLOTTED_SECTIONS[..];
    let parts = SstParts { sections, foot_bytes: SLOTTED_FOOT_BYTES, block_flags: 0, salt };
    let piece = base("two").contents(PIECE).expect("a file of the base");
    if let Some(bytes) = laid_over_parts(piece, parts, input, sign_section) {
        open_tiers_with("two", PIECE, bytes);
    }
}

/// Samples of [`slotted`].
fn slotted_samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let sst = |kind: u8, place, bytes: &[u8]| [&[kind][..], &placed(place, bytes)].concat();
    vec![
        ("tph_slotted_piece", "untouched", vec![0]),
        ("tph_slotted_piece", "blocks", sst(0, 80, &[1, 2, 3])),
        ("tph_slotted_piece", "counts", sst(1, 0, &[255; 8])),
        ("tph_slotted_piece", "order_beyond_the_end", sst(1, 136, &[0, 0, 255])),
        ("tph_slotted_piece", "invalid_keys", sst(2, 0, &[9])),
        ("tph_slotted_piece", "global_size", sst(2, 8, &[255, 255, 255])),
        ("tph_slotted_piece", "global_slots", sst(2, 200, &[255; 24])),
        ("tph_slotted_piece", "offsets", sst(3, 4, &[255, 255])),
        ("tph_slotted_piece", "segments", sst(4, 0, &[9, 1, 255])),
        ("tph_slotted_piece", "slots_a_block", sst(4, 2, &[1])),
        ("tph_slotted_piece", "local_hash", sst(4, 80, &[255; 8])),
        ("tph_slotted_piece", "keys_shared", sst(5, 8, &[200, 1, 255])),
        ("tph_slotted_piece", "order_block", sst(6, 10, &[255, 255, 255])),
        ("tph_slotted_piece", "order_ordinal", sst(6, 8, &[255, 255])),
        ("tph_slotted_piece", "order_piece", sst(6, 14, &[1])),
        ("tph_slotted_piece", "order_size", sst(6, 4, &[12, 0])),
        ("tph_slotted_piece", "block_slots", sst(7, 4, &[255, 255])),
        ("tph_slotted_piece", "block_width", sst(7, 6, &[4])),
        ("tph_slotted_piece", "block_offsets", sst(7, 10, &[255, 255])),
    ]
}

pub(super) fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let sst = |kind: u8, place, bytes: &[u8]| [&[kind][..], &placed(place, bytes)].concat();
    let mut samples = slotted_samples();
    samples.extend([
        ("tph_manifest", "untouched", Vec::new()),
        ("tph_manifest", "many_levels", placed(18, &[0xff, 0xff, 0x7f])),
        ("tph_manifest", "another_piece", placed(24, &[9, 1, 3])),
        ("tph_manifest", "kept_and_skipped", placed(512 + 19, &[2, 0, 1, 1, 1])),
        ("tph_manifest", "short_first_edit", placed(0, &[16, 0, 0, 0])),
        ("tph_piece", "untouched", vec![0]),
        ("tph_piece", "blocks", sst(0, 80, &[1, 2, 3])),
        ("tph_piece", "counts", sst(1, 0, &[255; 8])),
        ("tph_piece", "section_beyond_the_end", sst(1, 32, &[0, 0, 255])),
        ("tph_piece", "index", sst(2, 8, &[24, 0, 0, 0, 32])),
        ("tph_piece", "index_hash", sst(2, 30, &[1, 2, 3, 4])),
        ("tph_piece", "offsets", sst(3, 4, &[255, 255])),
        ("tph_piece", "fences", sst(4, 0, &[200, 1, 255])),
        ("tph_piece", "fences_scale", sst(4, 2, &[255, 255, 255, 255])),
        ("tph_piece", "fences_hints", sst(4, 20, &[0, 0, 255, 255])),
        ("tph_piece", "keys_untouched", vec![5]),
        ("tph_piece", "keys_shared", sst(5, 8, &[200, 1, 255])),
        ("tph_piece", "keys_size", sst(5, 4, &[255, 255, 255])),
        ("tph_piece", "keys_block", sst(5, 16, &[255, 255, 255, 127])),
        ("tph_piece", "short_untouched", vec![6]),
        ("tph_piece", "short_size", sst(6, 4, &[255, 255, 127])),
        ("tph_piece", "short_head", sst(6, 6, &[255, 1])),
        ("tph_piece", "short_key", sst(6, 24, &[255, 255, 255, 127])),
        ("tph_piece", "short_flags", sst(6, 3, &[0])),
    ]);
    samples
}
