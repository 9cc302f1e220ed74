//! The tph engine: manifests, footers, sections and blocks that may hold anything.

use std::{path::Path, sync::Arc, sync::OnceLock};

use quintet::{
    Result,
    testing::{
        budget::Budget,
        codec::{Decoder, KeyHash, Lsn, crc32c, crc32c_append},
        disk::{
            Env,
            sim::{Damage, SimEnv},
        },
        engine::{Context, Engine, EngineKind, Host, KeyRange, Op, TableOptions, tph::Tph},
        report::Report,
    },
};

use super::explains_itself;

pub(super) const DATABASE_ID: [u8; 16] = *b"fuzz-tph........";
const MANIFEST: &str = "/table/manifest-00000001";
const SECTOR_BYTES: usize = 512;
const PIECE: &str = "/table/00000002.ph";
const BLOCK_BYTES: usize = 4096;
const FOOT_BYTES: usize = 192;
/// Where the footer names the sections: offset, bytes and CRC of each.
const SECTIONS: [usize; 4] = [80, 104, 128, 152];
const KEYS_SECTION: usize = 152;
/// Every entry of the base is older.
const LSN: u64 = 1 << 20;

/// A database that never has anything to say.
#[derive(Debug)]
pub(super) struct Silent;

impl Host for Silent {
    fn sync_log(&self) -> Result<()> {
        Ok(())
    }
    fn wake(&self) {}
    fn is_expired(&self, stored: &[u8]) -> bool {
        stored.first() == Some(&b'E')
    }
}

fn open(env: &SimEnv) -> Result<(Tph, Lsn)> {
    let context = Context {
        env: Arc::new(env.clone()),
        dir: env.open_dir(Path::new("/table"), true).expect("a folder"),
        database_id: DATABASE_ID,
        table_id: 7,
        hash: KeyHash::new([1, 2]),
        budget: Arc::new(Budget::new(64 << 20)),
        host: Arc::new(Silent),
        read_only: false,
        complete: Lsn(0),
    };
    let options = TableOptions::new(EngineKind::Tph)
        .set("mode", "one_level")
        .set("memtable_bytes", "65536")
        .set("block_bytes", "512");
    Tph::open(&options, context)
}

/// A closed table of two pieces.
fn base() -> &'static SimEnv {
    static BASE: OnceLock<SimEnv> = OnceLock::new();
    BASE.get_or_init(|| {
        let env = SimEnv::new(1);
        let (table, _) = open(&env).expect("a new table");
        for number in 0..80_u64 {
            let (key, body) = (format!("key-{number}"), vec![7; 200]);
            let put = Op::Put { key: key.as_bytes(), head: b"", body: &body };
            let delete = Op::Delete { key: key.as_bytes() };
            let op = if number > 60 && number % 2 == 0 { delete } else { put };
            table.admit(&op).expect("room");
            table.apply(Lsn(number), &op).expect("room");
            if number == 50 || number == 79 {
                table.persist(Lsn(number)).expect("room");
            }
        }
        drop(table);
        env
    })
}

fn contents(name: &str) -> Vec<u8> {
    base().contents(name).expect("a file of the base")
}

pub(super) fn sign(bytes: &mut [u8]) {
    bytes[12..16].fill(0);
    let crc = crc32c(bytes).to_le_bytes();
    bytes[12..16].copy_from_slice(&crc);
}

/// Overwrites bytes from `start` on with the rest of the input, after its first two, which say
/// where.
pub(super) fn overlay(bytes: &mut [u8], input: &[u8]) {
    let mut decoder = Decoder::new(input);
    while let Some((low, high)) = decoder.u8().zip(decoder.u8()) {
        let at = usize::from(low) | usize::from(high) << 8;
        let count = decoder.u8().map_or(0, usize::from) % 32;
        let Some(source) = decoder.take(count.min(decoder.rest().len())) else { return };
        let size = bytes.len().max(1);
        for (index, byte) in source.iter().enumerate() {
            if let Some(target) = bytes.get_mut((at + index) % size) {
                *target = *byte;
            }
        }
    }
}

/// Opens the base with a file replaced, and uses what opens.
fn open_with(name: &str, bytes: Vec<u8>) {
    let env = base().kill();
    env.damage(name, &Damage::Replace(bytes)).expect("a file of the base");
    match open(&env) {
        Ok((table, _)) => use_table(&table),
        Err(error) => explains_itself(&error),
    }
}

/// Reads and writes everything of a table that may be damaged.
pub(super) fn use_table(table: &dyn Engine) {
    let mut report = Report::default();
    if let Err(error) = table.check(&mut report) {
        explains_itself(&error);
    }
    for number in 0..100 {
        if let Err(error) = table.get(format!("key-{number}").as_bytes()) {
            explains_itself(&error);
        }
    }
    let all = || table.range(KeyRange::default()).expect("a range").expect("an ordered engine");
    if let Some(Err(error)) =
        all().find(Result::is_err).or_else(|| all().rev().find(Result::is_err))
    {
        explains_itself(&error);
    }
    let op = Op::Put { key: b"added", head: b"", body: b"later" };
    let outcome = table.admit(&op).and_then(|()| {
        table.apply(Lsn(LSN), &op)?;
        table.persist(Lsn(LSN + 8))?;
        table.compact()
    });
    if let Err(error) = outcome {
        explains_itself(&error);
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

/// Makes the checksum of the first chunk of keys right.
fn sign_chunk(bytes: &mut [u8]) {
    let Some((crc, rest)) = bytes.split_first_chunk_mut::<4>() else { return };
    let Some(size) = rest.first_chunk::<4>() else { return };
    let size = usize::try_from(u32::from_le_bytes(*size)).expect("64 bits");
    let summed = &rest[..size.saturating_add(4).min(rest.len())];
    let salt = crc32c_append(crc32c(&DATABASE_ID), &7_u64.to_le_bytes());
    let salt = crc32c_append(salt, &2_u64.to_le_bytes()) ^ 0x6b65_7973;
    *crc = crc32c_append(crc32c_append(salt, &[0; 4]), summed).to_le_bytes();
}

/// The newest piece with the input laid over its blocks, one of its sections or its footer, as the
/// first byte says, and the checksums of sections and footer made right.
pub(super) fn piece(input: &[u8]) {
    let Some((kind, input)) = input.split_first() else { return };
    let mut bytes = contents(PIECE);
    let foot = bytes.len() - BLOCK_BYTES;
    let word = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(*bytes[foot + at..].first_chunk().expect("a footer")))
            .expect("a small file")
    };
    match kind % 6 {
        0 => overlay(&mut bytes[..foot], input),
        1 => overlay(&mut bytes[foot + 48..foot + FOOT_BYTES], input),
        section => {
            let at = SECTIONS[usize::from(section - 2)];
            let (offset, size) = (word(&bytes, at), word(&bytes, at + 8));
            assert_ne!(size, 0, "a section of the base is empty");
            overlay(&mut bytes[offset..offset + size], input);
            if at == KEYS_SECTION {
                sign_chunk(&mut bytes[offset..offset + size]);
            }
            let crc = u64::from(crc32c(&bytes[offset..offset + size])).to_le_bytes();
            bytes[foot + at + 16..foot + at + 24].copy_from_slice(&crc);
        }
    }
    sign(&mut bytes[foot..foot + FOOT_BYTES]);
    open_with(PIECE, bytes);
}

pub(super) fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let at = |place: u16, bytes: &[u8]| {
        let mut out = place.to_le_bytes().to_vec();
        out.push(u8::try_from(bytes.len()).expect("a short input"));
        out.extend_from_slice(bytes);
        out
    };
    let piece = |kind: u8, place, bytes: &[u8]| [&[kind][..], &at(place, bytes)].concat();
    vec![
        ("tph_manifest", "untouched", Vec::new()),
        ("tph_manifest", "many_levels", at(18, &[0xff, 0xff, 0x7f])),
        ("tph_manifest", "another_piece", at(24, &[9, 1, 3])),
        ("tph_manifest", "kept_and_skipped", at(512 + 19, &[2, 0, 1, 1, 1])),
        ("tph_manifest", "short_first_edit", at(0, &[16, 0, 0, 0])),
        ("tph_piece", "untouched", vec![0]),
        ("tph_piece", "blocks", piece(0, 80, &[1, 2, 3])),
        ("tph_piece", "counts", piece(1, 0, &[255; 8])),
        ("tph_piece", "section_beyond_the_end", piece(1, 32, &[0, 0, 255])),
        ("tph_piece", "index", piece(2, 8, &[24, 0, 0, 0, 32])),
        ("tph_piece", "index_hash", piece(2, 30, &[1, 2, 3, 4])),
        ("tph_piece", "offsets", piece(3, 4, &[255, 255])),
        ("tph_piece", "fences", piece(4, 0, &[200, 1, 255])),
        ("tph_piece", "fences_scale", piece(4, 2, &[255, 255, 255, 255])),
        ("tph_piece", "fences_hints", piece(4, 20, &[0, 0, 255, 255])),
        ("tph_piece", "keys_untouched", vec![5]),
        ("tph_piece", "keys_shared", piece(5, 8, &[200, 1, 255])),
        ("tph_piece", "keys_size", piece(5, 4, &[255, 255, 255])),
        ("tph_piece", "keys_block", piece(5, 16, &[255, 255, 255, 127])),
    ]
}
