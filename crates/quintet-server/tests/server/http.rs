//! The HTTP port: metrics, health checks, limits, and who may see what.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use quintet::{EngineKind, Options, TableOptions};
use quintet_server::Config;

use super::{
    exposition::Metrics,
    running::{Server, config},
};

/// The configuration of a server with an HTTP port.
pub(crate) fn with_http() -> Config {
    Config { http: Some("127.0.0.1:0".to_owned()), ..config() }
}

fn start(dir: &Path) -> Server {
    Server::start_in(dir, with_http())
}

/// An answer: its status, its fields in lower case, its body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: String,
    pub(crate) body: String,
}

/// Sends the bytes of a request and reads the answer to the end of the connection.
fn exchange(port: u16, request: &str) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // A server that refuses a request or a connection may reset it.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, fields: head.to_ascii_lowercase(), body: body.to_owned() }
}

/// Gets a path, with further fields.
pub(crate) fn get_with(port: u16, path: &str, fields: &str) -> Answer {
    let end = "Connection: close\r\n\r\n";
    exchange(port, &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{fields}{end}"))
}

pub(crate) fn get(port: u16, path: &str) -> Answer {
    get_with(port, path, "")
}

fn metrics(server: &Server) -> Metrics {
    let answer = get(server.http_port(), "/metrics");
    assert_eq!(answer.status, 200);
    assert!(answer.fields.contains("content-type: text/plain; version=0.0.4"), "{}", answer.fields);
    Metrics::parse(&answer.body)
}

/// Gets metrics until `holds` is true. The statistics of the store are read each second.
fn metrics_when(server: &Server, holds: impl Fn(&Metrics) -> bool) -> Metrics {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let found = metrics(server);
        if holds(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "the metrics do not show it");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn metrics_have_the_format_and_count_what_clients_did() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let mut client = server.client();
    for number in 0..50 {
        client.call(&format!("set key{number} value"));
        client.call(&format!("get key{number}"));
    }
    client.call("get missing");
    client.call("lpush key1 x");
    client.call("set key1");
    client.call("nonsense");
    client.call("sadd big a b c");
    let keys = [("table", "redis/0/keys"), ("engine", "hashlog")];
    let found =
        metrics_when(&server, |found| found.value("quintet_table_keys", &keys) == Some(51.0));
    let count = |name: &str, labels: &[(&str, &str)]| found.value(name, labels);
    let calls = "quintet_command_duration_seconds_count";
    assert_eq!(count(calls, &[("command", "set")]), Some(50.0));
    assert_eq!(count(calls, &[("command", "get")]), Some(51.0));
    assert!(count("quintet_command_duration_seconds_sum", &[("command", "get")]) > Some(0.0));
    let failures = "quintet_command_failures_total";
    assert_eq!(count(failures, &[("command", "lpush"), ("reason", "failed")]), Some(1.0));
    assert_eq!(count(failures, &[("command", "set"), ("reason", "rejected")]), Some(1.0));
    assert_eq!(count("quintet_errors_total", &[("code", "WRONGTYPE")]), Some(1.0));
    assert_eq!(count("quintet_errors_total", &[("code", "ERR")]), Some(2.0));
    assert_eq!(count("quintet_key_lookups_total", &[("result", "hit")]), Some(50.0));
    assert_eq!(count("quintet_key_lookups_total", &[("result", "miss")]), Some(1.0));
    assert_eq!(count("quintet_database_keys", &[("database", "0")]), Some(51.0));
    assert_eq!(count("quintet_connected_clients", &[]), Some(1.0));
    assert!(count("quintet_commit_duration_seconds_count", &[]) >= Some(51.0));
    assert!(count("quintet_network_receive_bytes_total", &[]) > Some(1000.0));
    assert!(count("quintet_log_appended_bytes_total", &[]) > Some(1000.0));
    assert!(count("quintet_log_replay_bytes", &[]) > Some(0.0));
    assert_eq!(count("quintet_memory_budget_bytes", &[]), Some(f64::from(64 << 20)));
    assert_eq!(count("quintet_checksum_failures_total", &[]), Some(0.0));
    assert_eq!(count("quintet_poisoned", &[]), Some(0.0));
    assert_eq!(count("quintet_ready", &[]), Some(1.0));
    assert!(count("quintet_client_buffer_bytes", &[("buffer", "query")]) > Some(0.0));
    // Everything that is appended becomes durable within about a second.
    metrics_when(&server, |found| {
        let lsn = |name: &str| found.value(name, &[]);
        lsn("quintet_log_durable_lsn_bytes") == lsn("quintet_log_appended_lsn_bytes")
            && lsn("quintet_log_unsynced_seconds") == Some(0.0)
            && lsn("quintet_log_syncs_total") > Some(0.0)
    });
    client.call("config resetstat");
    assert_eq!(metrics(&server).value(calls, &[("command", "set")]), None);
}

#[test]
fn a_scrape_opens_no_table_and_shows_a_bounded_number() {
    const OTHERS: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let database = Options::new().memory_budget(64 << 20).open(dir.path().join("data")).unwrap();
    let options = TableOptions::new(EngineKind::Naive);
    for number in 0..OTHERS {
        database.create_table(&format!("other/{number}"), &options).unwrap();
    }
    database.close().unwrap();
    drop(database);
    let server = start(dir.path());
    server.client().call("set k v");
    let keys = [("table", "redis/0/keys"), ("engine", "hashlog")];
    let found =
        metrics_when(&server, |found| found.value("quintet_table_keys", &keys) == Some(1.0));
    let tables = 3 + OTHERS;
    assert_eq!(found.value("quintet_tables", &[]), Some(f64::from(u32::try_from(tables).unwrap())));
    let most = found.value("quintet_tables_shown_max", &[]).unwrap();
    let shown = found.value("quintet_tables_shown", &[]).unwrap();
    let series = found.labels("quintet_table_keys").len();
    assert!((shown - f64::from(u32::try_from(series).unwrap())).abs() < 0.5);
    assert!(shown <= most && most < 300.0, "{shown} of {most}");
    let open = found.value("quintet_tables_open", &[]).unwrap();
    assert!(open < 150.0, "{open} tables are open");
}

#[test]
fn health_checks_tell_whether_the_server_takes_writes() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    for path in ["/healthz", "/readyz"] {
        let answer = get(server.http_port(), path);
        assert_eq!(answer.status, 200, "{path}");
    }
    // A client that does not read its reply keeps the server from ending for some seconds.
    let mut client = server.client();
    client.call("setrange long 20000000 x");
    let mut slow = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    slow.write_all(b"GET long\r\n").unwrap();
    slow.read_exact(&mut [0; 1]).unwrap();
    client.send(b"SHUTDOWN\r\n");
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let answer = get(server.http_port(), "/readyz");
        if answer.status == 503 {
            assert_eq!(answer.body, "the server shuts down\n");
            assert_eq!(get(server.http_port(), "/healthz").status, 200);
            break;
        }
        assert_eq!(answer.status, 200);
        assert!(Instant::now() < deadline, "the server does not end");
    }
    drop(slow);
}

#[test]
fn requests_outside_of_the_limits_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let port = server.http_port();
    let long = "x".repeat(20_000);
    let many = (0..100).map(|number| format!("A{number}: b\r\n")).collect::<Vec<_>>().concat();
    for (request, status) in [
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".to_owned(), 405),
        ("DELETE /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n".to_owned(), 413),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {long}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), 431),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), 421),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example:80\r\n\r\n".to_owned(), 421),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 421),
        ("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 404),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 404),
        ("\u{1}\u{2}\u{3}\r\n\r\n".to_owned(), 400),
    ] {
        let request = request.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        let shown = &request[..request.len().min(80)];
        assert_eq!(exchange(port, &request).status, status, "{shown}");
    }
    for query in ["database=16", "count=x", "cursor=-1", "count=501"] {
        assert_eq!(get(port, &format!("/api/keys?{query}")).status, 400, "{query}");
    }
    let pattern = "a".repeat(1025);
    assert_eq!(get(port, &format!("/api/keys?match={pattern}")).status, 400);
    // The server still answers.
    assert_eq!(get(port, "/healthz").status, 200);
}

#[test]
fn a_client_that_sends_nothing_does_not_keep_others_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let port = server.http_port();
    let idle: Vec<_> = (0..64).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let deadline = Instant::now() + Duration::from_mins(2);
    let wait_for = |status: u16| {
        while get(port, "/healthz").status != status {
            assert!(Instant::now() < deadline, "no answer has status {status}");
            thread::sleep(Duration::from_millis(100));
        }
    };
    // Further connections are refused, until idle ones end.
    wait_for(0);
    wait_for(200);
    drop(idle);
    let rejected = metrics(&server).value("quintet_http_rejected_connections_total", &[]);
    assert!(rejected >= Some(1.0), "{rejected:?}");
}

/// The console shows all keys, so its user must be one that may do everything.
#[test]
fn the_console_takes_users_that_may_do_everything() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), with_http());
    let (mut client, port) = (server.client(), server.http_port());
    assert_eq!(get(port, "/api/keys").status, 200, "an open server has an open console");
    client.call("acl setuser admin on >pass-a ~* &* +@all");
    client.call("acl setuser reader on >pass-r ~* &* +@read");
    client.call("acl setuser asleep off >pass-s ~* &* +@all");
    client.call("acl setuser default off");
    assert_eq!(get(port, "/api/keys").status, 401);
    // "admin:pass-a", "reader:pass-r", "asleep:pass-s", "admin:pass-r"
    for (login, status) in [
        ("YWRtaW46cGFzcy1h", 200),
        ("cmVhZGVyOnBhc3Mtcg==", 401),
        ("YXNsZWVwOnBhc3Mtcw==", 401),
        ("YWRtaW46cGFzcy1y", 401),
    ] {
        let fields = format!("Authorization: Basic {login}\r\n");
        assert_eq!(get_with(port, "/api/keys", &fields).status, status, "{login}");
    }
    // For the end of the server.
    assert_eq!(client.call("auth admin pass-a").text(), "+OK");
    client.call("acl setuser default on");
}

/// The value of an answer as JSON.
fn json(answer: &Answer) -> serde_json::Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

#[test]
fn the_key_browser_shows_the_namespaces_that_its_user_may_use() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), with_http());
    let (mut client, port) = (server.client(), server.http_port());
    client.call("set k default");
    client.call("namespace add shop");
    client.call("namespace use shop");
    client.call("select 3");
    client.call("set in-shop 1");
    client.call("namespace use default");
    let names = json(&get(port, "/api/namespaces"));
    assert_eq!(names["namespaces"], serde_json::json!(["default", "shop"]));
    let shop = json(&get(port, "/api/keys?namespace=shop&database=3"));
    assert_eq!(shop["keys"][0]["key"], "in-shop");
    let databases = serde_json::json!([{ "index": 0, "keys": 0 }, { "index": 3, "keys": 1 }]);
    assert_eq!(shop["databases"], databases);
    for path in ["/api/keys", "/api/keys?namespace=", "/api/keys?namespace=default"] {
        assert_eq!(json(&get(port, path))["keys"][0]["key"], "k", "{path}");
    }
    let long = format!("/api/keys?namespace={}", "x".repeat(65));
    for path in ["/api/keys?namespace=none", "/api/keys?namespace=%3Cb%3E", long.as_str()] {
        let refused = get(port, path);
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.body.contains("namespace"), "{}", refused.body);
    }
    // A user that may do everything, but in `default` only.
    client.call("acl setuser plain on >pass-p ~* &* +@all");
    client.call("acl setuser all on >pass-a ~* &* +@all namespace=*");
    client.call("acl setuser shop on >pass-s ~* &* +@all namespace=shop");
    client.call("acl setuser default off");
    // "plain:pass-p", "all:pass-a", "shop:pass-s"
    let fields = |login: &str| format!("Authorization: Basic {login}\r\n");
    let (plain, all) = (fields("cGxhaW46cGFzcy1w"), fields("YWxsOnBhc3MtYQ=="));
    let names = json(&get_with(port, "/api/namespaces", &plain));
    assert_eq!(names["namespaces"], serde_json::json!(["default"]));
    let path = "/api/keys?namespace=shop&database=3";
    assert_eq!(get_with(port, path, &plain).status, 400);
    assert_eq!(json(&get_with(port, path, &all))["keys"][0]["key"], "in-shop");
    assert_eq!(get_with(port, path, &fields("c2hvcDpwYXNzLXM=")).status, 401);
    // For the end of the server.
    assert_eq!(client.call("auth all pass-a").text(), "+OK");
    client.call("acl setuser default on");
}

#[test]
fn a_page_of_long_values_is_short() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let mut client = server.client();
    let value = "x".repeat(1 << 20);
    for number in 0..40 {
        assert_eq!(client.call_args(&["set", &format!("long:{number}"), &value]).text(), "+OK");
    }
    let (mut cursor, mut found) = ("0".to_owned(), std::collections::BTreeSet::new());
    loop {
        let path = format!("/api/keys?count=500&cursor={cursor}");
        let page = json(&get(server.http_port(), &path));
        let keys = page["keys"].as_array().unwrap();
        // 8 MiB, and what one more read has.
        assert!(keys.len() <= 16, "a page of 1 MiB values has {} keys", keys.len());
        found.extend(keys.iter().map(|key| key["key"].as_str().unwrap().to_owned()));
        page["cursor"].as_str().unwrap().clone_into(&mut cursor);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 40, "{found:?}");
}

#[test]
fn the_console_and_its_data_need_the_password() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(
        dir.path(),
        Config { requirepass: "secret".to_owned().into(), ..with_http() },
    );
    let port = server.http_port();
    let paths = [
        "/",
        "/console.js",
        "/api/overview",
        "/api/keys",
        "/api/namespaces",
        "/api/clients",
        "/api/slow",
    ];
    for path in paths {
        let answer = get(port, path);
        assert_eq!(answer.status, 401, "{path}");
        assert!(answer.fields.contains("www-authenticate: basic"), "{}", answer.fields);
        assert!(!answer.body.contains('{'), "{}", answer.body);
    }
    // "default:wrong", "other:secret"
    for wrong in ["ZGVmYXVsdDp3cm9uZw==", "b3RoZXI6c2VjcmV0"] {
        let fields = format!("Authorization: Basic {wrong}\r\n");
        assert_eq!(get_with(port, "/api/keys", &fields).status, 401);
    }
    for path in paths {
        let fields = "Authorization: Basic ZGVmYXVsdDpzZWNyZXQ=\r\n";
        assert_eq!(get_with(port, path, fields).status, 200, "{path}");
    }
    // What watches the server has no password.
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(get(port, path).status, 200, "{path}");
    }
}

#[test]
fn each_answer_tells_browsers_to_run_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    for path in ["/", "/console.js", "/api/overview", "/metrics", "/nothing"] {
        let fields = get(server.http_port(), path).fields;
        for field in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
        ] {
            assert!(fields.contains(field), "{path}: {fields}");
        }
        assert!(!fields.contains("unsafe-inline") && !fields.contains("access-control"));
    }
    let page = get(server.http_port(), "/").body;
    assert!(!page.contains("http://") && !page.contains("https://"), "it loads from elsewhere");
}

#[test]
fn the_key_browser_shows_all_keys_in_pages() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let mut client = server.client();
    for number in 0..120 {
        client.call(&format!("set user:{number} v{number}"));
    }
    client.call("set other x");
    client.call("expire other 1000");
    client.call("rpush list a b c");
    client.call_args(&[b"set".as_slice(), b"bin\xff\x00", b"\x01"]);
    client.call("set gone x px 1");
    thread::sleep(Duration::from_millis(20));
    let page = |query: &str| -> serde_json::Value {
        let answer = get(server.http_port(), &format!("/api/keys?{query}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    };
    let mut found = std::collections::BTreeMap::new();
    let (mut cursor, mut pages) = ("0".to_owned(), 0);
    loop {
        let answer = page(&format!("count=25&cursor={cursor}"));
        let keys = answer["keys"].as_array().unwrap();
        assert!(keys.len() < 80, "a page of 25 has {} keys", keys.len());
        for key in keys {
            found.insert(key["key"].as_str().unwrap().to_owned(), key.clone());
        }
        cursor = answer["cursor"].as_str().unwrap().to_owned();
        pages += 1;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 123, "{:?}", found.keys());
    assert!(pages > 1, "{pages}");
    assert_eq!(found["user:7"]["preview"], "v7");
    assert_eq!(found["user:7"]["ttl_ms"], serde_json::Value::Null);
    assert!(found["other"]["ttl_ms"].as_u64().unwrap() > 900_000);
    assert_eq!(found["list"]["type"], "list");
    assert_eq!((&found["list"]["size"], &found["list"]["unit"]), (&3.into(), &"elements".into()));
    assert_eq!(found["bin\\xff\\x00"]["preview"], "\\u{1}");
    let matching = page("match=user:1*&count=500");
    assert_eq!(matching["keys"].as_array().unwrap().len(), 31);
    assert_eq!(page("database=3")["keys"].as_array().unwrap().len(), 0);
    assert_eq!(get(server.http_port(), "/api/keys?cursor=12345").status, 400);
}
