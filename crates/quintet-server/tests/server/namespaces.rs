//! Namespaces: their keys do not mix, users stay in theirs, and they survive the end of a server.

use std::{thread, time::Instant};

use super::{
    client::{Client, Value},
    durability::start_child,
    generator::{Random, lasting_command},
    running::{Server, config},
    same::assert_same_keys,
};

/// Sends a request and expects the start of its reply.
fn expect(client: &mut Client, request: &str, start: &str) {
    let reply = client.call(request).text();
    assert!(reply.starts_with(start), "{request}: {reply}");
}

/// A client in a namespace.
fn inside(server: &Server, name: &str) -> Client {
    let mut client = server.client();
    expect(&mut client, &format!("namespace use {name}"), "+OK");
    client
}

fn log_in(server: &Server, user: &str) -> Client {
    let mut client = server.client();
    expect(&mut client, &format!("auth {user} x"), "+OK");
    client
}

fn wait_for_blocked(client: &mut Client) {
    while !client.call("info clients").text().contains("blocked_clients:1") {}
}

#[test]
fn commands_over_several_databases_stay_in_the_namespace() {
    let server = Server::start();
    let mut a = server.client();
    expect(&mut a, "namespace add one", "+OK");
    let mut b = inside(&server, "one");
    for client in [&mut a, &mut b] {
        expect(client, "set k 1", "+OK");
        expect(client, "select 3", "+OK");
        expect(client, "set k3 1", "+OK");
        expect(client, "select 0", "+OK");
    }
    expect(&mut b, "set k 2", "+OK");
    expect(&mut a, "get k", "1");
    for (request, start) in [
        ("copy k k2 db 5", ":1"),
        ("set only 1", "+OK"),
        ("move only 5", ":1"),
        ("swapdb 0 3", "+OK"),
        ("get k3", "1"),
        ("dbsize", ":1"),
        ("randomkey", "k3"),
        ("keys *", "[\"k3\"]"),
        ("scan 0", "[\"0\", [\"k3\"]]"),
        ("select 5", "+OK"),
        ("dbsize", ":2"),
        ("flushdb", "+OK"),
        ("dbsize", ":0"),
    ] {
        expect(&mut b, request, start);
    }
    let keyspace = b.call("info keyspace").text();
    assert!(keyspace.contains("db0:keys=1,") && keyspace.contains("db3:keys=1,"), "{keyspace}");
    expect(&mut b, "flushall", "+OK");
    assert!(!b.call("info keyspace").text().contains("keys="));
    expect(&mut a, "get k", "1");
    expect(&mut a, "select 5", "+OK");
    expect(&mut a, "dbsize", ":0");
    expect(&mut a, "select 3", "+OK");
    expect(&mut a, "get k3", "1");
    expect(&mut b, "set b 1", "+OK");
    expect(&mut a, "flushall", "+OK");
    expect(&mut b, "select 0", "+OK");
    expect(&mut b, "select 5", "+OK");
    expect(&mut b, "get b", "1");
    let clients = a.call("client list").text();
    assert!(clients.contains(" ns=default") && clients.contains(" db=5 "), "{clients}");
    assert!(clients.lines().any(|line| line.ends_with(" ns=one")), "{clients}");
    expect(&mut b, "reset", "+RESET");
    expect(&mut b, "namespace current", "default");
}

#[test]
fn names_and_places_of_the_command_are_checked() {
    let server = Server::start();
    let mut client = server.client();
    let long = "x".repeat(65);
    for name in ["", "a b", "a/b", "a*", "\u{fc}", long.as_str()] {
        for subcommand in ["add", "del", "use"] {
            let reply = client.call_args(&["namespace", subcommand, name]).text();
            assert!(reply.starts_with("-ERR a name of a namespace"), "{name}: {reply}");
        }
    }
    for (request, start) in [
        ("namespace add aZ_0.-", "+OK"),
        ("namespace add aZ_0.-", "-ERR the namespace exists already"),
        ("namespace add default", "-ERR the namespace exists already"),
        ("namespace del default", "-ERR the namespace 'default' cannot be removed"),
        ("namespace del none", "-NONAMESPACE"),
        ("namespace use none", "-NONAMESPACE"),
        ("namespace list", "[\"default\", \"aZ_0.-\"]"),
        ("namespace", "-ERR wrong number of arguments"),
        ("namespace nosuch", "-ERR unknown subcommand"),
        ("namespace use", "-ERR wrong number of arguments"),
        ("multi", "+OK"),
        ("namespace current", "+QUEUED"),
        ("namespace list", "+QUEUED"),
        ("exec", "[\"default\", [\"default\", \"aZ_0.-\"]]"),
        ("multi", "+OK"),
        ("namespace use aZ_0.-", "-ERR NAMESPACE ADD, DEL and USE are not allowed inside"),
        ("exec", "-EXECABORT"),
        ("namespace current", "default"),
        ("set k 1", "+OK"),
        ("watch k", "+OK"),
        ("namespace use aZ_0.-", "+OK"),
        ("multi", "+OK"),
        ("exec", "null"),
    ] {
        expect(&mut client, request, start);
    }
    assert_eq!(client.call(&format!("namespace add {}", "x".repeat(64))).text(), "+OK");
}

#[test]
fn waiting_watching_and_listening_concern_one_namespace() {
    let server = Server::start();
    let mut a = server.client();
    expect(&mut a, "namespace add one", "+OK");
    let mut b = inside(&server, "one");
    expect(&mut a, "watch k", "+OK");
    expect(&mut b, "set k 1", "+OK");
    expect(&mut a, "multi", "+OK");
    expect(&mut a, "set k 2", "+QUEUED");
    expect(&mut a, "exec", "[+OK]");

    let mut waiting = inside(&server, "one");
    waiting.send(b"BLPOP l 0\r\n");
    wait_for_blocked(&mut a);
    expect(&mut a, "rpush l default", ":1");
    expect(&mut b, "rpush l one", ":1");
    assert_eq!(waiting.read().text(), "[\"l\", \"one\"]");
    expect(&mut a, "lpop l", "default");

    expect(&mut a, "config set notify-keyspace-events KEA", "+OK");
    let mut listener = inside(&server, "one");
    listener.call("psubscribe __key*");
    expect(&mut a, "set other 1", "+OK");
    expect(&mut b, "set own 1", "+OK");
    // Messages of clients reach all namespaces.
    assert_eq!(a.call("publish __keyend end"), Value::Integer(1));
    let mut found = Vec::new();
    loop {
        let text = listener.read().text();
        if text.contains("__keyend") {
            break;
        }
        found.push(text);
    }
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("\"__keyspace@0__:own\", \"set\""), "{found:?}");
    assert!(found[1].contains("\"__keyevent@0__:set\", \"own\""), "{found:?}");
}

#[test]
fn users_stay_in_their_namespaces() {
    let server = Server::start();
    let mut admin = server.client();
    for name in ["one", "two"] {
        expect(&mut admin, &format!("namespace add {name}"), "+OK");
    }
    for (user, rules) in [
        ("plain", ""),
        ("confined", " namespace=one namespace=default"),
        ("all", " namespace=two namespace=*"),
        ("lost", " namespace=none"),
    ] {
        expect(&mut admin, &format!("acl setuser {user} on nopass ~* &* +@all{rules}"), "+OK");
    }
    let mut plain = log_in(&server, "plain");
    expect(&mut plain, "namespace list", "[\"default\"]");
    for name in ["one", "none"] {
        let start = format!("-NOPERM this user has no permissions to use the namespace '{name}'");
        expect(&mut plain, &format!("namespace use {name}"), &start);
    }
    let mut confined = log_in(&server, "confined");
    for (request, start) in [
        ("namespace current", "one"),
        ("set k one", "+OK"),
        ("namespace list", "[\"default\", \"one\"]"),
        ("namespace use two", "-NOPERM"),
        ("namespace add three", "-NOPERM"),
        ("namespace del one", "-NOPERM"),
        ("acl setuser confined namespace=*", "-NOPERM"),
        ("config set appendonly yes", "-NOPERM"),
        ("monitor", "-NOPERM"),
        ("multi", "+OK"),
        ("client list", "-NOPERM"),
        ("exec", "-EXECABORT"),
        ("namespace use default", "+OK"),
        ("get k", "null"),
        ("reset", "+RESET"),
        ("namespace current", "default"),
        ("auth confined x", "+OK"),
        ("namespace current", "one"),
    ] {
        expect(&mut confined, request, start);
    }
    let mut all = log_in(&server, "all");
    expect(&mut all, "namespace current", "two");
    expect(&mut all, "namespace use one", "+OK");
    expect(&mut all, "config get appendonly", "[");
    let mut lost = log_in(&server, "lost");
    expect(&mut lost, "get k", "-NONAMESPACE");
    expect(&mut lost, "namespace current", "none");
    expect(&mut all, "namespace add none", "+OK");
    expect(&mut lost, "get k", "-NONAMESPACE");
    expect(&mut lost, "namespace use none", "+OK");
    expect(&mut lost, "get k", "null");
    let listed = admin.call("acl list").text();
    let rules = "user all on nopass namespace=two namespace=* ~* &* +@all";
    assert!(listed.contains(rules), "{listed}");
    expect(&mut admin, "acl setuser confined namespace=a/b", "-ERR Error in ACL SETUSER modifier");
    expect(&mut admin, "acl dryrun confined get k", "+OK");
    expect(&mut admin, "acl dryrun confined monitor", "This user has no permissions");
    // A login of a subscriber moves it, and it stays.
    let mut subscriber = server.client();
    let Value::Map(_) = subscriber.call("hello 3") else { panic!("no map") };
    subscriber.call("subscribe c");
    expect(&mut subscriber, "auth confined x", "+OK");
    expect(&mut subscriber, "namespace current", "one");
    // A restricted user `default` has no namespace but `default`.
    expect(&mut admin, "acl setuser default -monitor", "+OK");
    expect(&mut admin, "namespace use one", "-NOPERM");
}

#[test]
fn a_right_that_is_taken_away_ends_for_what_waits_runs_and_listens() {
    let server = Server::start();
    let mut admin = server.client();
    for name in ["one", "two"] {
        expect(&mut admin, &format!("namespace add {name}"), "+OK");
    }
    expect(&mut admin, "acl setuser confined on nopass ~* &* +@all namespace=one", "+OK");
    let mut confined = log_in(&server, "confined");
    expect(&mut confined, "multi", "+OK");
    expect(&mut confined, "set k two", "+QUEUED");
    let mut waiting = log_in(&server, "confined");
    waiting.send(b"BLPOP l 0\r\n");
    wait_for_blocked(&mut admin);
    let mut listener = log_in(&server, "confined");
    listener.call("psubscribe __key*");
    expect(&mut admin, "acl setuser confined resetnamespaces namespace=two", "+OK");
    assert!(waiting.read().text().starts_with("-NOPERM"));
    assert!(listener.is_ended());
    expect(&mut confined, "exec", "-EXECABORT");
    expect(&mut confined, "get k", "-NOPERM this user has no permissions to use the namespace");
    expect(&mut confined, "namespace use two", "+OK");
    expect(&mut confined, "get k", "null");
    let shown = admin.call("acl getuser confined").text();
    assert!(shown.contains("\"namespaces\", [\"two\"]"), "{shown}");
}

#[test]
fn a_removed_namespace_is_gone_for_its_clients() {
    let server = Server::start();
    let mut admin = server.client();
    expect(&mut admin, "namespace add one", "+OK");
    let mut idle = inside(&server, "one");
    let mut queueing = inside(&server, "one");
    let mut waiting = inside(&server, "one");
    expect(&mut idle, "set k 1", "+OK");
    for number in 0..300 {
        expect(&mut idle, &format!("zadd z {number} m{number}"), ":1");
    }
    expect(&mut queueing, "multi", "+OK");
    expect(&mut queueing, "set k 2", "+QUEUED");
    waiting.send(b"BLPOP l 0\r\n");
    wait_for_blocked(&mut admin);
    expect(&mut admin, "namespace del one", "+OK");
    assert!(waiting.read().text().starts_with("-NONAMESPACE"));
    expect(&mut queueing, "exec", "-EXECABORT");
    // A new one of the same name has no keys, and the clients are not in it.
    expect(&mut admin, "namespace add one", "+OK");
    for request in ["get k", "set k 1", "flushall", "dbsize", "select 1", "multi"] {
        expect(&mut idle, request, "-NONAMESPACE");
    }
    let mut fresh = inside(&server, "one");
    expect(&mut fresh, "dbsize", ":0");
    expect(&mut idle, "namespace use one", "+OK");
    expect(&mut idle, "exists k z", ":0");
    expect(&mut queueing, "reset", "+RESET");
    expect(&mut queueing, "get k", "null");
}

#[test]
fn namespaces_and_their_expiries_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), config());
    let mut admin = server.client();
    expect(&mut admin, "namespace add one", "+OK");
    expect(&mut admin, "namespace add gone", "+OK");
    let mut one = inside(&server, "one");
    for (request, start) in [
        ("set lasting 1 px 100000000", "+OK"),
        ("set short 1 px 1", "+OK"),
        ("hset h f 1 g 2", ":2"),
        ("hpexpire h 1 fields 1 f", "["),
        ("select 3", "+OK"),
        ("set three 3", "+OK"),
        ("swapdb 3 4", "+OK"),
        ("select 7", "+OK"),
        ("set seven 1", "+OK"),
        ("flushdb", "+OK"),
        ("set seven 2", "+OK"),
    ] {
        expect(&mut one, request, start);
    }
    expect(&mut inside(&server, "gone"), "set k 1", "+OK");
    expect(&mut admin, "namespace del gone", "+OK");
    drop(one);
    server.end();
    let server = Server::start_in(dir.path(), config());
    let mut admin = server.client();
    expect(&mut admin, "namespace list", "[\"default\", \"one\"]");
    expect(&mut admin, "dbsize", ":0");
    expect(&mut admin, "namespace add gone", "+OK");
    expect(&mut inside(&server, "gone"), "dbsize", ":0");
    let mut one = inside(&server, "one");
    for (request, start) in [
        ("get lasting", "1"),
        ("get short", "null"),
        ("hgetall h", "[\"g\", \"2\"]"),
        ("select 4", "+OK"),
        ("get three", "3"),
        ("select 7", "+OK"),
        ("get seven", "2"),
        ("dbsize", ":1"),
    ] {
        expect(&mut one, request, start);
    }
    // The background removes what has expired.
    expect(&mut one, "select 0", "+OK");
    let start = Instant::now();
    while one.call("dbsize") != Value::Integer(2) {
        assert!(start.elapsed().as_secs() < 20, "nothing removes the expired key");
    }
}

/// Adds, fills and removes namespaces until the server is killed. Returns the last name that is
/// known to exist, and one that is known to be gone.
fn churn(port: u16) -> (String, String) {
    let mut client = Client::connect(port);
    let (mut lasting, mut gone) = (String::new(), String::new());
    for round in 0.. {
        let (keep, drop) = (format!("keep{}", round % 50), format!("drop{round}"));
        let requests = [
            format!("namespace add {keep}"),
            format!("namespace add {drop}"),
            format!("namespace use {drop}"),
            "set k drop".to_owned(),
            format!("namespace use {keep}"),
            "set k keep".to_owned(),
            format!("namespace del {drop}"),
        ];
        for (step, request) in requests.iter().enumerate() {
            let words: Vec<&str> = request.split(' ').collect();
            client.try_send(&super::client::encode(&words));
            let Ok(reply) = client.try_read() else { return (lasting, gone) };
            let is_again = step == 0 && round >= 50;
            assert!(is_again || reply.text() == "+OK", "{request}: {reply:?}");
        }
        (lasting, gone) = (keep, drop);
    }
    unreachable!("the server is killed before")
}

#[test]
fn kill_9_keeps_the_catalogue_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, port) = start_child(dir.path());
    let churning = thread::spawn(move || churn(port));
    let mut observer = Client::connect(port);
    // Once at least two rounds have ended.
    while !observer.call("namespace list").text().contains("drop2") {}
    child.kill().unwrap();
    child.wait().unwrap();
    let (lasting, gone) = churning.join().unwrap();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    let Value::Array(names) = client.call("namespace list") else { panic!("no array") };
    let names: Vec<String> = names.iter().map(Value::text).collect();
    assert!(names.contains(&lasting) && !names.contains(&gone), "{lasting} {gone} {names:?}");
    expect(&mut client, &format!("namespace add {gone}"), "+OK");
    expect(&mut client, &format!("namespace use {gone}"), "+OK");
    expect(&mut client, "dbsize", ":0");
    for name in names.iter().filter(|name| name.starts_with("keep")) {
        expect(&mut client, &format!("namespace use {name}"), "+OK");
        let value = client.call("get k").text();
        assert!(value == "keep" || value == "null", "{name}: {value}");
    }
    expect(&mut client, &format!("namespace use {lasting}"), "+OK");
    expect(&mut client, "get k", "keep");
}

#[test]
fn two_hundred_namespaces_have_keys_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    for number in 0..200 {
        expect(&mut client, &format!("namespace add n{number}"), "+OK");
        if number % 10 == 0 {
            expect(&mut client, &format!("namespace use n{number}"), "+OK");
            expect(&mut client, &format!("set k {number}"), "+OK");
        }
    }
    expect(&mut client, "reset", "+RESET");
    server.end();
    let server = Server::start_in(dir.path(), config());
    let mut client = server.client();
    let Value::Array(names) = client.call("namespace list") else { panic!("no array") };
    assert_eq!(names.len(), 201);
    for number in [0, 5, 190, 199] {
        expect(&mut client, &format!("namespace use n{number}"), "+OK");
        let expected = if number % 10 == 0 { number.to_string() } else { "null".to_owned() };
        expect(&mut client, "get k", &expected);
    }
}

/// Whether a command sets an expiry from now on, which is another one in another server.
fn has_duration(args: &[Vec<u8>]) -> bool {
    args.iter().any(|word| {
        let word = word.to_ascii_lowercase();
        word.ends_with(b"expire") || word.ends_with(b"setex") || word == b"ex" || word == b"px"
    })
}

#[test]
fn random_commands_in_two_namespaces_are_as_in_servers_of_their_own() {
    for seed in 0..4 {
        let (shared, first, second) = (Server::start(), Server::start(), Server::start());
        expect(&mut shared.client(), "namespace add one", "+OK");
        let mut pairs = [
            (shared.client(), first.client(), Random::new(seed)),
            (inside(&shared, "one"), second.client(), Random::new(seed + 100)),
        ];
        let mut turns = Random::new(seed + 200);
        for _ in 0..1500 {
            let (here, alone, random) = &mut pairs[usize::from(turns.below(2) == 1)];
            let args = lasting_command(random);
            if has_duration(&args) {
                continue;
            }
            here.call_args(&args);
            alone.call_args(&args);
        }
        for (here, alone, _) in &mut pairs {
            assert_same_keys(here, alone, &format!("seed {seed}"));
        }
    }
}
