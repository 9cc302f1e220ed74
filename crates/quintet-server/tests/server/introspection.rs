//! What clients ask about the server and about one another, as client libraries read it.

use super::{
    client::{Client, Value},
    running::Server,
};

#[test]
fn the_server_says_that_it_is_no_cluster() {
    let server = Server::start();
    let mut client = server.client();
    for request in ["info", "info cluster", "info all"] {
        let info = client.call(request).text();
        assert!(info.contains("# Cluster\r\ncluster_enabled:0\r\n"), "{request}: {info}");
    }
}

#[test]
fn clients_are_listed_and_ended_by_the_address_that_they_connected_to() {
    let server = Server::start();
    let (mut one, mut other) = (server.client(), server.client());
    let local = format!("127.0.0.1:{}", server.port);
    // The server has accepted both.
    assert_eq!(other.call("ping").text(), "+PONG");
    let list = one.call("client list").text();
    assert_eq!(list.matches(&format!(" laddr={local} ")).count(), 2, "{list}");
    assert_eq!(one.call("client kill laddr 127.0.0.1:1"), Value::Integer(0));
    assert_eq!(other.call("ping").text(), "+PONG");
    assert_eq!(one.call(&format!("client kill laddr {local} skipme yes")), Value::Integer(1));
    assert!(other.is_ended());
    assert_eq!(one.call("ping").text(), "+PONG");
}

/// The lag that `XINFO GROUPS` shows.
fn lag(client: &mut Client) -> Value {
    let Value::Array(groups) = client.call("xinfo groups s") else { panic!("no array") };
    let Value::Array(fields) = &groups[0] else { panic!("no array") };
    fields.last().unwrap().clone()
}

#[test]
fn a_group_that_has_read_more_than_was_added_has_a_negative_lag() {
    let server = Server::start();
    let mut client = server.client();
    client.call("xadd s 1-1 a b");
    client.call("xgroup create s g 0 entriesread 0");
    assert_eq!(lag(&mut client), Value::Integer(1));
    client.call("xgroup setid s g 1-1 entriesread 2");
    assert_eq!(lag(&mut client), Value::Integer(-1));
}
