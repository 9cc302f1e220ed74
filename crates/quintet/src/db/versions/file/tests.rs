//! Files of versions: their layout, and lookups against a list of all versions.

use std::{path::Path, sync::Arc};

use super::{
    VersionDirectory, VersionFile,
    block::{self, VersionEntry},
    filter::VersionFilter,
};
use crate::{
    Error, Result,
    contract::Value,
    db::versions::version_key::{VersionKey, hash_of_half},
    io::{
        Dir, Env as _,
        sim::{Damage, SimEnv},
    },
    util::{
        budget::Budget,
        codec::Lsn,
        mutant::{Bug, finds},
    },
};

type Version = (Vec<u8>, u32, u64, Option<Vec<u8>>);

#[test]
fn the_layout_of_a_block_is_pinned() {
    let mut bytes = b"before".to_vec();
    let start = bytes.len();
    block::begin(&mut bytes);
    let half = 0x0403_0201;
    VersionEntry { key: b"key", half, lsn: Lsn(300), value: Some(b"ab") }.encode(&mut bytes);
    VersionEntry { key: b"key", half, lsn: Lsn(301), value: None }.encode(&mut bytes);
    block::finish(&mut bytes, start);
    let golden = b"\x03key\x01\x02\x03\x04\xac\x02\x03ab\x03key\x01\x02\x03\x04\xad\x02\x00";
    let found = &bytes[start..];
    assert_eq!(found[4..8], 24_u32.to_le_bytes());
    assert_eq!(found[8..], *golden);
    assert_eq!(found[..4], crate::util::codec::crc32c(&found[4..]).to_le_bytes());
    assert!(block::is_sound(found));
    assert!(!block::is_sound(&found[..found.len() - 1]) && !block::is_sound(&[]));
}

#[test]
fn the_filter_passes_few_absent_keys() {
    let mixed = |number: u32| number.wrapping_mul(0x9e37_79b9);
    let mut filter = VersionFilter::new(10_000);
    (0..10_000).for_each(|number| filter.add(mixed(number)));
    assert!((0..10_000).all(|number| filter.may_have(mixed(number))));
    let passed = (10_000..110_000).filter(|number| filter.may_have(mixed(*number))).count();
    assert!(passed < 3000, "{passed} of 100000");
    assert_eq!(filter.memory_bytes(), (10_000 * 10_u64).div_ceil(512) * 64);
}

/// A database directory, and the directory of versions in it.
fn directory(env: &SimEnv) -> (Arc<dyn Dir>, VersionDirectory) {
    let database = env.open_dir(Path::new("db"), true).unwrap();
    let budget = Arc::new(Budget::new(8 << 20));
    let directory = VersionDirectory::new(&database, &budget, 7);
    (database, directory)
}

/// Versions of 600 keys. Every 50th key has 40 versions with long values, so it has many blocks.
fn versions() -> Vec<Version> {
    let mut all = Vec::new();
    for number in 0..600_u32 {
        let key = format!("k{:05}", number * 2).into_bytes();
        let count = if number % 50 == 49 { 40 } else { 1 + u64::from(number % 3) };
        for version in 0..count {
            let value = vec![b'v'; if count == 40 { 300 } else { 5 }];
            let value = (number % 7 != 3).then_some(value);
            let half = number.wrapping_mul(0x9e37_79b9);
            all.push((key.clone(), half, u64::from(number) + version * 10 + 1, value));
        }
    }
    all
}

fn write(directory: &VersionDirectory, all: &[Version]) -> Result<VersionFile> {
    let mut writer = directory.create(all.len().try_into().unwrap())?;
    for (key, half, lsn, value) in all {
        writer.add((key, *half), Lsn(*lsn), value.as_deref())?;
    }
    Ok(writer.finish()?.unwrap())
}

fn lookups_agree_with_a_list() {
    let (_database, directory) = directory(&SimEnv::new(1));
    let all = versions();
    let file = write(&directory, &all).unwrap();
    assert!(file.reaches(Lsn(800)) && !file.reaches(Lsn(5000)));
    assert_eq!(file.versions(), u64::try_from(all.len()).unwrap());
    for number in 0..1200_u32 {
        let bytes = format!("k{number:05}").into_bytes();
        let half = (number / 2).wrapping_mul(0x9e37_79b9);
        let key = VersionKey { bytes: bytes.clone(), hash: hash_of_half(half) };
        for lsn in [0, 1, u64::from(number / 2) + 5, u64::from(number / 2) + 200, 5000] {
            let mut of_key = all.iter().filter(|(other, ..)| *other == bytes);
            let expected = of_key.find(|(_, _, other, _)| *other >= lsn);
            let found = file.oldest_since(&key, Lsn(lsn)).unwrap();
            let found = found.map(|(lsn, value)| (lsn.0, value.map(|value| value.to_vec())));
            assert_eq!(found, expected.map(|(_, _, lsn, value)| (*lsn, value.clone())));
            assert_eq!(file.has_since(&key, Lsn(lsn)).unwrap(), expected.is_some());
        }
        let mut nearest = Vec::new();
        let expected = all.iter().map(|(key, ..)| key).find(|key| **key >= bytes);
        let has_first = file.first_key(&bytes, &mut nearest).unwrap();
        assert_eq!(has_first.then_some(&nearest), expected);
        let expected = all.iter().map(|(key, ..)| key).rfind(|key| **key < bytes);
        let mut nearest = Vec::new();
        let has_last = file.last_key(&bytes, &mut nearest).unwrap();
        assert_eq!(has_last.then_some(&nearest), expected);
    }
    let mut cursor = file.cursor().unwrap();
    let mut read: Vec<Version> = Vec::new();
    while let Some(key) = cursor.key().map(<[u8]>::to_vec) {
        let mut versions: Vec<(Lsn, Option<Value>)> = Vec::new();
        let half = cursor.take(Lsn(0), &mut versions).unwrap();
        let value = |value: Option<Value>| value.map(|value| value.to_vec());
        read.extend(versions.into_iter().map(|(lsn, v)| (key.clone(), half, lsn.0, value(v))));
    }
    assert_eq!(read, all);
}

#[test]
fn lookups_in_a_file_agree_with_a_list() {
    lookups_agree_with_a_list();
    finds(Bug::VersionFilterMissesKeys, lookups_agree_with_a_list);
    finds(Bug::VersionFenceSkipsBlock, lookups_agree_with_a_list);
}

fn damage_is_an_error() {
    let env = SimEnv::new(2);
    let (_database, directory) = directory(&env);
    let all = versions();
    let file = write(&directory, &all).unwrap();
    let (path, bytes) =
        env.files().into_iter().find(|(path, _)| path.contains("versions")).unwrap();
    // In values and in keys of several blocks.
    for part in 1..9 {
        env.damage(&path, &Damage::FlipBit { offset: bytes * part / 9, bit: 3 }).unwrap();
    }
    let key = |number: usize| {
        let (bytes, half, ..) = &all[number];
        VersionKey { bytes: bytes.clone(), hash: hash_of_half(*half) }
    };
    let outcomes: Vec<_> = (0..all.len()).map(|at| file.oldest_since(&key(at), Lsn(0))).collect();
    assert!(outcomes.iter().any(|found| matches!(found, Err(Error::Corruption { .. }))));
    for ((bytes, ..), found) in all.iter().zip(outcomes) {
        let first = all.iter().find(|(other, ..)| other == bytes).unwrap();
        if let Ok(found) = found {
            assert_eq!(found.unwrap().1.map(|value| value.to_vec()), first.3);
        }
    }
}

#[test]
fn a_damaged_block_is_an_error() {
    damage_is_an_error();
    finds(Bug::VersionBlockNotVerified, damage_is_an_error);
}

#[test]
fn a_file_is_removed_when_it_is_dropped() {
    let env = SimEnv::new(3);
    let (database, directory) = directory(&env);
    let count = || env.files().len();
    let file = write(&directory, &versions()).unwrap();
    let other = directory.create(1).unwrap();
    assert_eq!(count(), 2);
    drop(other);
    assert_eq!(count(), 1, "a file that was given up");
    assert!(directory.create(1).unwrap().finish().unwrap().is_none(), "it has no versions");
    drop(file);
    assert_eq!(count(), 0);
    directory.remove();
    assert_eq!(database.list().unwrap(), []);
}
