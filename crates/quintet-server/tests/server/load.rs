//! Load: a thousand clients, clients that stop in the middle, and a full disk.

use std::{
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{
    client::{Client, Value, encode},
    durability::start_child,
    running::{Server, config},
};

/// Clients of the test with many.
const CLIENTS: usize = 1000;

/// Lets this process open the sockets of both sides.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = 8192;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum }).unwrap();
    }
}

/// Connected clients, with the one that asks.
fn connected(client: &mut Client) -> usize {
    let info = client.call("info clients").text();
    let line = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_thousand_clients_at_once_are_served() {
    raise_file_limit();
    let server = Server::start();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    for round in 0..3 {
        // All requests are on their way before a reply is read.
        for (number, client) in clients.iter_mut().enumerate() {
            let requests = [
                encode(&["set", &format!("k:{number}"), &format!("{number}:{round}")]),
                encode(&["incr", "all"]),
                encode(&["get", &format!("k:{number}")]),
            ];
            client.send(&requests.concat());
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.read().text(), "+OK");
            assert!(matches!(client.read(), Value::Integer(_)));
            assert_eq!(client.read().text(), format!("{number}:{round}"));
        }
    }
    let mut asking = server.client();
    assert_eq!(connected(&mut asking), CLIENTS + 1);
    assert_eq!(asking.call("get all").text(), (3 * CLIENTS).to_string());
    assert_eq!(asking.call("config get maxclients").text(), "[\"maxclients\", \"10000\"]");
    drop(clients);
    let deadline = Instant::now() + Duration::from_mins(1);
    while connected(&mut asking) > 1 {
        assert!(Instant::now() < deadline, "clients that have gone are still connected");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn clients_that_stop_in_the_middle_hold_up_no_others() {
    raise_file_limit();
    let server = Server::start();
    let mut other = server.client();
    let large = "v".repeat(256 << 10);
    assert_eq!(other.call_args(&["set", "large", &large]).text(), "+OK");
    // Half a command, cut at each byte of it and more clients than threads.
    let request = encode(&["set", "half", "whole"]);
    let mut halves: Vec<Client> = (0..200).map(|_| server.client()).collect();
    for (number, client) in halves.iter_mut().enumerate() {
        client.send(&request[..=number % (request.len() - 1)]);
    }
    // Replies of four mebibytes that nobody reads. They fill the sockets.
    let mut slow: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for client in &mut slow {
        client.send(&encode(&["get", "large"]).repeat(16));
    }
    for number in 0..500 {
        assert_eq!(other.call(&format!("set n {number}")).text(), "+OK");
        assert_eq!(other.call("get n").text(), number.to_string());
    }
    assert_eq!(other.call("exists half"), Value::Integer(0));
    assert_eq!(connected(&mut other), 211);
    for (number, client) in halves.iter_mut().enumerate() {
        client.send(&request[1 + number % (request.len() - 1)..]);
        assert_eq!(client.read().text(), "+OK");
    }
    for client in &mut slow {
        for _ in 0..16 {
            assert_eq!(client.read().text(), large);
        }
        assert_eq!(client.call("ping").text(), "+PONG");
    }
    assert_eq!(other.call("get half").text(), "whole");
}

/// A file system in memory with a limit of its size, until it is dropped.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one, or says why this test is skipped.
    fn mount(mebibytes: usize) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={mebibytes}m,mode=0700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(dir.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self { dir });
        }
        eprintln!("SKIPPED: a small file system cannot be mounted (root can)");
        None
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.dir.path()).status();
    }
}

/// The value of round `round`, of 4 KiB that do not compress to nothing.
fn value_of(writer: usize, round: usize) -> String {
    format!("{writer}:{round}:").repeat(4096 / format!("{writer}:{round}:").len())
}

/// Writes a string and an element until the server refuses one. Returns the rounds that were
/// acknowledged whole.
fn write_until_refused(port: u16, writer: usize, from: usize) -> usize {
    let mut client = Client::connect(port);
    for round in from.. {
        let value = value_of(writer, round);
        let replies = [
            client.call_args(&["set", &format!("k:{writer}:{round}"), &value]),
            client.call_args(&["rpush", &format!("l:{writer}"), &value]),
        ];
        for reply in &replies {
            if let Value::Error(message) = reply {
                let message = message.to_lowercase();
                assert!(message.contains("space") || message.contains("full"), "{message}");
            }
        }
        if replies.iter().any(|reply| matches!(reply, Value::Error(_))) {
            return round;
        }
        assert!(round < 100_000, "the disk is never full");
    }
    unreachable!("a round fails")
}

/// All rounds that were acknowledged can be read.
fn check(client: &mut Client, rounds: &[usize]) {
    for (writer, rounds) in rounds.iter().enumerate() {
        for round in 0..*rounds {
            let found = client.call(&format!("get k:{writer}:{round}"));
            assert_eq!(found.text(), value_of(writer, round), "writer {writer}, round {round}");
        }
        let Value::Integer(length) = client.call(&format!("llen l:{writer}")) else {
            panic!("no number");
        };
        assert!(usize::try_from(length).unwrap() >= *rounds, "{length} of {rounds}");
    }
}

#[test]
fn a_full_disk_refuses_writes_keeps_reads_and_goes_on_with_room() {
    let Some(disk) = SmallDisk::mount(192) else { return };
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; 96 << 20]).unwrap();
    let (mut child, port) = start_child(disk.path());
    let mut rounds: Vec<usize> = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| scope.spawn(move || write_until_refused(port, writer, 0)))
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert!(rounds.iter().sum::<usize>() > 100, "the disk has no room at the start: {rounds:?}");
    let mut client = Client::connect(port);
    // The server lives, and reads work.
    assert_eq!(client.call("ping").text(), "+PONG");
    check(&mut client, &rounds);
    std::fs::remove_file(&ballast).unwrap();
    let deadline = Instant::now() + Duration::from_mins(2);
    while matches!(client.call("set room yes"), Value::Error(_)) {
        assert!(Instant::now() < deadline, "writes are refused although there is room");
        thread::sleep(Duration::from_millis(20));
    }
    for (writer, rounds) in rounds.iter_mut().enumerate() {
        for _ in 0..50 {
            let value = value_of(writer, *rounds);
            let deadline = Instant::now() + Duration::from_mins(2);
            for request in [
                vec!["set".to_owned(), format!("k:{writer}:{rounds}"), value.clone()],
                vec!["rpush".to_owned(), format!("l:{writer}"), value],
            ] {
                while let Value::Error(message) = client.call_args(&request) {
                    assert!(Instant::now() < deadline, "{message}");
                    thread::sleep(Duration::from_millis(20));
                }
            }
            *rounds += 1;
        }
    }
    check(&mut client, &rounds);
    child.kill().unwrap();
    child.wait().unwrap();
    let server = Server::start_in(disk.path(), config());
    check(&mut server.client(), &rounds);
    assert_eq!(server.client().call("get room").text(), "yes");
}
