//! Publish and subscribe, also to shard channels: one server is one shard.

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
    state::{Server, Session, Subscriptions, Topic, name_bytes},
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
    "pubsub|shardchannels" -2 [PUBSUB] Keys::None, shardchannels, "7.0.0",
        "Returns the active shard channels.";
    "pubsub|shardnumsub" -2 [PUBSUB] Keys::None, shardnumsub, "7.0.0",
        "Returns the count of subscribers of shard channels.";
    "punsubscribe" -1 [PUBSUB SUBSCRIBED] Keys::None, punsubscribe, "2.0.0",
        "Stops listening to messages published to channels that match one or more patterns.";
    "spublish" 3 [PUBSUB FAST] Keys::None, spublish, "7.0.0",
        "Post a message to a shard channel.";
    "ssubscribe" -2 [PUBSUB SUBSCRIBED] Keys::None, ssubscribe, "7.0.0",
        "Listens for messages published to shard channels.";
    "subscribe" -2 [PUBSUB SUBSCRIBED] Keys::None, subscribe, "2.0.0",
        "Listens for messages published to channels.";
    "sunsubscribe" -1 [PUBSUB SUBSCRIBED] Keys::None, sunsubscribe, "7.0.0",
        "Stops listening to messages posted to shard channels.";
    "unsubscribe" -1 [PUBSUB SUBSCRIBED] Keys::None, unsubscribe, "2.0.0",
        "Stops listening to messages posted to channels.";
}

fn publish(call: &mut Call<'_, '_>) -> Done {
    let receivers = call.server.pubsub.publish(call.args.at(1), call.args.at(2));
    call.reply.count(receivers);
    Ok(())
}

fn spublish(call: &mut Call<'_, '_>) -> Done {
    let receivers = call.server.pubsub.publish_shard(call.args.at(1), call.args.at(2));
    call.reply.count(receivers);
    Ok(())
}

fn confirm(reply: &mut Reply, kind: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.text(kind);
    reply.optional(name);
    reply.count(count);
}

/// The number that confirmations of a topic have: shard channels are counted apart.
fn confirmed_count(session: &Session, topic: Topic) -> usize {
    match topic {
        Topic::Shard => session.shard_channels.len(),
        Topic::Channel | Topic::Pattern => session.channels.len() + session.patterns.len(),
    }
}

fn note_subscriptions(session: &Session) {
    session.client.info().subscriptions = Subscriptions {
        channels: session.channels.len(),
        patterns: session.patterns.len(),
        shard_channels: session.shard_channels.len(),
    };
    let is_subscriber = session.subscription_count() > 0;
    session.client.is_subscriber.store(is_subscriber, Ordering::Release);
}

fn add(call: &mut Call<'_, '_>, kind: &str, topic: Topic) -> Done {
    if topic == Topic::Pattern {
        call.args.from(1).try_for_each(check_pattern)?;
    }
    for name in call.args.from(1) {
        let session = &mut *call.session;
        if session.topics(topic).insert(name.to_vec()) {
            session.name_bytes.1 += name_bytes(name);
            call.server.pubsub.subscribe(topic, name, &session.client);
        }
        confirm(call.reply, kind, Some(name), confirmed_count(session, topic));
    }
    note_subscriptions(call.session);
    Ok(())
}

fn remove(call: &mut Call<'_, '_>, kind: &str, topic: Topic) {
    let session = &mut *call.session;
    let names: Vec<Vec<u8>> = if call.args.len() > 1 {
        call.args.from(1).map(<[u8]>::to_vec).collect()
    } else {
        session.topics(topic).iter().cloned().collect()
    };
    if names.is_empty() {
        confirm(call.reply, kind, None, confirmed_count(session, topic));
    }
    for name in names {
        if session.topics(topic).remove(&name) {
            session.name_bytes.1 -= name_bytes(&name);
            call.server.pubsub.unsubscribe(topic, &name, session.client.id);
        }
        confirm(call.reply, kind, Some(&name), confirmed_count(session, topic));
    }
    note_subscriptions(session);
}

fn subscribe(call: &mut Call<'_, '_>) -> Done {
    add(call, "subscribe", Topic::Channel)
}

fn psubscribe(call: &mut Call<'_, '_>) -> Done {
    add(call, "psubscribe", Topic::Pattern)
}

fn ssubscribe(call: &mut Call<'_, '_>) -> Done {
    add(call, "ssubscribe", Topic::Shard)
}

fn unsubscribe(call: &mut Call<'_, '_>) -> Done {
    remove(call, "unsubscribe", Topic::Channel);
    Ok(())
}

fn punsubscribe(call: &mut Call<'_, '_>) -> Done {
    remove(call, "punsubscribe", Topic::Pattern);
    Ok(())
}

fn sunsubscribe(call: &mut Call<'_, '_>) -> Done {
    remove(call, "sunsubscribe", Topic::Shard);
    Ok(())
}

/// Ends all subscriptions of a connection.
pub(crate) fn end_subscriptions(session: &mut Session, server: &Server) {
    for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
        for name in std::mem::take(session.topics(topic)) {
            server.pubsub.unsubscribe(topic, &name, session.client.id);
        }
    }
    session.name_bytes.1 = 0;
    note_subscriptions(session);
}

fn reply_names(call: &mut Call<'_, '_>, topic: Topic) -> Done {
    if let Some(pattern) = call.args.get(2) {
        check_pattern(pattern)?;
    }
    let names = call.server.pubsub.names(topic, call.args.get(2));
    call.reply.array(names.len());
    for name in names {
        call.reply.bulk(&name);
    }
    Ok(())
}

fn reply_counts(call: &mut Call<'_, '_>, topic: Topic) {
    call.reply.array((call.args.len() - 2) * 2);
    for name in call.args.from(2) {
        call.reply.bulk(name);
        call.reply.count(call.server.pubsub.subscriber_count(topic, name));
    }
}

fn channels(call: &mut Call<'_, '_>) -> Done {
    reply_names(call, Topic::Channel)
}

fn shardchannels(call: &mut Call<'_, '_>) -> Done {
    reply_names(call, Topic::Shard)
}

fn numsub(call: &mut Call<'_, '_>) -> Done {
    reply_counts(call, Topic::Channel);
    Ok(())
}

fn shardnumsub(call: &mut Call<'_, '_>) -> Done {
    reply_counts(call, Topic::Shard);
    Ok(())
}

fn numpat(call: &mut Call<'_, '_>) -> Done {
    call.reply.count(call.server.pubsub.name_count(Topic::Pattern));
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
            (
                "SHARDCHANNELS [<pattern>]",
                "Return the currently active shard level channels matching a <pattern> \
                 (default: '*').",
            ),
            (
                "SHARDNUMSUB [<shardchannel> ...]",
                "Return the number of subscribers for the specified shard level channel(s)",
            ),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
