//! SSTs: readable formats, and scans over blocks of whole and of short entries.

use std::sync::Arc;

use super::{
    Sst, SstKind, SstOwner, SstShape, SstWriter,
    block::{Packing, UNIT_BYTES, put_entry},
    decoded_block::DecodedBlockCache,
    footer::{FOOT_BYTES, HEAD_BYTES, store_crc},
    order_section::{self, EntryLocation},
    slot_block,
};
use crate::{
    Error,
    contract::{Context, test_bench},
    io::{BLOCK_BYTES, Flow, Open, Queues, read_exact_at, sim::SimEnv, write_all_at},
    lsm::{
        block_cache::CacheAdmission,
        cursor::merge::{Direction, ReadAheadSizes, ScanStart, SortedCursor, SstCursor},
    },
    util::codec::to_usize,
};

/// Keys, and how long their values are; tombstones have none.
pub(crate) type Row = (Vec<u8>, Option<usize>);

/// An SST of these rows.
pub(crate) fn write(context: &Context, rows: &[Row], packing: Packing) -> (SstOwner, Arc<Sst>) {
    let Context { database_id, table_id, .. } = *context;
    let dir = Arc::clone(&context.dir);
    let owner = SstOwner { kind: SstKind::PIECE, dir, database_id, table_id };
    let cache = Arc::new(DecodedBlockCache::new((0, 4096), context, u64::MAX).unwrap());
    let shape = SstShape { block_bytes: 4096, packing, write_bytes: 1 << 20, keys: true };
    let mut writer = SstWriter::create(&owner, 1, shape, (&cache, &flow())).unwrap();
    for (key, value) in rows {
        let value = value.map(|bytes| vec![9; bytes]);
        writer.add(key, value.as_deref(), CacheAdmission::IfFree).unwrap();
    }
    (owner, Arc::new(writer.finish([[]]).unwrap()))
}

pub(crate) fn flow() -> Flow {
    Queues::default().flow(&SimEnv::new(1)).unwrap()
}

fn context() -> Context {
    test_bench::context(&SimEnv::new(1), 64 << 20)
}

fn walked(sst: &Arc<Sst>, way: Direction) -> Vec<Row> {
    let start = ScanStart { way, ..ScanStart::up(None) };
    let mut cursor = SstCursor::new(Arc::clone(sst), start, ReadAheadSizes::bounded(20_000));
    cursor.load_first().unwrap();
    let mut rows = Vec::new();
    while let Some(key) = cursor.key() {
        rows.push((key.to_vec(), cursor.value().map(<[u8]>::len)));
        cursor.advance().unwrap();
    }
    rows
}

#[test]
fn walks_pass_over_whole_and_short_entries() {
    // By turns some hundred keys with much in common, and some with values that dwarf it.
    let row = |number: usize| {
        let large = number / 300 % 2 == 1;
        let key = format!("a long common head {number:06}").into_bytes();
        (key, (!number.is_multiple_of(11)).then_some(if large { 3000 } else { 40 }))
    };
    let rows: Vec<Row> = (0..1500).map(row).collect();
    let (owner, sst) = write(&context(), &rows, Packing::None);
    let mut shorter = 0;
    for number in 0..sst.blocks() {
        let span = sst.span(number..number + 1);
        let buffer = sst.read(span).unwrap();
        let open = sst.open_block(&buffer, span, (number, number)).unwrap();
        let is_short = open.in_place().is_none();
        shorter += u32::from(is_short);
        assert!(!is_short || open.entries().len() > span.bytes - to_usize(UNIT_BYTES));
    }
    assert!(shorter > 8 && shorter < sst.blocks() / 2, "{shorter} of {}", sst.blocks());
    let opened = Arc::new(Sst::open(&owner, 1, sst.file_bytes).unwrap());
    let backwards: Vec<Row> = rows.iter().rev().cloned().collect();
    for sst in [&sst, &opened] {
        assert!(walked(sst, Direction::Up) == rows && walked(sst, Direction::Down) == backwards);
    }
}

#[test]
fn the_footer_of_a_slotted_file_is_pinned() {
    let context = context();
    let Context { database_id, table_id, .. } = context;
    let dir = Arc::clone(&context.dir);
    let owner = SstOwner { kind: SstKind::SLOTTED, dir, database_id, table_id };
    let cache = Arc::new(DecodedBlockCache::new((0, 4096), &context, u64::MAX).unwrap());
    let packing = Packing::None;
    let shape = SstShape { block_bytes: 4096, packing, write_bytes: 1 << 20, keys: true };
    let mut writer = SstWriter::create(&owner, 1, shape, (&cache, &flow())).unwrap();
    let mut entries = Vec::new();
    put_entry(&mut entries, b"key", Some(b"value"));
    writer.count_entry(b"key", Some(5));
    writer.add_slot_block(&slot_block::encode(&[0], &entries), &entries).unwrap();
    let row = EntryLocation { piece: 0, block: 0, ordinal: 0 };
    let salt = writer.salt();
    writer.put_order(order_section::encode(std::iter::once(row), salt)).unwrap();
    let sst = writer.finish_slotted([b"index"], b"local").unwrap();
    let sst = Sst::open(&owner, 1, sst.file_bytes).unwrap();
    let mut rows = Vec::new();
    sst.order_chunks(0..9, &mut rows).unwrap();
    assert_eq!(rows, [row]);
    assert_eq!(sst.order_chunk(0, None).unwrap(), [row]);
    assert_eq!(sst.section(sst.footer.index).unwrap(), b"index");
    assert_eq!(sst.section(sst.footer.fences).unwrap(), b"local");
    let file = owner.dir.open(&SstKind::SLOTTED.name_of(1), Open::READ).unwrap();
    let mut foot = vec![0; 224];
    read_exact_at(&*file, &mut foot, sst.file_bytes - BLOCK_BYTES).unwrap();
    let word = |at: usize| u64::from_le_bytes(*foot[at..].first_chunk().unwrap());
    assert_eq!(foot[..12], *b"QTPHSLFT\x03\0\0\0");
    assert_eq!((word(48), word(56), word(64), word(72)), (1, 1, 0, 8));
    // The head, the block of 32 bytes, the array of 16, and index, offsets and local hash.
    let order = 4096 + 32;
    assert_eq!((word(80), word(88)), (order + 16, 5));
    assert_eq!((word(104), word(112)), (order + 21, 8));
    assert_eq!((word(128), word(136)), (order + 29, 5));
    assert_eq!((word(184), word(192)), (order, 16));
    assert_eq!(foot[208..], [0; 16]);
    let mut signed = foot[..216].to_vec();
    signed[12..16].fill(0);
    store_crc(&mut signed);
    assert_eq!(signed, foot[..216]);
}

/// Makes head and footer say that the SST is of this format.
fn set_format(owner: &SstOwner, sst: &Sst, format: u32) {
    let file = owner.dir.open(&SstKind::PIECE.name_of(1), Open::WRITE).unwrap();
    for (at, length) in [(0, HEAD_BYTES), (sst.file_bytes - BLOCK_BYTES, FOOT_BYTES)] {
        let mut bytes = vec![0; length];
        read_exact_at(&*file, &mut bytes, at).unwrap();
        bytes[8..12].copy_from_slice(&format.to_le_bytes());
        bytes[12..16].fill(0);
        store_crc(&mut bytes);
        write_all_at(&*file, &bytes, at).unwrap();
    }
}

#[test]
fn the_format_before_is_read_and_others_are_refused() {
    // Blocks of one entry are the same in both.
    let rows: Vec<Row> = (0..50_u8).map(|number| (vec![number], Some(3000))).collect();
    let (owner, sst) = write(&context(), &rows, Packing::None);
    let open = || Sst::open(&owner, 1, sst.file_bytes);
    for format in [2, 3] {
        set_format(&owner, &sst, format);
        let sst = Arc::new(open().unwrap());
        sst.check_head().unwrap();
        assert_eq!(walked(&sst, Direction::Up), rows);
    }
    set_format(&owner, &sst, 4);
    match open().unwrap_err() {
        Error::NewerFormat { file, found: 4, supported: 3 } => assert_eq!(file, sst.label),
        other => panic!("{other}"),
    }
    set_format(&owner, &sst, 1);
    assert!(matches!(open().unwrap_err(), Error::Corruption { .. }));
}
