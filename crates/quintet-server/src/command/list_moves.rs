//! Commands that take elements from lists, and those that wait for them.

use std::time::Duration;

use super::{
    call::{Call, commands},
    lists::{End, List, pushed},
    sets::parse_key_count,
};
use crate::{
    failure::{Done, Fail},
    resp::Reply,
    spec::{Group, Keys},
    store::{Kind, event},
};

commands! { Group::List;
    "blmove" 6 [WRITE DENYOOM BLOCKING] Keys::TWO, blmove, "6.2.0",
        "Pops an element from a list, pushes it to another list and returns it. Blocks until an \
         element is available otherwise. Deletes the list if the last element was moved.";
    "blmpop" -5 [WRITE BLOCKING] Keys::Counted { target: 0, count: 2 }, blmpop, "7.0.0",
        "Pops the first element from one of multiple lists. Blocks until an element is available \
         otherwise. Deletes the list if the last element was popped.";
    "blpop" -3 [WRITE BLOCKING] Keys::ALL_BUT_LAST, blpop, "2.0.0",
        "Removes and returns the first element in a list. Blocks until an element is available \
         otherwise. Deletes the list if the last element was popped.";
    "brpop" -3 [WRITE BLOCKING] Keys::ALL_BUT_LAST, brpop, "2.0.0",
        "Removes and returns the last element in a list. Blocks until an element is available \
         otherwise. Deletes the list if the last element was popped.";
    "brpoplpush" 4 [WRITE DENYOOM BLOCKING] Keys::TWO, brpoplpush, "2.2.0",
        "Pops an element from a list, pushes it to another list and returns it. Block until an \
         element is available otherwise. Deletes the list if the last element was popped.";
    "lmove" 5 [WRITE DENYOOM] Keys::TWO, lmove, "6.2.0",
        "Returns an element after popping it from one list and pushing it to another. Deletes \
         the list if the last element was moved.";
    "lmpop" -4 [WRITE] Keys::Counted { target: 0, count: 1 }, lmpop, "7.0.0",
        "Returns multiple elements from a list after removing them. Deletes the list if the last \
         element was popped.";
    "lpop" -2 [WRITE FAST] Keys::ONE, lpop, "1.0.0",
        "Returns the first elements in a list after removing it. Deletes the list if the last \
         element was popped.";
    "rpop" -2 [WRITE FAST] Keys::ONE, rpop, "1.0.0",
        "Returns and removes the last elements of a list. Deletes the list if the last element \
         was popped.";
    "rpoplpush" 3 [WRITE DENYOOM] Keys::TWO, rpoplpush, "1.2.0",
        "Returns the last element of a list after removing and pushing it to another list. \
         Deletes the list if the last element was popped.";
}

/// Removes up to `count` elements.
fn take(call: &mut Call<'_, '_>, key: &[u8], end: End, count: usize) -> Done<Option<Vec<Vec<u8>>>> {
    let taken = remove(call, key, end, count)?;
    if taken.as_ref().is_some_and(|taken| !taken.is_empty()) {
        call.notify(event::LIST, popped(end), key);
    }
    Ok(taken)
}

/// Removes up to `count` elements without an event.
fn remove(
    call: &mut Call<'_, '_>,
    key: &[u8],
    end: End,
    count: usize,
) -> Done<Option<Vec<Vec<u8>>>> {
    let Some(mut list) = call.list(key)? else { return Ok(None) };
    let mut taken = Vec::new();
    for _ in 0..count.min(list.len()) {
        taken.extend(list.pop(end)?);
    }
    Ok(Some(taken))
}

/// The event of a pop.
fn popped(end: End) -> &'static str {
    if end == End::Left { "lpop" } else { "rpop" }
}

fn lpop(call: &mut Call<'_, '_>) -> Done {
    pop(call, End::Left)
}

fn rpop(call: &mut Call<'_, '_>) -> Done {
    pop(call, End::Right)
}

fn pop(call: &mut Call<'_, '_>, end: End) -> Done {
    let key = call.key();
    match call.args.len() {
        2 => {
            let taken = take(call, key, end, 1)?.unwrap_or_default();
            call.reply.optional(taken.first().map(Vec::as_slice));
        }
        3 => {
            let count = usize::try_from(call.integer(2)?)
                .map_err(|_| Fail::new("ERR value is out of range, must be positive"))?;
            match take(call, key, end, count)? {
                None => call.reply.null_array(),
                Some(taken) => reply_values(call.reply, &taken),
            }
        }
        _ => {
            let name = String::from_utf8_lossy(call.args.at(0)).to_lowercase();
            return Err(Fail::with(format!("ERR wrong number of arguments for '{name}' command")));
        }
    }
    Ok(())
}

fn reply_values(reply: &mut Reply, values: &[Vec<u8>]) {
    reply.array(values.len());
    for value in values {
        reply.bulk(value);
    }
}

fn parse_end(word: &[u8]) -> Done<End> {
    if word.eq_ignore_ascii_case(b"left") {
        Ok(End::Left)
    } else if word.eq_ignore_ascii_case(b"right") {
        Ok(End::Right)
    } else {
        Err(Fail::SYNTAX)
    }
}

/// Moves an element. Returns whether there was one.
fn move_element(call: &mut Call<'_, '_>, from: End, to: End) -> Done<bool> {
    let (source, target) = (call.key(), call.args.at(2));
    if !call.check_kind(source, Kind::List)? {
        return Ok(false);
    }
    call.check_kind(target, Kind::List)?;
    let mut taken = remove(call, source, from, 1)?.unwrap_or_default();
    let Some(value) = taken.pop() else { return Ok(false) };
    List::new(call.create(target, Kind::List)?).push(to, &value)?;
    // In the order of Redis, which matters if both lists are one.
    call.notify(event::LIST, pushed(to), target);
    call.notify(event::LIST, popped(from), source);
    call.reply.bulk(&value);
    Ok(true)
}

fn lmove(call: &mut Call<'_, '_>) -> Done {
    let (from, to) = (parse_end(call.args.at(3))?, parse_end(call.args.at(4))?);
    if !move_element(call, from, to)? {
        call.reply.null();
    }
    Ok(())
}

fn rpoplpush(call: &mut Call<'_, '_>) -> Done {
    if !move_element(call, End::Right, End::Left)? {
        call.reply.null();
    }
    Ok(())
}

/// Parses the time that a blocking command waits; 0 is for ever.
pub(super) fn parse_timeout(text: &[u8]) -> Done<Option<Duration>> {
    let seconds = crate::number::parse_f64(text)
        .filter(|seconds| seconds.is_finite())
        .ok_or(Fail::new("ERR timeout is not a float or out of range"))?;
    if seconds < 0.0 {
        return Err(Fail::new("ERR timeout is negative"));
    }
    if seconds == 0.0 {
        return Ok(None);
    }
    let timeout = Duration::try_from_secs_f64(seconds);
    let timeout = timeout.ok().filter(|timeout| timeout.as_secs() < 1 << 40);
    timeout.map(Some).ok_or(Fail::new("ERR timeout is out of range"))
}

fn blmove(call: &mut Call<'_, '_>) -> Done {
    let (from, to) = (parse_end(call.args.at(3))?, parse_end(call.args.at(4))?);
    let timeout = parse_timeout(call.args.at(5))?;
    move_or_wait(call, from, to, timeout)
}

fn brpoplpush(call: &mut Call<'_, '_>) -> Done {
    let timeout = parse_timeout(call.args.at(3))?;
    move_or_wait(call, End::Right, End::Left, timeout)
}

fn move_or_wait(call: &mut Call<'_, '_>, from: End, to: End, timeout: Option<Duration>) -> Done {
    let source = call.key();
    if !move_element(call, from, to)? {
        call.wait_for(&[source], timeout, Reply::null);
    }
    Ok(())
}

fn blpop(call: &mut Call<'_, '_>) -> Done {
    pop_or_wait(call, End::Left)
}

fn brpop(call: &mut Call<'_, '_>) -> Done {
    pop_or_wait(call, End::Right)
}

fn pop_or_wait(call: &mut Call<'_, '_>, end: End) -> Done {
    let args = call.args;
    let last = args.len() - 1;
    let timeout = parse_timeout(args.at(last))?;
    let keys: Vec<&[u8]> = args.from(1).take(last - 1).collect();
    for key in &keys {
        let taken = take(call, key, end, 1)?.unwrap_or_default();
        if let Some(value) = taken.first() {
            call.reply.array(2);
            call.reply.bulk(key);
            call.reply.bulk(value);
            return Ok(());
        }
    }
    call.wait_for(&keys, timeout, Reply::null_array);
    Ok(())
}

/// Keys, end and count of `LMPOP`, whose number of keys is argument `at`.
fn parse_multi_pop<'c>(call: &Call<'c, '_>, at: usize) -> Done<(Vec<&'c [u8]>, End, usize)> {
    let end = parse_key_count(call, at, Fail::SYNTAX)?;
    let side = parse_end(call.args.get(end).ok_or(Fail::SYNTAX)?)?;
    let count = match call.args.len() - end {
        1 => 1,
        3 if call.args.is(end + 1, "count") => {
            let count = crate::number::parse_i64(call.args.at(end + 2)).filter(|count| *count > 0);
            let count = count.ok_or(Fail::new("ERR count should be greater than 0"))?;
            usize::try_from(count).unwrap_or(usize::MAX)
        }
        _ => return Err(Fail::SYNTAX),
    };
    Ok((call.args.from(at + 1).take(end - at - 1).collect(), side, count))
}

/// Pops from the first list that has elements. Returns whether there was one.
fn multi_pop(call: &mut Call<'_, '_>, keys: &[&[u8]], end: End, count: usize) -> Done<bool> {
    for key in keys {
        let taken = take(call, key, end, count)?.unwrap_or_default();
        if !taken.is_empty() {
            call.reply.array(2);
            call.reply.bulk(key);
            reply_values(call.reply, &taken);
            return Ok(true);
        }
    }
    Ok(false)
}

fn lmpop(call: &mut Call<'_, '_>) -> Done {
    let (keys, end, count) = parse_multi_pop(call, 1)?;
    if !multi_pop(call, &keys, end, count)? {
        call.reply.null_array();
    }
    Ok(())
}

fn blmpop(call: &mut Call<'_, '_>) -> Done {
    let timeout = parse_timeout(call.args.at(1))?;
    let (keys, end, count) = parse_multi_pop(call, 2)?;
    if !multi_pop(call, &keys, end, count)? {
        call.wait_for(&keys, timeout, Reply::null_array);
    }
    Ok(())
}
