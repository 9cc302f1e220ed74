//! Consumer groups of streams.

use super::{
    call::{Call, commands},
    stream::{Fields, GroupState, PendingEntry, Stream, StreamId, lossy, no_group, reply_entry},
    streams::{keys_and_ids, parse_read, reply_stream, reply_streams},
};
use crate::{
    failure::{Done, Fail},
    resp::Reply,
    spec::{Group, Keys},
    store::event,
};

commands! { Group::Stream;
    "xack" -4 [WRITE FAST] Keys::ONE, xack, "5.0.0",
        "Returns the number of messages that were successfully acknowledged by the consumer \
         group member of a stream.";
    "xgroup" -2 [CONTAINER] Keys::None, help, "5.0.0", "A container for consumer groups commands.";
    "xgroup|create" -5 [WRITE DENYOOM] Keys::SECOND, xgroup_create, "5.0.0",
        "Creates a consumer group.";
    "xgroup|createconsumer" 5 [WRITE DENYOOM] Keys::SECOND, xgroup_createconsumer, "6.2.0",
        "Creates a consumer in a consumer group.";
    "xgroup|delconsumer" 5 [WRITE] Keys::SECOND, xgroup_delconsumer, "5.0.0",
        "Deletes a consumer from a consumer group.";
    "xgroup|destroy" 4 [WRITE] Keys::SECOND, xgroup_destroy, "5.0.0",
        "Destroys a consumer group.";
    "xgroup|help" 2 [] Keys::None, help, "5.0.0",
        "Returns helpful text about the different subcommands.";
    "xgroup|setid" -5 [WRITE] Keys::SECOND, xgroup_setid, "5.0.0",
        "Sets the last-delivered ID of a consumer group.";
    "xreadgroup" -7 [WRITE BLOCKING] Keys::Streams, xreadgroup, "5.0.0",
        "Returns new or historical messages from a stream for a consumer in a group. Blocks \
         until a message is available otherwise.";
}

/// The failure for a missing group of a stream.
pub(super) fn no_such_group(key: &[u8], group: &[u8]) -> Fail {
    Fail::with(format!(
        "NOGROUP No such consumer group '{}' for key name '{}'",
        lossy(group),
        lossy(key)
    ))
}

/// The stream of an `XGROUP` subcommand.
fn group_stream<'u>(call: &'u mut Call<'_, '_>) -> Done<Stream<'u>> {
    let key = call.args.at(2);
    call.stream(key)?.ok_or(Fail::new(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want \
         to use the MKSTREAM option to create an empty stream automatically.",
    ))
}

/// Parses `ENTRIESREAD n` and `MKSTREAM` from argument 5.
fn parse_group(call: &Call<'_, '_>, may_create: bool) -> Done<(bool, Option<u64>)> {
    let (mut creates, mut read, mut at) = (false, None, 5);
    while at < call.args.len() {
        if may_create && call.args.is(at, "mkstream") {
            creates = true;
            at += 1;
        } else if call.args.is(at, "entriesread") && at + 1 < call.args.len() {
            let number = call.integer(at + 1)?;
            if number < -1 {
                return Err(Fail::new("ERR value for ENTRIESREAD must be positive or -1"));
            }
            read = u64::try_from(number).ok();
            at += 2;
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    Ok((creates, read))
}

fn xgroup_create(call: &mut Call<'_, '_>) -> Done {
    let (creates, entries_read) = parse_group(call, true)?;
    let (args, key) = (call.args, call.args.at(2));
    let is_end = args.at(4) == b"$";
    let given = if is_end { StreamId::default() } else { StreamId::parse(args.at(4), 0)? };
    if !creates {
        group_stream(call)?;
    }
    let mut stream = call.create_stream(key)?;
    if stream.group(args.at(3))?.is_some() {
        return Err(Fail::new("BUSYGROUP Consumer Group name already exists"));
    }
    let last = if is_end { stream.last } else { given };
    stream.put_group(args.at(3), GroupState { last, entries_read })?;
    stream.save();
    call.notify(event::STREAM, "xgroup-create", key);
    call.reply.ok();
    Ok(())
}

fn xgroup_setid(call: &mut Call<'_, '_>) -> Done {
    let (_, entries_read) = parse_group(call, false)?;
    let (args, key) = (call.args, call.args.at(2));
    let mut stream = group_stream(call)?;
    if stream.group(args.at(3))?.is_none() {
        return Err(no_such_group(key, args.at(3)));
    }
    let last = if args.at(4) == b"$" { stream.last } else { StreamId::parse(args.at(4), 0)? };
    stream.put_group(args.at(3), GroupState { last, entries_read })?;
    call.notify(event::STREAM, "xgroup-setid", key);
    call.reply.ok();
    Ok(())
}

fn xgroup_destroy(call: &mut Call<'_, '_>) -> Done {
    let args = call.args;
    let mut stream = group_stream(call)?;
    let is_present = stream.group(args.at(3))?.is_some();
    if is_present {
        stream.remove_group(args.at(3))?;
        call.notify(event::STREAM, "xgroup-destroy", args.at(2));
    }
    call.reply.flag(is_present);
    Ok(())
}

fn xgroup_createconsumer(call: &mut Call<'_, '_>) -> Done {
    let (args, now) = (call.args, call.unit.now);
    let mut stream = group_stream(call)?;
    if stream.group(args.at(3))?.is_none() {
        return Err(no_such_group(args.at(2), args.at(3)));
    }
    let is_known = stream.consumers(args.at(3))?.iter().any(|(name, _)| name == args.at(4));
    if !is_known {
        stream.see_consumer(args.at(3), args.at(4), now)?;
        call.notify(event::STREAM, "xgroup-createconsumer", args.at(2));
    }
    call.reply.flag(!is_known);
    Ok(())
}

fn xgroup_delconsumer(call: &mut Call<'_, '_>) -> Done {
    let args = call.args;
    let mut stream = group_stream(call)?;
    if stream.group(args.at(3))?.is_none() {
        return Err(no_such_group(args.at(2), args.at(3)));
    }
    let is_known = stream.consumers(args.at(3))?.iter().any(|(name, _)| name == args.at(4));
    let pending = stream.remove_consumer(args.at(3), args.at(4))?;
    if is_known {
        call.notify(event::STREAM, "xgroup-delconsumer", args.at(2));
    }
    call.reply.count(pending);
    Ok(())
}

/// An entry of a history: deleted entries have no fields.
type History = Vec<(StreamId, Option<Fields>)>;

/// Delivers entries that no consumer of the group has had.
fn deliver_new(
    stream: &mut Stream<'_>,
    (group, consumer): (&[u8], &[u8]),
    count: usize,
    (keeps_pending, now): (bool, u64),
) -> Done<Vec<(StreamId, Fields)>> {
    let Some(mut state) = stream.group(group)? else { return Ok(Vec::new()) };
    let Some(from) = state.last.next() else { return Ok(Vec::new()) };
    let entries = stream.range((from, StreamId::MAX), false, count)?;
    for (id, _) in &entries {
        state.entries_read = match state.entries_read {
            Some(read) if !stream.has_tombstones_from(*id) => Some(read + 1),
            _ => stream.entries_up_to(*id)?,
        };
        state.last = *id;
        if keeps_pending {
            let consumer = consumer.to_vec();
            let entry = PendingEntry { id: *id, delivered: now, deliveries: 1, consumer };
            stream.put_pending(group, &entry)?;
        }
    }
    if !entries.is_empty() {
        stream.put_group(group, state)?;
    }
    Ok(entries)
}

/// Delivers the pending entries of a consumer again.
fn deliver_again(
    stream: &mut Stream<'_>,
    (group, consumer): (&[u8], &[u8]),
    start: StreamId,
    count: usize,
    now: u64,
) -> Done<History> {
    let Some(from) = start.next() else { return Ok(Vec::new()) };
    let mut history = Vec::new();
    let pending = stream.pending(group, (from, StreamId::MAX))?;
    for mut entry in pending.into_iter().filter(|entry| entry.consumer == consumer).take(count) {
        let fields = stream.get(entry.id)?;
        if fields.is_some() {
            entry.delivered = now;
            entry.deliveries += 1;
            stream.put_pending(group, &entry)?;
        }
        history.push((entry.id, fields));
    }
    Ok(history)
}

fn xreadgroup(call: &mut Call<'_, '_>) -> Done {
    if !call.args.is(1, "group") {
        return Err(Fail::SYNTAX);
    }
    let (args, now) = (call.args, call.unit.now);
    let (group, consumer) = (args.at(2), args.at(3));
    let mut keeps_pending = true;
    let (count, block, at) = parse_read(call, 4, |word| {
        let is_known = word.eq_ignore_ascii_case(b"noack");
        keeps_pending &= !is_known;
        is_known
    })?;
    let streams = keys_and_ids(call, at)?;
    let suffix = " in XREADGROUP with GROUP option";
    for (key, text) in &streams {
        if *text != b">" {
            StreamId::parse(text, 0)?;
        }
        let found = match call.stream(key)? {
            Some(stream) => stream.group(group)?,
            None => None,
        };
        found.ok_or_else(|| no_group(key, group, suffix))?;
    }
    let mut found: Vec<(&[u8], History)> = Vec::new();
    for (key, text) in &streams {
        let Some(mut stream) = call.stream(key)? else { continue };
        if *text == b">" {
            let names = (group, consumer);
            let entries = deliver_new(&mut stream, names, count, (keeps_pending, now))?;
            // A consumer begins to exist when it is served.
            if !entries.is_empty() {
                if stream.see_consumer(group, consumer, now)? {
                    call.notify(event::STREAM, "xgroup-createconsumer", key);
                }
                let entries = entries.into_iter().map(|(id, fields)| (id, Some(fields)));
                found.push((key, entries.collect()));
            }
        } else {
            let start = StreamId::parse(text, 0)?;
            let is_new = stream.see_consumer(group, consumer, now)?;
            found.push((key, deliver_again(&mut stream, (group, consumer), start, count, now)?));
            if is_new {
                call.notify(event::STREAM, "xgroup-createconsumer", key);
            }
        }
    }
    if found.is_empty() {
        match block {
            Some(timeout) => {
                let keys: Vec<&[u8]> = streams.iter().map(|(key, _)| *key).collect();
                call.wait_for(&keys, timeout, Reply::null_array);
            }
            None => call.reply.null_array(),
        }
        return Ok(());
    }
    reply_streams(call.reply, found.len());
    for (key, entries) in found {
        reply_stream(call.reply, key);
        reply_history(call.reply, &entries);
    }
    Ok(())
}

fn reply_history(reply: &mut Reply, entries: &History) {
    reply.array(entries.len());
    for (id, fields) in entries {
        if let Some(fields) = fields {
            reply_entry(reply, *id, fields);
        } else {
            reply.array(2);
            reply.text(&id.text());
            reply.null_array();
        }
    }
}

fn parse_ids<'a>(ids: impl Iterator<Item = &'a [u8]>) -> Done<Vec<StreamId>> {
    ids.map(|text| StreamId::parse(text, 0)).collect()
}

fn xack(call: &mut Call<'_, '_>) -> Done {
    let (args, key) = (call.args, call.key());
    let mut count = 0;
    if let Some(mut stream) = call.stream(key)?
        && stream.group(args.at(2))?.is_some()
    {
        let ids = parse_ids(args.from(3))?;
        for id in ids {
            count += usize::from(stream.acknowledge(args.at(2), id)?);
        }
    }
    call.reply.count(count);
    Ok(())
}

fn help(call: &mut Call<'_, '_>) -> Done {
    super::generic::reply_help(
        call,
        "XGROUP",
        &[
            ("CREATE <key> <groupname> <id|$> [option]", "Create a new consumer group."),
            ("CREATECONSUMER <key> <groupname> <consumer>", "Create a new consumer in the group."),
            ("DELCONSUMER <key> <groupname> <consumer>", "Remove the specified consumer."),
            ("DESTROY <key> <groupname>", "Remove the specified group."),
            ("SETID <key> <groupname> <id|$>", "Set the current group ID."),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
