//! `CLIENT PAUSE`: what it holds, for how long, and that no write runs meanwhile.

use std::{
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    client::{Client, Value, encode},
    http::{get, with_http},
    running::{Redis, Server},
};

/// Longest time for what must happen. It bounds a test that fails.
const PATIENCE: Duration = Duration::from_mins(1);

/// Sends a request and expects the start of its reply.
fn expect(client: &mut Client, request: &str, start: &str) {
    let reply = client.call(request).text();
    assert!(reply.starts_with(start), "{request}: {reply}");
}

/// Sends a request without reading its reply.
fn send(client: &mut Client, request: &str) {
    let words: Vec<&str> = request.split(' ').collect();
    client.send(&encode(&words));
}

fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until so many clients wait, which the client asks.
fn wait_for_waiting(client: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}\r");
    wait_until("the clients do not wait", || client.call("info clients").text().contains(&line));
}

#[test]
fn a_pause_of_writes_holds_them_and_nothing_else() {
    let server = Server::start();
    let (mut admin, mut writer, mut other) = (server.client(), server.client(), server.client());
    expect(&mut admin, "set k old", "+OK");
    expect(&mut admin, "client pause 600000 write", "+OK");
    let info = admin.call("info clients").text();
    assert!(info.contains("paused_reason:client_pause\r\npaused_actions:write\r\n"), "{info}");
    // The earlier commands of a pipeline have their replies.
    writer.send(&[&["get", "k"][..], &["set", "k", "new"], &["get", "k"]].map(encode).concat());
    assert_eq!(writer.read().text(), "old");
    send(&mut other, "publish c m");
    wait_for_waiting(&mut admin, 2);
    for (request, start) in [
        ("get k", "old"),
        ("ping", "+PONG"),
        ("multi", "+OK"),
        ("get k", "+QUEUED"),
        ("exec", "[\"old\"]"),
        ("config set maxclients 1000", "+OK"),
        // What is refused is refused at once.
        ("set k", "-ERR wrong number of arguments"),
        ("client unblock 2", ":0"),
        ("client pause 1 write", "+OK"),
        ("get k", "old"),
    ] {
        expect(&mut admin, request, start);
    }
    assert!(admin.call("client list").text().contains(" flags=b "));
    expect(&mut admin, "client unpause", "+OK");
    assert_eq!(writer.read().text(), "+OK");
    assert_eq!(writer.read().text(), "new");
    assert_eq!(other.read(), Value::Integer(0));
    assert!(admin.call("info clients").text().contains("blocked_clients:0\r\npaused_reason:none"));
}

#[test]
fn a_pause_of_all_holds_everything_but_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), with_http());
    let (mut admin, mut reader) = (server.client(), server.client());
    expect(&mut admin, "client pause 600000", "+OK");
    send(&mut reader, "ping");
    wait_until("the reader is not held", || {
        get(server.http_port(), "/api/clients").body.contains("\"is_blocked\":true")
    });
    // A new connection can log in and end the pause.
    let mut late = server.client();
    expect(&mut late, "hello 2", "[");
    expect(&mut late, "client unpause", "+OK");
    assert_eq!(reader.read().text(), "+PONG");
    expect(&mut late, "ping", "+PONG");
}

#[test]
fn a_pause_ends_by_itself() {
    let server = Server::start();
    let mut client = server.client();
    let start = Instant::now();
    expect(&mut client, "client pause 300 all", "+OK");
    expect(&mut client, "get k", "null");
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    expect(&mut client, "client pause 0 all", "+OK");
    expect(&mut client, "client pause 300 write", "+OK");
    expect(&mut client, "set k 1", "+OK");
    assert!(start.elapsed() >= Duration::from_millis(600), "{:?}", start.elapsed());
}

#[test]
fn transactions_are_held_as_a_whole() {
    let server = Server::start();
    let (mut admin, mut early, mut late) = (server.client(), server.client(), server.client());
    expect(&mut early, "multi", "+OK");
    expect(&mut early, "incr n", "+QUEUED");
    expect(&mut early, "get n", "+QUEUED");
    expect(&mut admin, "client pause 600000 write", "+OK");
    send(&mut early, "exec");
    let transaction = [&["multi"][..], &["get", "n"], &["incr", "n"], &["exec"]].map(encode);
    late.send(&transaction.concat());
    wait_for_waiting(&mut admin, 2);
    expect(&mut admin, "get n", "null");
    expect(&mut admin, "client unpause", "+OK");
    let Value::Array(replies) = early.read() else { panic!("no array") };
    let Value::Integer(first) = replies[0] else { panic!("{replies:?}") };
    assert_eq!(replies[1].text(), first.to_string());
    for _ in 0..3 {
        late.read();
    }
    assert!(matches!(late.read(), Value::Array(_)));
    expect(&mut admin, "get n", "2");
    // A watched key that changes before the pause still counts.
    expect(&mut early, "watch n", "+OK");
    expect(&mut early, "multi", "+OK");
    expect(&mut early, "set n 9", "+QUEUED");
    expect(&mut admin, "incr n", ":3");
    expect(&mut admin, "client pause 600000 write", "+OK");
    send(&mut early, "exec");
    wait_for_waiting(&mut admin, 1);
    expect(&mut admin, "client unpause", "+OK");
    assert_eq!(early.read(), Value::Null);
}

#[test]
fn commands_that_wait_go_on_waiting() {
    let server = Server::start();
    let (mut admin, mut waiting) = (server.client(), server.client());
    send(&mut waiting, "blpop l 0");
    wait_for_waiting(&mut admin, 1);
    // The push and the pause are one step, so the client is woken within the pause.
    for (request, start) in [
        ("multi", "+OK"),
        ("client pause 600000 write", "+QUEUED"),
        ("rpush l x", "+QUEUED"),
        ("exec", "[+OK, :1]"),
        ("llen l", ":1"),
    ] {
        expect(&mut admin, request, start);
    }
    wait_for_waiting(&mut admin, 1);
    expect(&mut admin, "llen l", ":1");
    expect(&mut admin, "client unpause", "+OK");
    assert_eq!(waiting.read().text(), "[\"l\", \"x\"]");
    // The time of a command that waits passes also during a pause.
    send(&mut waiting, "blpop l 0.3");
    wait_for_waiting(&mut admin, 1);
    expect(&mut admin, "client pause 600000 write", "+OK");
    assert_eq!(waiting.read(), Value::Null);
    // One that begins within the pause waits its whole time behind it.
    send(&mut waiting, "blpop l 600");
    wait_for_waiting(&mut admin, 1);
    expect(&mut admin, "client unpause", "+OK");
    expect(&mut admin, "rpush l y", ":1");
    assert_eq!(waiting.read().text(), "[\"l\", \"y\"]");
}

#[test]
fn no_write_runs_behind_the_reply() {
    let server = Server::start();
    let is_over = Arc::new(AtomicBool::new(false));
    let port = server.port;
    let writers: Vec<_> = (0..3)
        .map(|number| {
            let is_over = is_over.clone();
            thread::spawn(move || {
                let mut client = Client::connect(port);
                while !is_over.load(Ordering::Acquire) {
                    client.call("incr n");
                    if number == 0 {
                        client.call("multi");
                        client.call("incr n");
                        client.call("exec");
                    }
                }
            })
        })
        .collect();
    let mut admin = server.client();
    for _ in 0..40 {
        expect(&mut admin, "client pause 600000 write", "+OK");
        let before = admin.call("get n");
        for _ in 0..20 {
            assert_eq!(admin.call("get n"), before, "a write has run within the pause");
        }
        expect(&mut admin, "client unpause", "+OK");
        wait_until("the writers stand still", || admin.call("get n") != before);
    }
    is_over.store(true, Ordering::Release);
    for writer in writers {
        writer.join().unwrap();
    }
}

#[test]
fn expired_keys_stay_until_the_end() {
    let server = Server::start();
    let mut admin = server.client();
    for (request, start) in [
        ("multi", "+OK"),
        ("client pause 600000 write", "+QUEUED"),
        ("set short 1 px 1", "+QUEUED"),
        ("exec", "[+OK, +OK]"),
    ] {
        expect(&mut admin, request, start);
    }
    thread::sleep(Duration::from_millis(500));
    expect(&mut admin, "get short", "null");
    expect(&mut admin, "dbsize", ":1");
    expect(&mut admin, "client unpause", "+OK");
    wait_until("nothing removes the key", || admin.call("dbsize") == Value::Integer(0));
}

#[test]
fn a_held_client_is_small_receives_messages_and_can_end() {
    let server = Server::start();
    let (mut admin, mut held) = (server.client(), server.client());
    expect(&mut held, "monitor", "+OK");
    let mut ahead = Client::over(TcpStream::connect(("127.0.0.1", server.port)).unwrap());
    expect(&mut ahead, "client setname ahead", "+OK");
    expect(&mut admin, "client pause 600000 write", "+OK");
    send(&mut held, "set k 1");
    let request = encode(&["set", "k", &"x".repeat(100_000)]);
    let sending = thread::spawn(move || {
        // The server stops to read, so this ends after the pause.
        for _ in 0..200 {
            ahead.send(&request);
        }
        for _ in 0..200 {
            assert_eq!(ahead.read().text(), "+OK");
        }
    });
    wait_for_waiting(&mut admin, 2);
    let mut largest = 0_u64;
    for _ in 0..200 {
        let list = admin.call("client list").text();
        let line = list.lines().find(|line| line.contains(" name=ahead ")).unwrap();
        let bytes = line.split_once(" tot-mem=").unwrap().1.split(' ').next().unwrap();
        largest = largest.max(bytes.parse().unwrap());
    }
    assert!(largest < 4 << 20, "a held client has {largest} bytes");
    // The line of a monitor comes while its own request is held.
    expect(&mut admin, "get seen", "null");
    loop {
        if held.read().text().contains("\"get\" \"seen\"") {
            break;
        }
    }
    let mut killed = server.client();
    expect(&mut killed, "client setname killed", "+OK");
    send(&mut killed, "set k 2");
    wait_for_waiting(&mut admin, 3);
    let list = admin.call("client list").text();
    let line = list.lines().find(|line| line.contains(" name=killed ")).unwrap();
    let id = line.trim_start_matches("id=").split(' ').next().unwrap();
    assert_eq!(admin.call(&format!("client kill id {id}")), Value::Integer(1));
    assert!(killed.is_ended());
    // One that goes away is no longer held.
    drop(held);
    wait_for_waiting(&mut admin, 1);
    expect(&mut admin, "client unpause", "+OK");
    sending.join().unwrap();
    assert_eq!(admin.call("strlen k"), Value::Integer(100_000));
}

#[test]
fn the_server_ends_within_a_pause() {
    let server = Server::start();
    let (mut admin, mut held) = (server.client(), server.client());
    expect(&mut admin, "client pause 600000 write", "+OK");
    send(&mut held, "set k 1");
    wait_for_waiting(&mut admin, 1);
    server.end();
    assert!(held.is_ended());
}

#[test]
fn wrong_pauses_are_refused_as_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    for request in [
        "client pause",
        "client pause x",
        "client pause x foo",
        "client pause -1",
        "client pause 1.5 write",
        "client pause 1 foo",
        "client pause 1 all x",
        "client pause 99999999999999999999 all",
        "client unpause x",
        "client unpause",
        "client pause 1 ALL",
        "ping",
        "client pause 1 Write",
        "set k 1",
        "client unpause",
    ] {
        assert_eq!(ours.call(request), theirs.call(request), "{request}");
    }
}
