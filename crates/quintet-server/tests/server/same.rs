//! Compares all keys of two servers: values in their order, expiries, and the state of streams.

use super::client::{Client, Value};

/// All keys of the database, sorted.
pub(crate) fn keys(client: &mut Client) -> Vec<Vec<u8>> {
    let Value::Array(keys) = client.call("keys *") else { panic!("no array") };
    let bytes = |key| match key {
        Value::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    let mut keys: Vec<Vec<u8>> = keys.into_iter().map(bytes).collect();
    keys.sort();
    keys
}

fn sorted(value: Value, pair: usize) -> Value {
    let Value::Array(items) = value else { return value };
    let mut groups: Vec<Value> =
        items.chunks(pair).map(|group| Value::Array(group.to_vec())).collect();
    groups.sort();
    Value::Array(groups)
}

/// What a client can read of a key.
fn contents(client: &mut Client, key: &[u8], is_replica: bool) -> Vec<Value> {
    let mut call = |args: &[&[u8]]| client.call_args(args);
    let kind = call(&[b"type", key]);
    let mut found = vec![call(&[b"pexpiretime", key])];
    match kind.text().trim_start_matches('+') {
        // The estimate is cached in the string.
        "string" if key.starts_with(b"p") || key == b"estimate" => {
            found.push(call(&[b"pfcount", key]));
        }
        "string" => found.push(call(&[b"get", key])),
        "list" => found.push(call(&[b"lrange", key, b"0", b"-1"])),
        "set" => found.push(sorted(call(&[b"smembers", key]), 1)),
        "zset" => found.push(call(&[b"zrange", key, b"0", b"-1", b"withscores"])),
        "hash" => found.push(sorted(call(&[b"hgetall", key]), 2)),
        "stream" => {
            found.push(call(&[b"xrange", key, b"-", b"+"]));
            found.extend(groups(&mut call, key, is_replica));
        }
        "none" => {}
        other => panic!("{other}"),
    }
    found.push(kind);
    found
}

/// The state of a stream and its groups, without times that pass.
///
/// Redis does not replicate all of it, also not to a replica of Redis. Missing are consumers that
/// have only asked for their history, deliveries from a history, and the number of entries read.
fn groups(call: &mut impl FnMut(&[&[u8]]) -> Value, key: &[u8], is_replica: bool) -> Vec<Value> {
    let mut found = Vec::new();
    let Value::Array(stream) = call(&[b"xinfo", b"stream", key]) else { panic!("no stream") };
    for pair in stream.chunks(2) {
        // The shape of Redis's radix tree is its own.
        if !pair[0].text().starts_with("radix-tree") {
            found.extend_from_slice(pair);
        }
    }
    let Value::Array(groups) = call(&[b"xinfo", b"groups", key]) else { panic!("no groups") };
    for group in groups {
        let Value::Array(mut facts) = group else { panic!("{group:?}") };
        let name = facts[1].text();
        if is_replica {
            // The number of consumers, entries read and lag.
            facts.truncate(8);
            facts.drain(2..4);
        }
        found.push(Value::Array(facts));
        let pending = call(&[b"xpending", key, name.as_bytes(), b"-", b"+", b"10000"]);
        let Value::Array(pending) = pending else { panic!("{pending:?}") };
        for entry in pending {
            let Value::Array(mut facts) = entry else { panic!("{entry:?}") };
            // The idle time, and the number of deliveries.
            facts.truncate(if is_replica { 2 } else { 4 });
            if !is_replica {
                facts.remove(2);
            }
            found.push(Value::Array(facts));
        }
        let consumers = call(&[b"xinfo", b"consumers", key, name.as_bytes()]);
        let Value::Array(consumers) = consumers else { panic!("{consumers:?}") };
        for consumer in consumers {
            let Value::Array(facts) = consumer else { panic!("{consumer:?}") };
            if !is_replica || facts[3] != Value::Integer(0) {
                found.push(Value::Array(facts[..4].to_vec()));
            }
        }
    }
    found
}

/// Fails the test unless both servers have the same keys with the same contents.
pub(crate) fn assert_same_keys(ours: &mut Client, theirs: &mut Client, when: &str) {
    compare(ours, theirs, when, false);
}

/// As [`assert_same_keys`], for a replica.
pub(crate) fn assert_replicated(ours: &mut Client, theirs: &mut Client, when: &str) {
    compare(ours, theirs, when, true);
}

fn compare(ours: &mut Client, theirs: &mut Client, when: &str, is_replica: bool) {
    let all = keys(theirs);
    let shown = |keys: &[Vec<u8>]| -> Vec<String> {
        keys.iter().map(|key| key.escape_ascii().to_string()).collect()
    };
    assert_eq!(shown(&keys(ours)), shown(&all), "{when}");
    for key in all {
        let a = contents(ours, &key, is_replica);
        let b = contents(theirs, &key, is_replica);
        assert_eq!(a, b, "{}, {when}", key.escape_ascii());
    }
}
