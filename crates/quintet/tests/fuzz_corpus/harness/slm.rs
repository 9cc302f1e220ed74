//! The slm engine: footers, sections and blocks of a run that may hold anything.

use std::{path::Path, sync::Arc, sync::OnceLock};

use quintet::{
    Result,
    testing::{
        budget::Budget,
        codec::{KeyHash, Lsn, crc32c},
        disk::{
            Env,
            sim::{Damage, SimEnv},
        },
        engine::{Context, Engine, EngineKind, Op, TableOptions, slm::Slm},
    },
};

use super::{
    explains_itself,
    tph::{DATABASE_ID, Silent, overlay, sign, use_table},
};

const RUN: &str = "/table/00000002.run";
const BLOCK_BYTES: usize = 4096;
const FOOT_BYTES: usize = 192;
/// Where the footer names the sections that a run has: its bounds, and the offsets of blocks.
const SECTIONS: [usize; 2] = [80, 104];

fn open(env: &SimEnv) -> Result<(Slm, Lsn)> {
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
    let options = TableOptions::new(EngineKind::Slm)
        .set("memtable_bytes", "65536")
        .set("run_bytes", "65536")
        .set("page_bytes", "4096")
        .set("block_bytes", "512");
    Slm::open(&options, context)
}

/// A closed table of two runs.
fn base() -> &'static SimEnv {
    static BASE: OnceLock<SimEnv> = OnceLock::new();
    BASE.get_or_init(|| {
        let env = SimEnv::new(1);
        let (table, _) = open(&env).expect("a new table");
        for number in 0..80_u64 {
            let (key, body) = (format!("key-{number}"), vec![7; 200]);
            let put = Op::Put { key: key.as_bytes(), head: b"", body: &body };
            table.admit(&put).expect("room");
            table.apply(Lsn(number), &put).expect("room");
            if number == 50 || number == 79 {
                table.persist(Lsn(number)).expect("room");
            }
        }
        drop(table);
        env
    })
}

/// A run with the input laid over its blocks, one of its sections or its footer, as the first byte
/// says, and the checksums of sections and footer made right.
pub(super) fn run(input: &[u8]) {
    let Some((kind, input)) = input.split_first() else { return };
    let mut bytes = base().contents(RUN).expect("a file of the base");
    let foot = bytes.len() - BLOCK_BYTES;
    let word = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(*bytes[foot + at..].first_chunk().expect("a footer")))
            .expect("a small file")
    };
    match kind % 4 {
        0 => overlay(&mut bytes[..foot], input),
        1 => overlay(&mut bytes[foot + 48..foot + FOOT_BYTES], input),
        section => {
            let at = SECTIONS[usize::from(section - 2)];
            let (offset, size) = (word(&bytes, at), word(&bytes, at + 8));
            assert_ne!(size, 0, "a section of the base is empty");
            overlay(&mut bytes[offset..offset + size], input);
            let crc = u64::from(crc32c(&bytes[offset..offset + size])).to_le_bytes();
            bytes[foot + at + 16..foot + at + 24].copy_from_slice(&crc);
        }
    }
    sign(&mut bytes[foot..foot + FOOT_BYTES]);
    let env = base().kill();
    env.damage(RUN, &Damage::Replace(bytes)).expect("a file of the base");
    match open(&env) {
        Ok((table, _)) => use_table(&table),
        Err(error) => explains_itself(&error),
    }
}

pub(super) fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let run = |kind: u8, place: u16, bytes: &[u8]| {
        let mut out = vec![kind];
        out.extend(place.to_le_bytes());
        out.push(u8::try_from(bytes.len()).expect("a short input"));
        out.extend_from_slice(bytes);
        out
    };
    vec![
        ("slm_run", "untouched", vec![0]),
        ("slm_run", "blocks", run(0, 80, &[1, 2, 3])),
        ("slm_run", "counts", run(1, 0, &[255; 8])),
        ("slm_run", "section_beyond_the_end", run(1, 32, &[0, 0, 255])),
        ("slm_run", "bounds", run(2, 0, &[200, 1, 255])),
        ("slm_run", "bounds_swapped", run(2, 1, b"z")),
        ("slm_run", "offsets", run(3, 4, &[255, 255])),
    ]
}
