//! Lists: an element for each index. The indexes are consecutive; `first` is in the head.

use std::ops::{Bound, ControlFlow};

use super::{
    call::{Call, commands},
    members::reply_count,
};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
    store::{Collection, Kind, event},
};

commands! { Group::List;
    "lindex" 3 [READ] Keys::ONE, lindex, "1.0.0", "Returns an element from a list by its index.";
    "linsert" 5 [WRITE DENYOOM] Keys::ONE, linsert, "2.2.0",
        "Inserts an element before or after another element in a list.";
    "llen" 2 [READ FAST] Keys::ONE, llen, "1.0.0", "Returns the length of a list.";
    "lpos" -3 [READ] Keys::ONE, lpos, "6.0.6", "Returns the index of matching elements in a list.";
    "lpush" -3 [WRITE DENYOOM FAST] Keys::ONE, lpush, "1.0.0",
        "Prepends one or more elements to a list. Creates the key if it doesn't exist.";
    "lpushx" -3 [WRITE DENYOOM FAST] Keys::ONE, lpushx, "2.2.0",
        "Prepends one or more elements to a list only when the list exists.";
    "lrange" 4 [READ] Keys::ONE, lrange, "1.0.0", "Returns a range of elements from a list.";
    "lrem" 4 [WRITE] Keys::ONE, lrem, "1.0.0",
        "Removes elements from a list. Deletes the list if the last element was removed.";
    "lset" 4 [WRITE DENYOOM] Keys::ONE, lset, "1.0.0",
        "Sets the value of an element in a list by its index.";
    "ltrim" 4 [WRITE] Keys::ONE, ltrim, "1.0.0",
        "Removes elements from both ends a list. Deletes the list if all elements were trimmed.";
    "rpush" -3 [WRITE DENYOOM FAST] Keys::ONE, rpush, "1.0.0",
        "Appends one or more elements to a list. Creates the key if it doesn't exist.";
    "rpushx" -3 [WRITE DENYOOM FAST] Keys::ONE, rpushx, "2.2.0",
        "Appends an element to a list only when the list exists.";
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The first element.
    Left,
    /// The last element.
    Right,
}

/// A list that is open.
pub(super) struct List<'u> {
    elements: Collection<'u>,
}

/// The name of an element: its index, so that names order as indexes do.
fn name_of(index: i64) -> [u8; 8] {
    (index.cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl<'u> List<'u> {
    /// A list over its elements.
    pub(super) fn new(elements: Collection<'u>) -> Self {
        Self { elements }
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.elements.count()
    }

    fn first(&self) -> i64 {
        self.elements.extra().first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
    }

    fn set_bounds(&mut self, first: i64, count: usize) {
        if self.first() != first || self.elements.extra().is_empty() {
            self.elements.set_extra(&first.to_le_bytes());
        }
        self.elements.set_count(count);
    }

    /// Adds an element at an end.
    pub(super) fn push(&mut self, end: End, value: &[u8]) -> Done {
        let (first, count) = (self.first(), self.len());
        match end {
            End::Left => {
                self.elements.put(&name_of(first - 1), value)?;
                self.set_bounds(first - 1, count + 1);
            }
            End::Right => {
                self.elements.put(&name_of(first + to_i64(count)), value)?;
                self.set_bounds(first, count + 1);
            }
        }
        Ok(())
    }

    /// Removes the element at an end.
    pub(super) fn pop(&mut self, end: End) -> Done<Option<Vec<u8>>> {
        let (first, count) = (self.first(), self.len());
        if count == 0 {
            return Ok(None);
        }
        let index = if end == End::Left { first } else { first + to_i64(count) - 1 };
        let value = self.elements.get(&name_of(index))?;
        self.elements.remove(&name_of(index));
        self.set_bounds(if end == End::Left { first + 1 } else { first }, count - 1);
        Ok(value)
    }

    /// The element at a position from the start.
    fn get(&self, position: usize) -> Done<Option<Vec<u8>>> {
        self.elements.get(&name_of(self.first() + to_i64(position)))
    }

    /// Calls `each` with the elements from position `from` to `to`, both included.
    pub(super) fn visit(
        &self,
        positions: (usize, usize),
        each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Done {
        self.visit_from(positions, false, each)
    }

    /// The same, from the last position if `is_reverse`.
    fn visit_from(
        &self,
        (from, to): (usize, usize),
        is_reverse: bool,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Done {
        let first = self.first();
        let (start, end) = (name_of(first + to_i64(from)), name_of(first + to_i64(to)));
        let range = (Bound::Included(start.as_slice()), Bound::Included(end.as_slice()));
        self.elements.visit(range, is_reverse, |_, value| each(value))
    }

    /// All elements.
    pub(super) fn values(&self) -> Done<Vec<Vec<u8>>> {
        let mut values = Vec::new();
        self.visit((0, self.len().saturating_sub(1)), |value| {
            values.push(value.to_vec());
            self.elements.hold(value.len())
        })?;
        Ok(values)
    }

    /// Replaces the elements `old` by `new`. Writes what differs when the ends are aligned that are
    /// more alike.
    fn replace(&mut self, old: &[Vec<u8>], new: &[Vec<u8>]) -> Done {
        let first = self.first();
        let shift = to_i64(old.len()) - to_i64(new.len());
        let differing = |offset: i64| {
            let is_other = |(at, value): &(usize, &Vec<u8>)| {
                let place = usize::try_from(to_i64(*at) + offset).ok();
                place.and_then(|place| old.get(place)) != Some(*value)
            };
            new.iter().enumerate().filter(is_other).count()
        };
        let offset = if differing(shift) < differing(0) { shift } else { 0 };
        for (at, value) in new.iter().enumerate() {
            let place = to_i64(at) + offset;
            let before = usize::try_from(place).ok().and_then(|place| old.get(place));
            if before != Some(value) {
                self.elements.put(&name_of(first + place), value)?;
            }
        }
        for at in 0..to_i64(old.len()) {
            if !(offset..offset + to_i64(new.len())).contains(&at) {
                self.elements.remove(&name_of(first + at));
            }
        }
        self.set_bounds(first + offset, new.len());
        Ok(())
    }

    /// The position of an index that may count from the end.
    fn position(&self, index: i64) -> Option<usize> {
        let length = to_i64(self.len());
        let index = if index < 0 { index.checked_add(length)? } else { index };
        usize::try_from(index).ok().filter(|position| *position < self.len())
    }

    /// The positions of a range whose ends may count from the end.
    fn positions(&self, start: i64, stop: i64) -> Option<(usize, usize)> {
        range_of(self.len(), start, stop)
    }
}

/// The positions, both included, of a range whose ends may count from the end.
pub(super) fn range_of(count: usize, start: i64, stop: i64) -> Option<(usize, usize)> {
    let length = to_i64(count);
    let from = if start < 0 { start.saturating_add(length).max(0) } else { start };
    let to = if stop < 0 { stop.saturating_add(length) } else { stop.min(length - 1) };
    if from > to || from >= length {
        return None;
    }
    Some((usize::try_from(from).ok()?, usize::try_from(to).ok()?))
}

impl Call<'_, '_> {
    /// Opens a list.
    pub(super) fn list(&mut self, key: &[u8]) -> Done<Option<List<'_>>> {
        Ok(self.open(key, Kind::List)?.map(List::new))
    }
}

fn push(call: &mut Call<'_, '_>, end: End, must_exist: bool) -> Done {
    let (args, key) = (call.args, call.key());
    if must_exist && !call.check_kind(key, Kind::List)? {
        call.reply.integer(0);
        return Ok(());
    }
    let mut list = List::new(call.create(key, Kind::List)?);
    for value in args.from(2) {
        list.push(end, value)?;
    }
    let length = list.len();
    call.notify(event::LIST, pushed(end), key);
    call.reply.count(length);
    Ok(())
}

/// The event of a push.
pub(super) fn pushed(end: End) -> &'static str {
    if end == End::Left { "lpush" } else { "rpush" }
}

fn lpush(call: &mut Call<'_, '_>) -> Done {
    push(call, End::Left, false)
}

fn rpush(call: &mut Call<'_, '_>) -> Done {
    push(call, End::Right, false)
}

fn lpushx(call: &mut Call<'_, '_>) -> Done {
    push(call, End::Left, true)
}

fn rpushx(call: &mut Call<'_, '_>) -> Done {
    push(call, End::Right, true)
}

fn llen(call: &mut Call<'_, '_>) -> Done {
    reply_count(call, Kind::List)
}

fn lindex(call: &mut Call<'_, '_>) -> Done {
    let (key, index) = (call.key(), call.integer(2));
    let value = match call.list(key)? {
        None => None,
        Some(list) => match list.position(index?) {
            Some(position) => list.get(position)?,
            None => None,
        },
    };
    call.reply.optional(value.as_deref());
    Ok(())
}

fn lset(call: &mut Call<'_, '_>) -> Done {
    let (args, key, index) = (call.args, call.key(), call.integer(2));
    let mut list = call.list(key)?.ok_or(Fail::NO_SUCH_KEY)?;
    let position = list.position(index?).ok_or(Fail::OUT_OF_RANGE)?;
    let name = name_of(list.first() + to_i64(position));
    list.elements.put(&name, args.at(3))?;
    call.notify(event::LIST, "lset", key);
    call.reply.ok();
    Ok(())
}

fn lrange(call: &mut Call<'_, '_>) -> Done {
    let (start, stop) = (call.integer(2)?, call.integer(3)?);
    let (database, key) = (call.database(), call.key());
    let list = call.unit.open(database, key, Kind::List)?.map(List::new);
    let range = list.as_ref().and_then(|list| list.positions(start, stop));
    let (Some(list), Some((from, to))) = (list, range) else {
        call.reply.array(0);
        return Ok(());
    };
    let reply = &mut *call.reply;
    reply.array(to - from + 1);
    list.visit((from, to), |value| {
        reply.bulk(value);
        ControlFlow::Continue(())
    })
}

fn ltrim(call: &mut Call<'_, '_>) -> Done {
    let (start, stop) = (call.integer(2)?, call.integer(3)?);
    let key = call.key();
    if let Some(mut list) = call.list(key)? {
        let (first, count) = (list.first(), list.len());
        let (from, to) = match list.positions(start, stop) {
            Some((from, to)) => (from, to + 1),
            None => (count, count),
        };
        for position in (0..from).chain(to..count) {
            list.elements.remove(&name_of(first + to_i64(position)));
        }
        if to - from != count {
            list.set_bounds(first + to_i64(from), to - from);
        }
        call.notify(event::LIST, "ltrim", key);
    }
    call.reply.ok();
    Ok(())
}

fn lrem(call: &mut Call<'_, '_>) -> Done {
    let (args, key, wanted) = (call.args, call.key(), call.integer(2)?);
    let mut removed = 0;
    if let Some(mut list) = call.list(key)? {
        let old = list.values()?;
        let most = usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX);
        let most = if most == 0 { usize::MAX } else { most };
        let mut is_kept = |value: &&Vec<u8>| {
            let is_removed = value.as_slice() == args.at(3) && removed < most;
            removed += usize::from(is_removed);
            !is_removed
        };
        let new: Vec<Vec<u8>> = if wanted < 0 {
            let mut kept: Vec<_> = old.iter().rev().filter(&mut is_kept).cloned().collect();
            kept.reverse();
            kept
        } else {
            old.iter().filter(&mut is_kept).cloned().collect()
        };
        if removed > 0 {
            list.replace(&old, &new)?;
            call.notify(event::LIST, "lrem", key);
        }
    }
    call.reply.count(removed);
    Ok(())
}

fn linsert(call: &mut Call<'_, '_>) -> Done {
    let (args, key) = (call.args, call.key());
    let offset = if args.is(2, "before") {
        0
    } else if args.is(2, "after") {
        1
    } else {
        return Err(Fail::SYNTAX);
    };
    let Some(mut list) = call.list(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let old = list.values()?;
    let Some(pivot) = old.iter().position(|value| value.as_slice() == args.at(3)) else {
        call.reply.integer(-1);
        return Ok(());
    };
    let mut new = old.clone();
    new.insert(pivot + offset, args.at(4).to_vec());
    list.replace(&old, &new)?;
    call.notify(event::LIST, "linsert", key);
    call.reply.count(new.len());
    Ok(())
}

/// Options of `LPOS`.
struct PositionOptions {
    rank: i64,
    count: Option<usize>,
    most: usize,
}

fn parse_position(call: &Call<'_, '_>) -> Done<PositionOptions> {
    let mut options = PositionOptions { rank: 1, count: None, most: 0 };
    let mut at = 3;
    while at < call.args.len() {
        if at + 1 >= call.args.len() {
            return Err(Fail::SYNTAX);
        }
        if call.args.is(at, "rank") {
            options.rank = call.integer(at + 1)?;
            if options.rank == 0 {
                return Err(Fail::new(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                     second ... or use negative to start from the end of the list",
                ));
            }
            if options.rank == i64::MIN {
                return Err(Fail::new("ERR value is out of range"));
            }
        } else if call.args.is(at, "count") {
            let count = usize::try_from(call.integer(at + 1)?);
            options.count = Some(count.map_err(|_| Fail::new("ERR COUNT can't be negative"))?);
        } else if call.args.is(at, "maxlen") {
            let most = usize::try_from(call.integer(at + 1)?);
            options.most = most.map_err(|_| Fail::new("ERR MAXLEN can't be negative"))?;
        } else {
            return Err(Fail::SYNTAX);
        }
        at += 2;
    }
    Ok(options)
}

fn lpos(call: &mut Call<'_, '_>) -> Done {
    let (args, key) = (call.args, call.key());
    let PositionOptions { rank, count, most } = parse_position(call)?;
    let mut found = Vec::new();
    if let Some(list) = call.list(key)? {
        let most = if most == 0 { list.len() } else { most.min(list.len()) };
        let wanted = match count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        let mut skipped = rank.unsigned_abs() - 1;
        let (is_reverse, last) = (rank < 0, list.len().saturating_sub(1));
        let mut visited = 0;
        // No reply needs the elements, so they are not copied.
        list.visit_from((0, last), is_reverse, |value| {
            let position = if is_reverse { last - visited } else { visited };
            visited += 1;
            if value == args.at(2) {
                if skipped == 0 {
                    found.push(position);
                } else {
                    skipped -= 1;
                }
            }
            if visited >= most || found.len() >= wanted {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
    }
    if count.is_none() {
        match found.first() {
            Some(at) => call.reply.count(*at),
            None => call.reply.null(),
        }
        return Ok(());
    }
    call.reply.array(found.len());
    for at in found {
        call.reply.count(at);
    }
    Ok(())
}
