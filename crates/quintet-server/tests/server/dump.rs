//! `DUMP` and `RESTORE` between this server and `redis-server`, both ways.

use super::{
    client::{Client, Value},
    generator::{Random, lasting_command},
    running::{Redis, Server},
    same::{assert_same_keys, keys},
};

fn bulk(value: Value) -> Vec<u8> {
    let Value::Bulk(bytes) = value else { panic!("{value:?}") };
    bytes
}

fn crc64(bytes: &[u8]) -> u64 {
    // Bit by bit, as the definition says: not the tables under test.
    let mut crc = 0_u64;
    for byte in bytes {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { crc >> 1 };
        }
    }
    crc
}

/// A payload of version 10.
fn payload(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = [&[kind], value, &[10, 0]].concat();
    let crc = crc64(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

fn restore(client: &mut Client, key: &[u8], payload: &[u8]) -> Value {
    client.call_args(&[b"restore", key, b"0", payload, b"replace"])
}

/// Copies all keys of `from` to `to` with their expiries.
fn copy_all(from: &mut Client, to: &mut Client) {
    for key in keys(from) {
        let dumped = bulk(from.call_args(&[b"dump", key.as_slice()]));
        let expiry = match from.call_args(&[b"pexpiretime", key.as_slice()]) {
            Value::Integer(time) if time > 0 => time,
            _ => 0,
        };
        let expiry = expiry.to_string();
        let args: [&[u8]; 5] = [b"restore", &key, expiry.as_bytes(), &dumped, b"absttl"];
        let shown = key.escape_ascii().to_string();
        assert_eq!(to.call_args(&args), Value::Simple("OK".to_owned()), "{shown}");
    }
}

/// Keys of all types, small and large, with all encodings that Redis 7.0 chooses.
pub(crate) fn fill(client: &mut Client) {
    let mut call = |request: &str| drop(client.call(request));
    call("set int8 -5");
    call("set int16 -500");
    call("set int32 70000");
    call("set int64 5000000000");
    call("set embstr short");
    call(&format!("set raw {}", "x".repeat(5000)));
    call("set expiring 1 px 100000000");
    call("setbit bits 70 1");
    call("pfadd estimate a b c d e");
    call("rpush small a 1 -70000 5000000000");
    call(&format!("rpush plain {} b", "y".repeat(9000)));
    call("sadd integers 1 2 70000 -5000000000");
    call("sadd words a b c");
    call("zadd scores 1.5 a -inf b +inf c 0 d");
    call("hset hash a 1 b 2 c x");
    call(&format!("hset long field {}", "z".repeat(100)));
    for number in 0..700 {
        call(&format!("rpush list element:{number} {number}"));
        call(&format!("sadd set member:{number}"));
        call(&format!("sadd numbers {number}"));
        call(&format!("zadd sorted {}.25 member:{number}", number * 7 % 300));
        call(&format!("hset fields field:{number} {number}"));
        call(&format!("xadd stream {number}-1 field {number} other {}", number * 3));
    }
    call("geoadd places 13.361389 38.115556 Palermo 15.087269 37.502669 Catania");
    call("xdel stream 5-1 6-1 699-1");
    call("xadd stream 18446744073709551615-18446744073709551615 last 1");
    call("xgroup create stream all 0");
    call("xgroup create stream some 100-1 entriesread 99");
    call("xreadgroup group all one count 20 streams stream >");
    call("xreadgroup group all two count 5 streams stream >");
    call("xgroup createconsumer stream all idle");
    call("xack stream all 1-1 2-1");
    call("xdel stream 8-1");
    call("xgroup create empty none $ mkstream");
    call("xadd other 0-5 a 1");
    call("xadd other 0-6 a 2 b 3");
    call("xadd other 7-1 a 4");
    call("xtrim other maxlen 0");
}

#[test]
fn redis_restores_our_dumps_and_we_restore_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    fill(&mut theirs);
    // From Redis to here, and back to an empty Redis.
    copy_all(&mut theirs, &mut ours);
    assert_same_keys(&mut ours, &mut theirs, "from Redis");
    let before: Vec<Vec<u8>> = keys(&mut theirs);
    theirs.call("flushall");
    copy_all(&mut ours, &mut theirs);
    assert_eq!(keys(&mut theirs), before);
    assert_same_keys(&mut ours, &mut theirs, "to Redis");
    // What was copied works: the state of groups and lists is whole.
    for request in [
        "xreadgroup group all two count 3 streams stream >",
        "xautoclaim stream all idle 0 0 count 4 justid",
        "xadd other * a 1",
        "rpush list x",
        "lpush list y",
        "lrange list 0 2",
        "zadd sorted 5 new",
        "zrank sorted new",
        "hincrby fields field:7 3",
        "sadd set new",
    ] {
        let (a, b) = (ours.call(request), theirs.call(request));
        assert!(a == b || request.contains('*'), "{request}: {a:?}, Redis {b:?}");
    }
}

#[test]
fn random_values_are_dumped_and_restored_both_ways() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    let mut random = Random::new(11);
    for _ in 0..4000 {
        theirs.call_args(&lasting_command(&mut random));
    }
    copy_all(&mut theirs, &mut ours);
    assert_same_keys(&mut ours, &mut theirs, "from Redis");
    theirs.call("flushall");
    copy_all(&mut ours, &mut theirs);
    assert_same_keys(&mut ours, &mut theirs, "to Redis");
}

fn length(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    assert!(length < 0x4000);
    [&(length | 0x4000).to_be_bytes(), bytes].concat()
}

/// A ziplist. Integers that are 0 to 12 and those of 16 bits have their encodings.
fn ziplist(words: &[&str]) -> Vec<u8> {
    let (mut body, mut before) = (Vec::new(), 0_u8);
    let mut last = 10;
    for word in words {
        last = 10 + body.len();
        let start = body.len();
        body.push(before);
        match word.parse::<i16>() {
            Ok(number @ 0..=12) => body.push(0xf1 + u8::try_from(number).unwrap()),
            Ok(number) => {
                body.push(0xc0);
                body.extend_from_slice(&number.to_le_bytes());
            }
            Err(_) => {
                body.push(u8::try_from(word.len()).unwrap());
                body.extend_from_slice(word.as_bytes());
            }
        }
        before = u8::try_from(body.len() - start).unwrap();
    }
    let mut bytes = u32::try_from(11 + body.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend_from_slice(&u32::try_from(last).unwrap().to_le_bytes());
    bytes.extend_from_slice(&u16::try_from(words.len()).unwrap().to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes.push(0xff);
    length(&bytes)
}

/// Encodings that older versions of Redis wrote, which 7.0 reads.
#[test]
fn old_encodings_restore_as_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    let zipmap = length(b"\x02\x01a\x01\x001\x02bc\x03\x02xyz..\xff");
    let intset = length(b"\x04\0\0\0\x03\0\0\0\xfb\xff\xff\xff\x01\0\0\0\x70\x11\x01\0");
    let lists = [&[2], ziplist(&["a", "5"]).as_slice(), &ziplist(&["-300"])].concat();
    for (key, kind, value) in [
        ("list-ziplist", 10, ziplist(&["a", "7", "12", "13", "-1", "longer"])),
        ("set-intset", 11, intset),
        ("zset-ziplist", 12, ziplist(&["a", "1", "b", "2.5", "c", "30"])),
        ("hash-ziplist", 13, ziplist(&["f", "1", "g", "word"])),
        ("list-quicklist", 14, lists),
        ("hash-zipmap", 9, zipmap),
        ("zset-text", 3, b"\x03\x01a\x031.5\x01b\xfe\x01c\xff".to_vec()),
        ("list", 1, b"\x02\x01a\xc0\x07".to_vec()),
        ("set", 2, b"\x02\x01a\x01b".to_vec()),
        ("lzf", 0, b"\xc3\x05\x0a\x00a\xe0\x00\x00".to_vec()),
    ] {
        let payload = payload(kind, &value);
        let ok = Value::Simple("OK".to_owned());
        assert_eq!(restore(&mut theirs, key.as_bytes(), &payload), ok, "Redis, {key}");
        assert_eq!(restore(&mut ours, key.as_bytes(), &payload), ok, "{key}");
    }
    assert_same_keys(&mut ours, &mut theirs, "old encodings");
}

/// Arguments and their errors.
#[test]
fn restore_replies_as_redis_does() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    let mut check = |args: &[&[u8]]| {
        let (a, b) = (ours.call_args(args), theirs.call_args(args));
        let shown: Vec<String> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
        assert_eq!(a, b, "{shown:?}");
    };
    let good = payload(0, b"\x05hello");
    check(&[b"restore", b"k", b"0", &good]);
    check(&[b"get", b"k"]);
    check(&[b"restore", b"k", b"0", &good]);
    check(&[b"restore", b"k", b"-1", &good, b"replace"]);
    check(&[b"restore", b"k", b"x", &good, b"replace"]);
    check(&[b"restore", b"k", b"0", b"short", b"replace"]);
    check(&[b"restore", b"k", b"0", &good[1..], b"replace"]);
    for options in [
        ["idletime", "-1"],
        ["idletime", "x"],
        ["idletime", "5"],
        ["freq", "256"],
        ["freq", "-1"],
        ["freq", "255"],
        ["replace", "idletime"],
        ["nosuch", "replace"],
        ["absttl", "replace"],
    ] {
        let options = options.map(str::as_bytes);
        check(&[b"restore", b"k", b"0", &good, options[0], options[1], b"replace"]);
    }
    check(&[b"restore", b"k", b"0", &good, b"freq", b"1", b"idletime", b"1"]);
    check(&[b"restore", b"ttl", b"100000", &good]);
    check(&[b"ttl", b"ttl"]);
    check(&[b"restore", b"past", b"1", &good, b"absttl"]);
    check(&[b"exists", b"past"]);
    check(&[b"restore", b"k", b"1", &good, b"absttl", b"replace"]);
    check(&[b"exists", b"k"]);
    check(&[b"set", b"kept", b"1"]);
    // A payload whose checksum is right and whose value is malformed changes nothing.
    for bad in [
        payload(0, b"\x40\xffhell"),
        payload(99, b"\x01a"),
        payload(10, &length(b"\x01\x02\x03")),
        payload(1, b"\0"),
        payload(2, b"\x02\x01a\x01a"),
        payload(7, b"\x01\x00"),
    ] {
        check(&[b"restore", b"kept", b"0", &bad, b"replace"]);
        check(&[b"get", b"kept"]);
    }
    check(&[b"dump", b"missing"]);
    check(&[b"dump"]);
    check(&[b"restore", b"k", b"0"]);
}

/// Collections that are larger than a head, in a transaction and over an old value.
#[test]
fn large_values_are_replaced_in_a_transaction() {
    let server = Server::start();
    let mut client = server.client();
    for number in 0..1000 {
        client.call(&format!("zadd scores {number} member:{number}"));
        client.call(&format!("rpush list {number}"));
    }
    let scores = bulk(client.call("dump scores"));
    let list = bulk(client.call("dump list"));
    client.call("multi");
    restore(&mut client, b"list", &scores);
    restore(&mut client, b"scores", &list);
    let ok = || Value::Simple("OK".to_owned());
    assert_eq!(client.call("exec"), Value::Array(vec![ok(), ok()]));
    assert_eq!(client.call("zcard list"), Value::Integer(1000));
    assert_eq!(client.call("zrank list member:999"), Value::Integer(999));
    assert_eq!(client.call("lindex scores -1").text(), "999");
    // A large value that cannot be replaced stays.
    let reply = restore(&mut client, b"list", &payload(2, b"\x02\x01a\x01a"));
    assert_eq!(reply, Value::Error("ERR Bad data format".to_owned()));
    assert_eq!(client.call("zscore list member:500").text(), "500");
    assert_eq!(client.call("zcard list"), Value::Integer(1000));
}
