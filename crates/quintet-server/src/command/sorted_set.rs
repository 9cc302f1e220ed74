//! A sorted set as elements: `m` and the member, with the score; and `s`, the score in its order,
//! and the member, without a value.

use std::ops::{Bound, ControlFlow};

use super::{
    call::Call,
    lists::range_of,
    members::{MEMBER, SCORE, score_of},
};
use crate::{
    failure::{Done, Fail},
    number::{ordered_score, parse_f64, score_of as score_of_order},
    resp::Reply,
    store::{Collection, Kind, event},
};

/// A member with its score.
pub(super) type Scored = (Vec<u8>, f64);

/// A sorted set that is open.
pub(super) struct SortedSet<'u> {
    elements: Collection<'u>,
}

/// A range of scores or of members.
#[derive(Clone, Debug)]
pub(super) enum Interval {
    /// Positions in the order of scores, which may count from the end.
    Rank(i64, i64),
    /// Scores.
    Score(Bound<f64>, Bound<f64>),
    /// Members, all of one score.
    Lex(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

fn ordered_name(score: f64, member: &[u8]) -> Vec<u8> {
    [[SCORE].as_slice(), &ordered_score(score), member].concat()
}

/// The name before all members of the score that is `after` steps above `score`.
fn border(score: f64, after: u64) -> Vec<u8> {
    let order = u64::from_be_bytes(ordered_score(score)).saturating_add(after);
    [[SCORE].as_slice(), &order.to_be_bytes()].concat()
}

fn member_name(member: &[u8]) -> Vec<u8> {
    [&[MEMBER], member].concat()
}

impl<'u> SortedSet<'u> {
    /// A sorted set over its elements.
    pub(super) fn new(elements: Collection<'u>) -> Self {
        Self { elements }
    }

    /// Number of members.
    pub(super) fn len(&self) -> usize {
        self.elements.count()
    }

    /// The score of a member.
    pub(super) fn score(&self, member: &[u8]) -> Done<Option<f64>> {
        Ok(self.elements.get(&member_name(member))?.map(|value| score_of(&value)))
    }

    /// Sets the score of a member. Returns the old one.
    pub(super) fn put(&mut self, member: &[u8], score: f64) -> Done<Option<f64>> {
        let old = self.score(member)?;
        self.replace(member, score, old)
    }

    /// Sets the score of a member whose score is `old`. Returns `old`.
    pub(super) fn replace(
        &mut self,
        member: &[u8],
        score: f64,
        old: Option<f64>,
    ) -> Done<Option<f64>> {
        match old {
            Some(old) if old.to_bits() == score.to_bits() => return Ok(Some(old)),
            Some(old) => self.elements.remove(&ordered_name(old, member)),
            None => self.elements.set_count(self.len() + 1),
        }
        self.elements.put(&member_name(member), &score.to_bits().to_le_bytes())?;
        self.elements.put(&ordered_name(score, member), &[])?;
        Ok(old)
    }

    /// Removes a member. Returns whether it was there.
    pub(super) fn remove(&mut self, member: &[u8]) -> Done<bool> {
        let Some(score) = self.score(member)? else { return Ok(false) };
        self.elements.remove(&member_name(member));
        self.elements.remove(&ordered_name(score, member));
        self.elements.set_count(self.len() - 1);
        Ok(true)
    }

    /// Calls `each` with the members of an interval in order, or from the end.
    fn visit(
        &self,
        interval: &Interval,
        is_reverse: bool,
        mut each: impl FnMut(&[u8], f64) -> ControlFlow<()>,
    ) -> Done {
        let (from, to) = match interval {
            Interval::Rank(..) => (vec![SCORE], vec![SCORE + 1]),
            Interval::Score(from, to) => score_borders(*from, *to),
            Interval::Lex(from, to) => {
                let from = match from {
                    Bound::Included(member) => member_name(member),
                    Bound::Excluded(member) => [&member_name(member)[..], &[0]].concat(),
                    Bound::Unbounded => vec![MEMBER],
                };
                let to = match to {
                    Bound::Included(member) => [&member_name(member)[..], &[0]].concat(),
                    Bound::Excluded(member) => member_name(member),
                    Bound::Unbounded => vec![MEMBER + 1],
                };
                (from, to)
            }
        };
        if from >= to {
            return Ok(());
        }
        let range = (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()));
        let is_lex = matches!(interval, Interval::Lex(..));
        self.elements.visit(range, is_reverse, |name, value| {
            if is_lex {
                return each(name.get(1..).unwrap_or(&[]), score_of(value));
            }
            let Some((order, member)) = name.get(1..).and_then(|rest| rest.split_first_chunk())
            else {
                return ControlFlow::Continue(());
            };
            each(member, score_of_order(*order))
        })
    }

    /// The members of an interval in order or from the end, without the first `skipped` and at
    /// most `count`.
    pub(super) fn members(
        &self,
        interval: &Interval,
        is_reverse: bool,
        (mut skipped, mut count): (usize, usize),
    ) -> Done<Vec<Scored>> {
        if let Interval::Rank(start, stop) = interval {
            let Some((from, to)) = range_of(self.len(), *start, *stop) else {
                return Ok(Vec::new());
            };
            // From the end that is nearer.
            if from > self.len() / 2 {
                let last = self.len() - 1;
                let places = (last - to, to - from + 1);
                let mut found = self.take(interval, !is_reverse, places)?;
                found.reverse();
                return Ok(found);
            }
            (skipped, count) = (from, to - from + 1);
        }
        self.take(interval, is_reverse, (skipped, count))
    }

    /// Calls `each` with all members in the order of scores.
    pub(super) fn visit_all(&self, each: impl FnMut(&[u8], f64) -> ControlFlow<()>) -> Done {
        self.visit(&Interval::Rank(0, -1), false, each)
    }

    /// Counts bytes that the command copies for a member. `Break` beyond its limit.
    pub(super) fn hold(&self, bytes: usize) -> ControlFlow<()> {
        self.elements.hold(bytes)
    }

    /// Calls `each` with the members at positions `from` to `to`, both included.
    pub(super) fn visit_ranks(
        &self,
        (from, to): (usize, usize),
        is_reverse: bool,
        mut each: impl FnMut(&[u8], f64),
    ) -> Done {
        let mut at = 0;
        self.visit(&Interval::Rank(0, -1), is_reverse, |member, score| {
            if at >= from {
                each(member, score);
            }
            at += 1;
            if at > to { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    fn take(
        &self,
        interval: &Interval,
        is_reverse: bool,
        (mut skipped, count): (usize, usize),
    ) -> Done<Vec<Scored>> {
        let mut found = Vec::new();
        if count == 0 {
            return Ok(found);
        }
        self.visit(interval, is_reverse, |member, score| {
            if skipped > 0 {
                skipped -= 1;
                return ControlFlow::Continue(());
            }
            found.push((member.to_vec(), score));
            self.elements.hold(member.len())?;
            if found.len() >= count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// Number of members of an interval.
    pub(super) fn count(&self, interval: &Interval) -> Done<usize> {
        let mut count = 0;
        self.visit(interval, false, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// The position of a member in the order of scores, or from the end, with its score.
    pub(super) fn rank(&self, member: &[u8], is_reverse: bool) -> Done<Option<(usize, f64)>> {
        let Some(score) = self.score(member)? else { return Ok(None) };
        let mut rank = 0;
        self.visit(&Interval::Rank(0, -1), is_reverse, |other, _| {
            if other == member {
                return ControlFlow::Break(());
            }
            rank += 1;
            ControlFlow::Continue(())
        })?;
        Ok(Some((rank, score)))
    }
}

fn score_borders(from: Bound<f64>, to: Bound<f64>) -> (Vec<u8>, Vec<u8>) {
    let from = match from {
        Bound::Included(score) => border(score, 0),
        Bound::Excluded(score) => border(score, 1),
        Bound::Unbounded => vec![SCORE],
    };
    let to = match to {
        Bound::Included(score) => border(score, 1),
        Bound::Excluded(score) => border(score, 0),
        Bound::Unbounded => vec![SCORE + 1],
    };
    (from, to)
}

/// Parses a score at an end of a range: `(` excludes it.
fn parse_score_bound(text: &[u8]) -> Done<Bound<f64>> {
    let fail = Fail::new("ERR min or max is not a float");
    match text.strip_prefix(b"(") {
        Some(rest) => parse_f64(rest).map(Bound::Excluded).ok_or(fail),
        None => parse_f64(text).map(Bound::Included).ok_or(fail),
    }
}

/// Parses a range of scores.
pub(super) fn parse_scores(min: &[u8], max: &[u8]) -> Done<Interval> {
    Ok(Interval::Score(parse_score_bound(min)?, parse_score_bound(max)?))
}

/// Parses a range of members: `[a`, `(a`, `-` and `+`.
pub(super) fn parse_lex(min: &[u8], max: &[u8]) -> Done<Interval> {
    let fail = || Fail::new("ERR min or max not valid string range item");
    let parse = |text: &[u8]| match text.split_first() {
        Some((b'[', member)) => Ok(Bound::Included(member.to_vec())),
        Some((b'(', member)) => Ok(Bound::Excluded(member.to_vec())),
        _ => Err(fail()),
    };
    let nothing = Interval::Lex(Bound::Included(vec![1]), Bound::Excluded(vec![0]));
    let from = match min {
        b"-" => Bound::Unbounded,
        b"+" => {
            if max != b"-" && max != b"+" {
                parse(max)?;
            }
            return Ok(nothing);
        }
        other => parse(other)?,
    };
    let to = match max {
        b"+" => Bound::Unbounded,
        b"-" => return Ok(nothing),
        other => parse(other)?,
    };
    Ok(Interval::Lex(from, to))
}

/// Begins the reply of a number of members.
pub(super) fn begin_scored(reply: &mut Reply, count: usize, with_scores: bool) {
    reply.array(if with_scores && !reply.is_resp3() { count * 2 } else { count });
}

/// Replies a member, with its score if asked for.
pub(super) fn reply_member(reply: &mut Reply, member: &[u8], score: f64, with_score: bool) {
    if with_score && reply.is_resp3() {
        reply.array(2);
    }
    reply.bulk(member);
    if with_score {
        reply.double(score);
    }
}

impl Call<'_, '_> {
    /// Opens a sorted set.
    pub(super) fn sorted_set(&mut self, key: &[u8]) -> Done<Option<SortedSet<'_>>> {
        Ok(self.open(key, Kind::SortedSet)?.map(SortedSet::new))
    }

    /// Opens a sorted set, or makes one.
    pub(super) fn create_sorted_set(&mut self, key: &[u8]) -> Done<SortedSet<'_>> {
        Ok(SortedSet::new(self.create(key, Kind::SortedSet)?))
    }

    /// Replaces what is at a key by a sorted set of members. `name` is the event.
    pub(super) fn store_sorted_set(
        &mut self,
        key: &[u8],
        members: &[Scored],
        name: &'static str,
    ) -> Done {
        let was_present = self.unit.remove(self.session.database, key)?;
        if !members.is_empty() {
            let mut set = self.create_sorted_set(key)?;
            for (member, score) in members {
                set.put(member, *score)?;
            }
        }
        let states = (was_present, !members.is_empty());
        self.notify_stored(event::SORTED_SET, name, key, states);
        Ok(())
    }

    /// Replies members, with their scores if asked for.
    pub(super) fn reply_scored(&mut self, members: &[Scored], with_scores: bool) {
        begin_scored(self.reply, members.len(), with_scores);
        for (member, score) in members {
            reply_member(self.reply, member, *score, with_scores);
        }
    }
}
