//! Sets: an element without a value for each member.

use std::{collections::BTreeSet, ops::ControlFlow};

use super::{
    call::{Call, commands},
    members::{self, Form},
};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
    store::{ALL, Kind, check_names, event},
};

commands! { Group::Set;
    "sadd" -3 [WRITE DENYOOM FAST] Keys::ONE, sadd, "1.0.0",
        "Adds one or more members to a set. Creates the key if it doesn't exist.";
    "scard" 2 [READ FAST] Keys::ONE, scard, "1.0.0", "Returns the number of members in a set.";
    "sdiff" -2 [READ] Keys::ALL, sdiff, "1.0.0", "Returns the difference of multiple sets.";
    "sdiffstore" -3 [WRITE DENYOOM] Keys::ALL, sdiffstore, "1.0.0",
        "Stores the difference of multiple sets in a key.";
    "sinter" -2 [READ] Keys::ALL, sinter, "1.0.0", "Returns the intersect of multiple sets.";
    "sintercard" -3 [READ] Keys::Counted { target: 0, count: 1 }, sintercard, "7.0.0",
        "Returns the number of members of the intersect of multiple sets.";
    "sinterstore" -3 [WRITE DENYOOM] Keys::ALL, sinterstore, "1.0.0",
        "Stores the intersect of multiple sets in a key.";
    "sismember" 3 [READ FAST] Keys::ONE, sismember, "1.0.0",
        "Determines whether a member belongs to a set.";
    "smembers" 2 [READ] Keys::ONE, smembers, "1.0.0", "Returns all members of a set.";
    "smismember" -3 [READ FAST] Keys::ONE, smismember, "6.2.0",
        "Determines whether multiple members belong to a set.";
    "smove" 4 [WRITE FAST] Keys::TWO, smove, "1.0.0", "Moves a member from one set to another.";
    "spop" -2 [WRITE FAST] Keys::ONE, spop, "1.0.0",
        "Returns one or more random members from a set after removing them. Deletes the set if \
         the last member was popped.";
    "srandmember" -2 [READ] Keys::ONE, srandmember, "1.0.0",
        "Get one or multiple random members from a set";
    "srem" -3 [WRITE FAST] Keys::ONE, srem, "1.0.0",
        "Removes one or more members from a set. Deletes the set if the last member was removed.";
    "sscan" -3 [READ] Keys::ONE, sscan, "2.8.0", "Iterates over members of a set.";
    "sunion" -2 [READ] Keys::ALL, sunion, "1.0.0", "Returns the union of multiple sets.";
    "sunionstore" -3 [WRITE DENYOOM] Keys::ALL, sunionstore, "1.0.0",
        "Stores the union of multiple sets in a key.";
}

fn sadd(call: &mut Call<'_, '_>) -> Done {
    let (args, key) = (call.args, call.key());
    check_names(args.from(2))?;
    let mut set = call.create(key, Kind::Set)?;
    let mut added = 0;
    for member in args.from(2) {
        if !set.contains(member)? {
            set.put(member, &[])?;
            added += 1;
        }
    }
    if added > 0 {
        set.set_count(set.count() + added);
        call.notify(event::SET, "sadd", key);
    }
    call.reply.count(added);
    Ok(())
}

fn srem(call: &mut Call<'_, '_>) -> Done {
    let removed = members::remove(call, Kind::Set)?;
    call.reply.count(removed);
    Ok(())
}

fn scard(call: &mut Call<'_, '_>) -> Done {
    members::reply_count(call, Kind::Set)
}

fn sismember(call: &mut Call<'_, '_>) -> Done {
    let is_member = members::contains(call, call.key(), Kind::Set, call.args.at(2))?;
    call.reply.flag(is_member);
    Ok(())
}

fn smismember(call: &mut Call<'_, '_>) -> Done {
    let (args, key) = (call.args, call.key());
    let set = call.open(key, Kind::Set)?;
    let mut found = Vec::with_capacity(args.len() - 2);
    for member in args.from(2) {
        found.push(match &set {
            Some(set) => set.contains(member)?,
            None => false,
        });
    }
    call.reply.array(found.len());
    for is_member in found {
        call.reply.flag(is_member);
    }
    Ok(())
}

fn smembers(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.key());
    let Some(set) = call.unit.open(database, key, Kind::Set)? else {
        call.reply.set(0);
        return Ok(());
    };
    let reply = &mut *call.reply;
    reply.set(set.count());
    set.visit(ALL, false, |member, _| {
        reply.bulk(member);
        ControlFlow::Continue(())
    })
}

fn smove(call: &mut Call<'_, '_>) -> Done {
    let (args, from, to) = (call.args, call.key(), call.args.at(2));
    let member = args.at(3);
    if !call.check_kind(from, Kind::Set)? {
        call.reply.flag(false);
        return Ok(());
    }
    call.check_kind(to, Kind::Set)?;
    let is_member = members::contains(call, from, Kind::Set, member)?;
    if is_member && from != to {
        if let Some(mut source) = call.open(from, Kind::Set)? {
            source.remove(member);
            source.set_count(source.count() - 1);
            call.notify(event::SET, "srem", from);
        }
        let mut target = call.create(to, Kind::Set)?;
        if !target.contains(member)? {
            target.put(member, &[])?;
            target.set_count(target.count() + 1);
            call.notify(event::SET, "sadd", to);
        }
    }
    call.reply.flag(is_member);
    Ok(())
}

fn spop(call: &mut Call<'_, '_>) -> Done {
    let key = call.key();
    let wanted = match call.args.len() {
        2 => None,
        3 => Some(
            usize::try_from(call.integer(2)?)
                .map_err(|_| Fail::new("ERR value is out of range, must be positive"))?,
        ),
        _ => return Err(Fail::SYNTAX),
    };
    let random = call.server.random();
    let mut popped = Vec::new();
    if let Some(mut set) = call.open(key, Kind::Set)? {
        let count = set.count();
        let wanted = wanted.unwrap_or(1).min(count);
        let start = usize::try_from(random).unwrap_or(0) % (count - wanted + 1).max(1);
        popped = members::pick_run(&set, (start, wanted))?;
        for (member, _) in &popped {
            set.remove(member);
        }
        if !popped.is_empty() {
            set.set_count(count - popped.len());
            call.notify(event::SET, "spop", key);
        }
    }
    if wanted.is_none() {
        call.reply.optional(popped.first().map(|(member, _)| member.as_slice()));
        return Ok(());
    }
    call.reply.set(popped.len());
    for (member, _) in popped {
        call.reply.bulk(&member);
    }
    Ok(())
}

fn srandmember(call: &mut Call<'_, '_>) -> Done {
    if call.args.len() > 3 {
        return Err(Fail::SYNTAX);
    }
    members::reply_random(call, Kind::Set, Form::Name)
}

fn sscan(call: &mut Call<'_, '_>) -> Done {
    members::scan(call, Kind::Set, |reply, member, _| {
        reply.bulk(member);
        1
    })
}

/// How sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SetOperation {
    Union,
    Intersection,
    Difference,
}

/// The members of a set; none if the key is absent.
fn members_of(call: &mut Call<'_, '_>, key: &[u8]) -> Done<BTreeSet<Vec<u8>>> {
    match call.open(key, Kind::Set)? {
        None => Ok(BTreeSet::new()),
        Some(set) => Ok(set.collect(ALL)?.into_iter().map(|(member, _)| member).collect()),
    }
}

fn combine<'k>(
    call: &mut Call<'_, '_>,
    operation: SetOperation,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Done<BTreeSet<Vec<u8>>> {
    let mut result: Option<BTreeSet<Vec<u8>>> = None;
    for key in keys {
        let next = members_of(call, key)?;
        result = Some(match (result, operation) {
            (None, _) => next,
            (Some(mut all), SetOperation::Union) => {
                all.extend(next);
                all
            }
            (Some(mut all), SetOperation::Intersection) => {
                all.retain(|member| next.contains(member));
                all
            }
            (Some(mut all), SetOperation::Difference) => {
                all.retain(|member| !next.contains(member));
                all
            }
        });
    }
    Ok(result.unwrap_or_default())
}

fn reply_combined(call: &mut Call<'_, '_>, operation: SetOperation) -> Done {
    let args = call.args;
    let members = combine(call, operation, args.from(1))?;
    call.reply.set(members.len());
    for member in &members {
        call.reply.bulk(member);
    }
    Ok(())
}

fn store_combined(call: &mut Call<'_, '_>, operation: SetOperation) -> Done {
    let (args, target, database) = (call.args, call.key(), call.database());
    let members = combine(call, operation, args.from(2))?;
    let was_present = call.unit.remove(database, target)?;
    if !members.is_empty() {
        let mut set = call.create(target, Kind::Set)?;
        for member in &members {
            set.put(member, &[])?;
        }
        set.set_count(members.len());
    }
    let name = match operation {
        SetOperation::Union => "sunionstore",
        SetOperation::Intersection => "sinterstore",
        SetOperation::Difference => "sdiffstore",
    };
    call.notify_stored(event::SET, name, target, (was_present, !members.is_empty()));
    call.reply.count(members.len());
    Ok(())
}

fn sunion(call: &mut Call<'_, '_>) -> Done {
    reply_combined(call, SetOperation::Union)
}

fn sinter(call: &mut Call<'_, '_>) -> Done {
    reply_combined(call, SetOperation::Intersection)
}

fn sdiff(call: &mut Call<'_, '_>) -> Done {
    reply_combined(call, SetOperation::Difference)
}

fn sunionstore(call: &mut Call<'_, '_>) -> Done {
    store_combined(call, SetOperation::Union)
}

fn sinterstore(call: &mut Call<'_, '_>) -> Done {
    store_combined(call, SetOperation::Intersection)
}

fn sdiffstore(call: &mut Call<'_, '_>) -> Done {
    store_combined(call, SetOperation::Difference)
}

/// Parses the number of keys at argument `at`. Returns the position behind the keys.
pub(super) fn parse_key_count(call: &Call<'_, '_>, at: usize, too_many: Fail) -> Done<usize> {
    let count = crate::number::parse_i64(call.args.at(at)).filter(|count| *count > 0);
    let count = count.ok_or(Fail::new("ERR numkeys should be greater than 0"))?;
    let end = usize::try_from(count).unwrap_or(usize::MAX).saturating_add(at + 1);
    if end > call.args.len() { Err(too_many) } else { Ok(end) }
}

fn sintercard(call: &mut Call<'_, '_>) -> Done {
    let too_many = Fail::new("ERR Number of keys can't be greater than number of args");
    let end = parse_key_count(call, 1, too_many)?;
    let mut limit = usize::MAX;
    match call.args.len() - end {
        0 => {}
        2 if call.args.is(end, "limit") => {
            limit = crate::number::parse_i64(call.args.at(end + 1))
                .and_then(|limit| usize::try_from(limit).ok())
                .ok_or(Fail::new("ERR LIMIT can't be negative"))?;
        }
        _ => return Err(Fail::SYNTAX),
    }
    let args = call.args;
    let members = combine(call, SetOperation::Intersection, args.from(2).take(end - 2))?;
    let limit = if limit == 0 { usize::MAX } else { limit };
    call.reply.count(members.len().min(limit));
    Ok(())
}
