//! Users: logins, rules, the file of users, and delays after failures.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::PoisonError,
    time::{Duration, Instant},
};

use super::{
    client::{Client, Value},
    running::{HANGUP, Redis, Server, config},
};

fn log_in(server: &Server, user: &str, password: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.call(&format!("auth {user} {password}")).text(), "+OK");
    client
}

/// Sends a request and expects the start of its reply.
fn expect(client: &mut Client, request: &str, start: &str) {
    let reply = client.call(request).text();
    assert!(reply.starts_with(start), "{request}: {reply}");
}

#[test]
fn users_log_in_and_do_what_their_rules_allow() {
    let server = Server::start();
    let mut admin = server.client();
    expect(&mut admin, "acl setuser app on >one >two ~app:* %R~shared:* +@read +set &news", "+OK");
    expect(&mut admin, "set other 1", "+OK");
    let mut app = log_in(&server, "app", "two");
    for (request, start) in [
        ("set app:1 x", "+OK"),
        ("get app:1", "x"),
        ("set app:1 y get", "x"),
        ("get shared:1", "null"),
        ("set shared:1 x", "-NOPERM this user has no permissions to access one of the keys"),
        ("get other", "-NOPERM this user has no permissions to access one of the keys"),
        ("mget app:1 other", "-NOPERM"),
        ("del app:1", "-NOPERM this user has no permissions to run the 'del' command"),
        ("config get *", "-NOPERM this user has no permissions to run the 'config|get' command"),
        ("acl whoami", "-NOPERM"),
        ("sort_ro app:l by app:*", "-ERR BY option of SORT denied"),
        ("sort_ro app:l get app:*", "-ERR GET option of SORT denied"),
        ("sort_ro app:l by none", "[]"),
        ("nosuch", "-ERR unknown command"),
    ] {
        expect(&mut app, request, start);
    }
    // A failed login leaves the user; a login with another protocol works as AUTH does.
    expect(&mut app, "auth app three", "-WRONGPASS");
    expect(&mut app, "auth nobody three", "-WRONGPASS");
    expect(&mut app, "get app:1", "y");
    let Value::Map(_) = server.client().call("hello 3 auth app one") else { panic!("no map") };
    expect(&mut admin, "acl setuser app <two", "+OK");
    expect(&mut server.client(), "auth app two", "-WRONGPASS");
    expect(&mut admin, "acl setuser app off", "+OK");
    expect(&mut server.client(), "auth app one", "-WRONGPASS");
    expect(&mut app, "get app:1", "y");
}

#[test]
fn a_new_user_may_do_nothing() {
    let server = Server::start();
    let mut admin = server.client();
    expect(&mut admin, "acl setuser new", "+OK");
    assert_eq!(
        admin.call("acl list").text(),
        "[\"user default on nopass ~* &* +@all\", \
        \"user new off resetchannels -@all\"]"
    );
    expect(&mut server.client(), "auth new x", "-WRONGPASS");
    expect(&mut admin, "acl setuser new on nopass", "+OK");
    let mut new = log_in(&server, "new", "anything");
    for request in ["get k", "ping", "publish c m", "acl whoami", "command"] {
        expect(&mut new, request, "-NOPERM");
    }
    // Also in the table of commands, `default` is one user of several.
    assert!(admin.call("client list").text().contains(" user=new "));
    assert_eq!(admin.call("client kill user new"), Value::Integer(1));
    assert!(new.is_ended());
}

#[test]
fn changes_of_users_are_whole_and_refused_with_a_reason() {
    let server = Server::start();
    let mut admin = server.client();
    for (request, start) in [
        ("acl setuser u on >pw +get", "+OK"),
        ("acl setuser u +set +nosuch", "-ERR Error in ACL SETUSER modifier '+nosuch': Unknown"),
        ("acl dryrun u set k v", "This user has no permissions to run the 'set' command"),
        ("acl dryrun u get k", "This user has no permissions to access the 'k' key"),
        ("acl dryrun u nosuch", "-ERR Command 'nosuch' not found"),
        ("acl dryrun u get", "-ERR wrong number of arguments for 'get' command"),
        ("acl dryrun nobody get k", "-ERR User 'nobody' not found"),
        ("acl setuser u #30c952fab122c3f9759f02a6d95c3758", "-ERR Error in ACL SETUSER modifier"),
        ("acl deluser default", "-ERR The 'default' user cannot be removed"),
        ("acl deluser u nobody", ":1"),
        ("acl getuser u", "null"),
        ("acl save", "-ERR This server is not configured to use an ACL file"),
        ("acl load", "-ERR This server is not configured to use an ACL file"),
        ("acl genpass 4097", "-ERR ACL GENPASS argument must be the number of bits"),
        ("acl log x", "-ERR value is not an integer"),
        ("multi", "+OK"),
        ("acl setuser v on", "-ERR Command not allowed inside a transaction"),
        ("exec", "-EXECABORT"),
        ("acl users", "[\"default\"]"),
    ] {
        expect(&mut admin, request, start);
    }
    assert_eq!(
        admin.call_args(&["acl", "setuser", "a b"]).text(),
        "-ERR Usernames can't contain spaces or null characters"
    );
    let random = [admin.call("acl genpass").text(), admin.call("acl genpass").text()];
    assert_eq!(random.each_ref().map(String::len), [64, 64]);
    assert_ne!(random[0], random[1]);
    assert_eq!(admin.call("acl genpass 5").text().len(), 2);
}

#[test]
fn transactions_are_checked_when_queued_and_when_executed() {
    let server = Server::start();
    let mut admin = server.client();
    expect(&mut admin, "acl setuser app on nopass ~* +get +set +multi +exec", "+OK");
    let mut app = log_in(&server, "app", "x");
    expect(&mut app, "multi", "+OK");
    expect(&mut app, "del k", "-NOPERM");
    expect(&mut app, "exec", "-EXECABORT");
    expect(&mut app, "multi", "+OK");
    expect(&mut app, "set k 1", "+QUEUED");
    expect(&mut app, "get k", "+QUEUED");
    expect(&mut admin, "acl setuser app -set", "+OK");
    let Value::Array(replies) = app.call("exec") else { panic!("no array") };
    assert!(replies[0].text().starts_with("-NOPERM ACLs rules changed between"), "{replies:?}");
    assert_eq!(replies[1], Value::Null);
    let Value::Array(entries) = admin.call("acl log 1") else { panic!("no array") };
    let entry = format!("{:?}", entries[0]);
    for part in ["\"reason\", \"command\"", "\"context\", \"multi\"", "\"object\", \"set\""] {
        assert!(entry.contains(part), "{part}: {entry}");
    }
}

#[test]
fn subscriptions_need_channels_and_end_with_them() {
    let server = Server::start();
    let mut admin = server.client();
    expect(&mut admin, "acl setuser app on nopass &news.* +@pubsub", "+OK");
    let mut app = log_in(&server, "app", "x");
    for request in [
        "subscribe other",
        "psubscribe *",
        "psubscribe news.a*",
        "publish other x",
        "ssubscribe other",
        "spublish other x",
    ] {
        expect(&mut app, request, "-NOPERM this user has no permissions to access one of the ch");
    }
    expect(&mut app, "subscribe news.a", "[\"subscribe\"");
    expect(&mut app, "psubscribe news.*", "[\"psubscribe\"");
    let mut sharded = log_in(&server, "app", "x");
    expect(&mut sharded, "ssubscribe news.a news.b", "[\"ssubscribe\", \"news.a\", :1]");
    assert_eq!(admin.call("publish news.a 1"), Value::Integer(2));
    app.read();
    app.read();
    // Other rules leave the subscriptions.
    expect(&mut admin, "acl setuser app -publish", "+OK");
    assert_eq!(admin.call("publish news.a 2"), Value::Integer(2));
    app.read();
    app.read();
    expect(&mut admin, "acl setuser app resetchannels &news.a", "+OK");
    assert!(app.is_ended());
    assert_eq!(sharded.read().text(), "[\"ssubscribe\", \"news.b\", :2]");
    assert!(sharded.is_ended());
}

#[test]
fn connections_of_a_removed_user_end_also_if_they_wait() {
    let server = Server::start();
    let mut admin = server.client();
    expect(&mut admin, "acl setuser app on nopass ~* &* +@all", "+OK");
    let mut idle = log_in(&server, "app", "x");
    let mut waiting = log_in(&server, "app", "x");
    let mut subscriber = log_in(&server, "app", "x");
    let mut other = server.client();
    waiting.send(b"BLPOP l 0\r\n");
    subscriber.call("subscribe c");
    while !admin.call("info clients").text().contains("blocked_clients:1") {}
    expect(&mut admin, "acl deluser app", ":1");
    assert!(idle.is_ended());
    assert!(subscriber.is_ended());
    let reply = waiting.try_read().map(|reply| reply.text()).unwrap_or_default();
    assert!(reply.is_empty() || reply.starts_with("-NOAUTH"), "{reply}");
    expect(&mut other, "ping", "+PONG");
    // What comes later is not for the client that has gone.
    expect(&mut admin, "rpush l 1", ":1");
    assert_eq!(admin.call("llen l"), Value::Integer(1));
}

#[test]
fn a_waiting_command_is_checked_again_when_it_runs() {
    let server = Server::start();
    let mut admin = server.client();
    expect(&mut admin, "acl setuser app on nopass ~* +blpop", "+OK");
    let mut waiting = log_in(&server, "app", "x");
    waiting.send(b"BLPOP l 0\r\n");
    while !admin.call("info clients").text().contains("blocked_clients:1") {}
    expect(&mut admin, "acl setuser app resetkeys", "+OK");
    assert!(waiting.read().text().starts_with("-NOPERM"));
    expect(&mut admin, "rpush l 1", ":1");
    assert_eq!(admin.call("llen l"), Value::Integer(1));
}

fn start_with_file(dir: &Path) -> Server {
    let aclfile = Some(dir.join("users.toml"));
    Server::start_in(dir, quintet_server::Config { aclfile, ..config() })
}

fn write_users(dir: &Path, text: &str) {
    let path = dir.join("users.toml");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn the_file_of_users_is_read_saved_and_read_again() {
    // A reload would drop users that are not saved yet.
    let _hangup = HANGUP.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    write_users(dir.path(), "[users]\napp = [\"on\", \">first\", \"~*\", \"+get\"]\n");
    let server = start_with_file(dir.path());
    let mut app = log_in(&server, "app", "first");
    expect(&mut app, "get k", "null");
    let mut admin = server.client();
    expect(&mut admin, "acl setuser late on >second +@all (+get ~a\"b\\c)", "+OK");
    expect(&mut admin, "acl save", "+OK");
    let path = dir.path().join("users.toml");
    let saved = fs::read_to_string(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!saved.contains("first") && saved.contains("$argon2id$"), "{saved}");
    let before = admin.call("acl list");
    server.end();

    let server = start_with_file(dir.path());
    let mut admin = server.client();
    assert_eq!(admin.call("acl list"), before);
    let mut late = log_in(&server, "late", "second");
    // A bad file keeps the users, and the message has no password.
    for bad in ["[users]\nlate = [\"on\", \"+nosuch\", \">third\"]\n", "[users]\nlate = \">third\n"]
    {
        write_users(dir.path(), bad);
        let reply = admin.call("acl load").text();
        assert!(
            reply.starts_with("-ERR ") && reply.contains("users.toml") || reply.contains("late")
        );
        assert!(!reply.contains("third"), "{reply}");
        assert_eq!(admin.call("acl list"), before);
    }
    write_users(dir.path(), &saved);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    expect(&mut admin, "acl load", "-ERR ACL file");
    expect(&mut late, "ping", "+PONG");
    write_users(dir.path(), "[users]\napp = [\"on\", \"nopass\"]\n");
    expect(&mut admin, "acl load", "+OK");
    assert!(late.is_ended());
    assert_eq!(admin.call("acl users").text(), "[\"app\", \"default\"]");
}

/// Sends SIGHUP and waits until the server has reacted for the `count`th time.
fn hang_up(client: &mut Client, count: usize) {
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::HUP).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let reacted = format!("quintet_reloads_total:{count}\r");
    while !client.call("info stats").text().contains(&reacted) {
        assert!(Instant::now() < deadline, "the signal was not answered");
    }
}

#[test]
fn the_file_of_users_keeps_their_namespaces() {
    let _hangup = HANGUP.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let users = |rules: &str| {
        write_users(dir.path(), &format!("[users]\nshop = [\"on\", \"nopass\", {rules}]\n"));
    };
    let everything = "\"~*\", \"&*\", \"+@all\"";
    users(&format!("\"namespace=one\", \"namespace=default\", {everything}"));
    let server = start_with_file(dir.path());
    let mut admin = server.client();
    for name in ["one", "two"] {
        expect(&mut admin, &format!("namespace add {name}"), "+OK");
    }
    let mut shop = log_in(&server, "shop", "x");
    for (request, start) in [
        ("namespace use one", "+OK"),
        ("set k one", "+OK"),
        ("namespace use two", "-NOPERM"),
        ("acl list", "-NOPERM"),
    ] {
        expect(&mut shop, request, start);
    }
    expect(&mut admin, "acl setuser all on nopass namespace=two namespace=* +@all ~*", "+OK");
    expect(&mut admin, "acl save", "+OK");
    let before = admin.call("acl list");
    for rules in
        ["nopass namespace=one namespace=default ~* &*", "nopass namespace=two namespace=*"]
    {
        assert!(before.text().contains(rules), "{before:?}");
    }
    server.end();

    // The order of the rules says where a connection begins.
    let server = start_with_file(dir.path());
    let mut admin = server.client();
    assert_eq!(admin.call("acl list"), before);
    expect(&mut log_in(&server, "all", "x"), "namespace current", "two");
    let mut shop = log_in(&server, "shop", "x");
    for (request, start) in [
        ("namespace current", "one"),
        ("get k", "one"),
        ("namespace use two", "-NOPERM"),
        ("namespace use default", "+OK"),
        ("namespace use one", "+OK"),
    ] {
        expect(&mut shop, request, start);
    }
    // A rule that is wrong keeps the users, by a command and by a signal.
    users(&format!("\"namespace=a/b\", {everything}"));
    expect(&mut admin, "acl load", "-ERR ");
    hang_up(&mut admin, 1);
    assert_eq!(admin.call("acl list"), before);
    expect(&mut shop, "get k", "one");
    // A right that the file does not have any more ends with the next command.
    users(&format!("\"namespace=two\", {everything}"));
    expect(&mut admin, "acl load", "+OK");
    expect(&mut shop, "get k", "-NOPERM this user has no permissions to use the namespace 'one'");
    expect(&mut shop, "namespace use two", "+OK");
    users(&format!("\"namespace=one\", {everything}"));
    hang_up(&mut admin, 2);
    expect(&mut shop, "get k", "-NOPERM this user has no permissions to use the namespace 'two'");
    expect(&mut shop, "namespace use one", "+OK");
    expect(&mut shop, "get k", "one");
}

#[test]
fn passwords_are_not_in_logs() {
    let dir = tempfile::tempdir().unwrap();
    let config = quintet_server::Config { slowlog_log_slower_than: 0, ..config() };
    let server = Server::start_in(dir.path(), config);
    let mut monitor = server.client();
    expect(&mut monitor, "monitor", "+OK");
    let mut admin = server.client();
    expect(&mut admin, "acl setuser app on >hidden +@all", "+OK");
    expect(&mut admin, "config set requirepass hidden2", "+OK");
    expect(&mut admin, "auth app hidden", "+OK");
    expect(&mut admin, "auth app hidden3", "-WRONGPASS");
    expect(&mut admin, "hello 3 auth app hidden", "map");
    expect(&mut admin, "config set requirepass ", "+OK");
    expect(&mut admin, "echo end", "end");
    for request in ["slowlog get 100", "acl log", "client list", "info everything"] {
        let reply = format!("{:?}", admin.call(request));
        assert!(!reply.contains("hidden"), "{request}: {reply}");
    }
    loop {
        let line = monitor.read().text();
        assert!(!line.contains("hidden"), "{line}");
        if line.contains("\"end\"") {
            break;
        }
    }
    let Value::Array(entries) = admin.call("acl log") else { panic!("no array") };
    assert!(format!("{:?}", entries[0]).contains("\"reason\", \"auth\""), "{entries:?}");
}

#[test]
fn failed_logins_delay_their_address_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let config = quintet_server::Config { requirepass: "secret".to_owned().into(), ..config() };
    let server = Server::start_in(dir.path(), config);
    let mut client = server.client();
    for _ in 0..5 {
        expect(&mut client, "auth guess", "-WRONGPASS");
    }
    let start = Instant::now();
    client.send(b"AUTH secret\r\n");
    // 127.0.0.2 is another address of this machine.
    let socket = connect_from("127.0.0.2:0", server.port);
    let mut other = Client::over(socket);
    expect(&mut other, "auth secret", "+OK");
    assert_eq!(client.read().text(), "+OK");
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    expect(&mut client, "ping", "+PONG");
}

/// Connects from an address.
fn connect_from(from: &str, port: u16) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &from.parse::<SocketAddr>().unwrap()).unwrap();
    connect(&socket, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    TcpStream::from(socket)
}

/// Requests whose keys are `a`, `b` and `c`.
pub(crate) const REQUESTS: [&str; 74] = [
    "get a",
    "set a v",
    "set a v get",
    "set a v ex 10",
    "getset a v",
    "getdel a",
    "getex a",
    "append a v",
    "strlen a",
    "setrange a 0 v",
    "getrange a 0 1",
    "incr a",
    "mget a b",
    "mset a 1 b 2",
    "msetnx a 1 b 2",
    "del a b",
    "unlink a",
    "exists a b",
    "touch a",
    "type a",
    "expire a 1",
    "ttl a",
    "persist a",
    "rename a b",
    "renamenx a b",
    "copy a b",
    "object freq a",
    "memory usage a",
    "setbit a 0 1",
    "getbit a 0",
    "bitcount a",
    "bitop and a b c",
    "bitfield a get u8 0",
    "bitfield a set u8 0 1",
    "bitfield_ro a get u8 0",
    "hset a f v",
    "hget a f",
    "hincrby a f 1",
    "hlen a",
    "hdel a f",
    "lpush a v",
    "lpop a",
    "lrange a 0 1",
    "lmove a b left left",
    "rpoplpush a b",
    "blpop a b 0",
    "blmove a b left left 0",
    "lmpop 2 a b left",
    "llen a",
    "sadd a v",
    "sismember a v",
    "smembers a",
    "smove a b v",
    "spop a",
    "sinterstore a b c",
    "sinter a b",
    "sintercard 2 a b",
    "zadd a 1 v",
    "zscore a v",
    "zpopmin a",
    "zunionstore a 2 b c",
    "zunion 2 a b",
    "zrangestore a b 0 1",
    "geoadd a 1 1 v",
    "geosearchstore a b fromlonlat 1 1 byradius 1 m",
    "georadius a 1 1 1 m store b",
    "pfadd a v",
    "pfcount a b",
    "pfmerge a b",
    "xadd a * f v",
    "xread streams a b 0 0",
    "xreadgroup group g c streams a >",
    "xgroup create a g $",
    "sort a store b",
];

#[test]
fn keys_are_checked_as_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start();
    let (mut ours, mut theirs) = (server.client(), redis.client());
    let rules = [
        "~a ~b ~c",
        "%R~a %R~b %R~c",
        "%W~a %W~b %W~c",
        "~a %R~b %R~c",
        "%W~a %R~b %R~c",
        "%R~a %W~b",
        "~a ~b",
        "~a",
        "~x",
        "(%R~a +@all) (%W~b +@all)",
    ];
    for rules in rules {
        let set = format!("acl setuser u reset +@all {rules}");
        assert_eq!(ours.call(&set).text(), "+OK");
        assert_eq!(theirs.call(&set).text(), "+OK");
        for request in REQUESTS {
            let dryrun = format!("acl dryrun u {request}");
            assert_eq!(ours.call(&dryrun), theirs.call(&dryrun), "{rules}: {request}");
        }
    }
    for rules in [
        "+@read",
        "+@all -@dangerous",
        "+@all -@admin",
        "+@write -@slow",
        "+config|get",
        "+@all -config +config|get",
        "+@string +@hash",
        "+@connection",
        "+@all -@keyspace",
    ] {
        let set = format!("acl setuser u reset ~* {rules}");
        assert_eq!(ours.call(&set).text(), "+OK");
        assert_eq!(theirs.call(&set).text(), "+OK");
        let more = ["config get x", "config set timeout 1", "flushall", "keys *", "ping", "info"];
        for request in REQUESTS.into_iter().chain(more) {
            let dryrun = format!("acl dryrun u {request}");
            assert_eq!(ours.call(&dryrun), theirs.call(&dryrun), "{rules}: {request}");
        }
    }
}
