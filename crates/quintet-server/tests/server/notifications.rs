//! Events of keys beside those of `redis-server`: the same for each key, in the same order.

use std::collections::BTreeMap;

use super::{
    client::{Client, Value},
    generator::{Random, lasting_command},
    running::{Redis, Server},
};

type Events = BTreeMap<String, Vec<String>>;

fn subscribe(port: u16) -> Client {
    let mut client = Client::connect(port);
    client.call("psubscribe __key*");
    client
}

/// The events up to a message of this test, by key: those of the two channels apart.
fn events(subscriber: &mut Client, port: u16) -> Events {
    // Through a connection of its own: that of the commands may be in a transaction.
    Client::connect(port).call("publish __keyend end");
    let mut found = Events::new();
    loop {
        let Value::Array(words) = subscriber.read() else { panic!("no message") };
        let (channel, message) = (words[2].text(), words[3].text());
        if channel == "__keyend" {
            return found;
        }
        let (kind, name) = channel.split_once(':').unwrap();
        if kind.starts_with("__keyspace") {
            found.entry(format!("{kind} {name}")).or_default().push(message);
        } else {
            found.entry(format!("{kind} {message}")).or_default().push(name.to_owned());
        }
    }
}

fn compare(seed: u64, classes: &str, pipeline: usize) {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    let setting = format!("config set notify-keyspace-events {classes}");
    assert_eq!(ours.call(&setting), theirs.call(&setting));
    let (mut our_events, mut their_events) = (subscribe(server.port), subscribe(redis.port));
    let mut random = Random::new(seed);
    let mut history = Vec::new();
    for _ in 0..4000 / pipeline / 4 {
        // Few commands at a time, so that a difference is easy to find.
        history.clear();
        for _ in 0..4 {
            let requests: Vec<Vec<Vec<u8>>> =
                (0..pipeline).map(|_| lasting_command(&mut random)).collect();
            let bytes: Vec<u8> =
                requests.iter().flat_map(|args| super::client::encode(args)).collect();
            for client in [&mut ours, &mut theirs] {
                client.send(&bytes);
                for _ in 0..pipeline {
                    client.read();
                }
            }
            history.extend(requests.iter().map(|args| {
                let shown: Vec<_> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
                shown.join(" ")
            }));
        }
        let a = events(&mut our_events, server.port);
        let b = events(&mut their_events, redis.port);
        assert_eq!(a, b, "Quintet left, Redis right, seed {seed}, after\n{}", history.join("\n"));
    }
}

#[test]
fn random_commands_notify_as_redis_does() {
    compare(21, "KEA", 1);
}

#[test]
fn new_keys_are_notified_as_in_redis() {
    compare(22, "Kn", 1);
}

#[test]
fn pipelines_notify_as_redis_does() {
    compare(23, "KEAn", 10);
}

/// Requests that the generator has not, and transactions.
const FURTHER: &[&str] = &[
    "set a 1 exat 33177117420",
    "getex a ex 100",
    "getex a persist",
    "getex a pxat 1",
    "exists a",
    "set b 1",
    "multi",
    "append b 2",
    "lpush list x y z",
    "exec",
    "spop none",
    "sadd set a b c",
    "spop set 5",
    "sadd set a",
    "smove set target a",
    "rename target renamed",
    "set renamed2 1",
    "rename renamed renamed2",
    "copy renamed2 copied",
    "copy list copied replace",
    "move copied 4",
    "swapdb 4 5",
    "lmove list list left right",
    "zadd z 1 a 2 b",
    "zrangestore stored z 0 0",
    "zrangestore stored z 5 6",
    "geoadd g 13 38 a",
    "georadius g 13 38 10 km store found",
    "geosearchstore found g frommember a byradius 1 km",
    "sort list alpha store sorted",
    "sort missing store sorted",
    "bitop and bits b b",
    "bitop and bits missing",
    "bitfield b set u8 0 65",
    "bitfield b get u8 0",
    "bitfield b overflow fail incrby u2 0 9",
    "xadd s 1-1 a 1",
    "xadd s maxlen 1 1-2 a 1",
    "xgroup create s g 0",
    "xreadgroup group g one streams s >",
    "xautoclaim s g two 0 0",
    "xsetid s 5-5",
    "xgroup delconsumer s g nobody",
    "xgroup delconsumer s g one",
    "msetnx b 1 c 2",
    "mset c 1 d 2",
    "del b c d missing",
    "flushall",
    "lpush q 1",
    "blmove q q2 left right 1",
    "brpop q2 1",
    "zadd z 1 a",
    "bzpopmin z 1",
    "hset h a 1 b 2",
    "hdel h a b",
    "pfadd p a",
    "pfadd p a",
    "pfmerge p2 p",
    "setex t 100 1",
    "expire t 0",
    "expire t 10",
    "persist t",
];

#[test]
fn further_commands_notify_as_redis_does() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    for client in [&mut ours, &mut theirs] {
        client.call("config set notify-keyspace-events KEAn");
    }
    let (mut our_events, mut their_events) = (subscribe(server.port), subscribe(redis.port));
    for request in FURTHER {
        let (a, b) = (ours.call(request), theirs.call(request));
        assert!(a == b || request.starts_with("spop"), "{request}: {a:?}, Redis {b:?}");
        let a = events(&mut our_events, server.port);
        let b = events(&mut their_events, redis.port);
        assert_eq!(a, b, "Quintet left, Redis right, after {request}");
    }
    let dumped = theirs.call("set k 1");
    assert_eq!(dumped, ours.call("set k 1"));
    let Value::Bulk(payload) = theirs.call("dump k") else { panic!("no payload") };
    for client in [&mut ours, &mut theirs] {
        client.call_args(&[b"restore".as_slice(), b"k", b"0", &payload, b"replace"]);
    }
    let a = events(&mut our_events, server.port);
    assert_eq!(a, events(&mut their_events, redis.port));
}

/// Keys that expire are told by the sweep, and before a command that makes them anew.
#[test]
fn expired_keys_are_notified() {
    let server = Server::start();
    let mut client = server.client();
    client.call("config set notify-keyspace-events Kgx$");
    let mut subscriber = subscribe(server.port);
    let mut expect = |key: &str, event: &str| {
        let Value::Array(words) = subscriber.read() else { panic!("no message") };
        let found = (words[2].text(), words[3].text());
        assert_eq!(found, (format!("__keyspace@0__:{key}"), event.to_owned()));
    };
    client.call("set swept 1 px 1");
    for event in ["set", "expire", "expired"] {
        expect("swept", event);
    }
    client.call("set lazy 1 px 1");
    std::thread::sleep(std::time::Duration::from_millis(3));
    assert_eq!(client.call("append lazy 2"), Value::Integer(1));
    for event in ["set", "expire", "expired", "append"] {
        expect("lazy", event);
    }
}

#[test]
fn reads_of_absent_keys_notify_as_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    for client in [&mut ours, &mut theirs] {
        client.call("config set notify-keyspace-events KEm");
        client.call("set here 1");
    }
    let (mut our_events, mut their_events) = (subscribe(server.port), subscribe(redis.port));
    for request in [
        "get missing",
        "get here",
        "mget here missing other",
        "exists here missing other",
        "strlen missing",
        "ttl missing",
        "type missing",
        "hget missing field",
        "lrange missing 0 -1",
        "smembers missing",
        "zscore missing a",
        "xlen missing",
        "set missing2 1",
        "append missing3 1",
        "multi",
        "get missing",
        "exec",
    ] {
        assert_eq!(ours.call(request), theirs.call(request));
        let a = events(&mut our_events, server.port);
        let b = events(&mut their_events, redis.port);
        if request != "multi" {
            assert_eq!(a, b, "Quintet left, Redis right, after {request}");
        }
    }
}

#[test]
fn the_setting_is_shown_as_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    for classes in ["KEA", "", "Kg", "Elshz$", "AKEmn", "n", "Kxed", "mKt", "q", "Kq"] {
        let set = ["config", "set", "notify-keyspace-events", classes];
        let (a, b) = (ours.call_args(&set), theirs.call_args(&set));
        assert_eq!(matches!(a, Value::Error(_)), matches!(b, Value::Error(_)), "{classes}");
        let get = "config get notify-keyspace-events";
        assert_eq!(ours.call(get), theirs.call(get), "{classes}");
    }
}
