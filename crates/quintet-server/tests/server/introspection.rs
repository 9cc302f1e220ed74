//! What clients ask about the server and about one another, as client libraries read it.

use super::{
    against_redis::normalize,
    client::{Client, Value},
    running::{Redis, Server, config},
    users::REQUESTS,
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
    // A connection is listed once it is accepted.
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

#[test]
fn keys_and_their_flags_are_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    let more = [
        "get",
        "nosuch a",
        "ping a",
        "set a v xx get",
        "setnx a v",
        "getrange a 0 1",
        "msetnx a 1 b 2",
        "restore a 0 x",
        "move a 1",
        "zincrby a 1 m",
        "zrem a m",
        "lpos a e",
        "linsert a before x y",
        "hsetnx a f v",
        "xautoclaim a g c 0 0",
        "xclaim a g c 0 1-1",
        "xgroup destroy a g",
        "xgroup setid a g 0",
        "xinfo stream a full",
        "pfcount a b",
        "zunionstore a 2 b c weights 1 2",
        "zunionstore a x b",
        "georadius a 1 1 1 m",
        "georadius a 1 1 1 m store b",
        "sort a by x_* get y",
        "watch a b",
        "object encoding a",
        "memory usage a",
    ];
    for request in REQUESTS.into_iter().chain(more) {
        for subcommand in ["getkeys", "getkeysandflags"] {
            let asked = format!("command {subcommand} {request}");
            assert_eq!(ours.call(&asked), theirs.call(&asked), "{asked}");
        }
    }
}

/// Commands that make a stream with groups, and questions about it.
const STREAM: [&str; 26] = [
    "xinfo stream s full",
    "set string 1",
    "xinfo stream string full",
    "xadd s 1-1 a b",
    "xadd s 2-1 a b c d",
    "xadd s 3-1 a b",
    "xgroup create s g 0",
    "xgroup create s empty $ entriesread 1",
    "xreadgroup group g one count 2 streams s >",
    "xreadgroup group g two count 1 streams s >",
    "xgroup createconsumer s g idle",
    "xdel s 2-1",
    "xinfo stream s full",
    "xinfo stream s full count 1",
    "xinfo stream s FULL COUNT 0",
    "xinfo stream s full count -3",
    "xinfo stream s full count",
    "xinfo stream s full count x",
    "xinfo stream s full count 1 2",
    "xinfo stream s full limit 1",
    "xinfo stream s half",
    "xinfo stream none half",
    "xclaim s g two 0 1-1",
    "xinfo stream s full",
    "xtrim s maxlen 0",
    "xinfo stream s full",
];

#[test]
fn a_stream_is_shown_in_full_as_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    for hello in ["hello 2", "hello 3"] {
        let (mut ours, mut theirs) = (server.client(), redis.client());
        for client in [&mut ours, &mut theirs] {
            client.call(hello);
            client.call("flushall");
        }
        for request in STREAM {
            let (a, b) = (ours.call(request), theirs.call(request));
            assert_eq!(normalize("xinfo", a), normalize("xinfo", b), "{hello}: {request}");
        }
    }
}

#[test]
fn a_stream_in_full_has_the_limits_of_a_command() {
    let dir = tempfile::tempdir().unwrap();
    let limited = quintet_server::Config {
        proto_max_bulk_len: 1 << 20,
        command_memory_limit: 4 << 20,
        ..config()
    };
    let server = Server::start_in(dir.path(), limited);
    let mut client = server.client();
    let value = "x".repeat(1 << 19);
    for _ in 0..12 {
        client.call_args(&["xadd", "s", "*", "f", &value]);
    }
    let Value::Array(shown) = client.call("xinfo stream s full count 5") else { panic!("none") };
    assert_eq!(shown.len(), 18);
    let refused = client.call("xinfo stream s full count 0").text();
    assert!(refused.contains("command-memory-limit"), "{refused}");
    assert_eq!(client.call("xlen s"), Value::Integer(12));
}
