//! `XINFO`: what a stream, its groups and its consumers are like.
//!
//! Pending entries are counted in one visit of those of a group. Of them, of entries, and of the
//! pending entries of each consumer, `XINFO STREAM FULL` collects `COUNT`, 10 by default.

use std::{collections::HashMap, ops::ControlFlow};

use super::{
    call::{Call, commands},
    stream::{Fields, GroupState, PendingEntry, Stream, StreamId, reply_entry},
    stream_groups::no_such_group,
};
use crate::{
    failure::{Done, Fail},
    resp::Reply,
    spec::{Group, Keys},
};

commands! { Group::Stream;
    "xinfo" -2 [CONTAINER] Keys::None, help, "5.0.0",
        "A container for stream introspection commands.";
    "xinfo|consumers" 4 [READ] Keys::SECOND, consumers, "5.0.0",
        "Returns a list of the consumers in a consumer group.";
    "xinfo|groups" 3 [READ] Keys::SECOND, groups, "5.0.0",
        "Returns a list of the consumer groups of a stream.";
    "xinfo|help" 2 [] Keys::None, help, "5.0.0",
        "Returns helpful text about the different subcommands.";
    "xinfo|stream" -3 [READ] Keys::SECOND, stream, "5.0.0",
        "Returns information about a stream.";
}

/// What `FULL` shows of a list without `COUNT`.
const COUNT: usize = 10;

/// A consumer with the first of its pending entries.
#[derive(Debug)]
struct Consumer {
    name: Vec<u8>,
    seen: u64,
    pending_count: usize,
    pending: Vec<PendingEntry>,
}

/// The consumers of a group, and its pending entries.
#[derive(Debug)]
struct GroupReport {
    consumers: Vec<Consumer>,
    pending_count: usize,
    pending: Vec<PendingEntry>,
}

impl GroupReport {
    /// Reads what a group has in one visit of its pending entries. Collects the first `most` of
    /// them, and the first `most` of each consumer. Fails if the command is beyond a limit.
    fn read(stream: &Stream<'_>, group: &[u8], most: usize) -> Done<Self> {
        let mut consumers: Vec<Consumer> = Vec::new();
        let mut by_name = HashMap::new();
        for (name, seen) in stream.consumers(group)? {
            by_name.insert(name.clone(), consumers.len());
            consumers.push(Consumer { name, seen, pending_count: 0, pending: Vec::new() });
        }
        let mut report = Self { consumers, pending_count: 0, pending: Vec::new() };
        stream.visit_pending(group, StreamId::ALL, |entry| {
            report.pending_count += 1;
            let own = by_name.get(&entry.consumer).and_then(|at| report.consumers.get_mut(*at));
            if let Some(consumer) = own {
                consumer.pending_count += 1;
                if consumer.pending.len() < most {
                    stream.hold(entry.consumer.len())?;
                    consumer.pending.push(entry.clone());
                }
            }
            if report.pending.len() < most {
                stream.hold(entry.consumer.len())?;
                report.pending.push(entry);
            }
            ControlFlow::Continue(())
        })?;
        Ok(report)
    }
}

/// A group: its name, its state, its lag, its consumers and pending entries.
type GroupRow = (Vec<u8>, GroupState, Option<i64>, GroupReport);

fn group_rows(stream: &Stream<'_>, most: usize) -> Done<Vec<GroupRow>> {
    let groups = stream.groups()?.into_iter();
    let row = |(name, state): (Vec<u8>, GroupState)| {
        let report = GroupReport::read(stream, &name, most)?;
        Ok((name, state, stream.lag(&state)?, report))
    };
    groups.map(row).collect()
}

fn reply_optional(reply: &mut Reply, name: &str, number: Option<i64>) {
    reply.text(name);
    match number {
        Some(number) => reply.integer(number),
        None => reply.null(),
    }
}

fn reply_number(reply: &mut Reply, name: &str, number: u64) {
    reply_optional(reply, name, Some(i64::try_from(number).unwrap_or(i64::MAX)));
}

fn reply_count(reply: &mut Reply, name: &str, count: usize) {
    reply_number(reply, name, u64::try_from(count).unwrap_or(u64::MAX));
}

fn reply_id(reply: &mut Reply, name: &str, id: StreamId) {
    reply.text(name);
    reply.text(&id.text());
}

/// What both forms of `XINFO STREAM` begin with: seven pairs.
fn reply_head(
    reply: &mut Reply,
    (length, last, max_deleted, added): (usize, StreamId, StreamId, u64),
    first: StreamId,
) {
    // There is no radix tree; the numbers are what Redis has for one node.
    for (name, number) in [("length", length), ("radix-tree-keys", 1), ("radix-tree-nodes", 2)] {
        reply_count(reply, name, number);
    }
    reply_id(reply, "last-generated-id", last);
    reply_id(reply, "max-deleted-entry-id", max_deleted);
    reply_number(reply, "entries-added", added);
    reply_id(reply, "recorded-first-entry-id", first);
}

fn stream(call: &mut Call<'_, '_>) -> Done {
    let key = call.args.at(2);
    if call.args.len() > 3 {
        return full(call);
    }
    let stream = call.stream(key)?.ok_or(Fail::NO_SUCH_KEY)?;
    let (first, last) =
        (stream.range(StreamId::ALL, false, 1)?, stream.range(StreamId::ALL, true, 1)?);
    let first_id = first.first().map_or(StreamId::default(), |(id, _)| *id);
    let groups = stream.groups()?.len();
    let head = (stream.len(), stream.last, stream.max_deleted, stream.added);
    let reply = &mut *call.reply;
    reply.map(10);
    reply_head(reply, head, first_id);
    reply_count(reply, "groups", groups);
    for (name, entries) in [("first-entry", first), ("last-entry", last)] {
        reply.text(name);
        match entries.first() {
            Some((id, fields)) => reply_entry(reply, *id, fields),
            None => reply.null(),
        }
    }
    Ok(())
}

/// Parses `FULL [COUNT n]` from argument 3. A count of 0 is all.
fn parse_full(call: &Call<'_, '_>) -> Done<usize> {
    let is_counted = call.args.len() == 6 && call.args.is(4, "count");
    if !call.args.is(3, "full") || !(is_counted || call.args.len() == 4) {
        return Err(Fail::new(
            "ERR unknown subcommand or wrong number of arguments for 'stream'. Try XINFO HELP.",
        ));
    }
    if !is_counted {
        return Ok(COUNT);
    }
    let count = call.integer(5)?;
    // A negative count is the default, as in Redis.
    let count = usize::try_from(count).unwrap_or(COUNT);
    Ok(if count == 0 { usize::MAX } else { count })
}

fn full(call: &mut Call<'_, '_>) -> Done {
    let key = call.args.at(2);
    call.stream(key)?.ok_or(Fail::NO_SUCH_KEY)?;
    let most = parse_full(call)?;
    let stream = call.stream(key)?.ok_or(Fail::NO_SUCH_KEY)?;
    let entries: Vec<(StreamId, Fields)> = stream.range(StreamId::ALL, false, most)?;
    let first = entries.first().map_or(StreamId::default(), |(id, _)| *id);
    let rows = group_rows(&stream, most)?;
    let head = (stream.len(), stream.last, stream.max_deleted, stream.added);
    let reply = &mut *call.reply;
    reply.map(9);
    reply_head(reply, head, first);
    reply.text("entries");
    reply.array(entries.len());
    for (id, fields) in &entries {
        reply_entry(reply, *id, fields);
    }
    reply.text("groups");
    reply.array(rows.len());
    for row in &rows {
        reply_full_group(reply, row);
    }
    Ok(())
}

fn reply_full_group(reply: &mut Reply, (name, state, lag, report): &GroupRow) {
    reply.map(7);
    reply.text("name");
    reply.bulk(name);
    reply_id(reply, "last-delivered-id", state.last);
    reply_optional(reply, "entries-read", state.entries_read.map(u64::cast_signed));
    reply_optional(reply, "lag", *lag);
    reply_count(reply, "pel-count", report.pending_count);
    reply.text("pending");
    reply.array(report.pending.len());
    for entry in &report.pending {
        reply.array(4);
        reply.text(&entry.id.text());
        reply.bulk(&entry.consumer);
        reply_delivery(reply, entry);
    }
    reply.text("consumers");
    reply.array(report.consumers.len());
    for consumer in &report.consumers {
        reply.map(4);
        reply.text("name");
        reply.bulk(&consumer.name);
        reply_number(reply, "seen-time", consumer.seen);
        reply_count(reply, "pel-count", consumer.pending_count);
        reply.text("pending");
        reply.array(consumer.pending.len());
        for entry in &consumer.pending {
            reply.array(3);
            reply.text(&entry.id.text());
            reply_delivery(reply, entry);
        }
    }
}

fn reply_delivery(reply: &mut Reply, entry: &PendingEntry) {
    reply.integer(i64::try_from(entry.delivered).unwrap_or(i64::MAX));
    reply.integer(i64::try_from(entry.deliveries).unwrap_or(i64::MAX));
}

fn groups(call: &mut Call<'_, '_>) -> Done {
    let key = call.args.at(2);
    let stream = call.stream(key)?.ok_or(Fail::NO_SUCH_KEY)?;
    let rows = group_rows(&stream, 0)?;
    let reply = &mut *call.reply;
    reply.array(rows.len());
    for (name, state, lag, report) in rows {
        reply.map(6);
        reply.text("name");
        reply.bulk(&name);
        reply_count(reply, "consumers", report.consumers.len());
        reply_count(reply, "pending", report.pending_count);
        reply_id(reply, "last-delivered-id", state.last);
        reply_optional(reply, "entries-read", state.entries_read.map(u64::cast_signed));
        reply_optional(reply, "lag", lag);
    }
    Ok(())
}

fn consumers(call: &mut Call<'_, '_>) -> Done {
    let (args, now) = (call.args, call.unit.now);
    let key = args.at(2);
    let stream = call.stream(key)?.ok_or(Fail::NO_SUCH_KEY)?;
    if stream.group(args.at(3))?.is_none() {
        return Err(no_such_group(key, args.at(3)));
    }
    let report = GroupReport::read(&stream, args.at(3), 0)?;
    let reply = &mut *call.reply;
    reply.array(report.consumers.len());
    for consumer in report.consumers {
        reply.map(3);
        reply.text("name");
        reply.bulk(&consumer.name);
        reply_count(reply, "pending", consumer.pending_count);
        reply_number(reply, "idle", now.saturating_sub(consumer.seen));
    }
    Ok(())
}

fn help(call: &mut Call<'_, '_>) -> Done {
    super::generic::reply_help(
        call,
        "XINFO",
        &[
            ("CONSUMERS <key> <groupname>", "Show consumers of <groupname>."),
            ("GROUPS <key>", "Show the stream consumer groups."),
            ("STREAM <key> [FULL [COUNT <count>]]", "Show information about the stream."),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
