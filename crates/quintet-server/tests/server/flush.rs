//! `FLUSHDB` and `FLUSHALL` alone and within transactions.

use std::thread;

use super::{
    client::{Client, Value, encode},
    durability::{rounds_until_killed, start_child},
    running::{Server, config},
};

fn expect(client: &mut Client, request: &str, expected: &str) {
    assert_eq!(client.call(request).text(), expected, "{request}");
}

fn run(client: &mut Client, requests: &[&str]) -> String {
    expect(client, "multi", "+OK");
    for request in requests {
        expect(client, request, "+QUEUED");
    }
    client.call("exec").text()
}

#[test]
fn a_flush_is_a_part_of_its_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), config());
    let (mut client, mut other) = (server.client(), server.client());
    expect(&mut client, "mset a 1 b 2", "+OK");
    expect(&mut client, "select 1", "+OK");
    expect(&mut client, "set far 1", "+OK");
    expect(&mut client, "select 0", "+OK");
    // Nothing happens before EXEC, and nothing after DISCARD.
    expect(&mut client, "multi", "+OK");
    expect(&mut client, "flushall", "+QUEUED");
    expect(&mut other, "dbsize", ":2");
    expect(&mut client, "discard", "+OK");
    expect(&mut other, "dbsize", ":2");
    // A transaction that fails keeps the keys.
    expect(&mut client, "watch a", "+OK");
    expect(&mut other, "incr a", ":2");
    assert_eq!(run(&mut client, &["flushall", "set c 1"]), "null");
    expect(&mut other, "dbsize", ":2");
    // Commands behind the flush see its effect.
    expect(&mut other, "watch b", "+OK");
    let replies = run(
        &mut client,
        &["set early 1", "dbsize", "flushdb", "dbsize", "get a", "set c 1", "keys *", "dbsize"],
    );
    assert_eq!(replies, "[+OK, :3, +OK, :0, null, +OK, [\"c\"], :1]");
    assert_eq!(run(&mut other, &["set never 1"]), "null");
    expect(&mut other, "keys *", "[\"c\"]");
    expect(&mut other, "select 1", "+OK");
    expect(&mut other, "keys *", "[\"far\"]");
    // FLUSHALL concerns each database, whatever is selected within the transaction.
    let replies = run(&mut client, &["select 1", "flushall", "set new 1", "select 0", "dbsize"]);
    assert_eq!(replies, "[+OK, +OK, +OK, +OK, :0]");
    expect(&mut other, "keys *", "[\"new\"]");
    server.end();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    expect(&mut client, "dbsize", ":0");
    expect(&mut client, "select 1", "+OK");
    expect(&mut client, "keys *", "[\"new\"]");
}

#[test]
fn a_transaction_serves_clients_that_wait_behind_its_flush() {
    let server = Server::start();
    let (mut client, mut waiting) = (server.client(), server.client());
    expect(&mut client, "set other 1", "+OK");
    waiting.send(&encode(&["blpop", "list", "0"]));
    while !client.call("info clients").text().contains("blocked_clients:1\r\n") {
        thread::yield_now();
    }
    let replies = run(&mut client, &["rpush list x", "flushall", "rpush list y"]);
    assert_eq!(replies, "[:1, +OK, :1]");
    assert_eq!(waiting.read().text(), "[\"list\", \"y\"]");
    expect(&mut client, "dbsize", ":0");
}

#[test]
fn databases_keep_their_keys_through_flushes_and_swaps() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    for round in 0..40 {
        for database in 0..3 {
            expect(&mut client, &format!("select {database}"), "+OK");
            expect(&mut client, "flushdb", "+OK");
            expect(&mut client, &format!("set k {round}:{database}"), "+OK");
        }
        expect(&mut client, "swapdb 0 2", "+OK");
        for (database, from) in [(0, 2), (1, 1), (2, 0)] {
            expect(&mut client, &format!("select {database}"), "+OK");
            expect(&mut client, "get k", &format!("{round}:{from}"));
            expect(&mut client, "dbsize", ":1");
        }
    }
    server.end();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    for (database, from) in [(0, 2), (1, 1), (2, 0)] {
        expect(&mut client, &format!("select {database}"), "+OK");
        expect(&mut client, "get k", &format!("39:{from}"));
    }
}

#[test]
fn kill_9_keeps_transactions_with_flushes_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, port) = start_child(dir.path());
    let transaction = |round: &str| {
        vec![
            encode(&["multi"]),
            encode(&["set", "a", round]),
            encode(&["flushdb"]),
            encode(&["set", "b", round]),
            encode(&["rpush", "c", round]),
            encode(&["set", &format!("only:{round}"), round]),
            encode(&["exec"]),
        ]
    };
    let writer = thread::spawn(move || rounds_until_killed(port, transaction));
    let mut observer = Client::connect(port);
    // Some rounds, however slow the machine is.
    loop {
        let Value::Bulk(round) = observer.call("get b") else { continue };
        if String::from_utf8(round).unwrap().parse::<u32>().unwrap() > 40 {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let acknowledged = writer.join().unwrap();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    let round: u32 = client.call("get b").text().parse().unwrap();
    assert!((acknowledged..=acknowledged + 1).contains(&round), "{round} of {acknowledged}");
    expect(&mut client, "lrange c 0 -1", &format!("[\"{round}\"]"));
    expect(&mut client, &format!("get only:{round}"), &round.to_string());
    expect(&mut client, "dbsize", ":3");
}
