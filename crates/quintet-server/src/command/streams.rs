//! Streams: entries.

use std::time::Duration;

use super::{
    call::{Call, commands},
    stream::{BAD_ID, Fields, Stream, StreamId, reply_entry},
};
use crate::{
    failure::{Done, Fail},
    resp::Reply,
    spec::{Group, Keys},
    store::{Kind, event},
};

commands! { Group::Stream;
    "xadd" -5 [WRITE DENYOOM FAST] Keys::ONE, xadd, "5.0.0",
        "Appends a new message to a stream. Creates the key if it doesn't exist.";
    "xdel" -3 [WRITE FAST] Keys::ONE, xdel, "5.0.0",
        "Returns the number of messages after removing them from a stream.";
    "xlen" 2 [READ FAST] Keys::ONE, xlen, "5.0.0", "Return the number of messages in a stream.";
    "xrange" -4 [READ] Keys::ONE, xrange, "5.0.0",
        "Returns the messages from a stream within a range of IDs.";
    "xread" -4 [READ BLOCKING] Keys::Streams, xread, "5.0.0",
        "Returns messages from multiple streams with IDs greater than the ones requested. Blocks \
         until a message is available otherwise.";
    "xrevrange" -4 [READ] Keys::ONE, xrevrange, "5.0.0",
        "Returns the messages from a stream within a range of IDs in reverse order.";
    "xsetid" -3 [WRITE DENYOOM FAST] Keys::ONE, xsetid, "5.0.0",
        "An internal command for replicating stream values.";
    "xtrim" -4 [WRITE] Keys::ONE, xtrim, "5.0.0",
        "Deletes messages from the beginning of a stream.";
}

/// What `XTRIM` and `XADD` keep.
#[derive(Clone, Copy, Debug)]
enum Trim {
    Length(usize),
    From(StreamId),
}

/// Parses `MAXLEN [= | ~] n [LIMIT n]` at argument `at`. Returns the position behind.
fn parse_trim(call: &Call<'_, '_>, mut at: usize) -> Done<(Trim, usize)> {
    let is_length = call.args.is(at, "maxlen");
    at += 1;
    let is_approximate = call.args.at(at) == b"~";
    if is_approximate || call.args.at(at) == b"=" {
        at += 1;
    }
    let trim = if is_length {
        let length = call.integer(at)?;
        let length = usize::try_from(length);
        Trim::Length(length.map_err(|_| Fail::new("ERR The MAXLEN argument must be >= 0."))?)
    } else {
        Trim::From(StreamId::parse(call.args.at(at), 0)?)
    };
    at += 1;
    if call.args.is(at, "limit") {
        if !is_approximate {
            return Err(Fail::new(
                "ERR syntax error, LIMIT cannot be used without the special ~ option",
            ));
        }
        if call.integer(at + 1)? < 0 {
            return Err(Fail::new("ERR The LIMIT argument must be >= 0."));
        }
        at += 2;
    }
    Ok((trim, at))
}

/// Removes entries from the start. Returns their number.
fn trim_stream(stream: &mut Stream<'_>, trim: Trim) -> Done<usize> {
    let all = (StreamId::default(), StreamId::MAX);
    let removed = match trim {
        Trim::Length(length) => stream.ids(all, stream.len().saturating_sub(length))?,
        Trim::From(id) => match id.previous() {
            Some(last) => stream.ids((StreamId::default(), last), usize::MAX)?,
            None => Vec::new(),
        },
    };
    for id in &removed {
        stream.delete(*id)?;
    }
    Ok(removed.len())
}

/// The id of a new entry: given, or the next one.
fn new_id(text: &[u8], last: StreamId, now: u64) -> Done<StreamId> {
    let too_small = Fail::new(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    );
    if text == b"*" {
        return if now > last.0 { Ok(StreamId(now, 0)) } else { last.next().ok_or(too_small) };
    }
    if let Some(ms) = text.strip_suffix(b"-*") {
        let ms = crate::number::parse_u64(ms).ok_or(BAD_ID)?;
        return match ms.cmp(&last.0) {
            std::cmp::Ordering::Less => Err(too_small),
            std::cmp::Ordering::Equal => {
                let sequence = last.1.checked_add(1).ok_or(too_small)?;
                Ok(StreamId(ms, sequence))
            }
            std::cmp::Ordering::Greater => Ok(StreamId(ms, u64::from(ms == 0))),
        };
    }
    let id = StreamId::parse(text, 0)?;
    if id == StreamId::default() {
        return Err(Fail::new("ERR The ID specified in XADD must be greater than 0-0"));
    }
    if id <= last { Err(too_small) } else { Ok(id) }
}

fn xadd(call: &mut Call<'_, '_>) -> Done {
    let (args, key, now) = (call.args, call.key(), call.unit.now);
    let (mut creates, mut trim, mut at) = (true, None, 2);
    loop {
        if args.is(at, "nomkstream") {
            creates = false;
            at += 1;
        } else if args.is(at, "maxlen") || args.is(at, "minid") {
            let (parsed, next) = parse_trim(call, at)?;
            (trim, at) = (Some(parsed), next);
        } else {
            break;
        }
    }
    let fields = args.len().saturating_sub(at + 1);
    if fields == 0 || !fields.is_multiple_of(2) {
        return Err(Fail::new("ERR wrong number of arguments for 'xadd' command"));
    }
    let is_present = call.check_kind(key, Kind::Stream)?;
    let last = if is_present {
        call.stream(key)?.map_or(StreamId::default(), |s| s.last)
    } else {
        StreamId::default()
    };
    let id = new_id(args.at(at), last, now)?;
    if !is_present && !creates {
        call.reply.null();
        return Ok(());
    }
    let mut stream = call.create_stream(key)?;
    stream.add(id, args.from(at + 1))?;
    let trimmed = match trim {
        Some(trim) => trim_stream(&mut stream, trim)?,
        None => 0,
    };
    call.notify(event::STREAM, "xadd", key);
    if trimmed > 0 {
        call.notify(event::STREAM, "xtrim", key);
    }
    call.reply.text(&id.text());
    Ok(())
}

fn xtrim(call: &mut Call<'_, '_>) -> Done {
    if !call.args.is(2, "maxlen") && !call.args.is(2, "minid") {
        return Err(Fail::SYNTAX);
    }
    let (trim, at) = parse_trim(call, 2)?;
    if at != call.args.len() {
        return Err(Fail::SYNTAX);
    }
    let key = call.key();
    let removed = match call.stream(key)? {
        Some(mut stream) => trim_stream(&mut stream, trim)?,
        None => 0,
    };
    if removed > 0 {
        call.notify(event::STREAM, "xtrim", key);
    }
    call.reply.count(removed);
    Ok(())
}

fn xlen(call: &mut Call<'_, '_>) -> Done {
    let key = call.key();
    let length = call.stream(key)?.map_or(0, |stream| stream.len());
    call.reply.count(length);
    Ok(())
}

fn xdel(call: &mut Call<'_, '_>) -> Done {
    let (args, key) = (call.args, call.key());
    let mut removed = 0;
    if let Some(mut stream) = call.stream(key)? {
        let ids = args.from(2).map(|text| StreamId::parse(text, 0)).collect::<Done<Vec<_>>>()?;
        for id in ids {
            if stream.delete(id)? {
                removed += 1;
                stream.max_deleted = stream.max_deleted.max(id);
            }
        }
        if removed > 0 {
            stream.save();
            call.notify(event::STREAM, "xdel", key);
        }
    }
    call.reply.count(removed);
    Ok(())
}

/// Parses an end of a range: `-`, `+`, an id, or `(` and an id that is excluded.
pub(super) fn parse_bound(text: &[u8], is_start: bool) -> Done<StreamId> {
    let default = if is_start { 0 } else { u64::MAX };
    match text {
        b"-" => Ok(StreamId::default()),
        b"+" => Ok(StreamId::MAX),
        [b'(', rest @ ..] => {
            let id = StreamId::parse(rest, default)?;
            let id = if is_start { id.next() } else { id.previous() };
            let which = if is_start { "start" } else { "end" };
            id.ok_or_else(|| Fail::with(format!("ERR invalid {which} ID for the interval")))
        }
        other => StreamId::parse(other, default),
    }
}

fn xrange(call: &mut Call<'_, '_>) -> Done {
    let (start, end) = (call.args.at(2), call.args.at(3));
    reply_range(call, start, end, false)
}

fn xrevrange(call: &mut Call<'_, '_>) -> Done {
    let (start, end) = (call.args.at(3), call.args.at(2));
    reply_range(call, start, end, true)
}

fn reply_range(call: &mut Call<'_, '_>, start: &[u8], end: &[u8], is_reverse: bool) -> Done {
    let range = (parse_bound(start, true)?, parse_bound(end, false)?);
    let count = match call.args.len() {
        4 => usize::MAX,
        6 if call.args.is(4, "count") => usize::try_from(call.integer(5)?).unwrap_or(0),
        _ => return Err(Fail::SYNTAX),
    };
    let key = call.key();
    let found =
        call.stream(key)?.map(|stream| stream.range(range, is_reverse, count)).transpose()?;
    match found {
        Some(_) if count == 0 => call.reply.null_array(),
        found => reply_entries(call.reply, &found.unwrap_or_default()),
    }
    Ok(())
}

pub(super) fn reply_entries(reply: &mut Reply, entries: &[(StreamId, Fields)]) {
    reply.array(entries.len());
    for (id, fields) in entries {
        reply_entry(reply, *id, fields);
    }
}

/// Options of `XREAD` and `XREADGROUP`: the most entries, the time to wait (`Some(None)` is for
/// ever), and the position of the first key.
pub(super) type ReadOptions = (usize, Option<Option<Duration>>, usize);

/// Parses options from argument `at`. `others` accepts further words.
pub(super) fn parse_read(
    call: &Call<'_, '_>,
    mut at: usize,
    mut others: impl FnMut(&[u8]) -> bool,
) -> Done<ReadOptions> {
    let (mut count, mut block) = (usize::MAX, None);
    while at < call.args.len() {
        let has_value = at + 1 < call.args.len();
        if call.args.is(at, "count") && has_value {
            let given = usize::try_from(call.integer(at + 1)?).unwrap_or(0);
            count = if given == 0 { usize::MAX } else { given };
            at += 2;
        } else if call.args.is(at, "block") && has_value {
            let millis = crate::number::parse_i64(call.args.at(at + 1));
            let millis =
                millis.ok_or(Fail::new("ERR timeout is not an integer or out of range"))?;
            let millis = u64::try_from(millis).map_err(|_| Fail::new("ERR timeout is negative"))?;
            block = Some((millis > 0).then(|| Duration::from_millis(millis)));
            at += 2;
        } else if call.args.is(at, "streams") {
            return Ok((count, block, at + 1));
        } else if others(call.args.at(at)) {
            at += 1;
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    Err(Fail::SYNTAX)
}

/// Splits what follows `STREAMS` in keys and ids.
pub(super) fn keys_and_ids<'c>(call: &Call<'c, '_>, at: usize) -> Done<Vec<(&'c [u8], &'c [u8])>> {
    let left = call.args.len() - at;
    if left == 0 || !left.is_multiple_of(2) {
        let name = String::from_utf8_lossy(call.args.at(0)).to_lowercase();
        return Err(Fail::with(format!(
            "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '$' must be \
             specified."
        )));
    }
    let keys = call.args.from(at).take(left / 2);
    Ok(keys.zip(call.args.from(at + left / 2)).collect())
}

fn xread(call: &mut Call<'_, '_>) -> Done {
    let (count, block, at) = parse_read(call, 1, |_| false)?;
    let streams = keys_and_ids(call, at)?;
    if !call.session.is_retry {
        let mut starts = Vec::with_capacity(streams.len());
        for (key, text) in &streams {
            starts.push(if *text == b"$" {
                call.stream(key)?.map_or(StreamId::default(), |stream| stream.last)
            } else if *text == b">" {
                return Err(Fail::new(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                     <group> <consumer> option.",
                ));
            } else {
                StreamId::parse(text, 0)?
            });
        }
        // `$` is the end at the first run, also after the command has waited.
        call.session.stream_starts = starts.iter().map(|id| (id.0, id.1)).collect();
    }
    let starts = call.session.stream_starts.clone();
    let mut found = Vec::new();
    for ((key, _), start) in streams.iter().zip(starts) {
        let Some(from) = StreamId(start.0, start.1).next() else { continue };
        if let Some(stream) = call.stream(key)? {
            let entries = stream.range((from, StreamId::MAX), false, count)?;
            if !entries.is_empty() {
                found.push((*key, entries));
            }
        }
    }
    if found.is_empty() {
        if let Some(timeout) = block {
            let keys: Vec<&[u8]> = streams.iter().map(|(key, _)| *key).collect();
            call.wait_for(&keys, timeout, Reply::null_array);
        } else {
            call.reply.null_array();
        }
        return Ok(());
    }
    reply_streams(call.reply, found.len());
    for (key, entries) in found {
        reply_stream(call.reply, key);
        reply_entries(call.reply, &entries);
    }
    Ok(())
}

/// Begins the reply of several streams: a map in RESP3.
pub(super) fn reply_streams(reply: &mut Reply, count: usize) {
    if reply.is_resp3() {
        reply.map(count);
    } else {
        reply.array(count);
    }
}

/// Begins the reply of one of several streams.
pub(super) fn reply_stream(reply: &mut Reply, key: &[u8]) {
    if !reply.is_resp3() {
        reply.array(2);
    }
    reply.bulk(key);
}

fn xsetid(call: &mut Call<'_, '_>) -> Done {
    let (args, key) = (call.args, call.key());
    let id = StreamId::parse(args.at(2), 0)?;
    let (mut added, mut max_deleted, mut at) = (None, None, 3);
    while at + 1 < args.len() {
        if args.is(at, "entriesadded") {
            let number = call.integer(at + 1)?;
            added = Some(
                u64::try_from(number)
                    .map_err(|_| Fail::new("ERR entries_added must be positive"))?,
            );
        } else if args.is(at, "maxdeletedid") {
            max_deleted = Some(StreamId::parse(args.at(at + 1), 0)?);
        } else {
            return Err(Fail::SYNTAX);
        }
        at += 2;
    }
    if at != args.len() {
        return Err(Fail::SYNTAX);
    }
    let mut stream = call.stream(key)?.ok_or(Fail::NO_SUCH_KEY)?;
    let top = stream.range((StreamId::default(), StreamId::MAX), true, 1)?;
    if top.first().is_some_and(|(top, _)| id < *top) {
        return Err(Fail::new(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    stream.last = id;
    stream.added = added.unwrap_or(stream.added);
    stream.max_deleted = max_deleted.unwrap_or(stream.max_deleted);
    stream.save();
    call.notify(event::STREAM, "xsetid", key);
    call.reply.ok();
    Ok(())
}
