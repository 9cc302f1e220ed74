//! Pending entries of consumer groups: to list them, and to give them to other consumers.

use super::{
    call::{Call, commands},
    scan::SCANNED_MAX,
    stream::{BAD_ID, Fields, PendingEntry, Stream, StreamId, lossy, no_group},
    streams::{parse_bound, reply_entries},
};
use crate::{
    failure::{Done, Fail},
    resp::Reply,
    spec::{Group, Keys},
    store::event,
};

commands! { Group::Stream;
    "xautoclaim" -6 [WRITE FAST] Keys::ONE, xautoclaim, "6.2.0",
        "Changes, or acquires, ownership of messages in a consumer group, as if the messages \
         were delivered to as consumer group member.";
    "xclaim" -6 [WRITE FAST] Keys::ONE, xclaim, "5.0.0",
        "Changes, or acquires, ownership of a message in a consumer group, as if the message was \
         delivered a consumer group member.";
    "xpending" -3 [READ] Keys::ONE, xpending, "5.0.0",
        "Returns the information and entries from a stream consumer group's pending entries list.";
}

/// Bytes of entries after which one call of `XAUTOCLAIM` ends, with an id for the next.
const CLAIMED_BYTES: usize = 16 << 20;

/// The stream and group of a command whose arguments 1 and 2 name them.
fn with_group<'u>(call: &'u mut Call<'_, '_>) -> Done<Stream<'u>> {
    let (key, group) = (call.key(), call.args.at(2));
    let stream = call.stream(key)?.ok_or_else(|| no_group(key, group, ""))?;
    if stream.group(group)?.is_none() {
        return Err(no_group(key, group, ""));
    }
    Ok(stream)
}

fn xpending(call: &mut Call<'_, '_>) -> Done {
    let args = call.args;
    if args.len() == 3 {
        let pending = with_group(call)?.pending(args.at(2), StreamId::ALL)?;
        reply_summary(call.reply, &pending);
        return Ok(());
    }
    let (min_idle, at) = if args.is(3, "idle") {
        let idle = u64::try_from(call.integer(4)?).unwrap_or(0);
        (idle, 5)
    } else {
        (0, 3)
    };
    if args.len() != at + 3 && args.len() != at + 4 {
        return Err(Fail::SYNTAX);
    }
    let range = (parse_bound(args.at(at), true)?, parse_bound(args.at(at + 1), false)?);
    let count = usize::try_from(call.integer(at + 2)?).unwrap_or(0);
    let (consumer, now) = (args.get(at + 3), call.unit.now);
    let pending: Vec<PendingEntry> = with_group(call)?
        .pending(args.at(2), range)?
        .into_iter()
        .filter(|entry| consumer.is_none_or(|consumer| entry.consumer == consumer))
        .filter(|entry| now.saturating_sub(entry.delivered) >= min_idle)
        .take(count)
        .collect();
    call.reply.array(pending.len());
    for entry in pending {
        call.reply.array(4);
        call.reply.text(&entry.id.text());
        call.reply.bulk(&entry.consumer);
        for number in [now.saturating_sub(entry.delivered), entry.deliveries] {
            call.reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
        }
    }
    Ok(())
}

fn reply_summary(reply: &mut Reply, pending: &[PendingEntry]) {
    reply.array(4);
    reply.count(pending.len());
    let (Some(first), Some(last)) = (pending.first(), pending.last()) else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    reply.text(&first.id.text());
    reply.text(&last.id.text());
    let mut consumers = std::collections::BTreeMap::<&[u8], usize>::new();
    for entry in pending {
        *consumers.entry(&entry.consumer).or_default() += 1;
    }
    reply.array(consumers.len());
    for (consumer, count) in consumers {
        reply.array(2);
        reply.bulk(consumer);
        reply.text(&count.to_string());
    }
}

/// Options of `XCLAIM` behind the ids.
#[derive(Default)]
struct ClaimOptions {
    delivered: Option<u64>,
    deliveries: Option<u64>,
    forces: bool,
    ids_only: bool,
    last: Option<StreamId>,
}

fn parse_claim(call: &Call<'_, '_>, mut at: usize) -> Done<ClaimOptions> {
    let (args, now) = (call.args, call.unit.now);
    let mut options = ClaimOptions::default();
    while at < args.len() {
        let has_value = at + 1 < args.len();
        if args.is(at, "force") {
            options.forces = true;
        } else if args.is(at, "justid") {
            options.ids_only = true;
        } else if args.is(at, "idle") && has_value {
            let idle = u64::try_from(call.integer(at + 1)?).unwrap_or(0);
            options.delivered = Some(now.saturating_sub(idle));
            at += 1;
        } else if args.is(at, "time") && has_value {
            let time = u64::try_from(call.integer(at + 1)?).unwrap_or(0);
            options.delivered = Some(time.min(now));
            at += 1;
        } else if args.is(at, "retrycount") && has_value {
            let count = u64::try_from(call.integer(at + 1)?);
            options.deliveries = Some(count.map_err(|_| {
                Fail::new(
                    "ERR Invalid RETRYCOUNT option argument for \
                 XCLAIM",
                )
            })?);
            at += 1;
        } else if args.is(at, "lastid") && has_value {
            options.last = Some(StreamId::parse(args.at(at + 1), 0)?);
            at += 1;
        } else {
            let word = lossy(args.at(at));
            return Err(Fail::with(format!("ERR Unrecognized XCLAIM option '{word}'")));
        }
        at += 1;
    }
    Ok(options)
}

fn xclaim(call: &mut Call<'_, '_>) -> Done {
    let (args, now) = (call.args, call.unit.now);
    let (group, consumer) = (args.at(2), args.at(3));
    with_group(call)?;
    let min_idle = crate::number::parse_i64(args.at(4))
        .ok_or(Fail::new("ERR Invalid min-idle-time argument for XCLAIM"))?;
    let min_idle = u64::try_from(min_idle).unwrap_or(0);
    let ids: Vec<StreamId> = args.from(5).map_while(|text| StreamId::parse(text, 0).ok()).collect();
    if ids.is_empty() {
        return Err(BAD_ID);
    }
    let options = parse_claim(call, 5 + ids.len())?;
    let mut stream = with_group(call)?;
    if let (Some(last), Some(mut state)) = (options.last, stream.group(group)?)
        && last > state.last
    {
        state.last = last;
        stream.put_group(group, state)?;
    }
    let mut claimed = Vec::new();
    for id in ids {
        let fields = stream.get(id)?;
        let known = stream.pending_entry(group, id)?;
        let Some(fields) = fields else {
            // A deleted entry is claimed by no consumer and no longer pending.
            stream.acknowledge(group, id)?;
            continue;
        };
        let mut entry = match known {
            Some(entry) => entry,
            None if options.forces => {
                PendingEntry { id, delivered: 0, deliveries: 0, consumer: consumer.to_vec() }
            }
            None => continue,
        };
        if now.saturating_sub(entry.delivered) < min_idle {
            continue;
        }
        claim(&mut entry, consumer, (options.delivered.unwrap_or(now), options.ids_only));
        entry.deliveries = options.deliveries.unwrap_or(entry.deliveries);
        stream.put_pending(group, &entry)?;
        claimed.push((id, fields));
    }
    if !claimed.is_empty() && stream.see_consumer(group, consumer, now)? {
        call.notify(event::STREAM, "xgroup-createconsumer", call.key());
    }
    reply_claimed(call.reply, &claimed, options.ids_only);
    Ok(())
}

/// Gives a pending entry to a consumer. A claim of ids alone counts as no delivery.
fn claim(entry: &mut PendingEntry, consumer: &[u8], (delivered, ids_only): (u64, bool)) {
    entry.consumer = consumer.to_vec();
    entry.delivered = delivered;
    entry.deliveries += u64::from(!ids_only);
}

fn reply_claimed(reply: &mut Reply, claimed: &[(StreamId, Fields)], ids_only: bool) {
    if !ids_only {
        reply_entries(reply, claimed);
        return;
    }
    reply.array(claimed.len());
    for (id, _) in claimed {
        reply.text(&id.text());
    }
}

fn xautoclaim(call: &mut Call<'_, '_>) -> Done {
    let (args, now) = (call.args, call.unit.now);
    let (group, consumer) = (args.at(2), args.at(3));
    let min_idle = crate::number::parse_i64(args.at(4))
        .ok_or(Fail::new("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?;
    let min_idle = u64::try_from(min_idle).unwrap_or(0);
    let start = parse_bound(args.at(5), true)?;
    let (mut count, mut ids_only, mut at) = (100, false, 6);
    while at < args.len() {
        if args.is(at, "justid") {
            ids_only = true;
        } else if args.is(at, "count") && at + 1 < args.len() {
            let given = usize::try_from(call.integer(at + 1)?).ok().filter(|count| *count > 0);
            count = given.ok_or(Fail::new("ERR COUNT must be > 0"))?;
            at += 1;
        } else {
            return Err(Fail::SYNTAX);
        }
        at += 1;
    }
    let mut stream = with_group(call)?;
    let (mut claimed, mut deleted, mut next) = (Vec::new(), Vec::new(), StreamId::default());
    let mut attempts = count.saturating_mul(10).min(SCANNED_MAX);
    let (range, mut bytes) = ((start, StreamId::MAX), 0);
    for mut entry in stream.first_pending(group, range, attempts + 1)? {
        let is_full = claimed.len() + deleted.len() >= count || bytes >= CLAIMED_BYTES;
        if attempts == 0 || is_full {
            next = entry.id;
            break;
        }
        attempts -= 1;
        let Some(fields) = stream.get(entry.id)? else {
            stream.acknowledge(group, entry.id)?;
            deleted.push(entry.id);
            continue;
        };
        if now.saturating_sub(entry.delivered) < min_idle {
            continue;
        }
        bytes += fields.iter().map(Vec::len).sum::<usize>();
        claim(&mut entry, consumer, (now, ids_only));
        stream.put_pending(group, &entry)?;
        claimed.push((entry.id, fields));
    }
    if !claimed.is_empty() && stream.see_consumer(group, consumer, now)? {
        call.notify(event::STREAM, "xgroup-createconsumer", call.key());
    }
    call.reply.array(3);
    call.reply.text(&next.text());
    reply_claimed(call.reply, &claimed, ids_only);
    call.reply.array(deleted.len());
    for id in deleted {
        call.reply.text(&id.text());
    }
    Ok(())
}
