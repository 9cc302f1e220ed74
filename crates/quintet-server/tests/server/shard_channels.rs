//! Shard channels (`SSUBSCRIBE`, `SPUBLISH`), beside channels and patterns, and `MEMORY`.

use super::{
    client::{Client, Value},
    running::{Redis, Server},
};

/// Sends a request and reads so many replies.
fn call(client: &mut Client, request: &str, replies: usize) -> Vec<Value> {
    let first = client.call(request);
    std::iter::once(first).chain((1..replies).map(|_| client.read())).collect()
}

/// Requests of a subscriber, each with the number of its replies in RESP2.
const SUBSCRIBER: [(&str, usize); 16] = [
    ("ssubscribe a b", 2),
    ("ssubscribe a", 1),
    ("subscribe a", 1),
    ("psubscribe *", 1),
    ("ping", 1),
    ("get k", 1),
    ("spublish a m", 1),
    ("sunsubscribe none b", 2),
    ("unsubscribe", 1),
    ("punsubscribe", 1),
    ("sunsubscribe", 1),
    ("sunsubscribe", 1),
    ("ping", 1),
    ("ssubscribe c", 1),
    ("reset", 1),
    ("ping", 1),
];

#[test]
fn shard_channels_are_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    for protocol in ["hello 2", "hello 3"] {
        let (mut ours, mut theirs) = (server.client(), redis.client());
        ours.call(protocol);
        theirs.call(protocol);
        for (request, replies) in SUBSCRIBER {
            if protocol == "hello 3" && request.starts_with("spublish") {
                // There it is allowed, and its message comes first.
                continue;
            }
            let (a, b) = (call(&mut ours, request, replies), call(&mut theirs, request, replies));
            assert_eq!(a, b, "{protocol}: {request}");
        }
    }
}

#[test]
fn messages_of_shard_channels_reach_their_subscribers_only() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let results = [server.port, redis.port].map(|port| {
        let (mut sender, mut shard, mut channel) =
            (Client::connect(port), Client::connect(port), Client::connect(port));
        call(&mut shard, "ssubscribe a b", 2);
        call(&mut channel, "subscribe a", 1);
        call(&mut channel, "psubscribe *", 1);
        let mut found: Vec<Value> = [
            "spublish a one",
            "publish a two",
            "spublish none three",
            "pubsub shardchannels",
            "pubsub shardchannels b*",
            "pubsub shardchannels c*",
            "pubsub shardnumsub a none b",
            "pubsub shardnumsub",
            "pubsub channels",
            "pubsub numsub a b",
            "pubsub numpat",
            "pubsub help",
            "spublish b four",
            "spublish a",
        ]
        .into_iter()
        .map(|request| {
            let reply = sender.call(request);
            match (request, reply) {
                // Redis has no order of channels.
                ("pubsub shardchannels", Value::Array(mut names)) => {
                    names.sort();
                    Value::Array(names)
                }
                ("pubsub help", Value::Array(lines)) => {
                    Value::Integer(i64::from(!lines.is_empty()))
                }
                (_, other) => other,
            }
        })
        .collect();
        found.extend([shard.read(), shard.read(), channel.read(), channel.read()]);
        let list = sender.call("client list").text();
        let flags = list.lines().filter(|line| line.contains(" ssub=2 ")).count();
        found.push(Value::Integer(i64::try_from(flags).unwrap()));
        drop(shard);
        while sender.call("pubsub shardchannels") != Value::Array(Vec::new()) {}
        found
    });
    assert_eq!(results[0], results[1]);
}

#[test]
fn memory_is_reported() {
    let server = Server::start();
    let mut client = server.client();
    for number in 0..100 {
        client.call(&format!("set key:{number} {number}"));
    }
    let Value::Array(stats) = client.call("memory stats") else { panic!("no array") };
    let figure = |name: &str| {
        let at = stats.iter().position(|item| item.text() == name);
        stats[at.unwrap_or_else(|| panic!("no {name} in {stats:?}")) + 1].clone()
    };
    assert_eq!(figure("keys.count"), Value::Integer(100));
    assert_eq!(figure("quintet.memory-budget"), Value::Integer(64 << 20));
    let number = |name: &str| match figure(name) {
        Value::Integer(number) => number,
        other => panic!("{name}: {other:?}"),
    };
    assert!(number("quintet.tables") > 0);
    assert!(number("quintet.tables") <= number("quintet.memory-reserved"));
    assert!(number("total.allocated") >= number("quintet.memory-reserved"));
    assert!(number("allocator.resident") > 0);
    assert!(number("peak.allocated") >= number("allocator.resident"));
    assert!(number("dataset.bytes") <= number("quintet.tables"));
    let doctor = client.call("memory doctor").text();
    assert!(doctor.ends_with('\n'), "{doctor}");
    assert_eq!(client.call("memory purge").text(), "+OK");
    assert_eq!(
        client.call("memory malloc-stats").text(),
        "Stats not supported for the current allocator"
    );
    client.call("config set maxmemory-clients 1mb");
    client.call("client no-evict on");
    let mut large = server.client();
    let _ = large.call("client setname large");
    // A queue of some size, which a limit of the buffers of all clients ends.
    large.call("multi");
    let value = "x".repeat(300_000);
    for _ in 0..10 {
        large.try_send(&super::client::encode(&["set", "k", &value]));
        if large.try_read().is_err() {
            break;
        }
    }
    let doctor = client.call("memory doctor").text();
    assert!(doctor.contains("1 clients were ended because of maxmemory-clients"), "{doctor}");
}

#[test]
fn what_a_single_server_without_modules_answers() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    for request in
        ["module list", "cluster info", "cluster slots", "readonly", "readwrite", "asking"]
    {
        assert_eq!(ours.call(request), theirs.call(request), "{request}");
    }
}
