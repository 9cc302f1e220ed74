//! Tests of the journal: groups come back completely and in order after every crash.

use std::path::Path;

use super::{GroupWriter, Owner, Patch, RedoJournal, page_patches};
use crate::{
    Result,
    io::{
        BLOCK_BYTES, Env, Open, read_up_to,
        sim::{Call, Damage, Effect, Fault, Policy, PolicyLimits, SimEnv, When},
    },
    util::{
        codec::{Lsn, crc32c, low_u8, put_u32, put_u64, to_u64, to_usize},
        mutant::{Bug, finds},
        report::Report,
    },
};

const LIMIT: u64 = 64 << 10;

fn owner(env: &SimEnv) -> Owner {
    let dir = env.open_dir(Path::new("table"), true).unwrap();
    Owner { dir, database_id: [9; 16], table_id: 4 }
}

type Patches = Vec<(u8, u64, Vec<u8>)>;
type Shown = (u64, u64, Patches);

/// Opens the journal. Returns sequence, LSN and patches of each group.
fn open(env: &SimEnv) -> Result<(RedoJournal, Vec<Shown>)> {
    let mut groups = Vec::new();
    let redo = RedoJournal::open(owner(env), LIMIT, false, |group| {
        let patches = group
            .patches()
            .map(|patch| patch.map(|patch| (patch.space, patch.offset, patch.bytes.to_vec())))
            .collect::<Option<Patches>>();
        groups.push((group.sequence(), group.lsn().0, patches.unwrap()));
        Ok(())
    })?;
    Ok((redo, groups))
}

fn group(number: u64, patches: u64) -> (GroupWriter, Patches) {
    let mut writer = GroupWriter::default();
    let mut expected = Vec::new();
    for index in 0..patches {
        let bytes = vec![u8::try_from(number % 251).unwrap(); to_usize(8 + index % 5)];
        let offset = (index * 97) % 1000 * 64;
        writer.patch(Patch { space: 1, offset, bytes: &bytes });
        expected.push((1, offset, bytes));
    }
    (writer, expected)
}

#[test]
fn groups_come_back_in_order_with_their_patches() {
    let env = SimEnv::new(1);
    let (mut redo, groups) = open(&env).unwrap();
    assert!(groups.is_empty());
    let mut expected = Vec::new();
    for number in 1..=5 {
        let (writer, patches) = group(number, number * 3);
        assert_eq!(redo.commit(writer, Lsn(number * 100), false).unwrap(), number);
        expected.push((number, number * 100, patches));
    }
    let mut far = GroupWriter::default();
    far.patch(Patch { space: 255, offset: u64::MAX - 1, bytes: b"x" });
    far.patch(Patch { space: 0, offset: 0, bytes: b"" });
    redo.commit(far, Lsn(600), false).unwrap();
    expected.push((6, 600, vec![(255, u64::MAX - 1, b"x".to_vec()), (0, 0, Vec::new())]));
    let (_, groups) = open(&env).unwrap();
    assert_eq!(groups, expected);
}

#[test]
fn retired_groups_are_not_returned_and_their_files_are_removed() {
    let env = SimEnv::new(2);
    let (mut redo, _) = open(&env).unwrap();
    let mut number = 0;
    for _ in 0..40 {
        while !redo.is_full() {
            number += 1;
            redo.commit(group(number, 60).0, Lsn(number), false).unwrap();
        }
        number += 1;
        redo.commit(group(number, 2).0, Lsn(number), true).unwrap();
        let (_, groups) = open(&env).unwrap();
        assert_eq!(groups.iter().map(|group| group.0).collect::<Vec<_>>(), [number]);
        assert!(redo.file_bytes() <= 2 * LIMIT, "{}", redo.file_bytes());
    }
    assert!(redo.next_number > 10 && redo.files.len() <= 2);
}

#[test]
fn needed_groups_are_kept_beyond_the_limit() {
    let env = SimEnv::new(3);
    let (mut redo, _) = open(&env).unwrap();
    for number in 1..=60 {
        redo.commit(group(number, 60).0, Lsn(number), false).unwrap();
    }
    assert!(redo.live_bytes() > LIMIT);
    let (_, groups) = open(&env).unwrap();
    assert_eq!(groups.len(), 60);
}

/// Runs through two rounds of both files and, after every event, lets power fail in many ways:
/// what comes back is what was committed, or that and the group under way.
fn crash_everywhere() {
    let env = SimEnv::new(4);
    env.record_history();
    let (mut redo, _) = open(&env).unwrap();
    let mut committed = vec![(env.mark(), 0, 0)];
    for number in 1..=30 {
        let full = redo.is_full();
        redo.commit(group(number, 50).0, Lsn(number * 10), full).unwrap();
        let needed = if full { number } else { committed.last().unwrap().2.max(1) };
        committed.push((env.mark(), number, needed));
    }
    for event in env.history().iter().map(|event| event.number) {
        let Some(at) = committed.iter().rev().find(|(at, _, _)| *at <= event) else { continue };
        let limits = PolicyLimits { each: 4, random: 3, torn: 6, copying: 0 };
        for policy in env.policies(event, limits) {
            let image = env.image_at(event, policy);
            let (_, groups) =
                open(&image).unwrap_or_else(|error| panic!("{event} {policy}: {error}"));
            let last = groups.last().map_or(0, |group| group.0);
            assert!(last == at.1 || last == at.1 + 1, "{event} {policy}: {last} after {}", at.1);
            for (sequence, lsn, patches) in &groups {
                assert_eq!((*lsn, patches), (sequence * 10, &group(*sequence, 50).1), "{policy}");
            }
            let first = groups.first().map_or(0, |group| group.0);
            assert!(last == 0 || first <= at.2.max(1) || last == first, "{event} {policy}");
        }
    }
}

#[test]
fn a_crash_leaves_complete_groups() {
    crash_everywhere();
}

#[test]
fn no_group_follows_a_failed_group() {
    for effect in [Effect::Io, Effect::NoSpace] {
        for call in [Call::Create, Call::SyncDir, Call::Allocate, Call::Write, Call::Sync] {
            for number in 1..=4 {
                let env = SimEnv::new(8);
                let (mut redo, _) = open(&env).unwrap();
                env.inject(Fault::new(&[call], When::Nth(number), effect));
                let mut expected = Vec::new();
                for number in 1..=6 {
                    if let Ok(sequence) = redo.commit(group(number, 50).0, Lsn(number), false) {
                        expected.push((sequence, number));
                    }
                }
                assert!(expected.len() >= 5, "{call:?} {effect:?}");
                let (_, groups) = open(&env.crash(Policy::AllLost)).unwrap();
                let found: Vec<_> = groups.iter().map(|group| (group.0, group.1)).collect();
                assert_eq!(found, expected, "{call:?} {effect:?} {number}");
            }
        }
    }
}

#[test]
fn seeded_bugs_are_found() {
    finds(Bug::RedoSkipsSync, crash_everywhere);
    finds(Bug::RedoSkipsChecksum, crash_everywhere);
    finds(Bug::RedoSkipsSync, crash_with_page_groups);
    finds(Bug::RedoSealsEarly, crash_with_page_groups);
    finds(Bug::RedoRemovesNeeded, needed_groups_are_kept_beyond_the_limit);
}

#[test]
fn damage_before_the_end_fails_the_open_and_is_reported() {
    let env = SimEnv::new(5);
    let (mut redo, _) = open(&env).unwrap();
    for number in 1..=3 {
        redo.commit(group(number, 50).0, Lsn(number), false).unwrap();
    }
    let mut report = Report::default();
    redo.check(&mut report);
    assert!(report.is_sound() && report.checked_bytes > 0);
    env.damage("table/redo-00000001", &Damage::FlipBit { offset: 200, bit: 1 }).unwrap();
    assert!(open(&env).map(drop).unwrap_err().is_corruption());
    redo.check(&mut report);
    assert!(!report.is_sound());
}

#[test]
fn a_file_of_another_table_is_ignored() {
    let env = SimEnv::new(6);
    let (mut redo, _) = open(&env).unwrap();
    redo.commit(group(1, 5).0, Lsn(1), false).unwrap();
    let other = Owner { table_id: 5, ..owner(&env) };
    let redo =
        RedoJournal::open(other, LIMIT, false, |_| panic!("a group of another table")).unwrap();
    assert_eq!(redo.live_bytes(), 0);
}

#[test]
fn the_layout_is_pinned() {
    let env = SimEnv::new(7);
    let (mut redo, _) = open(&env).unwrap();
    let mut writer = GroupWriter::default();
    writer.patch(Patch { space: 2, offset: 64, bytes: b"abc" });
    writer.patch(Patch { space: 2, offset: 60, bytes: b"d" });
    redo.commit(writer, Lsn(4096), false).unwrap();
    let dir = env.open_dir(Path::new("table"), false).unwrap();
    let file = dir.open("redo-00000001", Open::READ).unwrap();
    let mut bytes = vec![0; 101];
    read_up_to(&*file, &mut bytes, 0).unwrap();
    assert_eq!(&bytes[..12], b"QREDOGRP\x01\0\0\0");
    assert_eq!(&bytes[16..32], &[9; 16]);
    assert_eq!(&bytes[32..88], {
        let mut words = Vec::new();
        for word in [4_u64, 1, 1, 4096, 11, 0] {
            put_u64(&mut words, word);
        }
        put_u32(&mut words, crc32c(&bytes[88..99]));
        put_u32(&mut words, 0);
        words
    });
    assert_eq!(&bytes[88..101], b"\x02\x80\x01\x03abc\x02\x0d\x01d\0\0");
}

type Keyed = Vec<(u64, Vec<u8>)>;
/// Sequence, LSN and page patches of each group.
type Groups = Vec<(u64, u64, Keyed)>;

/// Patches of a group by page. Every third group is larger than a buffer.
fn patches_of(number: u64) -> Keyed {
    let size = if number.is_multiple_of(3) { 700 } else { 90 };
    let page = |index: u64| vec![low_u8(number + index); to_usize(size * (index % 3))];
    (0..30).map(|index| (index * 7 % 100 + index * 100, page(index))).collect()
}

fn commit_page_group(
    env: &SimEnv,
    redo: &mut RedoJournal,
    number: u64,
    needed: u64,
) -> Result<u64> {
    let mut writer = redo.begin_page_group(env)?;
    for (key, page) in &patches_of(number) {
        writer.add_page(*key, page);
    }
    writer.commit(Lsn(number * 10), needed)
}

/// Opens the journal and reads the patches of all pages.
fn open_page_groups(env: &SimEnv) -> Result<(RedoJournal, Groups)> {
    let mut groups = Vec::new();
    let redo = RedoJournal::open(owner(env), LIMIT, false, |group| {
        let entries: Option<Vec<_>> = group.page_entries().collect();
        let (sequence, lsn) = (group.sequence(), group.lsn().0);
        let patches = group.into_patch_source();
        let read = |(key, at, bytes)| (key, patches.read(at, bytes).unwrap());
        groups.push((sequence, lsn, entries.unwrap().into_iter().map(read).collect()));
        Ok(())
    })?;
    Ok((redo, groups))
}

fn crash_with_page_groups() {
    let env = SimEnv::new(14);
    env.record_history();
    let (mut redo, _) = open_page_groups(&env).unwrap();
    let mut committed = vec![(env.mark(), 0)];
    for number in 1..=12 {
        let needed = number - number % 5;
        assert_eq!(commit_page_group(&env, &mut redo, number, needed).unwrap(), number);
        committed.push((env.mark(), number));
    }
    for event in env.history().iter().map(|event| event.number) {
        let Some(at) = committed.iter().rev().find(|(at, _)| *at <= event) else { continue };
        let limits = PolicyLimits { each: 4, random: 3, torn: 6, copying: 0 };
        for policy in env.policies(event, limits) {
            let image = env.image_at(event, policy);
            let (redo, groups) = open_page_groups(&image)
                .unwrap_or_else(|error| panic!("{event} {policy}: {error}"));
            let last = groups.last().map_or(0, |group| group.0);
            assert!(last == at.1 || last == at.1 + 1, "{event} {policy}: {last} after {}", at.1);
            for (sequence, lsn, patches) in &groups {
                assert_eq!((*lsn, patches), (sequence * 10, &patches_of(*sequence)), "{policy}");
            }
            let mut report = Report::default();
            redo.check(&mut report);
            assert!(report.is_sound(), "{event} {policy}: {report:?}");
        }
    }
}

#[test]
fn a_crash_leaves_complete_page_groups() {
    crash_with_page_groups();
}

#[test]
fn no_group_follows_a_failed_page_group() {
    for call in [Call::Create, Call::SyncDir, Call::Allocate, Call::Write, Call::Sync] {
        for number in 1..=6 {
            let env = SimEnv::new(15);
            let (mut redo, _) = open_page_groups(&env).unwrap();
            env.inject(Fault::new(&[call], When::Nth(number), Effect::Io));
            let mut expected = Vec::new();
            for number in 1..=6 {
                expected.extend(commit_page_group(&env, &mut redo, number, 1));
            }
            env.clear_faults();
            // Dropped before its commit: its sequence is used up.
            let mut writer = redo.begin_page_group(&env).unwrap();
            writer.add_page(1, &vec![1; 20_000]);
            drop(writer);
            expected.extend(commit_page_group(&env, &mut redo, 7, 1));
            assert!(expected.len() >= 6, "{call:?}");
            let (_, groups) = open_page_groups(&env.crash(Policy::AllLost)).unwrap();
            let found: Vec<_> = groups.iter().map(|group| group.0).collect();
            assert_eq!(found, expected, "{call:?} {number}");
        }
    }
}

/// Bytes of the journal's files.
fn bytes_of_files(env: &SimEnv) -> u64 {
    let dir = env.open_dir(Path::new("table"), false).unwrap();
    let names = dir.list().unwrap().into_iter().map(|entry| entry.name);
    names.map(|name| dir.open(&name, Open::READ).unwrap().len().unwrap()).sum()
}

/// Groups that fail, in a file with groups before and in a new one, are taken back. After a sync
/// that was not made (`TryAgain`), a crash may leave the group.
fn revoke_groups() {
    let effects = [Effect::NoSpace, Effect::TryAgain];
    let calls = [Call::Create, Call::Allocate, Call::Write, Call::Sync];
    let faults = effects.iter().flat_map(|effect| calls.map(|call| (call, *effect)));
    for (call, effect) in faults {
        for (failures, number) in (1..=3).flat_map(|failures| [1, 2, 4].map(|nth| (failures, nth)))
        {
            let label = format!("{call:?} {effect:?} {failures} {number}");
            let env = SimEnv::new(18);
            let (mut redo, _) = open_page_groups(&env).unwrap();
            commit_page_group(&env, &mut redo, 3, 1).unwrap();
            let kept = redo.live_bytes();
            env.inject(Fault::new(&[call], When::From(number), effect));
            let mut attempts =
                (7..7 + failures).map(|size| commit_page_group(&env, &mut redo, size, 1));
            if attempts.any(|outcome| outcome.is_ok()) {
                continue;
            }
            env.clear_faults();
            redo.revoke_failed().unwrap();
            assert_eq!(bytes_of_files(&env), kept, "{label}");
            for seed in 0..20 {
                assert_eq!(sequences(&env.crash(Policy::Random { seed })), [1], "{label} {seed}");
            }
            let sequence = commit_page_group(&env, &mut redo, 9, 1).unwrap();
            assert_eq!(sequences(&env.crash(Policy::AllLost)), [1, sequence], "{label}");
        }
    }
}

/// Opens the journal and returns the sequences of its needed groups.
fn sequences(env: &SimEnv) -> Vec<u64> {
    open_page_groups(env).unwrap().1.iter().map(|group| group.0).collect()
}

#[test]
fn groups_that_were_taken_back_leave_nothing() {
    revoke_groups();
    finds(Bug::RedoRevokesUnsynced, revoke_groups);
    finds(Bug::RedoKeepsFailedSpace, revoke_groups);
}

#[test]
fn damage_of_sealed_groups_is_found_by_the_check_and_in_the_index_at_once() {
    let env = SimEnv::new(16);
    let (mut redo, _) = open_page_groups(&env).unwrap();
    for number in [3, 6] {
        commit_page_group(&env, &mut redo, number, 1).unwrap();
    }
    let flip = |offset| {
        env.damage("table/redo-00000001", &Damage::FlipBit { offset, bit: 1 }).unwrap();
    };
    flip(5000);
    assert_eq!(open_page_groups(&env).unwrap().1.len(), 2);
    let mut report = Report::default();
    redo.check(&mut report);
    assert!(!report.is_sound());
    flip(5000);
    let patches: usize = patches_of(3).iter().map(|(_, page)| page.len()).sum();
    flip(BLOCK_BYTES + to_u64(patches) + 3);
    assert!(open_page_groups(&env).map(drop).unwrap_err().is_corruption());
}

#[test]
fn the_layout_of_page_groups_is_pinned() {
    let env = SimEnv::new(17);
    let (mut redo, _) = open_page_groups(&env).unwrap();
    let mut writer = redo.begin_page_group(&env).unwrap();
    let (mut page, mut end) = (Vec::new(), 0);
    page_patches::append_patch(&mut page, &mut end, 64, b"abc");
    page_patches::append_patch(&mut page, &mut end, 60, b"d");
    writer.add_page(5, &[]);
    writer.add_page(300, &page);
    writer.commit(Lsn(4096), 1).unwrap();
    let dir = env.open_dir(Path::new("table"), false).unwrap();
    let file = dir.open("redo-00000001", Open::READ).unwrap();
    let mut bytes = vec![0; 4119];
    read_up_to(&*file, &mut bytes, 0).unwrap();
    assert_eq!(&bytes[..12], b"QREDOGRP\x02\0\0\0");
    let mut fields = Vec::new();
    for word in [4_u64, 1, 1, 4096, 18, 0] {
        put_u64(&mut fields, word);
    }
    put_u32(&mut fields, crc32c(&bytes[4096..4114]));
    put_u32(&mut fields, 9);
    assert_eq!(&bytes[32..88], fields);
    assert_eq!(&bytes[4096..4110], b"\x80\x01\x03abc\x0d\x01d\x05\0\xa7\x02\x09");
    let sum = crc32c(&[&1_u64.to_le_bytes()[..], b"\x05\0\xa7\x02\x09"].concat());
    assert_eq!(bytes[4110..4114], sum.to_le_bytes());
    let mut seen = Vec::new();
    page_patches::decode_patches(&page, |offset, bytes| seen.push((offset, bytes.to_vec())))
        .unwrap();
    assert_eq!(seen, [(64, b"abc".to_vec()), (60, b"d".to_vec())]);
}
