//! Limits of connections: their number, their times, and what `CONFIG SET` changes of them.

use std::{
    net::{IpAddr, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use quintet_server::{Config, serve};

use super::{
    client::{Client, Value, encode},
    running::{Redis, Server, config},
};

/// A number of `INFO`.
fn info(client: &mut Client, name: &str) -> u64 {
    let info = client.call("info").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is missing: {info}")).parse().unwrap()
}

fn wait_for(client: &mut Client, name: &str, expected: u64) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while info(client, name) != expected {
        assert!(Instant::now() < deadline, "{name} is not {expected}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// An address of this machine that is not the loopback address.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the route decides the address. The target is one for documentation.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn clients_of_one_other_machine_have_a_limit() {
    let Some(address) = own_address() else {
        eprintln!("SKIPPED: this machine has no address but the loopback");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        listen: vec!["0.0.0.0:0".to_owned()],
        insecure_i_know: true,
        maxclients_per_ip: 2,
        ..config()
    };
    let server = Server::start_in(dir.path(), config);
    let connect = || Client::over(TcpStream::connect((address, server.port)).unwrap());
    let (mut one, mut two) = (connect(), connect());
    assert_eq!(one.call("ping").text(), "+PONG");
    assert_eq!(two.call("ping").text(), "+PONG");
    let mut three = connect();
    assert_eq!(three.read().text(), "-ERR max number of clients reached");
    assert!(three.is_ended());
    // Clients of this machine are not counted.
    let mut locals: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for local in &mut locals {
        assert_eq!(local.call("ping").text(), "+PONG");
    }
    assert_eq!(info(&mut locals[0], "rejected_connections"), 1);
    assert_eq!(two.call("quit").text(), "+OK");
    wait_for(&mut locals[0], "connected_clients", 4);
    assert_eq!(connect().call("ping").text(), "+PONG");
}

#[test]
fn an_idle_connection_ends_and_a_subscriber_stays() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), Config { timeout: 1, ..config() });
    let mut subscriber = server.client();
    assert!(matches!(subscriber.call("subscribe channel"), Value::Array(_)));
    let mut idle = server.client();
    assert_eq!(idle.call("ping").text(), "+PONG");
    // The client waits 20 seconds, and the server checks each 10.
    assert!(
        matches!(idle.try_read(), Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof)
    );
    let mut publisher = server.client();
    assert_eq!(publisher.call("publish channel message"), Value::Integer(1));
    assert!(matches!(subscriber.read(), Value::Array(_)));
}

#[test]
fn a_client_that_does_not_take_its_output_is_ended_after_half_a_minute() {
    let dir = tempfile::tempdir().unwrap();
    // Neither the limits of the output nor the idle time end it.
    let limits = "normal 0 0 0 pubsub 0 0 0".to_owned();
    let config = Config { timeout: 0, client_output_buffer_limit: limits, ..config() };
    let server = Server::start_in(dir.path(), config);
    let mut other = server.client();
    assert_eq!(other.call_args(&["set", "k", &"v".repeat(1 << 20)]).text(), "+OK");
    let mut slow = server.client();
    let started = Instant::now();
    // The buffers of the sockets take some megabytes.
    slow.send(&encode(&["get", "k"]).repeat(64));
    wait_for(&mut other, "connected_clients", 2);
    wait_for(&mut other, "connected_clients", 1);
    assert!(started.elapsed() >= Duration::from_secs(29), "ended after {:?}", started.elapsed());
    assert_eq!(info(&mut other, "client_output_buffer_limit_disconnections"), 0);
}

#[test]
fn root_is_refused_without_permission() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { allow_root: false, ..config() };
    let data = dir.path().join("data");
    if rustix::process::geteuid().is_root() {
        let failure = serve(&data, &config, |_| panic!("it started")).unwrap_err();
        assert!(failure.0.contains("--allow-root"), "{failure}");
        assert!(!data.exists(), "it touched the directory");
    } else {
        Server::start_in(dir.path(), config).end();
    }
}

#[test]
fn a_config_set_of_several_settings_changes_all_or_none() {
    let server = Server::start();
    let mut client = server.client();
    let before = client.call("config get *").text();
    for request in [
        "config set timeout 7 maxclients none",
        "config set timeout 7 no-such-setting 1",
        "config set requirepass secret appendfsync sometimes",
        "config set masterauth secret masteruser app maxmemory 1",
        "config set client-output-buffer-limit {} timeout x",
        "config set notify-keyspace-events KEA timeout 8 timeout 9",
        "config set slowlog-max-len 5 client-output-buffer-limit normal",
    ] {
        let limits = "pubsub 5mb 2mb 9";
        let args: Vec<&str> =
            request.split(' ').map(|word| if word == "{}" { limits } else { word }).collect();
        let reply = client.call_args(&args).text();
        assert!(reply.starts_with("-ERR"), "{request}: {reply}");
        assert_eq!(client.call("config get *").text(), before, "{request}");
    }
    assert_eq!(client.call("config set timeout 7 slowlog-max-len 5").text(), "+OK");
    let shown = client.call("config get timeout slowlog-max-len").text();
    assert!(shown.contains("\"7\"") && shown.contains("\"5\""), "{shown}");

    let Some(redis) = Redis::start() else { return };
    let mut redis = redis.client();
    let request = "config set timeout 8 timeout 9";
    assert_eq!(client.call(request).text(), redis.call(request).text());
}

/// The time that a request waits is not idle time, also if it is longer than `timeout`.
#[test]
fn a_client_whose_request_has_waited_is_not_idle() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), Config { timeout: 5, ..config() });
    let (mut waiting, mut held) = (server.client(), server.client());
    waiting.send(b"BLPOP l 0\r\n");
    assert_eq!(held.call("client pause 600000 write").text(), "+OK");
    held.send(b"SET k 1\r\n");
    // A connection looks at its idle time each ten seconds.
    thread::sleep(Duration::from_millis(10_500));
    let mut late = server.client();
    assert_eq!(late.call("client unpause").text(), "+OK");
    assert_eq!(late.call("rpush l x"), Value::Integer(1));
    assert_eq!(waiting.read().text(), "[\"l\", \"x\"]");
    assert_eq!(held.read().text(), "+OK");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(waiting.call("ping").text(), "+PONG");
    assert_eq!(held.call("ping").text(), "+PONG");
}
