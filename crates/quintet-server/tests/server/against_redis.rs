//! Random commands give the replies of `redis-server`.

use super::{
    client::{Client, Value},
    generator::{Random, command},
    running::{Redis, Server},
};

/// Commands of a run. More with `QUINTET_SERVER_COMMANDS`.
const COMMANDS: u64 = 6000;
/// Replays one run: the seed that a failure prints.
const SEED: &str = "QUINTET_SERVER_SEED";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Commands whose replies have no order, or another one.
const UNORDERED: [&str; 11] = [
    "smembers",
    "sinter",
    "sunion",
    "sdiff",
    "hkeys",
    "hvals",
    "hgetall",
    "keys",
    "geosearch",
    "georadius",
    "georadiusbymember",
];

/// `XINFO STREAM` without times and without the shape of Redis's radix tree.
fn without_times(items: Vec<Value>) -> Vec<Value> {
    let mut is_tree = false;
    let mut same = |item: Value| {
        let hides = std::mem::replace(&mut is_tree, item.text().starts_with("radix-tree"));
        match item {
            Value::Integer(number) if hides || number > 1_000_000_000_000 => Value::Integer(0),
            Value::Array(items) => Value::Array(without_times(items)),
            Value::Map(items) => Value::Map(without_times(items)),
            other => other,
        }
    };
    items.into_iter().map(&mut same).collect()
}

/// The reply in a form that does not depend on the order of members.
pub(crate) fn normalize(name: &str, reply: Value) -> Value {
    match reply {
        Value::Array(items) if name == "xinfo" => Value::Array(without_times(items)),
        Value::Map(items) if name == "xinfo" => Value::Map(without_times(items)),
        // Members at one place have no order among them.
        Value::Array(mut items) | Value::Set(mut items) if UNORDERED.contains(&name) => {
            if name == "hgetall" {
                let mut pairs: Vec<Value> =
                    items.chunks(2).map(|pair| Value::Array(pair.to_vec())).collect();
                pairs.sort();
                return Value::Array(pairs);
            }
            items.sort();
            Value::Array(items)
        }
        Value::Map(items) => {
            let mut pairs: Vec<Value> =
                items.chunks(2).map(|pair| Value::Array(pair.to_vec())).collect();
            pairs.sort();
            Value::Array(pairs)
        }
        other => other,
    }
}

/// A reply of a time may differ by what passed between the two servers.
pub(crate) fn is_near(name: &str, ours: &Value, theirs: &Value) -> bool {
    match (name, ours, theirs) {
        ("ttl" | "pttl" | "expiretime" | "pexpiretime", Value::Integer(a), Value::Integer(b)) => {
            (a - b).abs() <= 2000
        }
        _ => false,
    }
}

fn compare(seed: u64, setup: &str, pipeline: usize, commands: u64) {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    assert_eq!(ours.call(setup), theirs.call(setup));
    let mut random = Random::new(seed);
    let mut history = Vec::new();
    let mut done = 0;
    while done < commands {
        let requests: Vec<Vec<Vec<u8>>> = (0..pipeline).map(|_| command(&mut random)).collect();
        let bytes: Vec<u8> = requests.iter().flat_map(|args| super::client::encode(args)).collect();
        ours.send(&bytes);
        theirs.send(&bytes);
        for args in &requests {
            done += 1;
            let shown: Vec<String> =
                args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
            history.push(shown.join(" "));
            let name = String::from_utf8_lossy(&args[0]).to_lowercase();
            let (a, b) = (normalize(&name, ours.read()), normalize(&name, theirs.read()));
            if a != b && !is_near(&name, &a, &b) {
                let start = history.len().saturating_sub(12);
                panic!(
                    "{:?}: Quintet {a:?}, Redis {b:?}\nafter\n{}\nrun {SEED}={seed} cargo test -p \
                     quintet-server --test server {setup}",
                    history.last().unwrap(),
                    history[start..].join("\n")
                );
            }
        }
    }
    compare_all(&mut ours, &mut theirs, seed);
    server.end();
}

/// Compares all that both servers have.
pub(crate) fn compare_all(ours: &mut Client, theirs: &mut Client, seed: u64) {
    let keys = |client: &mut Client| normalize("keys", client.call("keys *"));
    let all = keys(ours);
    assert_eq!(all, keys(theirs), "seed {seed}");
    assert_eq!(ours.call("dbsize"), theirs.call("dbsize"), "seed {seed}");
    let Value::Array(all) = all else { panic!("{all:?}") };
    for key in all {
        let kind = ours.call_args(&["type", &key.text()]).text();
        assert_eq!(kind, theirs.call_args(&["type", &key.text()]).text(), "seed {seed}");
        let read: &[&str] = match kind.trim_start_matches('+') {
            // Redis caches the estimate in the string.
            "string" if key.text().starts_with('p') => &["pfcount"],
            "string" => &["get"],
            "list" => &["lrange", "0", "-1"],
            "set" => &["smembers"],
            "zset" => &["zrange", "0", "-1", "withscores"],
            "hash" => &["hgetall"],
            "stream" => &["xrange", "-", "+"],
            other => panic!("{other}"),
        };
        let mut args = vec![read[0].to_owned(), key.text()];
        args.extend(read[1..].iter().map(|word| (*word).to_owned()));
        let (a, b) = (ours.call_args(&args), theirs.call_args(&args));
        assert_eq!(normalize(read[0], a), normalize(read[0], b), "{args:?}, seed {seed}");
    }
}

#[test]
fn random_commands_reply_as_redis_does() {
    let seed = number(SEED, 1);
    compare(seed, "ping", 1, number("QUINTET_SERVER_COMMANDS", COMMANDS));
}

#[test]
fn pipelines_of_random_commands_reply_as_redis_does() {
    let seed = number(SEED, 2);
    compare(seed, "ping", 20, number("QUINTET_SERVER_COMMANDS", COMMANDS) * 2);
}

#[test]
fn random_commands_reply_as_redis_does_in_resp3() {
    let seed = number(SEED, 3);
    compare(seed, "client setname x", 1, 10);
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    assert!(matches!(ours.call("hello 3"), Value::Map(_)));
    theirs.call("hello 3");
    let mut random = Random::new(seed);
    for _ in 0..3000 {
        let args = command(&mut random);
        let name = String::from_utf8_lossy(&args[0]).to_lowercase();
        let a = normalize(&name, ours.call_args(&args));
        let b = normalize(&name, theirs.call_args(&args));
        assert!(a == b || is_near(&name, &a, &b), "{args:?}: {a:?}, Redis {b:?}; {SEED}={seed}");
    }
}

/// Requests after the collections have been made.
const LARGE: &[&str] = &[
    "lrange list 700 720",
    "lindex list -3",
    "lrem list 0 1000",
    "linsert list before 5 x",
    "lset list 900 y",
    "lpos list y",
    "ltrim list 10 -20",
    "llen list",
    "lrange list 0 -1",
    "zrange scores 0 -1 withscores",
    "zrange scores 1400 1450 rev",
    "zrank scores member:77",
    "zrevrank scores member:77",
    "zrangebyscore scores (100 200 withscores limit 5 20",
    "zcount scores 10 (500",
    "zremrangebyrank scores 100 200",
    "zpopmax scores 30",
    "zpopmin scores 3",
    "zcard scores",
    "hgetall hash",
    "hlen hash",
    "hdel hash field:0 field:5",
    "sinter set other",
    "sunion set other",
    "sdiff set other",
    "sinterstore third set other",
    "scard third",
    "rename scores renamed",
    "zrange renamed 0 20",
    "copy hash copied",
    "hgetall copied",
    "move set 3",
    "exists set",
    "select 3",
    "smembers set",
    "select 0",
    "del hash",
    "hgetall hash",
    "hset hash a 1",
    "hgetall hash",
    "dbsize",
    "flushall",
    "dbsize",
    "zrange renamed 0 -1",
    "rpush animals 3 1 2",
    "mset weight_1 30 weight_2 10 weight_3 20",
    "hset object_1 name ape",
    "sort animals by weight_* get # get object_*->name get weight_*",
    "sort animals by nosort get # get weight_*",
    "sort animals by weight_* desc store sorted",
    "lrange sorted 0 -1",
    "geoadd italy 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 12.5 41.9 Rome",
    "geosearch italy fromlonlat 15 37 byradius 500 km count 1 withdist withcoord withhash",
    "geosearchstore near italy frommember Rome bybox 900 900 km storedist",
    "zcard near",
    "keys *",
];

/// Collections that are larger than a head.
#[test]
fn large_collections_reply_as_redis_does() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    let mut check = |request: &str| {
        let name = request.split(' ').next().unwrap().to_owned();
        let (a, b) = (normalize(&name, ours.call(request)), normalize(&name, theirs.call(request)));
        assert_eq!(a, b, "{request}");
    };
    for number in 0..1500_u32 {
        let scrambled = number.wrapping_mul(2_654_435_761) % 10_007;
        check(&format!("rpush list {scrambled}"));
        check(&format!("zadd scores {} member:{number}", scrambled % 977));
        check(&format!("hset hash field:{scrambled} {number}"));
        check(&format!("sadd set {scrambled}"));
        check(&format!("sadd other {}", scrambled / 2));
    }
    for request in LARGE {
        check(request);
    }
}
