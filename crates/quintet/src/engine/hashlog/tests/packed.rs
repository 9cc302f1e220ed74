//! Tables with `compression`: the same behaviour, less space, one read a get, and damage found.

use super::*;
use crate::{
    io::sim::{Call, Damage},
    util::codec::KeyHash,
};

fn packing(seed: u64) -> Bench {
    Bench::new(seed).set("compression", "lz4")
}

/// Text that compresses as text does: words of a small vocabulary.
fn text(number: u64, bytes: usize) -> Vec<u8> {
    let words = ["ledger", "north", "harbour", "seven", "a", "of", "the", "quiet", "tin", "was"];
    let mut random = Random(number);
    let mut out = Vec::new();
    while out.len() < bytes {
        out.extend_from_slice(words[to_usize(random.below(10))].as_bytes());
        out.push(b' ');
    }
    out.truncate(bytes);
    out
}

fn fill(table: &HashLog, keys: u64) {
    for key in 1..=keys {
        put(table, key, format!("key{key:05}").as_bytes(), &text(key, 200));
    }
    table.checkpoint(Lsn(keys + 1)).unwrap();
}

#[test]
fn behaves_like_a_map_when_packed() {
    for seed in 0..6 {
        run_model(&packing(seed), seed, 6000, 300);
    }
}

#[test]
fn behaves_like_a_map_when_packed_and_cold() {
    for seed in 0..4 {
        run_model(&packing(seed).with_budget(200 << 10), seed, 6000, 2000);
    }
}

#[test]
fn only_known_compressions_are_taken() {
    let refused = Bench::new(1).set("compression", "brotli").try_open();
    let message = refused.unwrap_err().to_string();
    let expected = "does not accept \"brotli\"; it accepts one of: none, lz4";
    assert!(message.contains(expected), "{message}");
    Bench::new(1).set("compression", "none").open();
}

#[test]
fn text_takes_half_the_space_and_a_get_one_read() {
    let plain = Bench::new(1).with_budget(400 << 10);
    let packed = packing(1).with_budget(400 << 10);
    let bytes = [&plain, &packed].map(|bench| {
        let bench = Bench::new(1).on(bench.env.clone());
        bench.open().0.stats().file_bytes
    });
    assert_eq!(bytes, [0, 0]);
    // Chunks of several blocks.
    let (plain, packed) = (plain.set("chunk_bytes", "65536"), packed.set("chunk_bytes", "65536"));
    let (one, other) = (plain.open().0, packed.open().0);
    fill(&one, 6000);
    fill(&other, 6000);
    let (one, other) = (one.stats().file_bytes, other.stats().file_bytes);
    assert!(other * 5 < one * 3, "{other} of {one} bytes");
    let (table, _) = packed.open();
    let reads = packed.env.calls(&[Call::Read]);
    let mut keys = Vec::new();
    for key in 1..=6000_u64 {
        let name = format!("key{key:05}").into_bytes();
        assert_eq!(table.get(&name).unwrap().unwrap(), text(key, 200));
        keys.push(name);
    }
    assert_eq!(packed.env.calls(&[Call::Read]) - reads, 6000);
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut values = Vec::new();
    table.multi_get(&names, MultiGetSink::Append(&mut values)).unwrap();
    for (key, value) in (1..).zip(values) {
        assert_eq!(value.unwrap(), text(key, 200));
    }
    check(&table);
}

#[test]
fn large_values_are_packed_where_that_pays() {
    let bench = packing(2);
    let (table, _) = bench.open();
    put(&table, 1, b"text", &text(1, 300_000));
    let noise: Vec<u8> = {
        let mut random = Random(5);
        (0..100_000).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
    };
    put(&table, 2, b"noise", &noise);
    table.checkpoint(Lsn(3)).unwrap();
    let bytes = table.stats().file_bytes;
    assert!((100_000..290_000).contains(&bytes), "{bytes}");
    drop(table);
    let (table, _) = bench.open();
    assert_eq!(table.get(b"text").unwrap().unwrap(), text(1, 300_000));
    assert_eq!(table.get(b"noise").unwrap().unwrap(), noise);
    check(&table);
}

/// Flips single bytes all over the files of a packed table: gets, the check and loading into
/// memory give the right bytes or an error.
pub(super) fn flipped_bytes_of_packed_chunks_are_noticed() {
    let bench = packing(7);
    let (table, _) = bench.open();
    fill(&table, 300);
    put(&table, 400, b"large", &text(9, 20_000));
    table.checkpoint(Lsn(401)).unwrap();
    let before = contents(&table);
    drop(table);
    let (path, size) =
        bench.env.files().into_iter().find(|(path, _)| path.contains("/data-")).unwrap();
    let mut refused = 0;
    for at in (4096..size).step_by(37 * stride(7)) {
        let image = bench.env.kill();
        let bit = u8::try_from(at % 8).unwrap();
        image.damage(&path, &Damage::FlipBit { offset: at, bit }).unwrap();
        let damaged = bench.on(image);
        let (table, _) = damaged.open();
        let mut report = Report::default();
        table.check(&mut report).unwrap_or_else(|error| assert!(error.is_corruption()));
        for _ in 0..2 {
            for (key, value) in &before {
                match table.get(key) {
                    Ok(found) => assert_eq!(found.as_deref(), Some(value.as_slice()), "{at}"),
                    Err(error) => {
                        assert!(error.is_corruption(), "{at}: {error}");
                        refused += 1;
                    }
                }
            }
            // Chunks that gets met on the disk go to memory now.
            let _ = table.maintain(MaintenanceMode::Step);
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn every_damage_of_packed_chunks_is_noticed() {
    flipped_bytes_of_packed_chunks_are_noticed();
}

#[test]
fn damaged_directories_and_hints_are_made_anew_from_the_extents() {
    let bench = packing(3);
    let (table, _) = bench.open();
    fill(&table, 700);
    let before = contents(&table);
    drop(table);
    // Every extent's hints begin behind its record: a byte of each is damaged.
    let path = "table/manifest-00000001";
    let content = bench.env.contents(path).unwrap();
    let keys = (1..=700_u64).map(|key| format!("key{key:05}"));
    let mut damaged = 0;
    for key in keys.step_by(20) {
        let hash = KeyHash::new([1, 2]).hash(key.as_bytes()).to_le_bytes();
        // Hints have seven bytes of it.
        if let Some(at) = content.windows(7).position(|window| window == &hash[..7]) {
            let bit = u8::try_from(damaged % 8).unwrap();
            bench.env.damage(path, &Damage::FlipBit { offset: to_u64(at), bit }).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 20);
    let (table, _) = bench.open();
    assert_eq!(contents(&table), before);
    check(&table);
}
