//! Limits: before the password, of requests, of clients.

use std::{
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use super::{
    client::{Value, encode},
    running::{Server, config},
};

fn with_password() -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let config = quintet_server::Config { requirepass: "secret".to_owned().into(), ..config() };
    (Server::start_in(dir.path(), config), dir)
}

#[test]
fn nothing_but_the_password_is_accepted_without_it() {
    let (server, _dir) = with_password();
    let mut client = server.client();
    for request in ["get k", "ping", "client list", "info", "multi", "subscribe c"] {
        assert!(client.call(request).text().starts_with("-NOAUTH"), "{request}");
    }
    assert!(client.call("auth wrong").text().starts_with("-WRONGPASS"));
    assert!(client.call("hello 3 auth default wrong").text().starts_with("-WRONGPASS"));
    assert_eq!(client.call("auth secret").text(), "+OK");
    assert_eq!(client.call("ping").text(), "+PONG");
    assert_eq!(client.call("reset").text(), "+RESET");
    assert!(client.call("get k").text().starts_with("-NOAUTH"));
}

#[test]
fn the_password_stays_while_other_machines_reach_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let config = quintet_server::Config {
        requirepass: "secret".to_owned().into(),
        http: Some("0.0.0.0:0".to_owned()),
        http_expose: quintet_server::Exposure::Console,
        ..config()
    };
    let server = Server::start_in(dir.path(), config);
    let mut client = server.client();
    assert_eq!(client.call("auth secret").text(), "+OK");
    let refusal = client.call_args(&["config", "set", "requirepass", ""]).text();
    assert!(refusal.contains("would need no password"), "{refusal}");
    assert!(server.client().call("ping").text().starts_with("-NOAUTH"));
    // With a password of its own, `default` is not open.
    assert_eq!(client.call("acl setuser default >secret").text(), "+OK");
    assert_eq!(client.call_args(&["config", "set", "requirepass", ""]).text(), "+OK");
    assert!(server.client().call("ping").text().starts_with("-NOAUTH"));
}

#[test]
fn no_change_of_users_opens_a_server_that_other_machines_reach() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.toml");
    let write = |text: &str| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let all = "\"~*\", \"&*\", \"+@all\"";
    write(&format!("[users]\ndefault = [\"on\", \">secret\", {all}]\n"));
    let config = quintet_server::Config {
        aclfile: Some(path.clone()),
        http: Some("0.0.0.0:0".to_owned()),
        http_expose: quintet_server::Exposure::Console,
        ..config()
    };
    let server = Server::start_in(dir.path(), config);
    let mut client = server.client();
    assert_eq!(client.call("auth secret").text(), "+OK");
    let before = client.call("acl list");
    let mut is_refused = |request: &str| {
        let refusal = client.call(request).text();
        assert!(refusal.contains("would need no password"), "{request}: {refusal}");
        assert_eq!(client.call("acl list"), before);
        assert!(server.client().call("ping").text().starts_with("-NOAUTH"));
    };
    is_refused("acl setuser default on nopass");
    is_refused("acl setuser default reset on nopass ~* &* +@all");
    write(&format!("[users]\ndefault = [\"on\", \"nopass\", {all}]\n"));
    is_refused("acl load");
    // A file without `default` has an open one.
    write("[users]\napp = [\"on\", \">secret\"]\n");
    is_refused("acl load");
    // With `requirepass` the flag has no effect, and then the password must stay.
    assert_eq!(client.call("config set requirepass secret").text(), "+OK");
    assert_eq!(client.call("acl setuser default on nopass").text(), "+OK");
    assert!(server.client().call("ping").text().starts_with("-NOAUTH"));
    let refusal = client.call_args(&["config", "set", "requirepass", ""]).text();
    assert!(refusal.contains("would need no password"), "{refusal}");
    // Switched off it is not open, and cannot be switched on without a password.
    assert_eq!(client.call("acl setuser default off").text(), "+OK");
    assert_eq!(client.call_args(&["config", "set", "requirepass", ""]).text(), "+OK");
    let refusal = client.call("acl setuser default on").text();
    assert!(refusal.contains("would need no password"), "{refusal}");
    assert_eq!(client.call("acl setuser default resetpass >secret on").text(), "+OK");
}

#[test]
fn a_client_without_the_password_cannot_send_much() {
    let (server, _dir) = with_password();
    for (request, message) in [
        (b"*11\r\n".to_vec(), "unauthenticated multibulk length"),
        (b"*1\r\n$16385\r\n".to_vec(), "unauthenticated bulk length"),
        (b"ping a b c d e f g h i j\r\n".to_vec(), "unauthenticated multibulk length"),
        ([vec![b'a'; 16_385], b"\r\n".to_vec()].concat(), "unauthenticated bulk length"),
    ] {
        let mut client = server.client();
        client.send(&request);
        let reply = client.read().text();
        assert!(reply.contains(message), "{reply}");
        assert!(client.is_ended());
    }
}

#[test]
fn bad_requests_end_the_connection_with_a_message() {
    let server = Server::start();
    for (request, message) in [
        ("*1\r\n:1\r\n", "expected '$', got ':'"),
        ("*99999999\r\n", "invalid multibulk length"),
        ("*1\r\n$999999999999\r\n", "invalid bulk length"),
        ("set \"a\r\n", "unbalanced quotes"),
    ] {
        let mut client = server.client();
        client.send(b"PING\r\n");
        assert_eq!(client.read().text(), "+PONG");
        client.send(request.as_bytes());
        let reply = client.read().text();
        assert!(reply.contains(message), "{request:?}: {reply}");
        assert!(client.is_ended());
    }
}

#[test]
fn the_number_of_arguments_and_the_inline_line_are_limited() {
    let server = Server::start();
    let mut client = server.client();
    let most = vec!["k"; 65_535];
    assert_eq!(client.call_args(&[&["exists"], &most[..]].concat()), Value::Integer(0));
    client.send(b"*65537\r\n");
    assert!(client.read().text().contains("invalid multibulk length"));
    assert!(client.is_ended());
    let mut client = server.client();
    assert_eq!(client.call("config set proto-max-args 1048577").text().get(..4), Some("-ERR"));
    assert_eq!(client.call("config set proto-max-args 2000").text(), "+OK");
    client.send(b"*2001\r\n");
    assert!(client.read().text().contains("invalid multibulk length"));
    let mut client = server.client();
    client.send(&vec![b'x'; 64 << 10]);
    assert!(client.read().text().contains("too big inline request"));
    assert!(client.is_ended());
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for mode in [0o770, 0o702] {
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let failure = quintet_server::serve(dir.path(), &config(), |_| ()).unwrap_err();
        assert!(failure.0.contains("other users can write to"), "{failure}");
    }
}

#[test]
fn requests_may_be_cut_at_every_byte() {
    let server = Server::start();
    let mut client = server.client();
    let requests =
        [encode(&["set", "k", "v\r\n"]), encode(&["get", "k"]), b"PING \"a b\"\r\n".to_vec()]
            .concat();
    for cut in 1..requests.len() {
        let (first, second) = requests.split_at(cut);
        client.send(first);
        std::thread::sleep(Duration::from_millis(1));
        client.send(second);
        assert_eq!(client.read().text(), "+OK", "cut at {cut}");
        assert_eq!(client.read().text(), "v\r\n", "cut at {cut}");
        assert_eq!(client.read().text(), "a b", "cut at {cut}");
    }
}

#[test]
fn too_many_clients_are_refused() {
    let server = Server::start();
    let mut first = server.client();
    assert_eq!(first.call("config set maxclients 2").text(), "+OK");
    let mut second = server.client();
    assert_eq!(second.call("ping").text(), "+PONG");
    let mut third = server.client();
    assert_eq!(third.read().text(), "-ERR max number of clients reached");
    drop(second);
    first.call("config set maxclients 100");
    // The files of the store are kept.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.unwrap_or(u64::MAX);
    let refusal = first.call(&format!("config set maxclients {files}")).text();
    assert!(refusal.starts_with("-ERR"), "{refusal}");
}

/// The ten seconds for the password end also for a client that always has something to read.
#[test]
fn a_client_that_always_sends_must_give_its_password_in_time() {
    let (server, _dir) = with_password();
    let mut client = server.client();
    let began = Instant::now();
    let requests = b"ping\r\n".repeat(100);
    let mut is_open = true;
    while is_open {
        assert!(began.elapsed() < Duration::from_mins(2), "the client has no deadline");
        client.try_send(&requests);
        is_open = (0..100).all(|_| client.try_read().is_ok());
    }
}

#[test]
fn keys_and_elements_have_limits_with_clear_errors() {
    let server = Server::start();
    let mut client = server.client();
    let long = "k".repeat(65_536);
    for args in [
        vec!["set", long.as_str(), "v"],
        vec!["get", long.as_str()],
        vec!["sadd", "s", long.as_str()],
        vec!["set", "", "v"],
        vec!["mset", "a", "1", "", "2"],
        vec!["keys", &long[..2000]],
    ] {
        let reply = client.call_args(&args);
        assert!(matches!(reply, Value::Error(_)), "{:?}: {reply:?}", &args[..1]);
    }
    assert_eq!(client.call("dbsize"), Value::Integer(0));
    // The connection and the server work on.
    assert_eq!(client.call("set k v").text(), "+OK");
}

#[test]
fn scans_return_each_key_once_and_unknown_cursors_are_errors() {
    let server = Server::start();
    let mut client = server.client();
    for number in 0..500 {
        client.call(&format!("set key:{number} {number}"));
        client.call(&format!("zadd big {number} member:{number}"));
    }
    for command in ["scan", "zscan big"] {
        let mut cursor = "0".to_owned();
        let mut found = std::collections::BTreeSet::new();
        loop {
            let Value::Array(page) = client.call(&format!("{command} {cursor} count 7 match *:*"))
            else {
                panic!("no array");
            };
            cursor = page[0].text();
            let Value::Array(items) = &page[1] else { panic!("no array") };
            let step = if command == "scan" { 1 } else { 2 };
            found.extend(items.iter().step_by(step).map(Value::text));
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(found.len(), 500, "{command}");
    }
    assert!(client.call("scan 77777777").text().contains("invalid cursor"));
    assert!(client.call("scan x").text().contains("invalid cursor"));
}
