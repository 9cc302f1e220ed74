//! The pool of a table of `slm`: words of arbitrary values, and links to any place.

use std::sync::OnceLock;

use quintet::{
    Result,
    testing::{
        codec::{Decoder, Lsn},
        disk::sim::SimEnv,
        engine::{
            Context, Engine, EngineKind, MaintenanceMode, MemoryWait, Op, TableOptions, slm::Slm,
        },
    },
};

use super::{
    desk::{self, damaged},
    explains_itself,
    ssts::{fill, use_table},
};

const DATABASE_ID: [u8; 16] = *b"fuzz-slm-pool...";
const POOL: &str = "/table/pool";
/// First byte of an input that is the file itself, behind the head.
const WHOLE: u8 = 255;
/// Bytes of the head, which names the table.
const HEAD_BYTES: usize = 64;
/// The number of the first root word.
const ROOTS: u32 = 16;

fn open(env: &SimEnv, complete: Lsn) -> Result<(Slm, Lsn)> {
    let context = Context { complete, ..desk::context(env, DATABASE_ID) };
    let options = TableOptions::new(EngineKind::Slm)
        .set("medium", "pmem")
        .set("pmem_bytes", "2097152")
        .set("memtable_bytes", "65536")
        .set("run_bytes", "65536")
        .set("block_bytes", "512");
    Slm::open(&options, context)
}

/// A killed table with runs, an index and a memtable, complete to its end.
fn base() -> &'static (SimEnv, Lsn) {
    static BASE: OnceLock<(SimEnv, Lsn)> = OnceLock::new();
    BASE.get_or_init(|| {
        let env = SimEnv::new(1);
        let (table, _) = open(&env, Lsn(0)).expect("a new table");
        fill(&table, true);
        table.maintain(MaintenanceMode::Full).expect("room");
        for number in 80..100_u64 {
            let key = format!("key-{}", number % 90);
            let op = Op::Put { key: key.as_bytes(), head: b"", body: &[8; 20] };
            table.admit(&op, &MemoryWait::default()).expect("room");
            table.apply(Lsn(number), &op).expect("room");
        }
        table.checkpoint(Lsn(100)).expect("room");
        let killed = env.kill();
        drop(table);
        (killed, Lsn(100))
    })
}

/// As the library makes links: the offset, and 16 bits of its checksum.
fn link(offset: u64) -> u64 {
    offset | (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) << 48
}

/// The number of a word of the pool.
fn place(decoder: &mut Decoder<'_>, words: usize) -> Option<usize> {
    let bytes = decoder.take(3)?;
    let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte));
    Some(number % words)
}

/// Changes words of the pool: a place (3 bytes), a kind, and a word, a link's target, or the place
/// of another word.
fn change(bytes: &mut [u8], input: &[u8]) {
    let (words, _) = bytes.as_chunks_mut::<8>();
    let mut decoder = Decoder::new(input);
    while let Some((at, kind)) = place(&mut decoder, words.len()).zip(decoder.u8()) {
        let word = match kind % 4 {
            0 => decoder.u64(),
            1 => place(&mut decoder, words.len())
                .map(|to| link(u64::try_from(to * 8).expect("64 bits"))),
            2 => place(&mut decoder, words.len()).map(|from| u64::from_le_bytes(words[from])),
            _ => decoder.u8().map(|by| u64::from_le_bytes(words[at]).wrapping_add(by.into())),
        };
        let Some(word) = word else { return };
        // The head is verified as a whole; with another one nothing else would be read.
        if at >= HEAD_BYTES / 8 {
            words[at] = word.to_le_bytes();
        }
    }
}

/// A pool, changed by the input, and a table over it.
pub(super) fn pool(input: &[u8]) {
    let (env, complete) = base();
    let mut bytes = env.contents(POOL).expect("a file of the base");
    match input.split_first() {
        Some((&WHOLE, rest)) => {
            bytes.iter_mut().skip(HEAD_BYTES).zip(rest).for_each(|(to, from)| *to = *from);
        }
        _ => change(&mut bytes, input),
    }
    match open(&damaged(env, POOL, bytes), *complete) {
        Ok((table, _)) => {
            use_table(&table);
            // Statistics and the sweep read the pool too.
            let _ = table.stats();
        }
        Err(error) => explains_itself(&error),
    }
}

pub(super) fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let at =
        |place: u32, kind: u8, rest: &[u8]| [&place.to_le_bytes()[..3], &[kind], rest].concat();
    let target = |place: u32| place.to_le_bytes()[..3].to_vec();
    let mut samples = vec![
        ("slm_pool", "untouched", vec![0]),
        ("slm_pool", "whole", [&[WHOLE][..], &[1; 200]].concat()),
        ("slm_pool", "state", at(ROOTS, 3, &[1])),
        ("slm_pool", "complete", at(ROOTS + 1, 0, &[255; 8])),
        ("slm_pool", "run_of_no_slabs", at(70, 0, &[0, 0, 0, 0, 0, 0, 0, 128])),
        ("slm_pool", "class", at(67, 0, &[41, 0, 0, 0, 0, 0, 0, 0])),
    ];
    // Found by libFuzzer: a node of a memtable that the first range reads.
    let node = [52, 0, 0, 1, 0, 20, 0, 1, 32, 1, 0, 0, 2, 255, 255, 255, 255, 255, 0, 3, 32, 1];
    samples.push(("slm_pool", "memtable_node", node.to_vec()));
    // Every root, linked to the pool's head and to where slabs begin.
    let names = ["tree", "runs", "updates", "memtables"];
    for (root, name) in (ROOTS + 2..).zip(names) {
        samples.push(("slm_pool", name, at(root, 1, &target(8192))));
    }
    let both = [at(ROOTS + 2, 1, &target(64)), at(64, 0, &[0x4e, 0x46, 255, 0, 0, 0, 0, 0])];
    samples.push(("slm_pool", "tree_in_the_directory", both.concat()));
    samples
}
