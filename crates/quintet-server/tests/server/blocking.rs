//! Commands that wait.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    client::{Value, encode},
    running::Server,
};

#[test]
fn waiting_clients_are_served_in_order() {
    let server = Server::start();
    let mut waiting: Vec<_> = (0..3).map(|_| server.client()).collect();
    let mut writer = server.client();
    for (count, client) in waiting.iter_mut().enumerate() {
        client.send(&encode(&["blpop", "queue", "other", "10"]));
        while !writer
            .call("info clients")
            .text()
            .contains(&format!("blocked_clients:{}", count + 1))
        {
            thread::sleep(Duration::from_millis(2));
        }
    }
    assert_eq!(writer.call("rpush queue a b c"), Value::Integer(3));
    for (client, value) in waiting.iter_mut().zip(["a", "b", "c"]) {
        assert_eq!(format!("{:?}", client.read()), format!("[\"queue\", \"{value}\"]"));
    }
    assert_eq!(writer.call("exists queue"), Value::Integer(0));
}

#[test]
fn a_wait_ends_in_time_or_by_another_client() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let start = Instant::now();
    assert_eq!(client.call("blpop none 0.1"), Value::Null);
    assert!(start.elapsed() >= Duration::from_millis(100));
    let Value::Integer(id) = client.call("client id") else { panic!("no number") };
    client.send(&encode(&["bzpopmin", "none", "0"]));
    while other.call(&format!("client unblock {id} error")) != Value::Integer(1) {
        thread::sleep(Duration::from_millis(2));
    }
    assert!(client.read().text().starts_with("-UNBLOCKED"));
    // In a transaction nothing waits.
    client.call("multi");
    client.call("blpop none 0");
    assert_eq!(client.call("exec"), Value::Array(vec![Value::Null]));
}

#[test]
fn a_moved_element_wakes_the_next_client() {
    let server = Server::start();
    let (mut mover, mut reader, mut writer) = (server.client(), server.client(), server.client());
    reader.send(&encode(&["brpop", "second", "10"]));
    mover.send(&encode(&["blmove", "first", "second", "left", "right", "10"]));
    while !writer.call("info clients").text().contains("blocked_clients:2") {
        thread::sleep(Duration::from_millis(2));
    }
    writer.call("lpush first x");
    assert_eq!(mover.read().text(), "x");
    assert_eq!(format!("{:?}", reader.read()), "[\"second\", \"x\"]");
}

/// A waiting client that ends takes no element with it.
#[test]
fn a_client_that_has_gone_takes_nothing() {
    let server = Server::start();
    let mut writer = server.client();
    let mut waiting = server.client();
    waiting.send(&encode(&["blpop", "queue", "0"]));
    while !writer.call("info clients").text().contains("blocked_clients:1") {
        thread::sleep(Duration::from_millis(2));
    }
    drop(waiting);
    while !writer.call("info clients").text().contains("blocked_clients:0") {
        thread::sleep(Duration::from_millis(2));
    }
    writer.call("rpush queue x");
    assert_eq!(writer.call("llen queue"), Value::Integer(1));
}

/// All readers of a stream get its entries, and `$` is the end at the time of the command.
#[test]
fn readers_of_a_stream_wait_for_new_entries() {
    let server = Server::start();
    let mut writer = server.client();
    writer.call("xadd log 1-1 f old");
    writer.call("xgroup create log group $");
    let mut readers: Vec<_> = (0..3).map(|_| server.client()).collect();
    for (count, reader) in readers.iter_mut().enumerate() {
        let request = match count {
            0 => "xreadgroup group group me block 10000 streams log >",
            _ => "xread block 10000 streams log $",
        };
        reader.send(&encode(&request.split(' ').collect::<Vec<_>>()));
        while !writer
            .call("info clients")
            .text()
            .contains(&format!("blocked_clients:{}", count + 1))
        {
            thread::sleep(Duration::from_millis(2));
        }
    }
    writer.call("xadd log 2-1 f new");
    for reader in &mut readers {
        let reply = format!("{:?}", reader.read());
        assert_eq!(reply, "[[\"log\", [[\"2-1\", [\"f\", \"new\"]]]]]");
    }
    assert_eq!(writer.call("xack log group 2-1"), Value::Integer(1));
}
