//! What survives the end of the server: a shutdown, and `kill -9` under load.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use quintet_server::AppendFsync;

use super::{
    client::{Client, Value, encode},
    running::{Server, config},
};

/// Names the directory to a process that this test starts of itself.
const CHILD: &str = "QUINTET_SERVER_CHILD";

#[test]
fn all_types_and_expiries_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    client.call("set string value px 100000000");
    client.call("set short value px 30");
    for number in 0..300 {
        client.call(&format!("zadd scores {number} member:{number}"));
        client.call(&format!("rpush list {number}"));
    }
    client.call("hset hash a 1 b 2");
    client.call("sadd set x");
    client.call("select 3");
    client.call("set other 1");
    client.call("swapdb 3 4");
    server.end();
    thread::sleep(Duration::from_millis(40));
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    assert_eq!(client.call("get string").text(), "value");
    assert_eq!(client.call("get short"), Value::Null);
    assert_eq!(client.call("zcard scores"), Value::Integer(300));
    assert_eq!(client.call("zrank scores member:299"), Value::Integer(299));
    assert_eq!(client.call("lrange list 298 -1").text(), "[\"298\", \"299\"]");
    assert_eq!(client.call("hget hash b").text(), "2");
    assert_eq!(client.call("scard set"), Value::Integer(1));
    let Value::Integer(ttl) = client.call("pttl string") else { panic!("no number") };
    assert!(ttl > 90_000_000);
    client.call("select 3");
    assert_eq!(client.call("exists other"), Value::Integer(0));
    client.call("select 4");
    assert_eq!(client.call("get other").text(), "1");
}

/// The number of syncs that connections have asked for.
fn requested_syncs(client: &mut Client) -> u64 {
    let text = client.call("info persistence").text();
    let line = text.lines().find_map(|line| line.strip_prefix("quintet_requested_syncs_total:"));
    line.unwrap().trim().parse().unwrap()
}

/// A sync that is shared counts once for each connection, so the numbers are exact.
#[test]
fn one_connection_waits_for_syncs_and_others_do_not() {
    let server = Server::start();
    let (mut safe, mut fast) = (server.client(), server.client());
    assert_eq!(safe.call("client durability always").text(), "+OK");
    for number in 0..10 {
        assert_eq!(safe.call(&format!("set safe {number}")).text(), "+OK");
        assert_eq!(fast.call(&format!("set fast {number}")).text(), "+OK");
        assert_eq!(safe.call("get safe").text(), number.to_string());
    }
    assert_eq!(requested_syncs(&mut fast), 10);
    // A pipeline that leaves `always` has its earlier writes synced before their replies.
    let requests =
        [&["set", "safe", "x"][..], &["client", "durability", "no"], &["set", "safe", "y"]];
    safe.send(&requests.map(encode).concat());
    for _ in requests {
        assert_eq!(safe.read().text(), "+OK");
    }
    assert_eq!(requested_syncs(&mut fast), 11);
    assert_eq!(safe.call("set safe z").text(), "+OK");
    assert_eq!(fast.call("client durability everysec").text(), "+OK");
    assert_eq!(fast.call("set fast z").text(), "+OK");
    assert_eq!(requested_syncs(&mut fast), 11);
    assert_eq!(fast.call("config set appendfsync always").text(), "+OK");
    for request in ["set fast a", "client durability default", "set fast b", "reset"] {
        fast.call(request);
    }
    assert_eq!(requested_syncs(&mut fast), 12);
    assert!(fast.call("client durability sometimes").text().starts_with("-ERR CLIENT DURABILITY"));
}

/// The store of a server with `no` syncs each 30 seconds, but a connection may promise a second.
#[test]
fn everysec_of_a_connection_is_kept_by_a_server_with_no() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(
        dir.path(),
        quintet_server::Config { appendfsync: AppendFsync::No, ..config() },
    );
    let mut client = server.client();
    client.call("set k 1");
    assert_eq!(requested_syncs(&mut client), 0);
    client.call("client durability everysec");
    client.call("set k 2");
    let deadline = Instant::now() + Duration::from_secs(20);
    while requested_syncs(&mut client) == 0 {
        assert!(Instant::now() < deadline, "there was no sync");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Removed collections and expired keys leave nothing behind.
#[test]
fn the_sweep_removes_dead_elements_and_expired_keys() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    for round in 0..3 {
        for number in 0..700 {
            client.call(&format!("sadd set:{round} member:{number}"));
        }
    }
    client.call("pexpire set:0 20");
    client.call("del set:1");
    client.call("set set:2 string");
    client.call("set expiring x px 20");
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.call("dbsize") != Value::Integer(1) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(client.call("dbsize"), Value::Integer(1));
    let deadline = Instant::now() + Duration::from_mins(1);
    // Nothing tells a client how much the sweep has left, so the files are looked at between runs.
    loop {
        thread::sleep(Duration::from_millis(300));
        server.end();
        let (left, keys) = left_in(dir.path());
        if left == 0 {
            assert_eq!(keys, 1);
            break;
        }
        assert!(Instant::now() < deadline, "{left} elements are left");
        server = Server::start_in(dir.path(), config());
    }
}

/// Elements and keys of a directory that no server has open.
fn left_in(dir: &Path) -> (usize, u64) {
    let database = quintet::Database::open(dir.join("data")).unwrap();
    let elements = database.table("redis/0/elements").unwrap().keys().map(Result::unwrap).count();
    (elements, database.table("redis/0/keys").unwrap().len().unwrap())
}

/// The process that `kill_9_loses_no_acknowledged_write` kills.
#[test]
fn serve_for_the_test_that_kills() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let appendfsync =
        if dir.ends_with("always") { AppendFsync::Always } else { AppendFsync::EverySec };
    let config = quintet_server::Config { appendfsync, ..config() };
    let started = |addresses: &[String]| println!("\nlistening {}", addresses[0]);
    quintet_server::serve(&Path::new(&dir).join("data"), &config, started).unwrap();
}

/// Starts this test program as a server.
pub(crate) fn start_child(dir: &Path) -> (Child, u16) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["durability::serve_for_the_test_that_kills", "--exact", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("listening ")).unwrap();
    // A test program says that a test runs for long, and ends if nobody can read that.
    thread::spawn(move || lines.for_each(drop));
    (child, line.rsplit(':').next().unwrap().parse().unwrap())
}

/// Sends the requests of each round, from 1, until the server is killed. Returns the number of
/// rounds whose replies came.
pub(crate) fn rounds_until_killed(port: u16, requests: impl Fn(&str) -> Vec<Vec<u8>>) -> u32 {
    let mut client = Client::connect(port);
    let mut acknowledged = 0;
    loop {
        let requests = requests(&(acknowledged + 1).to_string());
        let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            client.send(&requests.concat());
        }));
        if sent.is_err() || !requests.iter().all(|_| client.try_read().is_ok()) {
            return acknowledged;
        }
        acknowledged += 1;
    }
}

/// What writer `writer` writes in a round.
fn writes_of_round(writer: u32, round: &str) -> Vec<Vec<u8>> {
    vec![
        encode(&["set", &format!("last:{writer}"), round]),
        encode(&["rpush", &format!("list:{writer}"), round]),
        encode(&["multi"]),
        encode(&["incr", &format!("a:{writer}")]),
        encode(&["incr", &format!("b:{writer}")]),
        encode(&["exec"]),
    ]
}

#[test]
fn kill_9_loses_no_acknowledged_write() {
    for mode in ["everysec", "always"] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join(mode);
        std::fs::create_dir(&dir).unwrap();
        let (mut child, port) = start_child(&dir);
        let acknowledged: Vec<u32> = thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let requests = move |round: &str| writes_of_round(writer, round);
                    scope.spawn(move || rounds_until_killed(port, requests))
                })
                .collect();
            thread::sleep(Duration::from_millis(700));
            child.kill().unwrap();
            child.wait().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let server = Server::start_in(&dir, config());
        let mut client = server.client();
        for (writer, round) in acknowledged.into_iter().enumerate() {
            assert!(round > 0, "{mode}: nothing was acknowledged");
            let mut number = |request: &str| -> u32 {
                let reply = client.call(&format!("{request}:{writer}"));
                reply.text().trim_start_matches(':').parse().unwrap()
            };
            let (last, length) = (number("get last"), number("llen list"));
            let (a, b) = (number("get a"), number("get b"));
            for found in [last, length, a] {
                assert!((round..=round + 1).contains(&found), "{mode}: {found} of {round}");
            }
            assert_eq!(a, b, "{mode}: a part of a transaction survived");
        }
    }
}
