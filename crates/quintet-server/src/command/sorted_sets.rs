//! Sorted sets: writes, and reads of single members.

use std::time::Duration;

use super::{
    call::{Call, commands},
    list_moves::parse_timeout,
    members::{self, Form},
    sets::parse_key_count,
    sorted_set::{Interval, parse_lex, parse_scores},
};
use crate::{
    failure::{Done, Fail},
    number::parse_f64,
    resp::Reply,
    spec::{Group, Keys},
    store::{Kind, check_names, event},
};

commands! { Group::SortedSet;
    "bzmpop" -5 [WRITE BLOCKING] Keys::Counted { target: 0, count: 2 }, bzmpop, "7.0.0",
        "Removes and returns a member by score from one or more sorted sets. Blocks until a \
         member is available otherwise. Deletes the sorted set if the last element was popped.";
    "bzpopmax" -3 [WRITE FAST BLOCKING] Keys::ALL_BUT_LAST, bzpopmax, "5.0.0",
        "Removes and returns the member with the highest score from one or more sorted sets. \
         Blocks until a member available otherwise.  Deletes the sorted set if the last element \
         was popped.";
    "bzpopmin" -3 [WRITE FAST BLOCKING] Keys::ALL_BUT_LAST, bzpopmin, "5.0.0",
        "Removes and returns the member with the lowest score from one or more sorted sets. \
         Blocks until a member is available otherwise. Deletes the sorted set if the last \
         element was popped.";
    "zadd" -4 [WRITE DENYOOM FAST] Keys::ONE, zadd, "1.2.0",
        "Adds one or more members to a sorted set, or updates their scores. Creates the key if \
         it doesn't exist.";
    "zcard" 2 [READ FAST] Keys::ONE, zcard, "1.2.0", "Returns the number of members in a sorted \
     set.";
    "zincrby" 4 [WRITE DENYOOM FAST] Keys::ONE, zincrby, "1.2.0",
        "Increments the score of a member in a sorted set.";
    "zmpop" -4 [WRITE] Keys::Counted { target: 0, count: 1 }, zmpop, "7.0.0",
        "Returns the highest- or lowest-scoring members from one or more sorted sets after \
         removing them. Deletes the sorted set if the last member was popped.";
    "zmscore" -3 [READ FAST] Keys::ONE, zmscore, "6.2.0",
        "Returns the score of one or more members in a sorted set.";
    "zpopmax" -2 [WRITE FAST] Keys::ONE, zpopmax, "5.0.0",
        "Returns the highest-scoring members from a sorted set after removing them. Deletes the \
         sorted set if the last member was popped.";
    "zpopmin" -2 [WRITE FAST] Keys::ONE, zpopmin, "5.0.0",
        "Returns the lowest-scoring members from a sorted set after removing them. Deletes the \
         sorted set if the last member was popped.";
    "zrandmember" -2 [READ] Keys::ONE, zrandmember, "6.2.0",
        "Returns one or more random members from a sorted set.";
    "zrank" 3 [READ FAST] Keys::ONE, zrank, "2.0.0",
        "Returns the index of a member in a sorted set ordered by ascending scores.";
    "zrem" -3 [WRITE FAST] Keys::ONE, zrem, "1.2.0",
        "Removes one or more members from a sorted set. Deletes the sorted set if all members \
         were removed.";
    "zremrangebylex" 4 [WRITE] Keys::ONE, zremrangebylex, "2.8.9",
        "Removes members in a sorted set within a lexicographical range. Deletes the sorted set \
         if all members were removed.";
    "zremrangebyrank" 4 [WRITE] Keys::ONE, zremrangebyrank, "2.0.0",
        "Removes members in a sorted set within a range of indexes. Deletes the sorted set if \
         all members were removed.";
    "zremrangebyscore" 4 [WRITE] Keys::ONE, zremrangebyscore, "1.2.0",
        "Removes members in a sorted set within a range of scores. Deletes the sorted set if all \
         members were removed.";
    "zrevrank" 3 [READ FAST] Keys::ONE, zrevrank, "2.0.0",
        "Returns the index of a member in a sorted set ordered by descending scores.";
    "zscan" -3 [READ] Keys::ONE, zscan, "2.8.0", "Iterates over members and scores of a sorted \
     set.";
    "zscore" 3 [READ FAST] Keys::ONE, zscore, "1.2.0", "Returns the score of a member in a \
     sorted set.";
}

/// Options of `ZADD`, as bits.
mod option {
    pub(super) const NX: u8 = 1;
    pub(super) const XX: u8 = 2;
    pub(super) const GT: u8 = 4;
    pub(super) const LT: u8 = 8;
    pub(super) const CH: u8 = 16;
    pub(super) const INCR: u8 = 32;
}

/// Parses the options of `ZADD`. Returns them and the position of the first score.
fn parse_add(call: &Call<'_, '_>) -> Done<(u8, usize)> {
    let (mut options, mut at) = (0, 2);
    loop {
        options |= match call.args.at(at).to_ascii_lowercase().as_slice() {
            b"nx" => option::NX,
            b"xx" => option::XX,
            b"gt" => option::GT,
            b"lt" => option::LT,
            b"ch" => option::CH,
            b"incr" => option::INCR,
            _ => break,
        };
        at += 1;
    }
    let has = |bits: u8| options & bits != 0;
    let pairs = call.args.len() - at;
    if pairs == 0 || !pairs.is_multiple_of(2) {
        return Err(Fail::SYNTAX);
    }
    if has(option::NX) && has(option::XX) {
        return Err(Fail::new("ERR XX and NX options at the same time are not compatible"));
    }
    if (has(option::GT) && has(option::LT)) || (has(option::NX) && has(option::GT | option::LT)) {
        return Err(Fail::new("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if has(option::INCR) && pairs > 2 {
        return Err(Fail::new("ERR INCR option supports a single increment-element pair"));
    }
    Ok((options, at))
}

fn zadd(call: &mut Call<'_, '_>) -> Done {
    let (options, start) = parse_add(call)?;
    let has = |bits: u8| options & bits != 0;
    let (args, key) = (call.args, call.key());
    let mut pairs = Vec::new();
    let mut words = args.from(start);
    while let (Some(score), Some(member)) = (words.next(), words.next()) {
        pairs.push((parse_f64(score).ok_or(Fail::NOT_FLOAT)?, member));
    }
    check_names(pairs.iter().map(|(_, member)| *member))?;
    if has(option::XX) && !call.check_kind(key, Kind::SortedSet)? {
        if has(option::INCR) {
            call.reply.null();
        } else {
            call.reply.integer(0);
        }
        return Ok(());
    }
    let mut set = call.create_sorted_set(key)?;
    let (mut added, mut updated, mut result) = (0, 0, None);
    for (number, member) in pairs {
        let old = set.score(member)?;
        if (has(option::NX) && old.is_some()) || (has(option::XX) && old.is_none()) {
            continue;
        }
        let score = if has(option::INCR) { old.unwrap_or(0.0) + number } else { number };
        if score.is_nan() {
            return Err(Fail::new("ERR resulting score is not a number (NaN)"));
        }
        let is_refused = old.is_some_and(|old| {
            (has(option::GT) && score <= old) || (has(option::LT) && score >= old)
        });
        if is_refused {
            continue;
        }
        set.replace(member, score, old)?;
        result = Some(score);
        match old {
            None => added += 1,
            Some(old) if old.to_bits() != score.to_bits() => updated += 1,
            Some(_) => {}
        }
    }
    if added + updated > 0 {
        let name = if has(option::INCR) { "zincr" } else { "zadd" };
        call.notify(event::SORTED_SET, name, key);
    }
    match result {
        _ if !has(option::INCR) => {
            call.reply.count(if has(option::CH) { added + updated } else { added });
        }
        Some(score) => call.reply.double(score),
        None => call.reply.null(),
    }
    Ok(())
}

fn zincrby(call: &mut Call<'_, '_>) -> Done {
    let (args, key, by) = (call.args, call.key(), call.float(2)?);
    check_names([args.at(3)])?;
    let mut set = call.create_sorted_set(key)?;
    let old = set.score(args.at(3))?;
    let score = old.unwrap_or(0.0) + by;
    if score.is_nan() {
        return Err(Fail::new("ERR resulting score is not a number (NaN)"));
    }
    set.replace(args.at(3), score, old)?;
    if old.is_none_or(|old| old.to_bits() != score.to_bits()) {
        call.notify(event::SORTED_SET, "zincr", key);
    }
    call.reply.double(score);
    Ok(())
}

fn zcard(call: &mut Call<'_, '_>) -> Done {
    members::reply_count(call, Kind::SortedSet)
}

fn scores(call: &mut Call<'_, '_>) -> Done<Vec<Option<f64>>> {
    let (args, key) = (call.args, call.key());
    let set = call.sorted_set(key)?;
    let score = |member| match &set {
        Some(set) => set.score(member),
        None => Ok(None),
    };
    args.from(2).map(score).collect()
}

fn reply_score(reply: &mut Reply, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

fn zscore(call: &mut Call<'_, '_>) -> Done {
    let score = scores(call)?.pop().flatten();
    reply_score(call.reply, score);
    Ok(())
}

fn zmscore(call: &mut Call<'_, '_>) -> Done {
    let scores = scores(call)?;
    call.reply.array(scores.len());
    for score in scores {
        reply_score(call.reply, score);
    }
    Ok(())
}

fn zrank(call: &mut Call<'_, '_>) -> Done {
    reply_rank(call, false)
}

fn zrevrank(call: &mut Call<'_, '_>) -> Done {
    reply_rank(call, true)
}

fn reply_rank(call: &mut Call<'_, '_>, is_reverse: bool) -> Done {
    let (args, key) = (call.args, call.key());
    let rank = match call.sorted_set(key)? {
        Some(set) => set.rank(args.at(2), is_reverse)?,
        None => None,
    };
    match rank {
        Some((rank, _)) => call.reply.count(rank),
        None => call.reply.null(),
    }
    Ok(())
}

fn zrem(call: &mut Call<'_, '_>) -> Done {
    let (args, key) = (call.args, call.key());
    let mut removed = 0;
    if let Some(mut set) = call.sorted_set(key)? {
        for member in args.from(2) {
            removed += usize::from(set.remove(member)?);
        }
        if removed > 0 {
            call.notify(event::SORTED_SET, "zrem", key);
        }
    }
    call.reply.count(removed);
    Ok(())
}

fn zremrangebyrank(call: &mut Call<'_, '_>) -> Done {
    let interval = Interval::Rank(call.integer(2)?, call.integer(3)?);
    remove_interval(call, &interval, "zremrangebyrank")
}

fn zremrangebyscore(call: &mut Call<'_, '_>) -> Done {
    let interval = parse_scores(call.args.at(2), call.args.at(3))?;
    remove_interval(call, &interval, "zremrangebyscore")
}

fn zremrangebylex(call: &mut Call<'_, '_>) -> Done {
    let interval = parse_lex(call.args.at(2), call.args.at(3))?;
    remove_interval(call, &interval, "zremrangebylex")
}

fn remove_interval(call: &mut Call<'_, '_>, interval: &Interval, name: &'static str) -> Done {
    let key = call.key();
    let mut removed = 0;
    if let Some(mut set) = call.sorted_set(key)? {
        for (member, _) in set.members(interval, false, (0, usize::MAX))? {
            removed += usize::from(set.remove(&member)?);
        }
        if removed > 0 {
            call.notify(event::SORTED_SET, name, key);
        }
    }
    call.reply.count(removed);
    Ok(())
}

fn zrandmember(call: &mut Call<'_, '_>) -> Done {
    let has_scores = match call.args.len() {
        2 | 3 => false,
        4 if call.args.is(3, "withscores") => true,
        _ => return Err(Fail::SYNTAX),
    };
    let form = if has_scores { Form::Scored } else { Form::Name };
    members::reply_random(call, Kind::SortedSet, form)
}

fn zscan(call: &mut Call<'_, '_>) -> Done {
    members::scan(call, Kind::SortedSet, |reply, member, value| {
        reply.bulk(member);
        reply.text(&crate::number::format_score(members::score_of(value)));
        2
    })
}

/// Removes up to `count` members from the lowest or the highest score.
fn take(
    call: &mut Call<'_, '_>,
    key: &[u8],
    is_highest: bool,
    count: usize,
) -> Done<Vec<(Vec<u8>, f64)>> {
    let Some(mut set) = call.sorted_set(key)? else { return Ok(Vec::new()) };
    let everything = parse_scores(b"-inf", b"+inf")?;
    let taken = set.members(&everything, is_highest, (0, count))?;
    for (member, _) in &taken {
        set.remove(member)?;
    }
    if !taken.is_empty() {
        let name = if is_highest { "zpopmax" } else { "zpopmin" };
        call.notify(event::SORTED_SET, name, key);
    }
    Ok(taken)
}

fn zpopmin(call: &mut Call<'_, '_>) -> Done {
    pop(call, false)
}

fn zpopmax(call: &mut Call<'_, '_>) -> Done {
    pop(call, true)
}

fn pop(call: &mut Call<'_, '_>, is_highest: bool) -> Done {
    let key = call.key();
    match call.args.len() {
        2 => {
            let taken = take(call, key, is_highest, 1)?;
            call.reply.array(taken.len() * 2);
            for (member, score) in taken {
                call.reply.bulk(&member);
                call.reply.double(score);
            }
        }
        3 => {
            let count = usize::try_from(call.integer(2)?)
                .map_err(|_| Fail::new("ERR value is out of range, must be positive"))?;
            let taken = take(call, key, is_highest, count)?;
            call.reply_scored(&taken, true);
        }
        _ => return Err(Fail::SYNTAX),
    }
    Ok(())
}

fn bzpopmin(call: &mut Call<'_, '_>) -> Done {
    pop_or_wait(call, false)
}

fn bzpopmax(call: &mut Call<'_, '_>) -> Done {
    pop_or_wait(call, true)
}

fn pop_or_wait(call: &mut Call<'_, '_>, is_highest: bool) -> Done {
    let args = call.args;
    let last = args.len() - 1;
    let timeout = parse_timeout(args.at(last))?;
    let keys: Vec<&[u8]> = args.from(1).take(last - 1).collect();
    for key in &keys {
        if let Some((member, score)) = take(call, key, is_highest, 1)?.pop() {
            call.reply.array(3);
            call.reply.bulk(key);
            call.reply.bulk(&member);
            call.reply.double(score);
            return Ok(());
        }
    }
    call.wait_for(&keys, timeout, Reply::null_array);
    Ok(())
}

/// Runs `ZMPOP`, whose number of keys is argument `at`. Returns the keys if all are empty.
fn multi_pop<'c>(call: &mut Call<'c, '_>, at: usize) -> Done<Option<Vec<&'c [u8]>>> {
    let end = parse_key_count(call, at, Fail::SYNTAX)?;
    let is_highest = match call.args.at(end).to_ascii_lowercase().as_slice() {
        b"min" => false,
        b"max" => true,
        _ => return Err(Fail::SYNTAX),
    };
    let count = match call.args.len() - end {
        1 => 1,
        3 if call.args.is(end + 1, "count") => {
            let count = crate::number::parse_i64(call.args.at(end + 2)).filter(|count| *count > 0);
            let count = count.ok_or(Fail::new("ERR count should be greater than 0"))?;
            usize::try_from(count).unwrap_or(usize::MAX)
        }
        _ => return Err(Fail::SYNTAX),
    };
    let keys: Vec<&[u8]> = call.args.from(at + 1).take(end - at - 1).collect();
    for key in &keys {
        let taken = take(call, key, is_highest, count)?;
        if taken.is_empty() {
            continue;
        }
        call.reply.array(2);
        call.reply.bulk(key);
        call.reply.array(taken.len());
        for (member, score) in taken {
            call.reply.array(2);
            call.reply.bulk(&member);
            call.reply.double(score);
        }
        return Ok(None);
    }
    Ok(Some(keys))
}

fn zmpop(call: &mut Call<'_, '_>) -> Done {
    if multi_pop(call, 1)?.is_some() {
        call.reply.null_array();
    }
    Ok(())
}

fn bzmpop(call: &mut Call<'_, '_>) -> Done {
    let timeout: Option<Duration> = parse_timeout(call.args.at(1))?;
    if let Some(keys) = multi_pop(call, 2)? {
        call.wait_for(&keys, timeout, Reply::null_array);
    }
    Ok(())
}
