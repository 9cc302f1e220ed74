//! Files built around an input, with sound heads and checksums where the input asks for them.
//!
//! Written from the layout tables and not with the code under test: a second reading of the
//! formats.
//!
//! The first byte of an input is a set of flags:
//!
//! | bit | meaning |
//! |---|---|
//! | 0 | leave the checksums as they are |
//! | 1 | the input begins with a head of its own |
//! | 2 | leave that head's checksum as it is |
//! | 3, 4 | a variant that the format defines |

use quintet::testing::codec::{crc32c, crc32c_append, round_up, to_u64, to_usize};

const BLOCK: usize = 4096;

/// The flags, and what follows them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    raw_body: bool,
    own_head: bool,
    raw_head: bool,
    pub(super) variant: u8,
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let (flags, rest) = bytes.split_first().map_or((0, bytes), |(flags, rest)| (*flags, rest));
        Self {
            raw_body: flags & 1 != 0,
            own_head: flags & 2 != 0,
            raw_head: flags & 4 != 0,
            variant: (flags >> 3) & 3,
            rest,
        }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Writes the input's own head over the front of `head`, where it has one.
    fn overlay_head(&mut self, head: &mut [u8]) {
        if self.own_head {
            let count = head.len().min(self.rest.len());
            let (own, rest) = self.rest.split_at(count);
            head[..count].copy_from_slice(own);
            self.rest = rest;
        }
    }
}

fn set_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

fn set_u64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

fn u32_at(bytes: &[u8], offset: usize) -> usize {
    let four = bytes[offset..offset + 4].try_into().unwrap_or_default();
    usize::try_from(u32::from_le_bytes(four)).unwrap_or(usize::MAX)
}

fn crc_of(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c_append(crc, part))
}

/// A perfect hash: numbers of keys and slots, then the body. Variant 1: of the second method.
pub(super) fn perfect_hash(mut input: Input<'_>) -> Vec<u8> {
    const HEAD: usize = 64;
    let mut file = vec![0; HEAD];
    file[..8].copy_from_slice(b"QNTPHASH");
    set_u32(&mut file, 8, 1);
    set_u32(&mut file, 12, 1 + u32::from(input.variant & 1));
    set_u64(&mut file, 16, 7);
    let (numbers, body) = input.rest.split_at(input.rest.len().min(16));
    file[24..24 + numbers.len()].copy_from_slice(numbers);
    input.rest = body;
    set_u64(&mut file, 40, to_u64(body.len()));
    input.overlay_head(&mut file);
    file.extend_from_slice(input.rest);
    if !input.raw_body {
        let crc = crc32c(&file[HEAD..]);
        set_u32(&mut file, 52, crc);
    }
    if !input.raw_head {
        let crc = crc32c(&file[..HEAD - 4]);
        set_u32(&mut file, HEAD - 4, crc);
    }
    file
}

/// What a log segment has to carry to be recovery's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) database_id: [u8; 16],
    pub(super) number: u64,
    pub(super) base: u64,
    pub(super) boot_id: [u8; 16],
}

/// A segment whose records are the input. Variants: 1, in use; 2, in use and of another boot; 3,
/// in use and after a failed sync.
pub(super) fn log_segment(mut input: Input<'_>, segment: &Segment) -> Vec<u8> {
    const FIELDS: usize = 80;
    let mut file = vec![0; BLOCK];
    file[..8].copy_from_slice(b"QTLOGSEG");
    set_u32(&mut file, 8, 1);
    file[16..32].copy_from_slice(&segment.database_id);
    set_u64(&mut file, 32, segment.number);
    set_u64(&mut file, 40, segment.base);
    file[56..72].copy_from_slice(&segment.boot_id);
    set_u64(&mut file, 72, 0x6e6f_6e63_6521);
    if input.variant == 2 {
        file[56] ^= 1;
    }
    set_u64(&mut file, BLOCK - 16, u64::from(input.variant != 0));
    set_u64(&mut file, BLOCK - 8, u64::from(input.variant == 3));
    let capacity = round_up(to_u64(BLOCK + input.rest.len()).max(16 << 10), to_u64(BLOCK));
    set_u64(&mut file, 48, capacity);
    input.overlay_head(&mut file[..FIELDS]);
    if !input.raw_head {
        let crc = crc_of(&[&file[..12], &file[16..FIELDS]]);
        set_u32(&mut file, 12, crc);
    }
    file.extend_from_slice(input.rest);
    file.resize(to_usize(capacity), 0);
    if !input.raw_body {
        let salt = crc_of(&[&file[16..32], &file[32..40], &file[72..80]]);
        let base = u64::from_le_bytes(file[40..48].try_into().unwrap_or_default());
        fix_records(&mut file, salt, base);
    }
    file
}

/// Gives everything that begins like a record its checksums.
fn fix_records(file: &mut [u8], salt: u32, base: u64) {
    let mut offset = BLOCK;
    while offset + 24 <= file.len() {
        let size = fix_record(&mut file[offset..], salt, base.wrapping_add(to_u64(offset)));
        offset += size.unwrap_or(8);
    }
}

/// The record's size, if it is one.
fn fix_record(bytes: &mut [u8], salt: u32, lsn: u64) -> Option<usize> {
    let sizes = u64::from_le_bytes(bytes[8..16].try_into().unwrap_or_default());
    let (head, length): (usize, usize) = match sizes & 3 {
        0 => return None,
        1 => (13, to_usize(sizes >> 2 & 0x3fff)),
        _ => (24, to_usize(sizes >> 2)),
    };
    let size = head.checked_add(length)?.next_multiple_of(8).max(24);
    if sizes & 3 == 3 {
        let code = (lsn ^ u64::from(salt) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bytes[4..8].copy_from_slice(&code.to_le_bytes()[4..]);
    } else {
        let body_crc = crc32c(bytes.get(head..head + length).unwrap_or(&[]));
        set_u32(bytes, 4, body_crc);
        if let Some(padding) = bytes.get_mut(head + length..size) {
            padding.fill(0);
        }
    }
    set_u32(bytes, 0, 0);
    let head_crc = crc_of_record(salt, lsn, &bytes[..head]);
    set_u32(bytes, 0, head_crc);
    (size <= bytes.len()).then_some(size)
}

fn crc_of_record(salt: u32, lsn: u64, head: &[u8]) -> u32 {
    crc32c_append(crc32c_append(salt, &lsn.to_le_bytes()), head)
}

/// A catalog whose edits are the input. Variants: 0, the recorded length is the end of the edits;
/// 1, none is recorded; 2, it is beyond; 3, it is one edit less.
pub(super) fn catalog(mut input: Input<'_>, database_id: [u8; 16]) -> Vec<u8> {
    let mut file = vec![0; BLOCK];
    file[..8].copy_from_slice(b"QUINTCAT");
    set_u32(&mut file, 8, 1);
    file[16..32].copy_from_slice(&database_id);
    input.overlay_head(&mut file[..32]);
    if !input.raw_head {
        let crc = crc32c(&file[..32]);
        set_u32(&mut file, 32, crc);
    }
    file.extend_from_slice(input.rest);
    let mut ends = vec![(1, BLOCK)];
    if !input.raw_body {
        fix_edits(&mut file, &mut ends);
    }
    let recorded = match input.variant {
        1 => None,
        2 => ends.last().map(|(sequence, end)| (sequence + 1, end + 64)),
        3 => ends.iter().rev().nth(1).copied(),
        _ => ends.last().copied(),
    };
    if let Some((sequence, end)) = recorded {
        set_u64(&mut file, 512, sequence);
        set_u64(&mut file, 520, to_u64(end));
        let crc = crc_of(&[&file[16..32], &file[512..528]]);
        set_u32(&mut file, 528, crc);
    }
    file
}

/// Gives the edits their sequence numbers and checksums; notes the next sequence and offset after
/// each.
fn fix_edits(file: &mut [u8], ends: &mut Vec<(u64, usize)>) {
    let (mut sequence, mut offset) = (1_u64, BLOCK);
    while offset + 16 <= file.len() {
        let length = u32_at(file, offset);
        let end = offset.saturating_add(16).saturating_add(length);
        if length == 0 || end > file.len() {
            break;
        }
        set_u64(file, offset + 8, sequence);
        let crc = crc_of(&[
            &file[16..32],
            &to_u64(offset).to_le_bytes(),
            &sequence.to_le_bytes(),
            &to_u64(length).to_le_bytes(),
            &file[offset + 16..end],
        ]);
        set_u32(file, offset + 4, crc);
        (sequence, offset) = (sequence + 1, end);
        ends.push((sequence, offset));
    }
}

/// A naive snapshot whose blocks and foot are the input. Variant 0: the foot is made to fit the
/// blocks.
pub(super) fn naive_snapshot(
    mut input: Input<'_>,
    database_id: [u8; 16],
    table_id: u64,
    lsn: u64,
) -> Vec<u8> {
    let mut file = vec![0; 64];
    file[..8].copy_from_slice(b"QNAIVSNP");
    set_u32(&mut file, 8, 1);
    file[16..32].copy_from_slice(&database_id);
    set_u64(&mut file, 32, table_id);
    set_u64(&mut file, 40, lsn);
    input.overlay_head(&mut file[..60]);
    if !input.raw_head {
        let crc = crc32c(&file[..60]);
        set_u32(&mut file, 60, crc);
    }
    file.extend_from_slice(input.rest);
    if !input.raw_body {
        fix_blocks(&mut file, input.variant == 0);
    }
    file
}

fn fix_blocks(file: &mut Vec<u8>, make_foot: bool) {
    let salt = u32::from_le_bytes(file[60..64].try_into().unwrap_or_default());
    let (mut number, mut offset, mut stream) = (0_u64, 64, Vec::new());
    while offset + 8 <= file.len() {
        let length = u32_at(file, offset);
        let end = offset.saturating_add(8).saturating_add(length);
        if length == 0 || end > file.len() {
            break;
        }
        stream.extend_from_slice(&file[offset + 8..end]);
        let crc = crc32c_append(salt, &number.to_le_bytes());
        let crc = crc32c_append(crc, &file[offset..offset + 4]);
        let crc = crc32c_append(crc, &file[offset + 8..end]);
        set_u32(file, offset + 4, crc);
        (number, offset) = (number + 1, end);
    }
    if make_foot {
        file.truncate(offset);
        file.resize(offset + 32, 0);
        set_u64(file, offset + 8, entries_in(&stream));
        set_u64(file, offset + 16, to_u64(stream.len()));
        set_u64(file, offset + 24, number);
    }
    if let Some(foot) = file.get(offset..offset + 32) {
        let crc = crc32c_append(salt, &number.to_le_bytes());
        let crc = crc32c_append(crc, &foot[..4]);
        let crc = crc32c_append(crc, &foot[8..]);
        set_u32(file, offset + 4, crc);
    }
}

/// Whole entries at the front of a snapshot's stream.
fn entries_in(stream: &[u8]) -> u64 {
    let mut decoder = quintet::testing::codec::Decoder::new(stream);
    let mut entries = 0;
    while decoder.bytes().and_then(|_| decoder.bytes()).is_some() {
        entries += 1;
    }
    entries
}

const SECTOR: usize = 512;
/// Bytes of a hashlog manifest's record before its body, and kinds.
const FRAME: usize = 9;
const BEGIN: u8 = 1;
const EXTENT: u8 = 2;
const COMMIT: u8 = 6;
/// Bytes of a hashlog extent's head; words of its record in the manifest, the last two the checksum
/// and the bytes of its hints.
const EXTENT_HEAD: usize = 128;
const EXTENT_WORDS: usize = 17;

/// A data file of one chunk, whose entries are the input, behind the head of a sound file; and the
/// extent as a manifest is to name it.
pub(super) fn hashlog_chunk(
    input: &mut Input<'_>,
    file_head: &[u8],
    database_id: [u8; 16],
    table_id: u64,
) -> (Vec<u8>, [u64; EXTENT_WORDS]) {
    const CHUNK: usize = 16 << 10;
    let mut head = vec![0; EXTENT_HEAD];
    head[..8].copy_from_slice(b"QHLCHUNK");
    set_u32(&mut head, 8, 1);
    head[16..32].copy_from_slice(&database_id);
    set_u64(&mut head, 32, table_id);
    set_u64(&mut head, 40, 1);
    set_u64(&mut head, 48, 2);
    set_u64(&mut head, 104, to_u64(CHUNK));
    let (own_head, raw_head) = (input.own_head, input.raw_head);
    input.overlay_head(&mut head);
    let serial = u64::from_le_bytes(head[40..48].try_into().unwrap_or_default());
    let mut entries = input.rest[..input.rest.len().min(CHUNK - EXTENT_HEAD)].to_vec();
    let (mut at, mut count) = (0, 0);
    while let Some(bytes) = entry_bytes(&entries[at..]) {
        if at + bytes > entries.len() {
            break;
        }
        if !input.raw_body {
            let unit = to_u64((EXTENT_HEAD + at) / 8);
            let entry = &entries[at + 4..at + bytes];
            let crc = crc_of(&[&serial.to_le_bytes(), &unit.to_le_bytes(), entry]);
            set_u32(&mut entries, at, crc);
        }
        (at, count) = (at + bytes, count + 1);
    }
    entries.truncate(at);
    let end = (EXTENT_HEAD + at) / 8;
    if !own_head {
        set_u32(&mut head, 60, u32::try_from(end).unwrap_or(0));
        set_u32(&mut head, 64, count);
    }
    let body_crc = crc32c(&entries);
    if !raw_head {
        set_u32(&mut head, 68, body_crc);
        set_u32(&mut head, 12, 0);
        let crc = crc32c(&head);
        set_u32(&mut head, 12, crc);
    }
    let mut file = file_head.to_vec();
    file.extend_from_slice(&head);
    file.extend_from_slice(&entries);
    file.resize(BLOCK + CHUNK, 0);
    let mut extent = extent_of(&head);
    extent[8] = to_u64(end);
    extent[9] = u64::from(count);
    extent[10] = u64::from(body_crc);
    (file, extent)
}

/// Bytes of the entry that `bytes` begin with, where its head can be one.
fn entry_bytes(bytes: &[u8]) -> Option<usize> {
    let wide = bytes.get(4)? & 4 != 0;
    let sizes = if wide {
        (u32_at(bytes.get(16..20)?, 0), u32_at(bytes.get(20..24)?, 0))
    } else {
        (
            usize::from(*bytes.get(5)?),
            usize::from(*bytes.get(6)?) | usize::from(*bytes.get(7)?) << 8,
        )
    };
    let head = if wide { 24 } else { 16 };
    Some(sizes.0.saturating_add(sizes.1).saturating_add(head).min(1 << 30).next_multiple_of(8))
}

/// A manifest's words of the extent with this head, in a place at the front of the first file.
fn extent_of(head: &[u8]) -> [u64; EXTENT_WORDS] {
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
    let half = |at: usize| to_u64(u32_at(head, at));
    let (serial, order, created) = (word(40), word(48), word(88));
    let place = [0, to_u64(BLOCK), 16 << 10];
    let [file, offset, bytes] = place;
    let (start, end) = (half(56), half(60));
    let (count, crc) = (half(64), half(68));
    let lsns = (word(72), word(80));
    [
        0, serial, order, created, file, offset, bytes, start, end, count, crc, lsns.0, lsns.1, 1,
        64, 0, 0,
    ]
}

/// Bytes of the first extent of a data file.
pub(super) fn hashlog_extent_bytes(data: &[u8]) -> usize {
    u32_at(data, BLOCK + 60) * 8
}

/// The first extent of a data file as a manifest names it; variant 0: as the hints in the input
/// would have it.
pub(super) fn hashlog_extent(data: &[u8], input: &Input<'_>) -> [u64; EXTENT_WORDS] {
    let mut extent = extent_of(&data[BLOCK..BLOCK + EXTENT_HEAD]);
    if input.variant == 0 {
        let mut decoder = quintet::testing::codec::Decoder::new(input.rest);
        let (mut unit, mut count) = (16_u64, 0);
        let common = decoder.varint().unwrap_or(0);
        while decoder.take(7).is_some() {
            let sizes = if common == 0 { decoder.varint() } else { Some(common) };
            let Some(sizes) = sizes else { break };
            if sizes & 3 == 2 && decoder.varint().is_none() {
                break;
            }
            let bytes = (sizes >> 3).saturating_add(16 + 8 * (sizes >> 2 & 1));
            unit = unit.saturating_add(bytes.div_ceil(8));
            count += 1;
        }
        (extent[8], extent[9]) = (unit, count);
    }
    extent
}

/// The hints of the first extent of a manifest that the code wrote.
pub(super) fn hashlog_first_hints(manifest: &[u8]) -> &[u8] {
    // The first publication is empty; in the second a begin of one word comes first.
    let mut at = 2 * SECTOR;
    let extent = at + FRAME + 8 + FRAME;
    assert_eq!(manifest[extent - 1], EXTENT, "an extent");
    while let Some(record) = FramedRecord::at(manifest, at) {
        at = record.end;
        if record.kind == COMMIT {
            break;
        }
    }
    let at = at.next_multiple_of(SECTOR);
    &manifest[at..at + u32_at(manifest, extent + (EXTENT_WORDS - 1) * 8)]
}

/// A manifest with one publication: an extent with its hints.
pub(super) fn hashlog_checkpoint(
    extent: &[u64; EXTENT_WORDS],
    hints: &[u8],
    manifest_head: &[u8],
) -> Vec<u8> {
    let record = |kind: u8, words: &[u64]| {
        let size = u32::try_from(words.len() * 8).unwrap_or(0);
        let mut out = [&size.to_le_bytes()[..], &[0; 4], &[kind]].concat();
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out
    };
    let mut extent = *extent;
    extent[EXTENT_WORDS - 1] = to_u64(hints.len());
    let commit = [0, 1000, 10, 10, 1, 0];
    let mut publication =
        [record(BEGIN, &[0]), record(EXTENT, &extent), record(COMMIT, &commit)].concat();
    publication.resize(publication.len().next_multiple_of(SECTOR), 0);
    publication.extend_from_slice(hints);
    let input =
        Input { raw_body: false, own_head: false, raw_head: false, variant: 0, rest: &publication };
    hashlog_manifest(input, manifest_head)
}

/// A manifest whose publications are the input. Variant 0: they are numbered as they come.
pub(super) fn hashlog_manifest(mut input: Input<'_>, manifest_head: &[u8]) -> Vec<u8> {
    let mut file = manifest_head.to_vec();
    input.overlay_head(&mut file[..48]);
    if !input.raw_head {
        set_u32(&mut file, 12, 0);
        let crc = crc32c(&file[..48]);
        set_u32(&mut file, 12, crc);
    }
    file.extend_from_slice(input.rest);
    if !input.raw_body {
        fix_publications(&mut file, input.variant == 0);
    }
    file
}

fn fix_publications(file: &mut Vec<u8>, number: bool) {
    let salt = crc32c(&file[16..48]);
    let (mut at, mut sequence, mut extents) = (SECTOR, 0_u64, Vec::new());
    while let Some(record) = FramedRecord::at(file, at) {
        let body = at + FRAME;
        if number && (record.kind == BEGIN || record.kind == COMMIT) && record.end - body >= 8 {
            set_u64(file, body, sequence);
        }
        record.sum(file, salt);
        at = record.end;
        if record.kind == EXTENT && record.end - body == EXTENT_WORDS * 8 {
            extents.push(record);
        } else if record.kind == COMMIT {
            at = at.next_multiple_of(SECTOR);
            file.resize(file.len().max(at), 0);
            let Some(end) = fix_hints(file, salt, &extents, at) else { break };
            at = end.next_multiple_of(SECTOR);
            file.resize(file.len().max(at), 0);
            (sequence, extents) = (sequence + 1, Vec::new());
        }
    }
}

/// Gives the records of a publication's extents the checksums of their hints, which begin at `at`;
/// where they end. `None` where the file ends before them: those are left as they are.
fn fix_hints(file: &mut [u8], salt: u32, extents: &[FramedRecord], mut at: usize) -> Option<usize> {
    for record in extents {
        let field = record.end - 16;
        let bytes = u64::from_le_bytes(file[field + 8..field + 16].try_into().ok()?);
        let end = at.checked_add(usize::try_from(bytes).ok()?)?;
        let crc = crc32c(file.get(at..end)?);
        set_u64(file, field, u64::from(crc));
        record.sum(file, salt);
        at = end;
    }
    Some(at)
}

/// Where a record of a manifest is: size, checksum and kind, then the body.
#[derive(Clone, Copy, Debug)]
struct FramedRecord {
    at: usize,
    end: usize,
    kind: u8,
}

impl FramedRecord {
    /// The record at `at`, if one that is not empty can be there.
    fn at(file: &[u8], at: usize) -> Option<Self> {
        let kind = *file.get(at + FRAME - 1)?;
        let size = u32_at(file, at);
        let end = (at + FRAME).checked_add(size)?;
        (size > 0 && end <= file.len()).then_some(Self { at, end, kind })
    }

    /// Gives it its checksum.
    fn sum(&self, file: &mut [u8], salt: u32) {
        let body = &file[self.at + FRAME..self.end];
        let lead = [&[self.kind][..], &to_u64(body.len()).to_le_bytes()].concat();
        let crc = crc32c_append(crc32c_append(salt, &lead), body);
        set_u32(file, self.at + 4, crc);
    }
}
