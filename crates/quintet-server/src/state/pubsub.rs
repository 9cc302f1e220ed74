//! Channels, shard channels and patterns with their subscribers.
//!
//! Shard channels (`SSUBSCRIBE`) have names of their own. A message to one reaches neither the
//! subscribers of a channel with the same name nor those of a pattern. One server is one shard.
//!
//! Locks: the table of channels is taken before the outbox of a client.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock, atomic::Ordering},
};

use super::clients::Client;
use crate::{glob, resp::Reply};

type Subscribers = HashMap<u64, Arc<Client>>;

/// What a client subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// A channel.
    Channel,
    /// A pattern of channels.
    Pattern,
    /// A shard channel.
    Shard,
}

type Table = RwLock<BTreeMap<Vec<u8>, Subscribers>>;

/// Channels, shard channels and patterns.
#[derive(Debug, Default)]
pub(crate) struct PubSub {
    channels: Table,
    patterns: Table,
    shards: Table,
}

impl PubSub {
    fn table(&self, topic: Topic) -> &Table {
        match topic {
            Topic::Channel => &self.channels,
            Topic::Pattern => &self.patterns,
            Topic::Shard => &self.shards,
        }
    }

    /// Adds a subscriber.
    pub(crate) fn subscribe(&self, topic: Topic, name: &[u8], client: &Arc<Client>) {
        let mut table = self.table(topic).write().unwrap_or_else(PoisonError::into_inner);
        table.entry(name.to_vec()).or_default().insert(client.id, client.clone());
    }

    /// Removes a subscriber.
    pub(crate) fn unsubscribe(&self, topic: Topic, name: &[u8], client: u64) {
        let mut table = self.table(topic).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(subscribers) = table.get_mut(name) {
            subscribers.remove(&client);
            if subscribers.is_empty() {
                table.remove(name);
            }
        }
    }

    /// Sends a message. Returns the number of receivers.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        self.publish_in(None, channel, message)
    }

    /// Sends a message to the subscribers in a namespace, or to all. Returns the number of
    /// receivers.
    pub(crate) fn publish_in(
        &self,
        namespace: Option<u32>,
        channel: &[u8],
        message: &[u8],
    ) -> usize {
        let is_receiver = |client: &&Arc<Client>| {
            namespace.is_none_or(|own| client.namespace.load(Ordering::Acquire) == own)
        };
        let mut receivers = send(&self.channels, "message", (channel, message), is_receiver);
        let patterns = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
        for (pattern, subscribers) in patterns.iter() {
            if !glob::matches(pattern, channel) {
                continue;
            }
            for client in subscribers.values().filter(is_receiver) {
                client.push(|reply: &mut Reply| {
                    reply.push(4);
                    reply.text("pmessage");
                    reply.bulk(pattern);
                    reply.bulk(channel);
                    reply.bulk(message);
                });
                receivers += 1;
            }
        }
        receivers
    }

    /// Sends a message to a shard channel. Returns the number of receivers.
    pub(crate) fn publish_shard(&self, channel: &[u8], message: &[u8]) -> usize {
        send(&self.shards, "smessage", (channel, message), |_| true)
    }

    /// The names with subscribers that match a pattern.
    pub(crate) fn names(&self, topic: Topic, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let table = self.table(topic).read().unwrap_or_else(PoisonError::into_inner);
        let is_match = |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        table.keys().filter(is_match).cloned().collect()
    }

    /// Number of names with subscribers.
    pub(crate) fn name_count(&self, topic: Topic) -> usize {
        self.table(topic).read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Number of subscribers of a name.
    pub(crate) fn subscriber_count(&self, topic: Topic, name: &[u8]) -> usize {
        let table = self.table(topic).read().unwrap_or_else(PoisonError::into_inner);
        table.get(name).map_or(0, HashMap::len)
    }
}

/// Sends a message to the subscribers of a channel that `is_receiver` admits. Returns their number.
fn send(
    table: &Table,
    kind: &str,
    (channel, message): (&[u8], &[u8]),
    is_receiver: impl Fn(&&Arc<Client>) -> bool,
) -> usize {
    let table = table.read().unwrap_or_else(PoisonError::into_inner);
    let mut receivers = 0;
    for client in table.get(channel).into_iter().flat_map(HashMap::values).filter(is_receiver) {
        client.push(|reply: &mut Reply| {
            reply.push(3);
            reply.text(kind);
            reply.bulk(channel);
            reply.bulk(message);
        });
        receivers += 1;
    }
    receivers
}
