//! Limits of the memory of clients: output, requests, transactions, and all clients together.

use super::{
    client::{Client, Value, encode},
    running::{Server, config},
};

/// A server whose longest value is a mebibyte, so that its smallest limits are small.
fn start() -> (Server, tempfile::TempDir) {
    start_with(None)
}

fn start_with(maxmemory_clients: Option<u64>) -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let config = quintet_server::Config {
        proto_max_bulk_len: 1 << 20,
        client_query_buffer_limit: 1 << 20,
        maxmemory_clients,
        ..config()
    };
    (Server::start_in(dir.path(), config), dir)
}

/// A number of `INFO stats`.
fn stat(client: &mut Client, name: &str) -> u64 {
    let info = client.call("info stats").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is missing: {info}")).parse().unwrap()
}

/// Asks until a number of `INFO stats` is `expected`. The client's read timeout ends a test that
/// never gets there, because the server ends with the test.
fn wait_for(client: &mut Client, name: &str, expected: u64) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while stat(client, name) != expected {
        assert!(std::time::Instant::now() < deadline, "{name} is not {expected}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_reply_above_the_hard_limit_is_an_error_and_ends_the_client() {
    let (server, _dir) = start();
    let mut other = server.client();
    let limits = "normal 1048576 0 0 pubsub 1048576 0 0";
    let set = other.call_args(&["config", "set", "client-output-buffer-limit", limits]);
    assert_eq!(set.text(), "+OK");
    let Value::Array(shown) = other.call("config get client-output-buffer-limit") else {
        panic!("no array");
    };
    let shown = shown[1].text();
    assert!(shown.starts_with("normal 1048576 0 0 slave "), "{shown}");
    let bad = other.call_args(&["config", "set", "client-output-buffer-limit", "normal 1 2"]);
    assert!(bad.text().starts_with("-ERR"), "{bad:?}");

    let value = "v".repeat(1 << 20);
    assert_eq!(other.call_args(&["set", "k", &value]).text(), "+OK");
    // A value of the longest size can be read under each limit; two of them in one reply cannot.
    assert_eq!(other.call("get k").text().len(), 1 << 20);
    let mut client = server.client();
    client.send(&[encode(&["set", "n", "1"]), encode(&["mget", "k", "k"])].concat());
    assert_eq!(client.read().text(), "+OK");
    let reply = client.read().text();
    assert!(reply.contains("client-output-buffer-limit"), "{reply}");
    assert!(client.is_ended());
    wait_for(&mut other, "client_output_buffer_limit_disconnections", 1);

    // A reply that is not sent breaks no limit.
    let mut silent = server.client();
    silent.send(&encode(&["client", "reply", "off"]));
    silent.send(&encode(&["mget", "k", "k"]));
    assert_eq!(silent.call("client reply on").text(), "+OK");
    assert_eq!(silent.call("get n").text(), "1");
}

#[test]
fn a_subscriber_that_does_not_read_is_ended() {
    let (server, _dir) = start();
    let mut publisher = server.client();
    let limits = "pubsub 1048576 0 0";
    let set = publisher.call_args(&["config", "set", "client-output-buffer-limit", limits]);
    assert_eq!(set.text(), "+OK");
    let mut subscriber = server.client();
    assert!(matches!(subscriber.call("subscribe c"), Value::Array(_)));
    let message = "m".repeat(1 << 20);
    let mut messages = 0;
    // The sockets take some megabytes, and the limit leaves two.
    while publisher.call_args(&["publish", "c", &message]) == Value::Integer(1) {
        messages += 1;
        assert!(messages < 1000, "the subscriber is not ended");
    }
    assert!(messages > 0);
    wait_for(&mut publisher, "client_output_buffer_limit_disconnections", 1);
}

#[test]
fn requests_and_transactions_have_a_limit_in_bytes() {
    let (server, _dir) = start();
    let mut client = server.client();
    let value = "v".repeat(1 << 20);
    assert_eq!(client.call("multi").text(), "+OK");
    assert_eq!(client.call_args(&["set", "k", &value]).text(), "+QUEUED");
    let list = client.call("client list").text();
    assert_eq!(list, "+QUEUED");
    let mut other = server.client();
    let list = other.call("client list").text();
    let held = list.lines().filter_map(|line| line.split(" multi-mem=").nth(1));
    let held: Vec<u64> =
        held.map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect();
    assert!(held.iter().any(|bytes| *bytes > 1 << 20), "{list}");
    assert!(client.call_args(&["set", "l", &value]).text().contains("client-query-buffer-limit"));
    assert!(client.call("exec").text().starts_with("-EXECABORT"));
    assert_eq!(client.call("exists k l"), Value::Integer(0));

    let mut large = server.client();
    // The server has read all when the limit is passed, so no reply is lost with unread bytes.
    let mut request = encode(&["mset", "a", &value, "b", &value, "c", &value]);
    request.truncate((2 << 20) + 1);
    large.send(&request);
    assert!(large.read().text().contains("client-query-buffer-limit"));
    assert!(large.is_ended());
    wait_for(&mut other, "client_query_buffer_limit_disconnections", 1);
}

#[test]
fn the_client_with_the_most_memory_is_ended() {
    let (server, _dir) = start_with(Some(4 << 20));
    let mut small = server.client();
    assert_eq!(small.call("config set client-query-buffer-limit 64mb").text(), "+OK");
    let value = "x".repeat(1 << 20);
    let mut exempt = server.client();
    assert_eq!(exempt.call("client no-evict on").text(), "+OK");
    assert_eq!(exempt.call("multi").text(), "+OK");
    for _ in 0..6 {
        assert_eq!(exempt.call_args(&["set", "e", &value]).text(), "+QUEUED");
    }
    let mut large = server.client();
    assert_eq!(large.call("multi").text(), "+OK");
    for _ in 0..8 {
        // The server may end the connection within any of them.
        large.try_send(&encode(&["set", "k", &value]));
    }
    let mut replies = 0;
    while large.try_read().is_ok_and(|reply| reply.text() == "+QUEUED") {
        replies += 1;
    }
    assert!(replies < 8, "the transaction has 8 MiB");
    wait_for(&mut small, "evicted_clients", 1);
    let Value::Array(done) = exempt.call("exec") else { panic!("no array") };
    assert_eq!(done.len(), 6);
    assert_eq!(small.call("ping").text(), "+PONG");

    // 0 is off.
    assert_eq!(small.call("config set maxmemory-clients 0").text(), "+OK");
    let mut large = server.client();
    assert_eq!(large.call("multi").text(), "+OK");
    for _ in 0..8 {
        assert_eq!(large.call_args(&["set", "k", &value]).text(), "+QUEUED");
    }
    assert!(matches!(large.call("exec"), Value::Array(_)));
}
