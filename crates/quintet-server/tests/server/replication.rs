//! Replication from `redis-server`: under load, over links that break, and over restarts.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    client::{Client, Value},
    dump::fill,
    durability::start_child,
    generator::{Random, command},
    running::{Redis, Server, config},
    same::assert_replicated,
};

/// Longest time for what must happen. It bounds a test that fails.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const MASTER: &[&str] =
    &["--repl-diskless-sync-delay", "0", "--repl-backlog-size", "64mb", "--repl-timeout", "600"];

fn info(client: &mut Client) -> BTreeMap<String, String> {
    let text = client.call("info replication").text();
    let pair =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.split("\r\n").filter_map(pair).collect()
}

/// Waits until `is_done` holds for `INFO replication`.
fn wait(client: &mut Client, what: &str, is_done: impl Fn(&BTreeMap<String, String>) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = info(client);
        if is_done(&found) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {found:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn follow(client: &mut Client, port: u16) {
    let reply = client.call(&format!("replicaof 127.0.0.1 {port}"));
    assert_eq!(reply, Value::Simple("OK".to_owned()));
}

/// Waits until the replica has all commands of its master, which gets no more.
pub(crate) fn catch_up(ours: &mut Client, theirs: &mut Client) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (own, master) = (info(ours), info(theirs));
        let is_up = own["master_link_status"] == "up";
        if is_up && own["slave_repl_offset"] == master["master_repl_offset"] {
            return;
        }
        assert!(Instant::now() < deadline, "{own:?}, {master:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn compare(ours: &mut Client, theirs: &mut Client, when: &str) {
    for database in 0..4 {
        let select = format!("select {database}");
        assert_eq!(ours.call(&select), theirs.call(&select));
        // What lives for milliseconds may expire between the two lists of keys.
        while theirs.call("keys volatile:*") != Value::Array(Vec::new()) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_replicated(ours, theirs, &format!("{when}, {select}"));
    }
    ours.call("select 0");
    theirs.call("select 0");
}

/// Clients that send random commands until they are stopped.
struct Load {
    is_over: Arc<AtomicBool>,
    commands: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(port: u16) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let commands = Arc::new(AtomicU64::new(0));
        let threads = (0..2)
            .map(|seed| {
                let (is_over, commands) = (is_over.clone(), commands.clone());
                thread::spawn(move || {
                    let mut client = Client::connect(port);
                    let mut random = Random::new(100 + seed);
                    while !is_over.load(Ordering::Acquire) {
                        step(&mut client, &mut random);
                        commands.fetch_add(1, Ordering::AcqRel);
                    }
                })
            })
            .collect();
        Self { is_over, commands, threads }
    }

    /// Waits for so many further steps.
    fn advance(&self, steps: u64) {
        let end = self.commands.load(Ordering::Acquire) + steps;
        let deadline = Instant::now() + PATIENCE;
        while self.commands.load(Ordering::Acquire) < end {
            assert!(Instant::now() < deadline, "the load stands still");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Release);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// Sends commands: alone, in a transaction, in another database.
fn step(client: &mut Client, random: &mut Random) {
    match random.below(10) {
        0 => {
            client.call("multi");
            for _ in 0..3 {
                client.call_args(&command(random));
            }
            client.call("incr transactions");
            client.call("exec");
        }
        1 => drop(client.call(&format!("select {}", random.below(3)))),
        2 => drop(client.call(&format!("set volatile:{} 1 px 3", random.below(50)))),
        3 => drop(client.call(&format!("rpush long:{} {}", random.below(2), random.below(9999)))),
        4 => drop(client.call(&format!("incr counter:{}", random.below(5)))),
        _ => drop(client.call_args(&command(random))),
    }
}

#[test]
fn a_replica_has_all_keys_of_a_master_under_load() {
    let Some(redis) = Redis::start_with(MASTER, |_| ()) else { return };
    let mut theirs = redis.client();
    fill(&mut theirs);
    let server = Server::start();
    let mut ours = server.client();
    ours.call("set own 1");
    let load = Load::start(redis.port);
    load.advance(300);
    follow(&mut ours, redis.port);
    wait(&mut ours, "the first synchronization", |info| info["master_link_status"] == "up");
    load.advance(1000);
    // The link breaks in the middle of the commands.
    for _ in 0..3 {
        theirs.call("client kill type replica");
        load.advance(300);
    }
    load.end();
    catch_up(&mut ours, &mut theirs);
    compare(&mut ours, &mut theirs, "after the load");
    let facts = info(&mut ours);
    assert_eq!(facts["quintet_full_syncs"], "1", "{facts:?}");
    assert_ne!(facts["quintet_partial_syncs"], "0", "{facts:?}");
    assert_eq!(facts["role"], "slave");
    // Only the master may write.
    let refused = Value::Error("READONLY You can't write against a read only replica.".to_owned());
    assert_eq!(ours.call("set own 1"), refused);
    ours.call("multi");
    assert_eq!(ours.call("set own 1"), refused);
    assert!(matches!(ours.call("exec"), Value::Error(_)));
    let Value::Array(role) = ours.call("role") else { panic!("no role") };
    assert_eq!((role[0].text(), role[3].text()), ("slave".to_owned(), "connected".to_owned()));
    // Without a master it accepts writes, and gets no more of them.
    assert_eq!(ours.call("replicaof no one"), Value::Simple("OK".to_owned()));
    assert_eq!(ours.call("set own 1"), Value::Simple("OK".to_owned()));
    theirs.call("set later 1");
    assert_eq!(ours.call("exists later"), Value::Integer(0));
    assert_eq!(info(&mut ours)["role"], "master");
}

#[test]
fn a_replica_that_restarts_continues_where_it_was() {
    let Some(redis) = Redis::start_with(MASTER, |_| ()) else { return };
    let mut theirs = redis.client();
    let dir = tempfile::tempdir().unwrap();
    let load = Load::start(redis.port);
    let mut server = Server::start_in(dir.path(), config());
    follow(&mut server.client(), redis.port);
    for _ in 0..3 {
        let mut ours = server.client();
        wait(&mut ours, "the link", |info| info["master_link_status"] == "up");
        load.advance(500);
        server.end();
        load.advance(200);
        server = Server::start_in(dir.path(), config());
    }
    load.end();
    let mut ours = server.client();
    catch_up(&mut ours, &mut theirs);
    compare(&mut ours, &mut theirs, "after restarts");
    let facts = info(&mut ours);
    assert_eq!(facts["quintet_full_syncs"], "0", "{facts:?}");
    assert_eq!(facts["quintet_partial_syncs"], "1", "{facts:?}");
}

/// The position is in the batch of each commit, so a kill neither loses nor repeats a command.
#[test]
fn a_replica_that_is_killed_continues_where_its_data_is() {
    let Some(redis) = Redis::start_with(MASTER, |_| ()) else { return };
    let mut theirs = redis.client();
    let dir = tempfile::tempdir().unwrap();
    let load = Load::start(redis.port);
    let (mut child, port) = start_child(dir.path());
    follow(&mut Client::connect(port), redis.port);
    let mut port = port;
    for _ in 0..3 {
        let mut ours = Client::connect(port);
        wait(&mut ours, "the link", |info| info["master_link_status"] == "up");
        load.advance(400);
        child.kill().unwrap();
        child.wait().unwrap();
        load.advance(100);
        (child, port) = start_child(dir.path());
    }
    load.end();
    let mut ours = Client::connect(port);
    catch_up(&mut ours, &mut theirs);
    compare(&mut ours, &mut theirs, "after kills");
    let facts = info(&mut ours);
    assert_eq!(facts["quintet_full_syncs"], "0", "{facts:?}");
    assert_eq!(facts["quintet_partial_syncs"], "1", "{facts:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A dump whose length is known before it is sent, and one over keys that were there.
#[test]
fn a_dump_with_a_length_replaces_all_keys() {
    let arguments = [&["--repl-diskless-sync", "no"], MASTER].concat();
    let Some(redis) = Redis::start_with(&arguments, |_| ()) else { return };
    let mut theirs = redis.client();
    fill(&mut theirs);
    theirs.call("select 3");
    theirs.call("set third 1");
    let server = Server::start();
    let mut ours = server.client();
    for number in 0..500 {
        ours.call(&format!("zadd scores {number} old:{number}"));
    }
    follow(&mut ours, redis.port);
    catch_up(&mut ours, &mut theirs);
    compare(&mut ours, &mut theirs, "after the dump");
    for request in ["swapdb 0 3", "set a 1", "flushdb", "select 2", "set b 1", "publish x y"] {
        theirs.call(request);
    }
    catch_up(&mut ours, &mut theirs);
    compare(&mut ours, &mut theirs, "after commands on databases");
}

#[test]
fn expired_keys_stay_until_the_master_removes_them() {
    let Some(redis) = Redis::start_with(MASTER, |_| ()) else { return };
    let (mut theirs, server) = (redis.client(), Server::start());
    let mut ours = server.client();
    follow(&mut ours, redis.port);
    catch_up(&mut ours, &mut theirs);
    for number in 0..200 {
        theirs.call(&format!("set key:{number} 1 px 1"));
        theirs.call(&format!("incr key:{number}"));
        theirs.call(&format!("append key:{number} x"));
    }
    // Some keys have lost their expiry: they were made anew.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let keyspace = theirs.call("info keyspace").text();
        if !keyspace.contains("expires=") || keyspace.contains("expires=0") {
            break;
        }
        assert!(Instant::now() < deadline, "{keyspace}");
        thread::sleep(Duration::from_millis(10));
    }
    catch_up(&mut ours, &mut theirs);
    compare(&mut ours, &mut theirs, "after the expiry");
}

#[test]
fn failures_are_told_and_tried_again() {
    let Some(redis) = Redis::start_with(&["--requirepass", "secret"], |_| ()) else { return };
    let server = Server::start();
    let mut ours = server.client();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let has = |text: &'static str| {
        move |info: &BTreeMap<String, String>| {
            info.get("quintet_master_error").is_some_and(|error| error.contains(text))
        }
    };
    ours.call("set own 1");
    follow(&mut ours, free);
    wait(&mut ours, "a refused connection", has("cannot connect to 127.0.0.1"));
    assert_eq!(ours.call("replicaof no.such.host.invalid 1"), Value::Simple("OK".to_owned()));
    wait(&mut ours, "an unknown name", has("cannot connect to no.such.host.invalid"));
    follow(&mut ours, redis.port);
    wait(&mut ours, "no password", has("needs a password: set masterauth"));
    ours.call("config set masterauth wrong");
    wait(&mut ours, "a wrong password", has("refuses masteruser and masterauth: -WRONGPASS"));
    // The keys stay until a dump has come.
    assert_eq!(ours.call("get own").text(), "1");
    ours.call("config set masterauth secret");
    wait(&mut ours, "the right password", |info| info["master_link_status"] == "up");
    assert_eq!(ours.call("get own"), Value::Null);
    for bad in ["replicaof x 0", "replicaof x 65536", "replicaof x y", "replicaof x"] {
        assert!(matches!(ours.call(bad), Value::Error(_)), "{bad}");
    }
    ours.call("multi");
    ours.call("replicaof no one");
    let Value::Array(replies) = ours.call("exec") else { panic!("no replies") };
    assert!(matches!(replies[0], Value::Error(_)));
}

/// A command that cannot be applied stops the replica before it, and says so.
#[test]
fn a_command_that_fails_here_stops_the_replica() {
    let Some(redis) = Redis::start_with(MASTER, |_| ()) else { return };
    let (mut theirs, server) = (redis.client(), Server::start());
    let mut ours = server.client();
    follow(&mut ours, redis.port);
    catch_up(&mut ours, &mut theirs);
    theirs.call("set before 1");
    theirs.call_args(&["sadd", "set", &"x".repeat(70_000)]);
    theirs.call("set after 1");
    wait(&mut ours, "the failure", |info| info["quintet_is_stopped"] == "1");
    let facts = info(&mut ours);
    assert!(facts["quintet_master_error"].contains("sadd at offset"), "{facts:?}");
    assert_eq!(ours.call("get before").text(), "1");
    assert_eq!(ours.call("exists after"), Value::Integer(0));
}

/// The master knows no namespaces: its keys go to `default`. Those of others stay, and only clients
/// of a server that is no replica may change them.
#[test]
fn a_replica_keeps_its_other_namespaces_and_refuses_writes_there() {
    let Some(redis) = Redis::start_with(MASTER, |_| ()) else { return };
    let mut theirs = redis.client();
    theirs.call("set k master");
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), config());
    let (mut ours, mut inside) = (server.client(), server.client());
    ours.call("namespace add one");
    ours.call("set k own");
    inside.call("namespace use one");
    for request in ["set k one", "set short one px 20", "rpush l 1 2", "select 3", "set three 1"] {
        assert!(!matches!(inside.call(request), Value::Error(_)), "{request}");
    }
    inside.call("select 0");
    let mut waiting = server.client();
    waiting.call("namespace use one");
    waiting.send(b"BLPOP none 0\r\n");
    follow(&mut ours, redis.port);
    catch_up(&mut ours, &mut theirs);
    assert_eq!(ours.call("get k").text(), "master");
    let readonly = "-READONLY You can't write against a read only replica.";
    // Commands of the master over all keys concern `default` only.
    for request in ["flushall", "set k again", "select 3", "set three master", "swapdb 0 3"] {
        theirs.call(request);
    }
    theirs.call("select 0");
    catch_up(&mut ours, &mut theirs);
    compare(&mut ours, &mut theirs, "after flushall");
    let check = |inside: &mut Client, when: &str| {
        for (request, reply) in [
            ("get k", "one"),
            ("lrange l 0 -1", "[\"1\", \"2\"]"),
            ("set k x", readonly),
            ("del k", readonly),
            ("flushall", readonly),
            ("swapdb 0 3", readonly),
            ("namespace del one", readonly),
            // An empty one has no keys that a client could have written.
            ("namespace add two", "+OK"),
            ("namespace use two", "+OK"),
            ("set k x", readonly),
            ("dbsize", ":0"),
            ("namespace use one", "+OK"),
            ("select 3", "+OK"),
            ("get three", "1"),
            ("select 0", "+OK"),
        ] {
            let found = inside.call(request).text();
            let is_again = found.contains("exists already");
            assert!(found == reply || is_again, "{when}: {request}: {found}");
        }
    };
    check(&mut inside, "while it follows");
    thread::sleep(Duration::from_millis(30));
    // An expired key is not visible, and nothing removes it.
    assert_eq!(inside.call("get short"), Value::Null);
    assert_eq!(inside.call("dbsize"), Value::Integer(3));
    server.end();
    let server = Server::start_in(dir.path(), config());
    let (mut ours, mut inside) = (server.client(), server.client());
    inside.call("namespace use one");
    catch_up(&mut ours, &mut theirs);
    check(&mut inside, "after a restart");
    assert_eq!(ours.call("get three").text(), "master");
    assert_eq!(ours.call("replicaof no one"), Value::Simple("OK".to_owned()));
    assert_eq!(inside.call("set k mine"), Value::Simple("OK".to_owned()));
    ours.call("select 3");
    assert_eq!(ours.call("get k").text(), "again");
    let deadline = Instant::now() + PATIENCE;
    while inside.call("dbsize") != Value::Integer(2) {
        assert!(Instant::now() < deadline, "nothing removes the expired key");
    }
}
