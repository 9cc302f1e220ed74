//! What hashes, sets and sorted sets have in common: named members that are counted, removed,
//! scanned and drawn at random.

use std::{
    collections::BTreeSet,
    ops::{Bound, ControlFlow},
};

use super::{
    call::Call,
    scan::{COMPARED_BYTES, EXPIRED_CURSOR, SCANNED_BYTES, parse_cursor, parse_options},
};
use crate::{
    failure::{Done, Fail},
    glob,
    resp::Reply,
    store::{Collection, Kind, NameRange, event},
};

/// Prefix of the members of a sorted set, whose other elements order them by score.
pub(super) const MEMBER: u8 = b'm';
/// Prefix of the elements of a sorted set that order members by score.
pub(super) const SCORE: u8 = b's';

/// The element of a member.
pub(super) fn element_of(kind: Kind, member: &[u8]) -> Vec<u8> {
    if kind == Kind::SortedSet { [&[MEMBER], member].concat() } else { member.to_vec() }
}

/// The elements that are members.
pub(super) fn member_range(kind: Kind) -> NameRange<'static> {
    if kind == Kind::SortedSet {
        (Bound::Included(&[MEMBER]), Bound::Excluded(&[MEMBER + 1]))
    } else {
        crate::store::ALL
    }
}

/// The member of an element.
pub(super) fn member_of(kind: Kind, element: &[u8]) -> &[u8] {
    if kind == Kind::SortedSet { element.get(1..).unwrap_or(&[]) } else { element }
}

/// Whether a collection has a member.
pub(super) fn contains(
    call: &mut Call<'_, '_>,
    key: &[u8],
    kind: Kind,
    member: &[u8],
) -> Done<bool> {
    match call.open(key, kind)? {
        Some(collection) => collection.contains(&element_of(kind, member)),
        None => Ok(false),
    }
}

/// Replies the number of members.
pub(super) fn reply_count(call: &mut Call<'_, '_>, kind: Kind) -> Done {
    let count = call.open(call.key(), kind)?.map_or(0, |collection| collection.count());
    call.reply.count(count);
    Ok(())
}

/// Removes the members from argument 2 of a hash or a set. Returns their number.
pub(super) fn remove(call: &mut Call<'_, '_>, kind: Kind) -> Done<usize> {
    let (args, key) = (call.args, call.key());
    let Some(mut collection) = call.open(key, kind)? else { return Ok(0) };
    let mut removed = 0;
    for member in args.from(2) {
        if collection.contains(member)? {
            collection.set_field_expiry(member, None)?;
            collection.remove(member);
            removed += 1;
        }
    }
    if removed > 0 {
        collection.set_count(collection.count() - removed);
        match kind {
            Kind::Hash => call.notify(event::HASH, "hdel", key),
            _ => call.notify(event::SET, "srem", key),
        }
    }
    Ok(removed)
}

/// The reply for a random member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The member.
    Name,
    /// The member and its value.
    Pair,
    /// The member and its score.
    Scored,
}

/// Most members that a command draws at random.
const DRAWS_MAX: i64 = 1 << 20;

/// Replies one random member, or as many as argument 2 says.
pub(super) fn reply_random(call: &mut Call<'_, '_>, kind: Kind, form: Form) -> Done {
    let key = call.key();
    if call.args.len() == 2 {
        let chosen = call.server.random();
        let found = match call.open(key, kind)? {
            Some(collection) => {
                let count = collection.count();
                let at = usize::try_from(chosen).unwrap_or(0) % count.max(1);
                pick(&collection, kind, &BTreeSet::from([at]))?.pop()
            }
            None => None,
        };
        call.reply.optional(found.as_ref().map(|(name, _)| name.as_slice()));
        return Ok(());
    }
    let wanted = call.integer(2)?;
    if wanted < -DRAWS_MAX {
        return Err(Fail::with(format!("ERR value is out of range: the least is -{DRAWS_MAX}")));
    }
    let numbers: Vec<u64> =
        (0..wanted.min(DRAWS_MAX).unsigned_abs()).map(|_| call.server.random()).collect();
    let mut found = Vec::new();
    if let Some(collection) = call.open(key, kind)? {
        let count = collection.count();
        if wanted >= 0 {
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).min(count);
            found = pick(&collection, kind, &choose(count, wanted, &numbers))?;
        } else {
            let at = |number: &u64| usize::try_from(*number).unwrap_or(0) % count.max(1);
            let places: Vec<usize> = numbers.iter().map(at).collect();
            let distinct: BTreeSet<usize> = places.iter().copied().collect();
            let members = pick(&collection, kind, &distinct)?;
            let order: Vec<usize> = distinct.into_iter().collect();
            for place in places {
                let index = order.binary_search(&place).unwrap_or(0);
                let Some((name, value)) = members.get(index) else { continue };
                if collection.hold(name.len() + value.len()).is_break() {
                    break;
                }
                found.push((name.clone(), value.clone()));
            }
        }
    }
    reply_members(call.reply, &found, form);
    Ok(())
}

/// Chooses distinct places. Without enough random numbers it takes the first ones too.
fn choose(count: usize, wanted: usize, numbers: &[u64]) -> BTreeSet<usize> {
    let mut chosen = BTreeSet::new();
    // Floyd's algorithm: each subset is equally likely, and each step adds one place.
    for (step, last) in (count - wanted..count).enumerate() {
        let number = numbers.get(step).copied().unwrap_or(0);
        let at = usize::try_from(number).unwrap_or(0) % (last + 1);
        if !chosen.insert(at) {
            chosen.insert(last);
        }
    }
    chosen
}

/// The members at places in the order of names, with their values.
pub(super) fn pick(
    collection: &Collection<'_>,
    kind: Kind,
    places: &BTreeSet<usize>,
) -> Done<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    let Some(last) = places.last() else { return Ok(found) };
    let mut at = 0;
    collection.visit(member_range(kind), false, |name, value| {
        if places.contains(&at) {
            found.push((member_of(kind, name).to_vec(), value.to_vec()));
            collection.hold(name.len() + value.len())?;
        }
        at += 1;
        if at > *last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// The members of a set at `count` places from `start`.
pub(super) fn pick_run(
    set: &Collection<'_>,
    (start, count): (usize, usize),
) -> Done<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut found, mut at) = (Vec::new(), 0);
    if count == 0 {
        return Ok(found);
    }
    set.visit(member_range(Kind::Set), false, |name, value| {
        if at >= start {
            found.push((name.to_vec(), value.to_vec()));
            set.hold(name.len() + value.len())?;
        }
        at += 1;
        if found.len() >= count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

fn reply_members(reply: &mut Reply, members: &[(Vec<u8>, Vec<u8>)], form: Form) {
    let is_nested = form != Form::Name && reply.is_resp3();
    let each = if form == Form::Name || is_nested { 1 } else { 2 };
    reply.array(members.len() * each);
    for (name, value) in members {
        if is_nested {
            reply.array(2);
        }
        reply.bulk(name);
        match form {
            Form::Name => {}
            Form::Pair => reply.bulk(value),
            Form::Scored => reply.double(score_of(value)),
        }
    }
}

/// The score that is stored with a member.
pub(super) fn score_of(value: &[u8]) -> f64 {
    value.first_chunk().map_or(0.0, |bits| f64::from_bits(u64::from_le_bytes(*bits)))
}

/// Runs `HSCAN`, `SSCAN` or `ZSCAN`. `write` writes a member and returns the number of replies.
pub(super) fn scan(
    call: &mut Call<'_, '_>,
    kind: Kind,
    write: fn(&mut Reply, &[u8], &[u8]) -> usize,
) -> Done {
    let key = call.key();
    let number = parse_cursor(call.args.at(2))?;
    let options = parse_options(call, 3, false)?;
    let position = call.server.cursors.get(number).ok_or(EXPIRED_CURSOR)?;
    let mut page = call.reply.part();
    let (mut replies, mut visited, mut bytes) = (0, 0, 0);
    let mut next = None;
    if let Some(collection) = call.open(key, kind)? {
        let is_inline = collection.is_inline();
        let (start, end) = member_range(kind);
        let start = if position.is_empty() { start } else { Bound::Included(position.as_slice()) };
        collection.visit((start, end), false, |name, value| {
            let is_full = visited >= options.count || bytes >= SCANNED_BYTES;
            if is_full && !is_inline {
                next = Some(name.to_vec());
                return ControlFlow::Break(());
            }
            visited += 1;
            bytes += name.len() + value.len();
            let member = member_of(kind, name);
            if let Some(pattern) = options.pattern
                && pattern.len() * member.len() > COMPARED_BYTES
            {
                collection.look()?;
            }
            if options.pattern.is_none_or(|pattern| glob::matches(pattern, member)) {
                replies += write(&mut page, member, value);
            }
            ControlFlow::Continue(())
        })?;
    }
    let cursor = next.map_or(0, |next| call.server.cursors.put(next));
    call.reply.array(2);
    call.reply.text(&cursor.to_string());
    call.reply.array(replies);
    call.reply.append(&page);
    Ok(())
}
