//! Client-side caching: messages about changed keys, beside those of Redis and under load.

use std::{collections::BTreeMap, thread};

use super::{
    client::{Client, Value, encode},
    replication::{MASTER, catch_up, follow},
    running::{Redis, Server},
};

/// A connection with the messages that it was sent.
struct Caching {
    client: Client,
    id: i64,
    messages: Vec<Value>,
}

fn is_message(value: &Value) -> bool {
    let (Value::Push(items) | Value::Array(items)) = value else { return false };
    let kind = items.first().map(Value::text).unwrap_or_default();
    ["invalidate", "tracking-redir-broken", "message"].contains(&kind.as_str())
}

impl Caching {
    fn new(mut client: Client) -> Self {
        let Value::Integer(id) = client.call("client id") else { panic!("no id") };
        Self { client, id, messages: Vec::new() }
    }

    /// The next reply. Messages before it are kept.
    fn reply(&mut self) -> Value {
        loop {
            let value = self.client.read();
            if !is_message(&value) {
                return value;
            }
            self.messages.push(value);
        }
    }

    /// Sends a request. `''` is an empty argument.
    fn call(&mut self, request: &str) -> Value {
        let args: Vec<&str> =
            request.split(' ').map(|word| if word == "''" { "" } else { word }).collect();
        self.client.send(&encode(&args));
        self.reply()
    }

    /// All messages of changes whose writers have their replies. A message may follow the reply
    /// that was under way, so a second reply comes behind it.
    fn messages(&mut self) -> Vec<Value> {
        self.call("ping");
        self.call("ping");
        std::mem::take(&mut self.messages)
    }
}

/// Replaces the numbers of connections by their names.
fn without_ids(value: Value, ids: &BTreeMap<i64, String>) -> Value {
    let each = |items: Vec<Value>| items.into_iter().map(|item| without_ids(item, ids)).collect();
    match value {
        Value::Integer(number) => match ids.get(&number) {
            Some(name) => Value::Simple(name.clone()),
            None => Value::Integer(number),
        },
        Value::Array(items) => Value::Array(each(items)),
        Value::Map(items) => Value::Map(each(items)),
        Value::Set(items) => Value::Set(each(items)),
        Value::Push(items) => Value::Push(each(items)),
        other => other,
    }
}

/// Runs the steps of a script: `name request`. `{name}` in a request is the number of a connection.
/// The request `?` stands for the messages of the connection, `end` ends it.
fn play(connect: &dyn Fn() -> Client, script: &[&str]) -> Vec<String> {
    let mut open: BTreeMap<String, Caching> = BTreeMap::new();
    // Numbers that no counter of a test reaches.
    for _ in 0..60 {
        connect().call("ping");
    }
    let mut ids = BTreeMap::new();
    let mut lines = Vec::new();
    for step in script {
        let (name, request) = step.split_once(' ').unwrap();
        if !open.contains_key(name) {
            let new = Caching::new(connect());
            ids.insert(new.id, format!("the number of {name}"));
            open.insert(name.to_owned(), new);
        }
        let mut request = request.to_owned();
        for (other, connection) in &open {
            request = request.replace(&format!("{{{other}}}"), &connection.id.to_string());
        }
        if request == "end" {
            open.remove(name);
            // Until the server has noticed.
            while open.values_mut().next().unwrap().call("client list").text().contains(&format!(
                "id={} ",
                ids.iter().find(|(_, own)| own.ends_with(&format!(" {name}"))).unwrap().0
            )) {
                thread::yield_now();
            }
            continue;
        }
        let connection = open.get_mut(name).unwrap();
        let reply = if request == "?" {
            Value::Array(connection.messages())
        } else {
            connection.call(&request)
        };
        lines.push(format!("{step}: {:?}", without_ids(reply, &ids)));
    }
    lines
}

fn compare(script: &[&str]) -> Vec<String> {
    let server = Server::start();
    let ours = play(&|| server.client(), script);
    if let Some(redis) = Redis::start() {
        let theirs = play(&|| redis.client(), script);
        for (at, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(a, b, "after\n{}", ours[at.saturating_sub(12)..at].join("\n"));
        }
    }
    server.end();
    ours
}

/// Modes, their errors, and what the connection tells of them.
const MODES: &[&str] = &[
    "a client tracking",
    "a client tracking maybe",
    "a client tracking on nosuch",
    "a client tracking on redirect",
    "a client tracking on redirect x",
    "a client tracking on redirect 0",
    "a client tracking on redirect -1",
    "a client tracking on redirect 123456",
    "a client tracking on prefix p",
    "a client tracking on bcast optin",
    "a client tracking on bcast optout",
    "a client tracking on optin optout",
    "a client tracking on prefix",
    "a client caching yes",
    "a client caching",
    "a client getredir",
    "a client trackinginfo",
    "a client tracking off",
    "a client tracking on",
    "a client getredir",
    "a client trackinginfo",
    "a client caching yes",
    "a client caching no",
    "a client caching maybe",
    "a client tracking on bcast",
    "a client tracking on optin noloop",
    "a client trackinginfo",
    "a client caching no",
    "a client caching yes",
    "a client trackinginfo",
    "a get k",
    "a client trackinginfo",
    "a client caching yes",
    "a nosuch",
    "a client trackinginfo",
    "a client caching yes",
    "a multi",
    "a client trackinginfo",
    "a exec",
    "a client trackinginfo",
    "a client tracking on optout",
    "a client tracking off",
    "a client tracking on optout",
    "a client caching yes",
    "a client caching no",
    "a client trackinginfo",
    "a client tracking on optin",
    "a client tracking on",
    "a client trackinginfo",
    "b ping",
    "a client tracking on redirect {b}",
    "a client tracking on redirect {b} redirect {a}",
    "a client getredir",
    "a client trackinginfo",
    "a client tracking on",
    "a client getredir",
    "a client tracking off",
    "a client getredir",
    "a client tracking on bcast prefix ab prefix a",
    "a client trackinginfo",
    "a client tracking on bcast prefix b prefix a",
    "a client trackinginfo",
    "a client tracking on bcast prefix abc",
    "a client tracking on bcast prefix ''",
    "a client tracking on bcast prefix c noloop",
    "a client tracking on",
    "a client trackinginfo",
    "a hello 3",
    "a client trackinginfo",
    "a client tracking on redirect {b} bcast",
    "a client trackinginfo",
    "a client tracking off",
    "a client tracking on bcast",
    "a client trackinginfo",
    "a client tracking on bcast prefix x",
    "a reset",
    "a client trackinginfo",
    "a client getredir",
];

#[test]
fn modes_are_those_of_redis() {
    // The reply of `HELLO` has the version of the server.
    let script: Vec<&str> = MODES.iter().copied().filter(|step| *step != "a hello 3").collect();
    let lines = compare(&script);
    assert!(lines.iter().any(|line| line.contains("overlaps with another provided prefix")));
}

/// Messages to connections with RESP3 and RESP2.
const MESSAGES: &[&str] = &[
    // The default mode: one message for each key that was read, and none until it is read again.
    "a client tracking on",
    "w set k 1",
    "a ?",
    "a get k",
    "a mget k l m",
    "w set k 2",
    "a ?",
    "w set k 3",
    "w mset l 1 m 1 n 1",
    "a ?",
    "a get k",
    "a set k own",
    "a ?",
    "a get k",
    "w rename k moved",
    "a get none",
    "w set none 1",
    "a ?",
    // Other databases have the same keys.
    "a get k",
    "w select 3",
    "w set k 3",
    "w select 0",
    "a ?",
    // Each type, and commands that change nothing.
    "w rpush list a b",
    "w zadd scores 1 m",
    "w hset hash f 1",
    "w sadd set m",
    "w xadd stream 1-1 f v",
    "a lrange list 0 -1",
    "a zscore scores m",
    "a hget hash f",
    "a sismember set m",
    "a xread streams stream 0",
    "a exists k2",
    "a ttl moved",
    "a get list",
    "w sadd set m",
    "w hdel hash none",
    "w del nothing",
    "a ?",
    "w lpop list",
    "w zincrby scores 1 m",
    "w hset hash f 2",
    "w srem set m",
    "w xadd stream 2-1 f v",
    "w set k2 1",
    "w expire moved 100",
    "a ?",
    // Two readers, of which one does not want its own changes.
    "b client tracking on noloop",
    "a get k",
    "b get k",
    "b set k b",
    "a ?",
    "b ?",
    "b set k c",
    "b get k",
    "w set k w",
    "b ?",
    // Only what it asks for.
    "c client tracking on optin",
    "c get x",
    "c client caching yes",
    "c get y",
    "c get z",
    "w mset x 1 y 1 z 1",
    "c ?",
    "c client caching yes",
    "c multi",
    "c get x",
    "c get y",
    "c exec",
    "c get z",
    "w mset x 2 y 2 z 2",
    "c ?",
    "d client tracking on optout",
    "d get x",
    "d client caching no",
    "d get y",
    "d get z",
    "w mset x 3 y 3 z 3",
    "d ?",
    // All keys are gone.
    "a get x",
    "w flushdb",
    "a ?",
    "b ?",
    "w set x 1",
    "a ?",
    "w flushall",
    "c ?",
    "a flushall",
    "a ?",
    // Nothing more behind the end.
    "a get x",
    "a client tracking off",
    "w set x 2",
    "a ?",
    "c client caching yes",
    "c get x",
    "c reset",
    "w set x 3",
    "c ?",
];

const BROADCAST: &[&str] = &[
    "a client tracking on bcast prefix user: prefix item:",
    "b client tracking on bcast noloop",
    "w mset user:2 1 user:1 1 item:1 1 other 1",
    "a ?",
    "b ?",
    "b set user:1 b",
    "a ?",
    "b ?",
    "w multi",
    "w set user:1 2",
    "w del user:2",
    "w set user:1 3",
    "w set q 1",
    "w exec",
    "a ?",
    "b ?",
    "a get other",
    "w set other 2",
    "a ?",
    "b ?",
    "a client tracking on bcast prefix oth",
    "w set other 3",
    "a ?",
    "b ?",
    "w flushall",
    "a ?",
    "b ?",
    "a client tracking off",
    "w set user:1 2",
    "a ?",
    "b ?",
];

const REDIRECTS: &[&str] = &[
    "r subscribe __redis__:invalidate",
    "a client tracking on redirect {r}",
    "a get k",
    "a get l",
    "w mset k 1 l 1 m 1",
    "r ?",
    "a ?",
    "b client tracking on bcast redirect {r}",
    "w mset k 1 l 1",
    "r ?",
    "w flushall",
    "r ?",
    "a get k",
    "r unsubscribe",
    "w set k 2",
    "r ?",
    // Without another connection, one with RESP2 gets nothing.
    "c client tracking on",
    "c get k",
    "w set k 3",
    "c ?",
    "c client trackinginfo",
    "r end",
    "a get k",
    "a client trackinginfo",
    "w set k 4",
    "a client trackinginfo",
    "a ?",
    "a client tracking on",
    "a client trackinginfo",
];

#[test]
fn messages_are_those_of_redis() {
    for version in ["2", "3"] {
        let hello: Vec<String> =
            ["a", "b", "c", "d"].iter().map(|name| format!("{name} hello {version}")).collect();
        for script in [MESSAGES, BROADCAST] {
            let server = Server::start();
            let redis = Redis::start();
            let start: Vec<&str> = hello.iter().map(String::as_str).collect();
            let script = [&start, script].concat();
            // The reply of `HELLO` has the version of the server.
            let skip = |lines: Vec<String>| -> Vec<String> {
                lines.into_iter().skip(start.len()).collect()
            };
            let ours = skip(play(&|| server.client(), &script));
            if version == "3" {
                assert!(ours.iter().any(|line| line.contains("push[\"invalidate\", null]")));
            }
            let Some(redis) = redis else { continue };
            let theirs = skip(play(&|| redis.client(), &script));
            for (at, (a, b)) in ours.iter().zip(&theirs).enumerate() {
                assert_eq!(a, b, "after\n{}", ours[at.saturating_sub(12)..at].join("\n"));
            }
        }
    }
}

#[test]
fn redirected_messages_are_those_of_redis() {
    let lines = compare(REDIRECTS);
    let first = "r ?: [[\"message\", \"__redis__:invalidate\", [\"k\"]], \
                 [\"message\", \"__redis__:invalidate\", [\"l\"]]]";
    assert!(lines.contains(&first.to_owned()), "{lines:#?}");
}

fn resp3(server: &Server) -> Caching {
    let mut new = Caching::new(server.client());
    new.call("hello 3");
    new
}

fn keys_of(messages: Vec<Value>) -> Vec<String> {
    let key = |message: Value| {
        let Value::Push(items) = message else { panic!("{message:?}") };
        let Value::Array(keys) = &items[1] else { panic!("{items:?}") };
        assert_eq!(keys.len(), 1, "{items:?}");
        keys[0].text()
    };
    messages.into_iter().map(key).collect()
}

fn fact(client: &mut Client, name: &str) -> String {
    let info = client.call("info").text();
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).map(str::trim);
    line.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

/// A redirection that breaks is told to a connection with RESP3.
#[test]
fn a_broken_redirection_is_told() {
    let server = Server::start();
    let (mut a, mut w) = (resp3(&server), server.client());
    let r = resp3(&server);
    assert_eq!(a.call(&format!("client tracking on redirect {}", r.id)).text(), "+OK");
    a.call("get k");
    let listed = format!("id={} ", r.id);
    let own = |w: &mut Client, id: i64| {
        let list = w.call("client list").text();
        let line = list.lines().find(|line| line.starts_with(&format!("id={id} "))).unwrap();
        line.to_owned()
    };
    assert!(own(&mut w, a.id).contains(" flags=t "));
    assert!(own(&mut w, a.id).contains(&format!(" redir={} ", r.id)));
    let id = r.id;
    drop(r);
    while w.call("client list").text().contains(&listed) {
        thread::yield_now();
    }
    w.call("set k 1");
    assert_eq!(format!("{:?}", a.messages()), format!("[push[\"tracking-redir-broken\", :{id}]]"));
    assert!(own(&mut w, a.id).contains(" flags=tR "));
    assert!(a.call("client trackinginfo").text().contains("broken_redirect"));
    a.call("client tracking off");
    assert!(own(&mut w, a.id).contains(" redir=-1 "));
    a.call("client tracking on bcast");
    assert!(own(&mut w, a.id).contains(" flags=tB "));
}

/// Above its limit the table loses keys, and their readers are told. Each key is told once.
#[test]
fn the_table_is_bounded() {
    let server = Server::start();
    let (mut a, mut w) = (resp3(&server), server.client());
    assert_eq!(w.call("config get tracking-table-max-keys").text(), {
        "[\"tracking-table-max-keys\", \"1000000\"]"
    });
    assert_eq!(w.call("config set tracking-table-max-keys 30").text(), "+OK");
    a.call("client tracking on");
    for number in 0..100 {
        a.call(&format!("get key:{number}"));
    }
    let mut told = keys_of(a.messages());
    assert_eq!(told.len(), 70, "{told:?}");
    assert_eq!(fact(&mut w, "tracking_total_keys"), "30");
    assert_eq!(fact(&mut w, "tracking_total_items"), "30");
    assert_eq!(fact(&mut w, "tracking_clients"), "1");
    for number in 0..100 {
        w.call(&format!("set key:{number} 1"));
    }
    told.extend(keys_of(a.messages()));
    told.sort();
    let mut all: Vec<String> = (0..100).map(|number| format!("key:{number}")).collect();
    all.sort();
    assert_eq!(told, all);
    assert_eq!(fact(&mut w, "quintet_tracking_table_bytes"), "0");
    // The bytes of the keys count too.
    w.call("config set tracking-table-max-keys 0");
    w.call("config set maxmemory-clients 1mb");
    a.call("client no-evict on");
    w.call("client no-evict on");
    for number in 0..40 {
        a.call(&format!("exists {number:060000}"));
    }
    let bytes: u64 = fact(&mut w, "quintet_tracking_table_bytes").parse().unwrap();
    assert!((900_000..=1 << 20).contains(&bytes), "{bytes}");
    assert_eq!(keys_of(a.messages()).len(), 40 - 17);
    w.call("config set maxmemory-clients 0");
    // Nothing stays of clients that have ended.
    drop(a);
    while fact(&mut w, "tracking_clients") != "0" {
        thread::yield_now();
    }
    assert_eq!(fact(&mut w, "tracking_total_keys"), "0");
    assert_eq!(fact(&mut w, "quintet_tracking_table_bytes"), "0");
}

#[test]
fn prefixes_are_looked_up_by_their_lengths() {
    let server = Server::start();
    let (mut a, mut w) = (resp3(&server), server.client());
    let prefixes: Vec<String> = (0..5000).map(|number| format!("prefix p{number:05}")).collect();
    let request = format!("client tracking on bcast {}", prefixes.join(" "));
    assert_eq!(a.call(&request).text(), "+OK");
    assert_eq!(fact(&mut w, "tracking_total_prefixes"), "5000");
    w.call("mset p00007:1 1 p04999 1 p05000 1 p0 1");
    assert_eq!(keys_of(a.messages()), ["p00007:1", "p04999"]);
    let held = w.call("client list").text();
    let line = held.lines().find(|line| line.contains(&format!("id={} ", a.id))).unwrap();
    let held = line.split(' ').find_map(|part| part.strip_prefix("multi-mem=")).unwrap();
    assert!(held.parse::<u64>().unwrap() >= 5000 * 6, "{line}");
    a.call("client tracking off");
    assert_eq!(fact(&mut w, "tracking_total_prefixes"), "0");
}

#[test]
fn keys_and_fields_that_expire_are_told() {
    let server = Server::start();
    let (mut a, mut w) = (resp3(&server), server.client());
    a.call("client tracking on");
    w.call("set short 1 px 40");
    w.call("hset hash f 1 g 2");
    w.call("hpexpire hash 40 fields 1 f");
    a.call("get short");
    a.call("hgetall hash");
    // The background removes them; the replies wait for that, not for a time.
    let mut told = vec![a.client.read(), a.client.read()];
    told.sort();
    assert_eq!(keys_of(told), ["hash", "short"]);
}

#[test]
fn namespaces_and_exchanges_of_databases_are_told_apart() {
    let server = Server::start();
    let (mut a, mut inside, mut w) = (resp3(&server), resp3(&server), server.client());
    w.call("namespace add shop");
    inside.call("namespace use shop");
    a.call("client tracking on bcast");
    inside.call("client tracking on");
    inside.call("get k");
    w.call("set k default");
    assert_eq!(keys_of(a.messages()), ["k"]);
    assert!(inside.messages().is_empty());
    w.call("flushall");
    assert_eq!(format!("{:?}", a.messages()), "[push[\"invalidate\", null]]");
    assert!(inside.messages().is_empty());
    let mut other = server.client();
    other.call("namespace use shop");
    other.call("set k shop");
    assert_eq!(keys_of(inside.messages()), ["k"]);
    inside.call("get k");
    other.call("flushdb");
    assert_eq!(format!("{:?}", inside.messages()), "[push[\"invalidate\", null]]");
    assert!(a.messages().is_empty());
    // Redis says nothing here, and its clients go on with values of the other database.
    w.call("swapdb 0 1");
    assert_eq!(format!("{:?}", a.messages()), "[push[\"invalidate\", null]]");
    assert!(inside.messages().is_empty());
}

/// A right to a namespace that is taken away ends the messages about its keys.
#[test]
fn a_user_that_loses_its_namespace_is_told_nothing_more() {
    let server = Server::start();
    let (mut w, mut a) = (server.client(), resp3(&server));
    w.call("namespace add shop");
    w.call("acl setuser app on >secret ~* +@all namespace=default namespace=shop");
    a.call("auth app secret");
    a.call("namespace use shop");
    a.call("client tracking on bcast");
    w.call("acl setuser app resetnamespaces namespace=default");
    assert!(a.client.is_ended());
    w.call("namespace use shop");
    assert_eq!(w.call("set k 1").text(), "+OK");
    while fact(&mut w, "tracking_clients") != "0" {
        thread::yield_now();
    }
}

/// A connection that waits for keys gets its messages meanwhile.
#[test]
fn messages_do_not_wait_for_blocking_commands() {
    let server = Server::start();
    let (mut a, mut w) = (resp3(&server), server.client());
    a.call("client tracking on");
    a.call("get k");
    a.client.send(&encode(&["blpop", "list", "0"]));
    while fact(&mut w, "blocked_clients") != "1" {
        thread::yield_now();
    }
    w.call("set k 1");
    assert_eq!(keys_of(vec![a.client.read()]), ["k"]);
    w.call("rpush list x");
    assert_eq!(a.reply().text(), "[\"list\", \"x\"]");
}

/// Caches values, and forgets them when it is told. Returns the cached values at the end.
fn cache_until(mut caching: Caching, keys: u64, is_done: impl Fn() -> bool) -> Vec<Option<Value>> {
    let mut cached: Vec<Option<Value>> = vec![None; usize::try_from(keys).unwrap()];
    let forget = |cached: &mut Vec<Option<Value>>, messages: Vec<Value>| {
        for key in keys_of(messages) {
            let at: usize = key.strip_prefix("key:").unwrap().parse().unwrap();
            cached[at] = None;
        }
    };
    let mut at = 0;
    loop {
        // Before the last messages are read.
        let is_last = is_done();
        if is_last {
            let messages = caching.messages();
            forget(&mut cached, messages);
            return cached;
        }
        for _ in 0..5 {
            at = (at + 7) % cached.len();
            if cached[at].is_none() {
                let value = caching.call(&format!("get key:{at}"));
                // Messages before the reply are of earlier reads.
                let messages = std::mem::take(&mut caching.messages);
                forget(&mut cached, messages);
                cached[at] = Some(value);
            }
        }
        caching.call("ping");
        let messages = std::mem::take(&mut caching.messages);
        forget(&mut cached, messages);
    }
}

/// No client keeps an old value, whatever is written meanwhile.
#[test]
fn caches_are_right_when_the_writers_have_ended() {
    const KEYS: u64 = 20;
    const WRITES: u64 = 4000;
    let server = Server::start();
    let port = server.port;
    let writers: Vec<_> = (0..3_u64)
        .map(|writer| {
            thread::spawn(move || {
                let mut client = Client::connect(port);
                for number in 0..WRITES {
                    let key = format!("key:{}", (number * 7 + writer * 3) % KEYS);
                    let other = format!("key:{}", (number * 11 + writer) % KEYS);
                    let value = format!("{writer}:{number}");
                    // Pipelines, whose commands share commits, and transactions.
                    let requests = match number % 3 {
                        0 => vec![encode(&["set", &key, &value])],
                        1 => vec![encode(&["set", &key, &value]), encode(&["del", &other])],
                        _ => vec![
                            encode(&["multi"]),
                            encode(&["append", &key, &value]),
                            encode(&["set", &other, &value]),
                            encode(&["exec"]),
                        ],
                    };
                    client.send(&requests.concat());
                    for _ in &requests {
                        client.read();
                    }
                }
            })
        })
        .collect();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let mut caching = resp3(&server);
            caching.call("client tracking on");
            let (sender, receiver) = std::sync::mpsc::channel::<()>();
            let is_done =
                move || receiver.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected);
            (sender, thread::spawn(move || cache_until(caching, KEYS, is_done)))
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let mut client = server.client();
    for (sender, reader) in readers {
        drop(sender);
        let cached = reader.join().unwrap();
        for (at, value) in cached.into_iter().enumerate() {
            let Some(value) = value else { continue };
            assert_eq!(value.text(), client.call(&format!("get key:{at}")).text(), "key:{at}");
        }
    }
}

/// Changes that come from a master are told, and a dump of it.
#[test]
fn a_replica_tells_of_the_changes_of_its_master() {
    let Some(redis) = Redis::start_with(MASTER, |_| ()) else { return };
    let mut theirs = redis.client();
    theirs.call("set k 1");
    let server = Server::start();
    let (mut a, mut ours) = (resp3(&server), server.client());
    a.call("client tracking on");
    a.call("get k");
    follow(&mut ours, redis.port);
    catch_up(&mut ours, &mut theirs);
    assert!(format!("{:?}", a.messages()).starts_with("[push[\"invalidate\", null]"));
    assert_eq!(a.call("get k").text(), "1");
    theirs.call("set k 2");
    catch_up(&mut ours, &mut theirs);
    assert_eq!(keys_of(a.messages()), ["k"]);
}
