//! Commands on fields of hashes that expire. Times are far away or past, so none passes meanwhile.

use std::time::{Duration, Instant};

use super::{
    client::{Client, Value},
    running::{Server, config},
};

/// Far in the future, in milliseconds and in seconds.
const MILLIS: &str = "33177117420123";
const SECONDS: &str = "33177117421";

fn numbers(numbers: &[i64]) -> Value {
    Value::Array(numbers.iter().map(|number| Value::Integer(*number)).collect())
}

fn check(client: &mut Client, request: &str, expected: &[i64]) {
    assert_eq!(client.call(request), numbers(expected), "{request}");
}

fn fails(client: &mut Client, request: &str, expected: &str) {
    assert_eq!(client.call(request), Value::Error(expected.to_owned()), "{request}");
}

#[test]
fn replies_are_the_codes_of_redis() {
    let server = Server::start();
    let mut client = server.client();
    for size in [3, 500] {
        client.call("del h");
        for number in 0..size {
            client.call(&format!("hset h f{number} {number}"));
        }
        let client = &mut client;
        check(client, "hexpire none 10 fields 2 a b", &[-2, -2]);
        check(client, "httl none fields 1 a", &[-2]);
        check(client, "httl h fields 3 f0 f1 x", &[-1, -1, -2]);
        check(client, &format!("hpexpireat h {MILLIS} xx fields 2 f0 x"), &[0, -2]);
        check(client, &format!("hpexpireat h {MILLIS} gt fields 1 f0"), &[0]);
        check(client, &format!("hpexpireat h {MILLIS} nx fields 2 f0 f0"), &[1, 0]);
        check(client, &format!("hpexpireat h {MILLIS} LT FIELDS 2 f0 f1"), &[0, 1]);
        check(client, "hpexpireat h 33177117420124 gt fields 2 f0 f0", &[1, 0]);
        check(
            client,
            "hpexpiretime h fields 3 f0 f1 x",
            &[33_177_117_420_124, 33_177_117_420_123, -2],
        );
        check(client, "hexpiretime h fields 2 f0 f2", &[33_177_117_421, -1]);
        check(client, &format!("hexpireat h {SECONDS} fields 1 f0"), &[1]);
        check(client, "hpexpiretime h fields 1 f0", &[33_177_117_421_000]);
        check(client, "hpersist h fields 3 f0 f2 x", &[1, -1, -2]);
        check(client, "hpersist none fields 1 x", &[-2]);
        check(client, "hexpire h 1000000 fields 1 f0", &[1]);
        check(client, "hpexpire h 1000000000 fields 1 f1", &[1]);
        let Value::Array(left) = client.call("hpttl h fields 2 f0 f1") else { panic!() };
        for left in left {
            let Value::Integer(left) = left else { panic!("{left:?}") };
            assert!((1..=1_000_000_000).contains(&left), "{left}");
        }
        // A value that is set anew loses the expiry, one that is incremented keeps it.
        client.call("hincrby h f0 1");
        client.call("hincrbyfloat h f0 1.5");
        check(client, "hpersist h fields 1 f0", &[1]);
        client.call("hset h f1 1");
        check(client, "hpersist h fields 1 f1", &[-1]);
        // What is past ends at once, and a new field of the name has no expiry.
        check(client, "hexpire h 1000 fields 1 f1", &[1]);
        check(client, "hpexpireat h 1 fields 2 f1 f1", &[2, -2]);
        check(client, "hexpire h 0 nx fields 1 f2", &[2]);
        assert_eq!(client.call("hlen h"), Value::Integer(size - 2));
        assert_eq!(client.call("hget h f1"), Value::Null);
        client.call("hsetnx h f1 1");
        check(client, "httl h fields 1 f1", &[-1]);
    }
    client.call("del h");
    client.call("hset h a 1");
    check(&mut client, "hexpire h 0 fields 1 a", &[2]);
    assert_eq!(client.call("exists h"), Value::Integer(0));
}

#[test]
fn bad_requests_are_errors() {
    let server = Server::start();
    let mut client = server.client();
    client.call("hset h a 1");
    client.call("set s 1");
    let client = &mut client;
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    fails(client, "hexpire s 1 fields 1 a", wrong);
    fails(client, "httl s fields 1 a", wrong);
    fails(client, "hpersist s fields 1 a", wrong);
    fails(client, "hgetdel s fields 1 a", wrong);
    fails(client, "hexpire h x fields 1 a", "ERR value is not an integer or out of range");
    fails(client, "hexpire h -1 fields 1 a", "ERR invalid expire time, must be >= 0");
    let time = "ERR invalid expire time in 'hexpire' command";
    fails(client, "hexpire h 9223372036854775807 fields 1 a", time);
    fails(client, "hexpire h 70368744177 fields 1 a", time);
    let mandatory = "ERR Mandatory argument FIELDS is missing or not at the right position";
    fails(client, "hexpire h 1 nx gt fields 1 a", mandatory);
    fails(client, "hexpire h 1 field 1 a", mandatory);
    fails(client, "hexpire h 1 fields 0 a", "ERR Parameter `numFields` should be greater than 0");
    let positive = "ERR Number of fields must be a positive integer";
    fails(client, "httl h fields 0 a", positive);
    fails(client, "hpersist h fields x a", positive);
    fails(client, "hgetdel h fields -1 a", positive);
    fails(client, "hgetex h fields 9223372036854775808 a", positive);
    fails(client, "hsetex h fields 0 a 1", "ERR invalid number of fields");
    fails(client, "hgetex s fields 1 a", wrong);
    fails(client, "hsetex s fields 1 a 1", wrong);
    let count = "ERR The `numfields` parameter must match the number of arguments";
    fails(client, "hexpire h 1 fields 2 a", count);
    fails(client, "httl h fields 1 a b", count);
    fails(
        client,
        "hgetex h ex 1 px 1 fields 1 a",
        "ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
    );
    fails(
        client,
        "hsetex h fnx fxx fields 1 a 1",
        "ERR Only one of FXX or FNX arguments can be specified",
    );
    fails(client, "hsetex h fields 1 a", "ERR wrong number of arguments for 'hsetex' command");
    fails(client, "hsetex h fields 2 a 1 b", "ERR wrong number of arguments");
    fails(client, "hgetex h keepttl fields 1 a", "ERR unknown argument: keepttl");
    check(client, "httl h fields 1 a", &[-1]);
}

#[test]
fn values_and_expiries_change_at_once() {
    let server = Server::start();
    let mut client = server.client();
    let client = &mut client;
    assert_eq!(client.call("hsetex h fxx fields 1 a 1"), Value::Integer(0));
    assert_eq!(client.call("exists h"), Value::Integer(0));
    let request = format!("hsetex h fnx pxat {MILLIS} fields 2 a 1 b 2");
    assert_eq!(client.call(&request), Value::Integer(1));
    assert_eq!(client.call(&request), Value::Integer(0));
    let millis = MILLIS.parse().unwrap();
    check(client, "hpexpiretime h fields 2 a b", &[millis, millis]);
    assert_eq!(client.call("hsetex h keepttl fields 1 a 3"), Value::Integer(1));
    assert_eq!(client.call("hsetex h fxx fields 1 b 4"), Value::Integer(1));
    check(client, "hpexpiretime h fields 2 a b", &[millis, -1]);
    assert_eq!(
        client.call("hgetex h persist fields 3 a b x").text(),
        Value::Array(vec![bulk("3"), bulk("4"), Value::Null]).text()
    );
    check(client, "hpexpiretime h fields 1 a", &[-1]);
    client.call(&format!("hgetex h exat {SECONDS} fields 2 a x"));
    check(client, "hexpiretime h fields 3 a b x", &[33_177_117_421, -1, -2]);
    assert_eq!(client.call("hgetdel h fields 2 a a"), Value::Array(vec![bulk("3"), Value::Null]));
    assert_eq!(client.call("hgetex h exat 1 fields 1 b"), Value::Array(vec![bulk("4")]));
    assert_eq!(client.call("exists h"), Value::Integer(0));
    assert_eq!(client.call("hsetex h exat 1 fields 1 b 1"), Value::Integer(1));
    assert_eq!(client.call("exists h"), Value::Integer(0));
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

#[test]
fn expiries_go_with_their_key_and_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    for (key, size) in [("small", 3), ("large", 400)] {
        for number in 0..size {
            client.call(&format!("hset {key} f{number} {number}"));
            if number % 2 == 0 {
                let time = 33_177_117_420_000_i64 + number;
                client.call(&format!("hpexpireat {key} {time} fields 1 f{number}"));
            }
        }
        client.call(&format!("copy {key} {key}:copy"));
        client.call(&format!("copy {key} {key}:old"));
        client.call(&format!("rename {key}:old {key}:renamed"));
        client.call(&format!("copy {key} {key} db 1"));
        client.call(&format!("copy {key} {key}:moved"));
        client.call(&format!("move {key}:moved 1"));
        let Value::Bulk(dumped) = client.call(&format!("dump {key}")) else { panic!() };
        let target = format!("{key}:restored");
        let args: [&[u8]; 4] = [b"restore", target.as_bytes(), b"0", &dumped];
        assert_eq!(client.call_args(&args), Value::Simple("OK".to_owned()));
    }
    server.end();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    for (key, size) in [("small", 3), ("large", 400)] {
        for (database, name) in
            [(0, ""), (0, ":copy"), (0, ":renamed"), (0, ":restored"), (1, ""), (1, ":moved")]
        {
            client.call(&format!("select {database}"));
            let key = format!("{key}{name}");
            assert_eq!(client.call(&format!("hlen {key}")), Value::Integer(size), "{key}");
            let last = size - 1 - (size - 1) % 2;
            let expected = [33_177_117_420_000, -1, 33_177_117_420_000 + last];
            check(&mut client, &format!("hpexpiretime {key} fields 3 f0 f1 f{last}"), &expected);
        }
    }
}

#[test]
fn no_command_shows_a_field_that_has_expired() {
    let server = Server::start();
    let mut client = server.client();
    for size in [3, 400] {
        client.call("del h");
        client.call("hset h left 7");
        for number in 0..size {
            client.call(&format!("hset h f{number} {number}"));
        }
        client.call("hexpire h 100000 fields 1 left");
        let encoding = if size == 3 { "listpackex" } else { "hashtable" };
        assert_eq!(client.call("object encoding h").text(), encoding);
        assert!(client.call("info keyspace").text().contains(",subexpiry=1\r\n"));
        for number in 0..size {
            client.call(&format!("hpexpire h 1 fields 1 f{number}"));
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while client.call("hlen h") != Value::Integer(1) {
            assert!(Instant::now() < deadline, "the fields do not expire");
        }
        let pair = Value::Array(vec![bulk("left"), bulk("7")]);
        assert_eq!(client.call("hgetall h"), pair);
        assert_eq!(client.call("hkeys h"), Value::Array(vec![bulk("left")]));
        assert_eq!(client.call("hvals h"), Value::Array(vec![bulk("7")]));
        assert_eq!(client.call("hscan h 0"), Value::Array(vec![bulk("0"), pair.clone()]));
        assert_eq!(client.call("hrandfield h"), bulk("left"));
        assert_eq!(client.call("hrandfield h 5 withvalues"), pair);
        assert_eq!(client.call("hmget h f0 left"), Value::Array(vec![Value::Null, bulk("7")]));
        assert_eq!(client.call("hexists h f0"), Value::Integer(0));
        assert_eq!(client.call("hstrlen h f0"), Value::Integer(0));
        assert_eq!(client.call("hdel h f0"), Value::Integer(0));
        check(&mut client, "httl h fields 1 f0", &[-2]);
        check(&mut client, "hexpire h 10 fields 1 f0", &[-2]);
        assert_eq!(client.call("hincrby h f0 3"), Value::Integer(3));
        check(&mut client, "httl h fields 1 f0", &[-1]);
    }
}

#[test]
fn events_tell_of_expiries() {
    let server = Server::start();
    let mut client = server.client();
    client.call("config set notify-keyspace-events KA");
    let mut subscriber = server.client();
    subscriber.call("psubscribe __keyspace*");
    client.call("hset h a 1 b 2 c 3");
    client.call("hexpire h 1000 fields 1 a");
    client.call("hexpire h 1000 xx fields 1 b");
    client.call("hpersist h fields 2 a b");
    client.call("hexpire h 0 fields 1 a");
    client.call("hpexpire h 1 fields 1 b");
    // The background removes it.
    for event in ["hset", "hexpire", "hpersist", "hdel", "hexpire", "hexpired"] {
        let Value::Array(words) = subscriber.read() else { panic!("no message") };
        assert_eq!(words[3].text(), event);
    }
    client.call("hpexpire h 1 fields 1 c");
    for event in ["hexpire", "hexpired", "del"] {
        let Value::Array(words) = subscriber.read() else { panic!("no message") };
        assert_eq!(words[3].text(), event);
    }
    assert_eq!(client.call("dbsize"), Value::Integer(0));
    // The counter follows the events.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !client.call("info stats").text().contains("expired_subkeys:2\r\n") {
        assert!(Instant::now() < deadline, "the fields are not counted");
    }
}
