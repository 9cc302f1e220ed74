//! `SWAPDB` within transactions, beside Redis and over restarts.

use std::thread;

use super::{
    against_redis::{compare_all, is_near, normalize},
    client::{Client, Value, encode},
    durability::{rounds_until_killed, start_child},
    generator::{Random, lasting_command},
    replication::{MASTER, catch_up, follow},
    running::{Redis, Server, config},
    same::assert_replicated,
};

/// Databases that the transactions use.
const DATABASES: u64 = 3;

/// A random command of a transaction. Several exchange or empty databases.
fn queued(random: &mut Random) -> Vec<Vec<u8>> {
    let (one, other) = (random.below(DATABASES), random.below(DATABASES));
    let request = match random.below(12) {
        0 | 1 => format!("swapdb {one} {other}"),
        2 => format!("select {one}"),
        3 if other == 0 => "flushdb".to_owned(),
        4 => format!("swapdb {one} 16"),
        5 => format!("swapdb x {other}"),
        _ => return lasting_command(random),
    };
    request.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn shown(requests: &[Vec<Vec<u8>>]) -> String {
    let line = |args: &Vec<Vec<u8>>| {
        args.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
    };
    requests.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Runs a transaction at both servers and compares the replies.
fn run_both(clients: [&mut Client; 2], requests: &[Vec<Vec<u8>>], end: &str, seed: u64) {
    let replies = clients.map(|client| {
        client.call("multi");
        // A command with a wrong number of arguments discards all.
        let queued: Vec<Value> = requests.iter().map(|args| client.call_args(args)).collect();
        (queued, client.call(end))
    });
    let [(ours, a), (theirs, b)] = replies;
    assert_eq!(ours, theirs, "{}\nseed {seed}", shown(requests));
    let (Value::Array(a), Value::Array(b)) = (&a, &b) else {
        assert_eq!(a, b, "{}\nseed {seed}", shown(requests));
        return;
    };
    assert_eq!(a.len(), b.len(), "{}\nseed {seed}", shown(requests));
    for ((args, a), b) in requests.iter().zip(a).zip(b) {
        let name = String::from_utf8_lossy(&args[0]).to_lowercase();
        let (a, b) = (normalize(&name, a.clone()), normalize(&name, b.clone()));
        let is_same = a == b || is_near(&name, &a, &b);
        assert!(is_same, "{a:?}, Redis {b:?}: {args:?} of\n{}\nseed {seed}", shown(requests));
    }
}

/// Transactions, and clients that watch keys of each database, also absent ones.
#[test]
fn transactions_with_exchanges_reply_as_redis_does() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let key = |random: &mut Random| {
            let kind = random.pick(&["t", "l", "s", "z", "h", "none"]);
            format!("{kind}{}", random.below(3))
        };
        let watched: Vec<(u64, String)> =
            (0..6).map(|at| (at % DATABASES, key(&mut random))).collect();
        let watch = |client: fn(&Server, &Redis) -> Client| {
            watched
                .iter()
                .map(|(database, key)| {
                    let mut watching = client(&server, &redis);
                    watching.call(&format!("select {database}"));
                    assert_eq!(watching.call(&format!("watch {key}")).text(), "+OK");
                    watching
                })
                .collect::<Vec<_>>()
        };
        let our_watchers = watch(|server, _| server.client());
        let their_watchers = watch(|_, redis| redis.client());
        let requests: Vec<_> = (0..=random.below(12)).map(|_| queued(&mut random)).collect();
        let end = if random.below(10) == 0 { "discard" } else { "exec" };
        run_both([&mut ours, &mut theirs], &requests, end, seed);
        for ((mut a, mut b), name) in our_watchers.into_iter().zip(their_watchers).zip(&watched) {
            let ends = [&mut a, &mut b].map(|client| {
                client.call("multi");
                client.call("exec")
            });
            assert_eq!(ends[0], ends[1], "watch of {name:?}\n{}\nseed {seed}", shown(&requests));
        }
        if seed % 10 == 0 {
            for database in 0..DATABASES {
                let select = format!("select {database}");
                assert_eq!(ours.call(&select), theirs.call(&select));
                compare_all(&mut ours, &mut theirs, seed);
            }
        }
    }
    server.end();
}

/// Waits until a number of clients wait for keys.
fn wait_for_blocked(client: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}\r\n");
    while !client.call("info clients").text().contains(&line) {
        thread::yield_now();
    }
}

#[test]
fn an_exchange_serves_clients_that_wait_in_their_order() {
    let serve = |mut client: Client, connect: &dyn Fn() -> Client| {
        let mut waiting = Vec::new();
        // The last one waits where the elements were pushed.
        for (at, (database, request)) in [
            (1, "blpop list 0"),
            (1, "blpop list 0"),
            (1, "bzpopmin scores 0"),
            (0, "blpop list 0"),
        ]
        .into_iter()
        .enumerate()
        {
            let mut new = connect();
            new.call(&format!("select {database}"));
            new.send(&encode(&request.split(' ').collect::<Vec<_>>()));
            waiting.push(new);
            wait_for_blocked(&mut client, at + 1);
        }
        let mut replies = Vec::new();
        for request in
            ["multi", "rpush list a b", "zadd scores 1 m", "swapdb 0 1", "llen list", "exec"]
        {
            replies.push(client.call(request).text());
        }
        replies.extend(waiting[..3].iter_mut().map(|waiting| waiting.read().text()));
        wait_for_blocked(&mut client, 1);
        replies.push(client.call("rpush list c").text());
        replies.push(waiting[3].read().text());
        for request in ["dbsize", "select 1", "dbsize"] {
            replies.push(client.call(request).text());
        }
        replies
    };
    let server = Server::start();
    let ours = serve(server.client(), &|| server.client());
    assert_eq!(ours[5], "[:2, :1, +OK, :0]");
    assert_eq!(
        ours[6..9],
        ["[\"list\", \"a\"]", "[\"list\", \"b\"]", "[\"scores\", \"m\", \"1\"]"]
    );
    let Some(redis) = Redis::start() else { return };
    assert_eq!(ours, serve(redis.client(), &|| redis.client()));
}

#[test]
fn kill_9_keeps_transactions_with_exchanges_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, port) = start_child(dir.path());
    let transaction = |round: &str| {
        vec![
            encode(&["multi"]),
            encode(&["set", "early", round]),
            encode(&["swapdb", "0", "1"]),
            encode(&["set", "late", round]),
            encode(&["exec"]),
        ]
    };
    let writer = thread::spawn(move || rounds_until_killed(port, transaction));
    let mut observer = Client::connect(port);
    let number = |value: Value| value.text().parse::<u32>().unwrap_or(0);
    // Some rounds, however slow the machine is.
    while number(observer.call("get late")) <= 40 {}
    child.kill().unwrap();
    child.wait().unwrap();
    let acknowledged = writer.join().unwrap();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    let round = number(client.call("get late"));
    assert!((acknowledged..=acknowledged + 1).contains(&round), "{round} of {acknowledged}");
    assert_eq!(number(client.call("get early")), round - 1);
    client.call("select 1");
    assert_eq!(number(client.call("get early")), round);
    assert_eq!(number(client.call("get late")), round - 1);
}

#[test]
fn a_replica_applies_transactions_with_exchanges() {
    let Some(redis) = Redis::start_with(MASTER, |_| ()) else { return };
    let mut theirs = redis.client();
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(dir.path(), config());
    follow(&mut server.client(), redis.port);
    for round in 0..4 {
        for seed in 0..40 {
            let mut random = Random::new(round * 1000 + seed);
            theirs.call("multi");
            for _ in 0..8 {
                theirs.call_args(&queued(&mut random));
            }
            theirs.call("exec");
        }
        theirs.call("select 0");
        let mut ours = server.client();
        catch_up(&mut ours, &mut theirs);
        for database in 0..DATABASES {
            let select = format!("select {database}");
            assert_eq!(ours.call(&select), theirs.call(&select));
            assert_replicated(&mut ours, &mut theirs, &select);
        }
        // It continues behind the transactions that it has, without a dump.
        drop(ours);
        server.end();
        server = Server::start_in(dir.path(), config());
    }
    let mut ours = server.client();
    catch_up(&mut ours, &mut theirs);
    assert!(ours.call("info replication").text().contains("quintet_full_syncs:0\r\n"));
}
