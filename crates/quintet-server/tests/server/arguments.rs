//! Each command answers arguments of any kind: with a reply or an error, and the server goes on.

use super::{client::Value, generator::Random, running::Server};

/// Commands that end the connection, change how it replies, or hold commands.
const EXCEPT: [&str; 19] = [
    "shutdown",
    "quit",
    "reset",
    "monitor",
    "subscribe",
    "psubscribe",
    "unsubscribe",
    "punsubscribe",
    "ssubscribe",
    "sunsubscribe",
    "multi",
    "exec",
    "discard",
    "watch",
    "hello",
    "auth",
    "client|reply",
    "client|kill",
    "client|pause",
];

/// Arguments that parsers stumble over: limits of integers, odd floats, options, empty strings.
const ARGUMENTS: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "2",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e400",
    "nan",
    "inf",
    "(1",
    "[a",
    "+",
    "-",
    "$",
    ">",
    "*",
    "#",
    "u64",
    "i64",
    "u0",
    "#9223372036854775807",
    "k",
    "l",
    "z",
    "x",
    "limit",
    "count",
    "streams",
    "withscores",
    "byscore",
    "bylex",
    "rev",
    "get",
    "store",
    "by",
    "weights",
    "aggregate",
    "max",
    "maxlen",
    "~",
    "block",
    "group",
    "idle",
    "nx",
    "xx",
    "ex",
    "px",
    "4294967296",
    "2147483648",
    "1-1",
    "1-*",
    "m",
    "km",
    "byradius",
    "bybox",
    "fromlonlat",
    "frommember",
    "left",
    "right",
    "before",
    "overflow",
    "sat",
    "set",
    "incrby",
    "or",
    "not",
    "match",
    "type",
    "idx",
    "minmatchlen",
    "\u{ff}\r\n",
];

#[test]
fn a_command_with_a_name_that_is_too_long_changes_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let too_long = "x".repeat(65_001);
    for request in [
        "hset k a 1 LONG 2",
        "hmset k a 1 LONG 2",
        "hsetnx k LONG 1",
        "hincrby k LONG 1",
        "hincrbyfloat k LONG 1",
        "hsetex k ex 100 fields 2 a 1 LONG 2",
        "sadd k a LONG",
        "zadd k 1 a 2 LONG",
        "zadd k incr 1 LONG",
        "zincrby k 1 LONG",
        "geoadd k 1 1 a 2 2 LONG",
    ] {
        let reply = client.call(&request.replace("LONG", &too_long)).text();
        assert!(
            reply.contains("65001 bytes is too long; the limit is 65000"),
            "{request}: {reply}"
        );
        assert_eq!(client.call("exists k").text(), ":0", "{request}");
    }
    // The longest ones are those that the message names.
    let longest = "x".repeat(65_000);
    for (request, expected) in [
        ("hset h a 1 LONG 2", ":2"),
        ("hexpire h 1000000 fields 2 a LONG", "[:1, :1]"),
        ("hget h LONG", "2"),
        ("hpersist h fields 1 LONG", "[:1]"),
        ("sadd s a LONG", ":2"),
        ("sismember s LONG", ":1"),
        ("zadd z 1 a 2 LONG", ":2"),
        ("zrank z LONG", ":1"),
        ("zrem z LONG", ":1"),
    ] {
        assert_eq!(client.call(&request.replace("LONG", &longest)).text(), expected, "{request}");
    }
}

#[test]
fn every_command_answers_any_arguments() {
    let seed = std::env::var("QUINTET_SERVER_SEED").map_or(1, |text| text.parse().unwrap());
    let server = Server::start();
    let mut client = server.client();
    let Value::Array(names) = client.call("command list filterby pattern *") else {
        panic!("no array");
    };
    assert!(names.len() > 200, "{} commands", names.len());
    let mut random = Random::new(seed);
    for name in names.iter().map(Value::text).filter(|name| !EXCEPT.contains(&name.as_str())) {
        for round in 0..40 {
            if round % 20 == 0 {
                client.call("set k 12");
                client.call("rpush l 1 2 3");
                client.call("zadd z 1 a 2 b");
                client.call("xadd x * f v");
            }
            let mut args: Vec<&str> = name.split('|').collect();
            for _ in 0..random.below(8) {
                args.push(random.pick(ARGUMENTS));
            }
            // A transaction, in which nothing waits.
            client.call("multi");
            client.call_args(&args);
            let reply = client.call("exec");
            assert!(
                matches!(reply, Value::Array(_) | Value::Error(_)),
                "{args:?}: {reply:?}, seed {seed}"
            );
        }
    }
    client.call("select 0");
    assert_eq!(client.call("ping").text(), "+PONG");
    assert_eq!(client.call("echo still-here").text(), "still-here");
}
