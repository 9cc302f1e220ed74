//! Copies of passwords in the memory of a server.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
};

use super::{client::Client, durability::start_child};

/// How often `needle` is in the writable memory of a process.
fn count_in_memory(process: u32, needle: &[u8]) -> usize {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let mut memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let mut count = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (start, rest) = line.split_once('-').unwrap();
        let (end, _) = rest.split_once(' ').unwrap();
        let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let mut bytes = Vec::new();
        memory.seek(SeekFrom::Start(start)).unwrap();
        // A mapping may have gone, or have pages that cannot be read.
        let _ = memory.by_ref().take(end - start).read_to_end(&mut bytes);
        // Most of the memory is zeros, so the search for the first byte is quick.
        let mut rest = bytes.as_slice();
        while let Some(at) = rest.iter().position(|byte| *byte == needle[0]) {
            rest = &rest[at..];
            count += usize::from(rest.starts_with(needle));
            rest = &rest[1..];
        }
    }
    count
}

/// Passwords that are no longer in use are not in memory: those of requests, of queued commands, of
/// logins, of replies and of the link to a master.
#[test]
fn no_copies_of_old_passwords_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, port) = start_child(dir.path());
    let mut client = Client::connect(port);
    let [one, two] = ["requirepass", "masterauth"].map(|name| format!("{name}-x7Kq93-{port}"));
    for request in [
        &["config", "set", "requirepass", &one] as &[&str],
        &["config", "get", "requirepass"],
        &["config", "get", "*"],
        &["auth", &one],
        &["auth", "default", &one],
        &["hello", "2", "auth", "default", &one],
        &["multi"],
        &["config", "set", "requirepass", &one, "masterauth", &two],
        &["config", "get", "*auth"],
        &["exec"],
        &["multi"],
        &["config", "set", "masterauth", &two],
        &["discard"],
    ] {
        let reply = client.call_args(request).text();
        assert!(!reply.starts_with('-'), "{request:?}: {reply}");
    }
    // A master that ends the connection after it has read the password.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let master = listener.local_addr().unwrap().port().to_string();
    client.call_args(&["replicaof", "127.0.0.1", &master]);
    let mut link = Client::over(listener.accept().unwrap().0);
    assert_eq!(link.read().text(), "[\"PING\"]");
    link.send(b"+PONG\r\n");
    assert_eq!(link.read().text(), format!("[\"AUTH\", \"{two}\"]"));
    drop((link, listener));
    client.call("replicaof no one");

    for password in [&one, &two] {
        assert_eq!(count_in_memory(child.id(), password.as_bytes()), 1, "the one in use");
    }
    client.call("config set requirepass other masterauth other");
    for password in [&one, &two] {
        assert_eq!(count_in_memory(child.id(), password.as_bytes()), 0, "{password}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
