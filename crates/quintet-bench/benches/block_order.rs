//! Order of entries in the blocks of a sorted file: by key, or by slot as in the `CompassDB` paper.
//! Measures gets and scans of one file.
//!
//! `cargo bench -p quintet-bench --bench block_order -- [--records 2000000] [--dir DIRECTORY]`
//!
//! | | by key | by slot |
//! |---|---|---|
//! | content of a slot | 11 bits of signature, the block's number | 11 bits of signature |
//! | position of an entry in its block | by a byte of each key's hash | by its slot |
//! | scan | continues in the block | reads an array of slots in key order, and one block for each |
//!
//! Both layouts use the same perfect hash, blocks of 4 KiB, and the same number of entries per
//! block. In memory, the blocks are one array. On the disk, each block is a direct read without a
//! cache. Scans return 50 entries from a random position on. Finding the position costs the same in
//! both layouts and is not measured.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]
#![expect(clippy::cast_precision_loss, reason = "figures are shown with a few digits")]

use std::{
    hint::black_box,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use quintet::testing::{
    codec::{low_u8, low_u32, to_u64, to_usize},
    disk::{AlignedBuffer, Env, File, Open, os::OsEnv, read_exact_at, write_all_at},
    perfect_hash::{BuildOptions, PerfectHash},
};

const BLOCK_BYTES: usize = 4096;
const KEY_BYTES: usize = 23;
const VALUE_BYTES: usize = 128;
const ENTRY_BYTES: usize = KEY_BYTES + VALUE_BYTES;
/// Entries of a block; each also has a byte of hash.
const BLOCK_ENTRIES: usize = BLOCK_BYTES / (ENTRY_BYTES + 1);
const SCAN_ENTRIES: usize = 50;

const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"user0000000000000000000";
    let mut rest = mix(number + 1) % 10_u64.pow(19);
    for digit in key[4..].iter_mut().rev() {
        *digit += low_u8(rest % 10);
        rest /= 10;
    }
    key
}

fn hash_of(key: &[u8]) -> u64 {
    key.chunks(8).fold(7, |hash, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        mix(hash ^ u64::from_le_bytes(word))
    })
}

fn signature(hash: u64) -> u32 {
    low_u32(hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 53)
}

/// Location of the blocks.
enum Blocks {
    Memory(Vec<u8>),
    Disk(Arc<dyn File>),
}

impl Blocks {
    fn with<T>(
        &self,
        block: usize,
        buffer: &mut AlignedBuffer,
        look: impl FnOnce(&[u8]) -> T,
    ) -> T {
        let start = block * BLOCK_BYTES;
        match self {
            Self::Memory(bytes) => look(&bytes[start..start + BLOCK_BYTES]),
            Self::Disk(file) => {
                read_exact_at(&**file, buffer.as_mut_slice(), to_u64(start)).unwrap();
                look(buffer.as_slice())
            }
        }
    }
}

/// A layout, in memory and on the disk.
struct Layout {
    blocks: Vec<Blocks>,
    /// By key: signature and block of each slot. By slot: the signature.
    slots: Slots,
}

enum Slots {
    ByKey(Vec<u32>),
    /// Slots in key order, for the layout by slot.
    BySlot(Vec<u16>, Vec<u32>),
}

fn blocks_of(
    entries: &[([u8; KEY_BYTES], u64)],
    env: &OsEnv,
    path: &Path,
    name: &str,
) -> Vec<Blocks> {
    let mut bytes = AlignedBuffer::zeroed(entries.len().div_ceil(BLOCK_ENTRIES) * BLOCK_BYTES);
    for (block, some) in entries.chunks(BLOCK_ENTRIES).enumerate() {
        let out = &mut bytes.as_mut_slice()[block * BLOCK_BYTES..][..BLOCK_BYTES];
        for (place, (key, number)) in some.iter().enumerate() {
            out[place] = low_u8(hash_of(key) >> 56);
            let entry = &mut out[BLOCK_ENTRIES + place * ENTRY_BYTES..][..ENTRY_BYTES];
            entry[..KEY_BYTES].copy_from_slice(key);
            entry[KEY_BYTES..].fill(low_u8(*number));
        }
    }
    let dir = env.open_dir(path, true).unwrap();
    let _ = dir.remove(name);
    let file = dir.open(name, Open::CREATE.direct()).unwrap();
    write_all_at(&*file, bytes.as_slice(), 0).unwrap();
    vec![Blocks::Memory(bytes.as_slice().to_vec()), Blocks::Disk(file)]
}

/// Runs a get. Returns the first byte of the value, and whether the key was found.
fn get(
    layout: &Layout,
    at: usize,
    hash: &PerfectHash,
    key: &[u8],
    buffer: &mut AlignedBuffer,
    out: &mut Vec<u8>,
) -> bool {
    let hashed = hash_of(key);
    let slot = hash.slot(hashed);
    let (block, place) = match &layout.slots {
        Slots::ByKey(slots) if slots[slot] >> 21 == signature(hashed) => {
            (to_usize(u64::from(slots[slot] & 0x1f_ffff)), None)
        }
        Slots::BySlot(slots, _) if u32::from(slots[slot]) == signature(hashed) => {
            (slot / BLOCK_ENTRIES, Some(slot % BLOCK_ENTRIES))
        }
        _ => return false,
    };
    layout.blocks[at].with(block, buffer, |bytes| {
        let mut is_here = |place: usize| {
            let entry = &bytes[BLOCK_ENTRIES + place * ENTRY_BYTES..][..ENTRY_BYTES];
            let is_same = &entry[..KEY_BYTES] == key;
            if is_same {
                out.clear();
                out.extend_from_slice(&entry[KEY_BYTES..]);
            }
            is_same
        };
        if let Some(place) = place {
            return is_here(place);
        }
        let print = low_u8(hashed >> 56);
        let prints = bytes[..BLOCK_ENTRIES].iter().enumerate();
        prints.filter(|(_, one)| **one == print).any(|(place, _)| is_here(place))
    })
}

/// Runs a scan from the entry of this rank on. Returns its bytes and the number of blocks it read.
fn scan(
    layout: &Layout,
    at: usize,
    rank: usize,
    buffer: &mut AlignedBuffer,
    out: &mut Vec<u8>,
) -> usize {
    out.clear();
    let end = rank + SCAN_ENTRIES;
    if let Slots::BySlot(_, order) = &layout.slots {
        for slot in &order[rank..end] {
            let slot = to_usize(u64::from(*slot));
            layout.blocks[at].with(slot / BLOCK_ENTRIES, buffer, |bytes| {
                let place = BLOCK_ENTRIES + slot % BLOCK_ENTRIES * ENTRY_BYTES;
                out.extend_from_slice(&bytes[place..place + ENTRY_BYTES]);
            });
        }
        return SCAN_ENTRIES;
    }
    let blocks = rank / BLOCK_ENTRIES..(end - 1) / BLOCK_ENTRIES + 1;
    for block in blocks.clone() {
        let first = rank.saturating_sub(block * BLOCK_ENTRIES);
        let last = (end - block * BLOCK_ENTRIES).min(BLOCK_ENTRIES);
        layout.blocks[at].with(block, buffer, |bytes| {
            let place = |entry: usize| BLOCK_ENTRIES + entry * ENTRY_BYTES;
            out.extend_from_slice(&bytes[place(first)..place(last)]);
        });
    }
    blocks.len()
}

/// Builds the hash and both layouts for this many records.
fn layouts(records: u64, path: &Path) -> (PerfectHash, [(&'static str, Layout); 2]) {
    let env = OsEnv::new();
    let mut entries: Vec<_> = (0..records).map(|number| (key_of(number), number)).collect();
    entries.sort_unstable();
    let hashes: Vec<u64> = entries.iter().map(|(key, _)| hash_of(key)).collect();
    let hash = PerfectHash::build(&hashes, 1, &BuildOptions::default()).unwrap();
    let slots: Vec<usize> = hashes.iter().map(|one| hash.slot(*one)).collect();
    let (mut by_key, mut by_slot) = (vec![0; entries.len()], vec![0; entries.len()]);
    let mut ordered = vec![([0; KEY_BYTES], 0); entries.len()];
    for (rank, (slot, one)) in slots.iter().zip(&hashes).enumerate() {
        by_key[*slot] = signature(*one) << 21 | low_u32(to_u64(rank / BLOCK_ENTRIES));
        by_slot[*slot] = u16::try_from(signature(*one)).unwrap();
        ordered[*slot] = entries[rank];
    }
    let order = slots.iter().map(|slot| low_u32(to_u64(*slot))).collect();
    let layouts = [
        (
            "by key",
            Layout { blocks: blocks_of(&entries, &env, path, "key"), slots: Slots::ByKey(by_key) },
        ),
        (
            "by slot",
            Layout {
                blocks: blocks_of(&ordered, &env, path, "slot"),
                slots: Slots::BySlot(by_slot, order),
            },
        ),
    ];
    (hash, layouts)
}

/// Returns microseconds per get and per scan of each run, and blocks per scan.
type Figures = ([[Vec<f64>; 2]; 2], [f64; 2]);

fn measure(
    layouts: &[(&str, Layout)],
    (at, hash): (usize, &PerfectHash),
    records: u64,
    (gets, scans): (u64, u64),
) -> Figures {
    let mut figures = [const { [Vec::new(), Vec::new()] }; 2];
    let mut blocks = [0.0; 2];
    for run in 0..3 {
        for (number, (_, layout)) in layouts.iter().enumerate() {
            let (mut buffer, mut out) = (AlignedBuffer::zeroed(BLOCK_BYTES), Vec::new());
            let start = Instant::now();
            for operation in 0..gets {
                let number = mix(operation ^ mix(run)) % records;
                assert!(get(layout, at, hash, &key_of(number), &mut buffer, &mut out));
                black_box(&out);
            }
            figures[number][0].push(start.elapsed().as_secs_f64() * 1e6 / gets as f64);
            let (start, mut looked_at) = (Instant::now(), 0);
            for operation in 0..scans {
                let rank = mix(operation ^ mix(run + 9)) % (records - to_u64(SCAN_ENTRIES));
                looked_at += scan(layout, at, to_usize(rank), &mut buffer, &mut out);
                black_box(&out);
            }
            figures[number][1].push(start.elapsed().as_secs_f64() * 1e6 / scans as f64);
            blocks[number] = looked_at as f64 / scans as f64;
        }
    }
    (figures, blocks)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let records: u64 = value("--records").map_or(2_000_000, |text| text.parse().unwrap());
    let path = value("--dir").map_or_else(std::env::temp_dir, PathBuf::from).join("block-order");
    let (hash, layouts) = layouts(records, &path);
    println!("{records} records; medians of three");
    println!("order    where   get us  scan us  blocks/scan");
    for (at, place, gets, scans) in [(0, "memory", 2_000_000, 100_000), (1, "disk", 20_000, 1_000)]
    {
        let (mut figures, blocks) = measure(&layouts, (at, &hash), records, (gets, scans));
        for ((name, _), (figures, blocks)) in layouts.iter().zip(figures.iter_mut().zip(blocks)) {
            for some in &mut *figures {
                some.sort_by(f64::total_cmp);
            }
            println!(
                "{name:8} {place:6} {:7.3} {:8.2} {blocks:12.1}",
                figures[0][1], figures[1][1]
            );
        }
    }
    let _ = std::fs::remove_dir_all(&path);
}
