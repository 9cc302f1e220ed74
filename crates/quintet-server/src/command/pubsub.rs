//! Publish and subscribe.

use std::sync::atomic::Ordering;

use super::{
    call::{Call, commands},
    generic::reply_help,
    scan::check_pattern,
};
use crate::{
    failure::Done,
    resp::Reply,
    spec::{Group, Keys},
    state::{Server, Session, name_bytes},
};

commands! { Group::PubSub;
    "psubscribe" -2 [PUBSUB SUBSCRIBED] Keys::None, psubscribe, "2.0.0",
        "Listens for messages published to channels that match one or more patterns.";
    "publish" 3 [PUBSUB FAST] Keys::None, publish, "2.0.0", "Posts a message to a channel.";
    "pubsub" -2 [CONTAINER] Keys::None, help, "2.8.0", "A container for Pub/Sub commands.";
    "pubsub|channels" -2 [PUBSUB] Keys::None, channels, "2.8.0", "Returns the active channels.";
    "pubsub|help" 2 [] Keys::None, help, "6.2.0",
        "Returns helpful text about the different subcommands.";
    "pubsub|numpat" 2 [PUBSUB] Keys::None, numpat, "2.8.0",
        "Returns a count of unique pattern subscriptions.";
    "pubsub|numsub" -2 [PUBSUB] Keys::None, numsub, "2.8.0",
        "Returns a count of subscribers to channels.";
    "punsubscribe" -1 [PUBSUB SUBSCRIBED] Keys::None, punsubscribe, "2.0.0",
        "Stops listening to messages published to channels that match one or more patterns.";
    "subscribe" -2 [PUBSUB SUBSCRIBED] Keys::None, subscribe, "2.0.0",
        "Listens for messages published to channels.";
    "unsubscribe" -1 [PUBSUB SUBSCRIBED] Keys::None, unsubscribe, "2.0.0",
        "Stops listening to messages posted to channels.";
}

fn publish(call: &mut Call<'_, '_>) -> Done {
    let receivers = call.server.pubsub.publish(call.args.at(1), call.args.at(2));
    call.reply.count(receivers);
    Ok(())
}

fn confirm(reply: &mut Reply, kind: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.text(kind);
    reply.optional(name);
    reply.count(count);
}

fn note_subscriptions(session: &Session) {
    session.client.info().subscriptions = (session.channels.len(), session.patterns.len());
    let is_subscriber = session.subscription_count() > 0;
    session.client.is_subscriber.store(is_subscriber, Ordering::Release);
}

fn add(call: &mut Call<'_, '_>, kind: &str, is_pattern: bool) -> Done {
    for name in call.args.from(1) {
        if is_pattern {
            check_pattern(name)?;
        }
    }
    for name in call.args.from(1) {
        let session = &mut *call.session;
        let own = if is_pattern { &mut session.patterns } else { &mut session.channels };
        if own.insert(name.to_vec()) {
            session.name_bytes.1 += name_bytes(name);
            call.server.pubsub.subscribe(name, is_pattern, &session.client);
        }
        confirm(call.reply, kind, Some(name), session.subscription_count());
    }
    note_subscriptions(call.session);
    Ok(())
}

fn remove(call: &mut Call<'_, '_>, kind: &str, is_pattern: bool) {
    let session = &mut *call.session;
    let own = if is_pattern { &session.patterns } else { &session.channels };
    let names: Vec<Vec<u8>> = if call.args.len() > 1 {
        call.args.from(1).map(<[u8]>::to_vec).collect()
    } else {
        own.iter().cloned().collect()
    };
    if names.is_empty() {
        confirm(call.reply, kind, None, session.subscription_count());
    }
    for name in names {
        let own = if is_pattern { &mut session.patterns } else { &mut session.channels };
        if own.remove(&name) {
            session.name_bytes.1 -= name_bytes(&name);
            call.server.pubsub.unsubscribe(&name, is_pattern, session.client.id);
        }
        confirm(call.reply, kind, Some(&name), session.subscription_count());
    }
    note_subscriptions(session);
}

fn subscribe(call: &mut Call<'_, '_>) -> Done {
    add(call, "subscribe", false)
}

fn psubscribe(call: &mut Call<'_, '_>) -> Done {
    add(call, "psubscribe", true)
}

fn unsubscribe(call: &mut Call<'_, '_>) -> Done {
    remove(call, "unsubscribe", false);
    Ok(())
}

fn punsubscribe(call: &mut Call<'_, '_>) -> Done {
    remove(call, "punsubscribe", true);
    Ok(())
}

/// Ends all subscriptions of a connection.
pub(crate) fn end_subscriptions(session: &mut Session, server: &Server) {
    for name in std::mem::take(&mut session.channels) {
        server.pubsub.unsubscribe(&name, false, session.client.id);
    }
    for name in std::mem::take(&mut session.patterns) {
        server.pubsub.unsubscribe(&name, true, session.client.id);
    }
    session.name_bytes.1 = 0;
    note_subscriptions(session);
}

fn channels(call: &mut Call<'_, '_>) -> Done {
    if let Some(pattern) = call.args.get(2) {
        check_pattern(pattern)?;
    }
    let names = call.server.pubsub.channels(call.args.get(2));
    call.reply.array(names.len());
    for name in names {
        call.reply.bulk(&name);
    }
    Ok(())
}

fn numsub(call: &mut Call<'_, '_>) -> Done {
    call.reply.array((call.args.len() - 2) * 2);
    for name in call.args.from(2) {
        call.reply.bulk(name);
        call.reply.count(call.server.pubsub.subscriber_count(name));
    }
    Ok(())
}

fn numpat(call: &mut Call<'_, '_>) -> Done {
    call.reply.count(call.server.pubsub.pattern_count());
    Ok(())
}

fn help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "PUBSUB",
        &[
            (
                "CHANNELS [<pattern>]",
                "Return the currently active channels matching a <pattern> (default: '*').",
            ),
            ("NUMPAT", "Return number of subscriptions to patterns."),
            (
                "NUMSUB [<channel> ...]",
                "Return the number of subscribers for the specified channels, excluding pattern \
                 subscriptions(default: no channels).",
            ),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
