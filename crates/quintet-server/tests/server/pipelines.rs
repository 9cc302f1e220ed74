//! Transactions, pipelines of several clients, publish and subscribe.

use std::thread;

use super::{
    client::{Value, encode},
    running::Server,
};

#[test]
fn exec_is_refused_after_a_watched_key_has_changed() {
    let server = Server::start();
    let (mut one, mut other) = (server.client(), server.client());
    for (writes, is_refused) in [("set k 2", true), ("set unwatched 2", false), ("del k", true)] {
        one.call("set k 1");
        one.call("watch k");
        other.call(writes);
        one.call("multi");
        assert_eq!(one.call("incrby n 1").text(), "+QUEUED");
        let result = one.call("exec");
        assert_eq!(matches!(result, Value::Null), is_refused, "{writes}: {result:?}");
    }
    assert_eq!(one.call("get n").text(), "1");
    // Own writes before WATCH in one pipeline do not break the watch.
    let requests = ["set k 5", "watch k", "multi", "incr k", "exec"];
    let bytes = requests.map(|text| encode(&text.split(' ').collect::<Vec<_>>())).concat();
    one.send(&bytes);
    let replies: Vec<Value> = requests.iter().map(|_| one.read()).collect();
    assert_eq!(replies[4], Value::Array(vec![Value::Integer(6)]));
}

#[test]
fn a_bad_command_discards_the_transaction() {
    let server = Server::start();
    let mut client = server.client();
    client.call("multi");
    client.call("set k 1");
    assert!(client.call("nosuch").text().starts_with("-ERR unknown command"));
    assert!(client.call("exec").text().starts_with("-EXECABORT"));
    assert_eq!(client.call("get k"), Value::Null);
    assert_eq!(client.call("exec").text(), "-ERR EXEC without MULTI");
}

#[test]
fn commands_of_a_transaction_see_one_another() {
    let server = Server::start();
    let mut client = server.client();
    client.call("multi");
    for request in ["set a 1", "incr a", "rename a b", "get b", "exists a", "keys *", "dbsize"] {
        client.call(request);
    }
    let replies = client.call("exec");
    let expected = "[+OK, :2, +OK, \"2\", :0, [\"b\"], :1]";
    assert_eq!(format!("{replies:?}"), expected);
}

/// Transfers between accounts keep the sum, whatever order the clients lock the keys in.
#[test]
fn concurrent_transactions_are_isolated() {
    let server = Server::start();
    let mut client = server.client();
    for account in 0..8 {
        client.call(&format!("set account:{account} 100"));
    }
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            let mut client = server.client();
            scope.spawn(move || {
                for step in 0..300_u32 {
                    let from = (step * 7 + thread) % 8;
                    let to = (step * 3 + thread * 5 + 1) % 8;
                    client.call("multi");
                    client.call(&format!("decr account:{from}"));
                    client.call(&format!("incr account:{to}"));
                    client.call("exec");
                }
            });
        }
        let mut reader = server.client();
        scope.spawn(move || {
            for _ in 0..300 {
                let keys: Vec<String> = (0..8).map(|n| format!("account:{n}")).collect();
                let Value::Array(values) = reader.call(&format!("mget {}", keys.join(" "))) else {
                    panic!("no array");
                };
                let sum: i64 =
                    values.iter().map(|value| value.text().parse::<i64>().unwrap()).sum();
                assert_eq!(sum, 800, "a read saw a part of a transaction");
            }
        });
    });
}

#[test]
fn pipelined_increments_of_many_clients_are_all_counted() {
    let server = Server::start();
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                let requests: Vec<u8> = (0..100)
                    .flat_map(|n| [encode(&["incr", "n"]), encode(&["rpush", "l", &n.to_string()])])
                    .flatten()
                    .collect();
                for _ in 0..5 {
                    client.send(&requests);
                    for _ in 0..200 {
                        assert!(matches!(client.read(), Value::Integer(_)));
                    }
                }
            });
        }
    });
    let mut client = server.client();
    assert_eq!(client.call("get n").text(), "2000");
    assert_eq!(client.call("llen l"), Value::Integer(2000));
}

#[test]
fn messages_reach_subscribers_of_channels_and_patterns() {
    let server = Server::start();
    let (mut reader, mut writer) = (server.client(), server.client());
    assert_eq!(format!("{:?}", reader.call("subscribe news")), "[\"subscribe\", \"news\", :1]");
    reader.call("psubscribe n*");
    assert_eq!(writer.call("publish news hello"), Value::Integer(2));
    assert_eq!(format!("{:?}", reader.read()), "[\"message\", \"news\", \"hello\"]");
    assert_eq!(format!("{:?}", reader.read()), "[\"pmessage\", \"n*\", \"news\", \"hello\"]");
    assert!(reader.call("get k").text().starts_with("-ERR Can't execute 'get'"));
    assert_eq!(writer.call("publish other x"), Value::Integer(0));
    reader.call("unsubscribe");
    assert_eq!(writer.call("pubsub numpat"), Value::Integer(1));
    drop(reader);
    for _ in 0..100 {
        if writer.call("publish news x") == Value::Integer(0) {
            return;
        }
        thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("a subscriber that has disconnected still receives");
}

/// Calls are counted in groups, but a command finds all that ran before it.
#[test]
fn each_command_of_a_pipeline_is_counted_once() {
    let server = Server::start();
    let mut client = server.client();
    client.call("set a 1");
    let requests = [
        "get a",
        "get b",
        "GET a",
        "multi",
        "get a",
        "set c 1",
        "exec",
        "get b",
        "config|get a",
        "info all",
    ];
    let bytes = requests.map(|text| encode(&text.split(' ').collect::<Vec<_>>())).concat();
    client.send(&bytes);
    let replies: Vec<Value> = requests.iter().map(|_| client.read()).collect();
    assert!(replies[8].text().starts_with("-ERR unknown command"), "{:?}", replies[8]);
    let info = replies[9].text();
    for line in [
        "cmdstat_get:calls=5,",
        "cmdstat_set:calls=2,",
        "cmdstat_multi:calls=1,",
        "cmdstat_exec:calls=1,",
        "keyspace_hits:3\r\n",
        "keyspace_misses:2\r\n",
        "total_commands_processed:9\r\n",
    ] {
        assert!(info.contains(line), "{line} is not in {info}");
    }
}

/// Requests that are looked at before they run have no effect of their own, whatever they are.
#[test]
fn requests_of_all_shapes_run_in_their_order() {
    let server = Server::start();
    let mut client = server.client();
    let mut bytes = Vec::new();
    for number in 0..100 {
        let key = format!("k{number}");
        bytes.extend(encode(&["set", &key, &"v".repeat(number)]));
        bytes.extend(encode(&["strlen", &key]));
        match number % 4 {
            0 => bytes.extend(b"*1\r\n$4\r\nping\r\n"),
            1 => bytes.extend(b"ping\r\n"),
            2 => bytes.extend(encode(&[&["exists"][..], &[key.as_str(); 20]].concat())),
            _ => bytes.extend(encode(&["select", if number % 8 == 3 { "1" } else { "0" }])),
        }
    }
    for part in bytes.chunks(997) {
        client.send(part);
    }
    for number in 0..100 {
        assert_eq!(client.read().text(), "+OK");
        assert_eq!(client.read(), Value::Integer(number));
        let reply = client.read().text();
        let expected = ["+PONG", "+PONG", ":20", "+OK"][usize::try_from(number % 4).unwrap()];
        assert_eq!(reply.trim_start_matches(':'), expected.trim_start_matches(':'), "{number}");
    }
}
