//! Ranges of sorted sets, and sorted sets made from others.

use std::collections::BTreeMap;

use super::{
    call::{Call, commands},
    lists::range_of,
    sets::parse_key_count,
    sorted_set::{
        Interval, Scored, SortedSet, begin_scored, parse_lex, parse_scores, reply_member,
    },
};
use crate::{
    failure::{Done, Fail},
    number::parse_f64,
    spec::{Group, Keys},
    store::{ALL, Kind},
};

commands! { Group::SortedSet;
    "zcount" 4 [READ FAST] Keys::ONE, zcount, "2.0.0",
        "Returns the count of members in a sorted set that have scores within a range.";
    "zdiff" -3 [READ] Keys::Counted { target: 0, count: 1 }, zdiff, "6.2.0",
        "Returns the difference between multiple sorted sets.";
    "zdiffstore" -4 [WRITE DENYOOM] Keys::Counted { target: 1, count: 2 }, zdiffstore, "6.2.0",
        "Stores the difference of multiple sorted sets in a key.";
    "zinter" -3 [READ] Keys::Counted { target: 0, count: 1 }, zinter, "6.2.0",
        "Returns the intersect of multiple sorted sets.";
    "zintercard" -3 [READ] Keys::Counted { target: 0, count: 1 }, zintercard, "7.0.0",
        "Returns the number of members of the intersect of multiple sorted sets.";
    "zinterstore" -4 [WRITE DENYOOM] Keys::Counted { target: 1, count: 2 }, zinterstore, "2.0.0",
        "Stores the intersect of multiple sorted sets in a key.";
    "zlexcount" 4 [READ FAST] Keys::ONE, zlexcount, "2.8.9",
        "Returns the number of members in a sorted set within a lexicographical range.";
    "zrange" -4 [READ] Keys::ONE, zrange, "1.2.0",
        "Returns members in a sorted set within a range of indexes.";
    "zrangebylex" -4 [READ] Keys::ONE, zrangebylex, "2.8.9",
        "Returns members in a sorted set within a lexicographical range.";
    "zrangebyscore" -4 [READ] Keys::ONE, zrangebyscore, "1.0.5",
        "Returns members in a sorted set within a range of scores.";
    "zrangestore" -5 [WRITE DENYOOM] Keys::TWO, zrangestore, "6.2.0",
        "Stores a range of members from sorted set in a key.";
    "zrevrange" -4 [READ] Keys::ONE, zrevrange, "1.2.0",
        "Returns members in a sorted set within a range of indexes in reverse order.";
    "zrevrangebylex" -4 [READ] Keys::ONE, zrevrangebylex, "2.8.9",
        "Returns members in a sorted set within a lexicographical range in reverse order.";
    "zrevrangebyscore" -4 [READ] Keys::ONE, zrevrangebyscore, "2.2.0",
        "Returns members in a sorted set within a range of scores in reverse order.";
    "zunion" -3 [READ] Keys::Counted { target: 0, count: 1 }, zunion, "6.2.0",
        "Returns the union of multiple sorted sets.";
    "zunionstore" -4 [WRITE DENYOOM] Keys::Counted { target: 1, count: 2 }, zunionstore, "2.0.0",
        "Stores the union of multiple sorted sets in a key.";
}

fn count(call: &mut Call<'_, '_>, interval: &Interval) -> Done {
    let key = call.key();
    let count = match call.sorted_set(key)? {
        Some(set) => set.count(interval)?,
        None => 0,
    };
    call.reply.count(count);
    Ok(())
}

fn zcount(call: &mut Call<'_, '_>) -> Done {
    let interval = parse_scores(call.args.at(2), call.args.at(3))?;
    count(call, &interval)
}

fn zlexcount(call: &mut Call<'_, '_>) -> Done {
    let interval = parse_lex(call.args.at(2), call.args.at(3))?;
    count(call, &interval)
}

/// What the ends of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeKind {
    Rank,
    Score,
    Lex,
}

/// A parsed range.
struct Range {
    interval: Interval,
    is_reverse: bool,
    limit: (usize, usize),
    with_scores: bool,
}

/// Parses a range whose ends are arguments `at` and `at + 1`. `fixed` is the kind and the direction
/// of commands older than `ZRANGE BYSCORE`.
fn parse_range(
    call: &Call<'_, '_>,
    at: usize,
    fixed: Option<(RangeKind, bool)>,
    may_have_scores: bool,
) -> Done<Range> {
    let (mut kind, mut is_reverse) = fixed.unwrap_or((RangeKind::Rank, false));
    let (mut limit, mut with_scores) = (None, false);
    let mut option = at + 2;
    while let Some(word) = call.args.get(option) {
        match word.to_ascii_lowercase().as_slice() {
            b"withscores" if may_have_scores => with_scores = true,
            b"limit" if option + 2 < call.args.len() => {
                limit = Some((call.integer(option + 1)?, call.integer(option + 2)?));
                option += 2;
            }
            b"byscore" if fixed.is_none() => kind = RangeKind::Score,
            b"bylex" if fixed.is_none() => kind = RangeKind::Lex,
            b"rev" if fixed.is_none() => is_reverse = true,
            _ => return Err(Fail::SYNTAX),
        }
        option += 1;
    }
    if limit.is_some() && kind == RangeKind::Rank {
        return Err(Fail::new(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    if with_scores && kind == RangeKind::Lex {
        return Err(Fail::new(
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ));
    }
    let (mut min, mut max) = (call.args.at(at), call.args.at(at + 1));
    if is_reverse && kind != RangeKind::Rank {
        std::mem::swap(&mut min, &mut max);
    }
    let interval = match kind {
        RangeKind::Rank => Interval::Rank(call.integer(at)?, call.integer(at + 1)?),
        RangeKind::Score => parse_scores(min, max)?,
        RangeKind::Lex => parse_lex(min, max)?,
    };
    let limit = match limit {
        None => (0, usize::MAX),
        // A negative offset selects nothing, a negative count all.
        Some((offset, count)) => match usize::try_from(offset) {
            Ok(offset) => (offset, usize::try_from(count).unwrap_or(usize::MAX)),
            Err(_) => (0, 0),
        },
    };
    Ok(Range { interval, is_reverse, limit, with_scores })
}

fn members(call: &mut Call<'_, '_>, key: &[u8], range: &Range) -> Done<Vec<Scored>> {
    match call.sorted_set(key)? {
        Some(set) => set.members(&range.interval, range.is_reverse, range.limit),
        None => Ok(Vec::new()),
    }
}

fn reply_range(call: &mut Call<'_, '_>, fixed: Option<(RangeKind, bool)>) -> Done {
    let range = parse_range(call, 2, fixed, true)?;
    if let Interval::Rank(start, stop) = range.interval
        && reply_ranks(call, (start, stop), &range)?
    {
        return Ok(());
    }
    let found = members(call, call.key(), &range)?;
    call.reply_scored(&found, range.with_scores);
    Ok(())
}

/// Replies a range of positions in the first half without a copy. Returns `false` for others.
fn reply_ranks(call: &mut Call<'_, '_>, (start, stop): (i64, i64), range: &Range) -> Done<bool> {
    let (database, key) = (call.database(), call.key());
    let set = call.unit.open(database, key, Kind::SortedSet)?.map(SortedSet::new);
    let Some(set) = set else { return Ok(false) };
    let Some((from, to)) = range_of(set.len(), start, stop) else { return Ok(false) };
    if from > set.len() / 2 {
        return Ok(false);
    }
    let reply = &mut *call.reply;
    begin_scored(reply, to - from + 1, range.with_scores);
    set.visit_ranks((from, to), range.is_reverse, |member, score| {
        reply_member(reply, member, score, range.with_scores);
    })?;
    Ok(true)
}

fn zrange(call: &mut Call<'_, '_>) -> Done {
    reply_range(call, None)
}

fn zrevrange(call: &mut Call<'_, '_>) -> Done {
    reply_range(call, Some((RangeKind::Rank, true)))
}

fn zrangebyscore(call: &mut Call<'_, '_>) -> Done {
    reply_range(call, Some((RangeKind::Score, false)))
}

fn zrevrangebyscore(call: &mut Call<'_, '_>) -> Done {
    reply_range(call, Some((RangeKind::Score, true)))
}

fn zrangebylex(call: &mut Call<'_, '_>) -> Done {
    reply_range(call, Some((RangeKind::Lex, false)))
}

fn zrevrangebylex(call: &mut Call<'_, '_>) -> Done {
    reply_range(call, Some((RangeKind::Lex, true)))
}

fn zrangestore(call: &mut Call<'_, '_>) -> Done {
    let range = parse_range(call, 3, None, false)?;
    let found = members(call, call.args.at(2), &range)?;
    call.store_sorted_set(call.key(), &found, "zrangestore")?;
    call.reply.count(found.len());
    Ok(())
}

/// How sorted sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combination {
    Union,
    Intersection,
    Difference,
}

/// How the scores of one member are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            // Opposite infinities add up to zero in Redis.
            Self::Sum if (a + b).is_nan() => 0.0,
            Self::Sum => a + b,
            Self::Min => a.min(b),
            Self::Max => a.max(b),
        }
    }
}

/// The members of a sorted set or a set, whose members have the score 1.
fn scored_members(call: &mut Call<'_, '_>, key: &[u8]) -> Done<BTreeMap<Vec<u8>, f64>> {
    let database = call.database();
    if call.unit.head(database, key)?.is_some_and(|head| head.kind() == Kind::Set) {
        let members = match call.open(key, Kind::Set)? {
            Some(set) => set.collect(ALL)?,
            None => Vec::new(),
        };
        return Ok(members.into_iter().map(|(member, _)| (member, 1.0)).collect());
    }
    match call.sorted_set(key)? {
        None => Ok(BTreeMap::new()),
        Some(set) => {
            let everything = parse_scores(b"-inf", b"+inf")?;
            Ok(set.members(&everything, false, (0, usize::MAX))?.into_iter().collect())
        }
    }
}

/// Options behind the keys of `ZUNION` and the like.
struct CombinationOptions {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

fn parse_combination(
    call: &Call<'_, '_>,
    mut at: usize,
    keys: usize,
    (has_weights, may_have_scores): (bool, bool),
) -> Done<CombinationOptions> {
    let mut options = CombinationOptions {
        weights: vec![1.0; keys],
        aggregate: Aggregate::Sum,
        with_scores: false,
    };
    while at < call.args.len() {
        if has_weights && call.args.is(at, "weights") && at + keys < call.args.len() {
            options.weights = call
                .args
                .from(at + 1)
                .take(keys)
                .map(|text| parse_f64(text).ok_or(Fail::new("ERR weight value is not a float")))
                .collect::<Done<Vec<f64>>>()?;
            at += keys + 1;
        } else if has_weights && call.args.is(at, "aggregate") && at + 1 < call.args.len() {
            options.aggregate = match call.args.at(at + 1).to_ascii_lowercase().as_slice() {
                b"sum" => Aggregate::Sum,
                b"min" => Aggregate::Min,
                b"max" => Aggregate::Max,
                _ => return Err(Fail::SYNTAX),
            };
            at += 2;
        } else if may_have_scores && call.args.is(at, "withscores") {
            options.with_scores = true;
            at += 1;
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    Ok(options)
}

/// Combines the sorted sets whose number is argument `at`. Returns the members in order, and
/// whether scores were asked for.
fn combine(
    call: &mut Call<'_, '_>,
    combination: Combination,
    at: usize,
) -> Done<(Vec<Scored>, bool)> {
    let name = String::from_utf8_lossy(call.args.at(0)).to_lowercase();
    let count = call.integer(at)?;
    if count < 1 {
        return Err(Fail::with(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    let end = parse_key_count(call, at, Fail::SYNTAX)?;
    let has_weights = combination != Combination::Difference;
    let options = parse_combination(call, end, end - at - 1, (has_weights, at == 1))?;
    let args = call.args;
    let mut result: Option<BTreeMap<Vec<u8>, f64>> = None;
    for (key, weight) in args.from(at + 1).zip(&options.weights) {
        let mut next = scored_members(call, key)?;
        for score in next.values_mut() {
            let weighted = *score * weight;
            *score = if weighted.is_nan() { 0.0 } else { weighted };
        }
        let Some(mut all) = result.take() else {
            result = Some(next);
            continue;
        };
        match combination {
            Combination::Difference => all.retain(|member, _| !next.contains_key(member)),
            Combination::Intersection => all.retain(|member, score| {
                let other = next.get(member);
                if let Some(other) = other {
                    *score = options.aggregate.apply(*score, *other);
                }
                other.is_some()
            }),
            Combination::Union => {
                for (member, score) in next {
                    let own = all.get(&member).map(|own| options.aggregate.apply(*own, score));
                    all.insert(member, own.unwrap_or(score));
                }
            }
        }
        result = Some(all);
    }
    let mut members: Vec<Scored> = result.unwrap_or_default().into_iter().collect();
    members.sort_by(|a, b| a.1.total_cmp(&b.1));
    Ok((members, options.with_scores))
}

fn reply_combined(call: &mut Call<'_, '_>, combination: Combination) -> Done {
    let (members, with_scores) = combine(call, combination, 1)?;
    call.reply_scored(&members, with_scores);
    Ok(())
}

fn store_combined(call: &mut Call<'_, '_>, combination: Combination) -> Done {
    let (members, _) = combine(call, combination, 2)?;
    let name = match combination {
        Combination::Union => "zunionstore",
        Combination::Intersection => "zinterstore",
        Combination::Difference => "zdiffstore",
    };
    call.store_sorted_set(call.key(), &members, name)?;
    call.reply.count(members.len());
    Ok(())
}

fn zunion(call: &mut Call<'_, '_>) -> Done {
    reply_combined(call, Combination::Union)
}

fn zinter(call: &mut Call<'_, '_>) -> Done {
    reply_combined(call, Combination::Intersection)
}

fn zdiff(call: &mut Call<'_, '_>) -> Done {
    reply_combined(call, Combination::Difference)
}

fn zunionstore(call: &mut Call<'_, '_>) -> Done {
    store_combined(call, Combination::Union)
}

fn zinterstore(call: &mut Call<'_, '_>) -> Done {
    store_combined(call, Combination::Intersection)
}

fn zdiffstore(call: &mut Call<'_, '_>) -> Done {
    store_combined(call, Combination::Difference)
}

fn zintercard(call: &mut Call<'_, '_>) -> Done {
    let too_many = Fail::new("ERR Number of keys can't be greater than number of args");
    let end = parse_key_count(call, 1, too_many)?;
    let mut limit = 0;
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
    let mut common: Option<BTreeMap<Vec<u8>, f64>> = None;
    for key in args.from(2).take(end - 2) {
        let next = scored_members(call, key)?;
        if let Some(common) = &mut common {
            common.retain(|member, _| next.contains_key(member));
        } else {
            common = Some(next);
        }
    }
    let count = common.map_or(0, |common| common.len());
    call.reply.count(if limit == 0 { count } else { count.min(limit) });
    Ok(())
}
