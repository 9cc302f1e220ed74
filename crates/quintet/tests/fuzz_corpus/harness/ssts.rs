//! What the two engines of SSTs share: footers, sections and blocks that may hold anything.

use quintet::testing::engine::MaintenanceMode;
use quintet::testing::{
    codec::{Lsn, crc32c, crc32c_append},
    engine::{Engine, KeyRange, MemoryWait, Op},
    report::Report,
};

use super::{desk::overlay, explains_itself};

const BLOCK_BYTES: usize = 4096;
pub(super) const FOOT_BYTES: usize = 192;
/// Of a block's size, without its flags.
const SIZE_MASK: u32 = (1 << 30) - 1;
/// Every entry of a base is older.
const LSN: u64 = 1 << 20;

fn sign(bytes: &mut [u8]) {
    bytes[12..16].fill(0);
    let crc = crc32c(bytes).to_le_bytes();
    bytes[12..16].copy_from_slice(&crc);
}

/// What the checksums of blocks of the newest SST are salted with.
pub(super) fn salt(database_id: [u8; 16]) -> u32 {
    let salt = crc32c_append(crc32c(&database_id), &7_u64.to_le_bytes());
    crc32c_append(salt, &2_u64.to_le_bytes())
}

/// Makes the checksum of the first of some blocks right.
pub(super) fn sign_block(bytes: &mut [u8], salt: u32) {
    let Some((crc, rest)) = bytes.split_first_chunk_mut::<4>() else { return };
    let Some(size) = rest.first_chunk::<4>() else { return };
    let size = usize::try_from(u32::from_le_bytes(*size) & SIZE_MASK).expect("64 bits");
    let summed = &rest[..size.saturating_add(4).min(rest.len())];
    *crc = crc32c_append(crc32c_append(salt, &[0; 4]), summed).to_le_bytes();
}

/// Where the parts of an SST are.
#[derive(Clone, Copy)]
pub(super) struct SstParts<'a> {
    /// Where the footer names the sections.
    pub(super) sections: &'a [usize],
    pub(super) foot_bytes: usize,
    /// The flags of the first block.
    pub(super) block_flags: u32,
    /// What the checksums of its blocks are salted with.
    pub(super) salt: u32,
}

/// An SST with the input laid over its blocks, its footer, one of its sections, or its first
/// block, as the first byte says, and the checksums of sections, footer and first block made right.
/// `sections` are where the footer names them; `sign_section` is shown one that was changed.
pub(super) fn laid_over(
    bytes: Vec<u8>,
    (sections, salt): (&[usize], u32),
    input: &[u8],
    sign_section: impl Fn(usize, &mut [u8]),
) -> Option<Vec<u8>> {
    let parts = SstParts { sections, foot_bytes: FOOT_BYTES, block_flags: 3, salt };
    laid_over_parts(bytes, parts, input, sign_section)
}

/// Does the same as [`laid_over`], for any kind of SST.
pub(super) fn laid_over_parts(
    mut bytes: Vec<u8>,
    SstParts { sections, foot_bytes, block_flags, salt }: SstParts<'_>,
    input: &[u8],
    sign_section: impl Fn(usize, &mut [u8]),
) -> Option<Vec<u8>> {
    let (kind, input) = input.split_first()?;
    let foot = bytes.len() - BLOCK_BYTES;
    let word = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(*bytes[foot + at..].first_chunk().expect("a footer")))
            .expect("a small file")
    };
    match usize::from(*kind) % (3 + sections.len()) {
        0 => overlay(&mut bytes[..foot], input),
        1 => overlay(&mut bytes[foot + 48..foot + foot_bytes], input),
        first if first == 2 + sections.len() => {
            let block = &mut bytes[BLOCK_BYTES..];
            let size = u32::from_le_bytes(*block[4..].first_chunk().expect("a block"));
            assert_eq!(size >> 30, block_flags, "the first block is of another kind");
            let size = 8 + usize::try_from(size & SIZE_MASK).expect("64 bits");
            overlay(&mut block[4..size], input);
            sign_block(block, salt);
        }
        section => {
            let at = sections[section - 2];
            let (offset, size) = (word(&bytes, at), word(&bytes, at + 8));
            assert_ne!(size, 0, "a section of the base is empty");
            overlay(&mut bytes[offset..offset + size], input);
            sign_section(at, &mut bytes[offset..offset + size]);
            let crc = u64::from(crc32c(&bytes[offset..offset + size])).to_le_bytes();
            bytes[foot + at + 16..foot + at + 24].copy_from_slice(&crc);
        }
    }
    sign(&mut bytes[foot..foot + foot_bytes]);
    Some(bytes)
}

/// Has 80 entries in two files, and every other of the last 20 deleted where `deletes` says so. The
/// first ten of each file are small, and their keys have much in common.
pub(super) fn fill(table: &impl Engine, deletes: bool) {
    for number in 0..80_u64 {
        let (key, body) = match number {
            0..10 | 51..61 => (format!("a common head of {number:02}"), vec![7; 9]),
            _ => (format!("key-{number}"), vec![7; 200]),
        };
        let put = Op::Put { key: key.as_bytes(), head: b"", body: &body };
        let delete = Op::Delete { key: key.as_bytes() };
        let op = if deletes && number > 60 && number % 2 == 0 { delete } else { put };
        table.admit(&op, &MemoryWait::default()).expect("room");
        table.apply(Lsn(number), &op).expect("room");
        if number == 50 || number == 79 {
            table.checkpoint(Lsn(number)).expect("room");
        }
    }
}

/// Reads and writes everything of a table that may be damaged.
pub(super) fn use_table(table: &impl Engine) {
    let mut report = Report::default();
    if let Err(error) = table.check(&mut report) {
        explains_itself(&error);
    }
    for key in (0..100).flat_map(|n| [format!("key-{n}"), format!("a common head of {n:02}")]) {
        if let Err(error) = table.get(key.as_bytes()) {
            explains_itself(&error);
        }
    }
    // A range that begins reads memtables, which may be damaged.
    let all = || table.ordered().expect("an ordered engine").range(KeyRange::default());
    let up = all().and_then(|mut entries| entries.try_for_each(|entry| entry.map(drop)));
    let down = || all().and_then(|entries| entries.rev().try_for_each(|entry| entry.map(drop)));
    if let Err(error) = up.and_then(|()| down()) {
        explains_itself(&error);
    }
    let op = Op::Put { key: b"added", head: b"", body: b"later" };
    let outcome = table.admit(&op, &MemoryWait::default()).and_then(|()| {
        table.apply(Lsn(LSN), &op)?;
        table.checkpoint(Lsn(LSN + 8))?;
        table.maintain(MaintenanceMode::Full)
    });
    if let Err(error) = outcome {
        explains_itself(&error);
    }
}
