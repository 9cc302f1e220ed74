//! Channels and patterns with their subscribers.
//!
//! Locks: the table of channels is taken before the outbox of a client.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock, atomic::Ordering},
};

use super::clients::Client;
use crate::{glob, resp::Reply};

type Subscribers = HashMap<u64, Arc<Client>>;

/// Channels and patterns.
#[derive(Debug, Default)]
pub(crate) struct PubSub {
    channels: RwLock<BTreeMap<Vec<u8>, Subscribers>>,
    patterns: RwLock<BTreeMap<Vec<u8>, Subscribers>>,
}

impl PubSub {
    fn table(&self, is_pattern: bool) -> &RwLock<BTreeMap<Vec<u8>, Subscribers>> {
        if is_pattern { &self.patterns } else { &self.channels }
    }

    /// Adds a subscriber.
    pub(crate) fn subscribe(&self, name: &[u8], is_pattern: bool, client: &Arc<Client>) {
        let mut table = self.table(is_pattern).write().unwrap_or_else(PoisonError::into_inner);
        table.entry(name.to_vec()).or_default().insert(client.id, client.clone());
    }

    /// Removes a subscriber.
    pub(crate) fn unsubscribe(&self, name: &[u8], is_pattern: bool, client: u64) {
        let mut table = self.table(is_pattern).write().unwrap_or_else(PoisonError::into_inner);
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
        let mut receivers = 0;
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        for client in
            channels.get(channel).into_iter().flat_map(HashMap::values).filter(is_receiver)
        {
            client.push(|reply: &mut Reply| {
                reply.push(3);
                reply.text("message");
                reply.bulk(channel);
                reply.bulk(message);
            });
            receivers += 1;
        }
        drop(channels);
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

    /// The channels with subscribers that match a pattern.
    pub(crate) fn channels(&self, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        let is_match = |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        channels.keys().filter(is_match).cloned().collect()
    }

    /// Number of subscribers of a channel.
    pub(crate) fn subscriber_count(&self, channel: &[u8]) -> usize {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        channels.get(channel).map_or(0, HashMap::len)
    }

    /// Number of patterns with subscribers.
    pub(crate) fn pattern_count(&self) -> usize {
        self.patterns.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
