//! Limits of one command: elements of a scan, memory that it collects, and its time.

use std::collections::BTreeSet;

use quintet_server::Config;

use super::{
    client::{Client, Value, encode},
    running::{Server, config},
};

/// A server whose commands may collect 4 MiB.
fn start() -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { proto_max_bulk_len: 1 << 20, command_memory_limit: 4 << 20, ..config() };
    (Server::start_in(dir.path(), config), dir)
}

fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("no array: {other:?}"),
    }
}

/// Adds `count` members with `command`, whose arguments for a number are those of `each`.
fn fill(client: &mut Client, command: &[&str], count: usize, each: fn(usize) -> Vec<String>) {
    for first in (0..count).step_by(1000) {
        let mut args: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        args.extend((first..count.min(first + 1000)).flat_map(each));
        let reply = client.call_args(&args);
        assert!(!reply.text().starts_with('-'), "{reply:?}");
    }
}

/// One call of a scan: its cursor, and its replies in groups of `step`.
fn scan(client: &mut Client, request: &str, step: usize) -> (String, Vec<String>) {
    let mut reply = array(client.call(request)).into_iter();
    let cursor = reply.next().unwrap().text();
    let found = array(reply.next().unwrap());
    (cursor, found.iter().step_by(step).map(Value::text).collect())
}

#[test]
fn a_scan_with_a_huge_count_returns_a_part_and_a_cursor() {
    let server = Server::start();
    let mut client = server.client();
    let pair = |number: usize| vec![format!("m{number}"), "1".to_owned()];
    fill(&mut client, &["hset", "hash"], 15_000, pair);
    fill(&mut client, &["sadd", "set"], 15_000, |number| vec![format!("m{number}")]);
    let scored = |number: usize| vec![number.to_string(), format!("m{number}")];
    fill(&mut client, &["zadd", "sorted"], 15_000, scored);
    fill(&mut client, &["mset"], 15_000, pair);
    let mut all: BTreeSet<String> = (0..15_000).map(|number| format!("m{number}")).collect();
    for (command, step) in [("hscan hash", 2), ("sscan set", 1), ("zscan sorted", 2)] {
        let (cursor, first) = scan(&mut client, &format!("{command} 0 count 1000000000"), step);
        assert_eq!(first.len(), 10_000, "{command}");
        let (end, rest) = scan(&mut client, &format!("{command} {cursor} count 1000000000"), step);
        assert_eq!((end.as_str(), rest.len()), ("0", 5000), "{command}");
        assert_eq!(first.into_iter().chain(rest).collect::<BTreeSet<_>>(), all);
    }
    all.extend(["hash", "set", "sorted"].map(str::to_owned));
    let (mut cursor, mut found, mut calls) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let (next, keys) = scan(&mut client, &format!("scan {cursor} count 1000000000"), 1);
        found.extend(keys);
        (cursor, calls) = (next, calls + 1);
        if cursor == "0" {
            break;
        }
    }
    assert!(calls > 1, "one call returned all keys");
    assert_eq!(found, all);
}

#[test]
fn a_scan_ends_at_a_mebibyte() {
    let server = Server::start();
    let mut client = server.client();
    let value = "v".repeat(100 << 10);
    for number in 0..40 {
        client.call_args(&["hset", "hash", &format!("f{number:02}"), &value]);
        client.call_args(&["set", &format!("k{number:02}"), &value]);
    }
    let (cursor, fields) = scan(&mut client, "hscan hash 0 count 1000", 2);
    assert!(cursor != "0" && fields.len() == 11, "{cursor} {fields:?}");
    let (cursor, keys) = scan(&mut client, "scan 0 count 1000", 1);
    assert!(cursor != "0" && keys.len() < 41, "{cursor} {keys:?}");
    assert_eq!(array(client.call("keys *")).len(), 41);
}

#[test]
fn a_command_that_collects_too_much_is_an_error_without_effect() {
    let (server, _dir) = start();
    let mut client = server.client();
    fill(&mut client, &["sadd", "big"], 80_000, |number| vec![format!("m{number}")]);
    fill(&mut client, &["rpush", "list"], 80_000, |number| vec![number.to_string()]);
    client.call("sadd target old");
    for request in [
        "sunionstore target big",
        "sdiff big target",
        "sort big alpha",
        "sort list store target",
        "zunionstore target 1 big",
        "copy big target replace",
        "spop big 80000",
        "lrem list 0 no",
        "ltrim list 79999 79999",
    ] {
        let reply = client.call(request).text();
        let start = reply.get(..200).unwrap_or(&reply);
        assert!(reply.contains("command-memory-limit, 4194304 bytes"), "{request}: {start}");
    }
    assert_eq!(client.call("scard big"), Value::Integer(80_000));
    assert_eq!(client.call("llen list"), Value::Integer(80_000));
    assert_eq!(client.call("smembers target").text(), "[\"old\"]");
    // What is not collected has no such limit.
    assert_eq!(array(client.call("smembers big")).len(), 80_000);
    assert_eq!(array(client.call("lrange list 0 -1")).len(), 80_000);
    assert_eq!(client.call("lpos list 79999"), Value::Integer(79_999));
    assert_eq!(client.call("lpos list 0 rank -1"), Value::Integer(0));

    // A pipeline may be one commit: then the earlier command is an error and has no effect either.
    client.send(&[encode(&["set", "k", "1"]), encode(&["copy", "big", "other"])].concat());
    let is_set = client.read().text() == "+OK";
    assert!(client.read().text().contains("command-memory-limit"));
    assert_eq!(client.call("exists k other"), Value::Integer(i64::from(is_set)));

    // A transaction is one commit.
    for request in ["multi", "set l 1", "copy big other"] {
        client.call(request);
    }
    assert!(client.call("exec").text().contains("command-memory-limit"));
    assert_eq!(client.call("exists l other"), Value::Integer(0));
    client.call("multi");
    for number in 0..8 {
        client.call(&format!("setbit bits{number} 8388607 1"));
    }
    let reply = client.call("exec").text();
    assert!(reply.contains("command-memory-limit"), "{reply}");
    assert_eq!(client.call("exists bits0"), Value::Integer(0));

    assert_eq!(client.call("config set command-memory-limit 0").text(), "+OK");
    assert_eq!(client.call("sunionstore target big"), Value::Integer(80_000));
}

#[test]
fn members_drawn_with_repetition_have_a_limit() {
    let (server, _dir) = start();
    let mut client = server.client();
    client.call_args(&["sadd", "set", &"m".repeat(10_000)]);
    let reply = client.call("srandmember set -100000").text();
    assert!(reply.contains("command-memory-limit"), "{reply}");
    let reply = client.call("srandmember set -2000000").text();
    assert!(reply.contains("the least is -1048576"), "{reply}");
    assert_eq!(array(client.call("srandmember set -100")).len(), 100);
}

#[test]
fn a_command_beyond_its_time_is_an_error_without_effect() {
    let server = Server::start();
    let mut client = server.client();
    // 64 million steps take more than a millisecond on each machine.
    client.call_args(&["set", "a", &"ab".repeat(4000)]);
    client.call_args(&["set", "b", &"ba".repeat(4000)]);
    assert_eq!(
        client.call("config get command-time-limit").text(),
        "[\"command-time-limit\", \"30000\"]"
    );
    assert_eq!(client.call("config set command-time-limit 1").text(), "+OK");
    let reply = client.call("lcs a b len").text();
    assert!(reply.contains("command-time-limit, 1 ms"), "{reply}");
    for request in ["multi", "set c 1", "lcs a b len"] {
        client.call(request);
    }
    let reply = client.call("exec").text();
    assert!(reply.contains("command-time-limit, 1 ms"), "{reply}");
    assert_eq!(client.call("config set command-time-limit 0").text(), "+OK");
    assert_eq!(client.call("exists c"), Value::Integer(0));
    assert_eq!(client.call("lcs a b len"), Value::Integer(7999));
}
