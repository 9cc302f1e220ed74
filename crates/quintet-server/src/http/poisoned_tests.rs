//! A server whose log has failed says so: to clients, in `/readyz` and in the metrics.
//!
//! The database is on the simulated disk, whose sync fails.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use quintet::{
    Options,
    testing::disk::sim::{Call, Effect, Fault, SimEnv, When},
};
use tokio::net::TcpListener;

use super::Http;
use crate::{
    acl::Acl,
    command,
    config::Config,
    connection_threads::ConnectionThreads,
    dispatch::Dispatcher,
    network::Listener,
    run::settings,
    state::{AppendFsync, Replication, Server},
    store::{Changes, Databases, Engines, Store, Stripes},
};

/// A server on a simulated disk.
fn server_on(env: &SimEnv) -> Arc<Server> {
    let options = Options::new().memory_budget(16 << 20);
    let database = options.open_in(Arc::new(env.clone()), "db").unwrap();
    let databases = Databases::open(database, Engines::default()).unwrap();
    let store = Store { databases, stripes: Stripes::new(), changes: Changes::default() };
    let replication = Replication::open(&store, PathBuf::new()).unwrap();
    let registry = command::registry(&command::table());
    let acl = Acl::new(&registry, None, &BTreeMap::new()).unwrap();
    let config = Config { appendfsync: AppendFsync::Always, ..Config::default() };
    let settings = settings(&config, 16 << 20);
    Arc::new(Server::new(store, registry, settings, (acl, None, replication), 0).unwrap())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Sends a request in one line and returns the first line of the reply, or nothing at the end of
/// the connection.
fn ask(client: &mut BufReader<TcpStream>, request: &str) -> String {
    client.get_mut().write_all(format!("{request}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// The status and the body of a path.
fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap_or_default().to_owned(), body.to_owned())
}

/// The value of a metric without labels.
fn metric(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(ToOwned::to_owned))
}

#[test]
fn a_failed_sync_is_told_by_readyz_and_by_the_metrics() {
    let env = SimEnv::new(430);
    let server = server_on(&env);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let http = Http::new(false, &[]);
    http.open(&server);
    let (redis_address, http_address) = runtime.block_on(async {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let redis = TcpListener::bind(any).await.unwrap();
        let web = TcpListener::bind(any).await.unwrap();
        let addresses = (redis.local_addr().unwrap(), web.local_addr().unwrap());
        let dispatcher = Arc::new(Dispatcher::new(command::table()));
        let threads = Arc::new(ConnectionThreads::start(2).unwrap());
        let serving = (server.clone(), dispatcher);
        tokio::spawn(Listener::Tcp(redis, None).run(serving, threads, 100));
        tokio::spawn(http.run(web));
        addresses
    });
    let mut client = BufReader::new(connect(redis_address));
    assert_eq!(ask(&mut client, "SET k v"), "+OK");
    let (status, text) = get(http_address, "/metrics");
    assert_eq!(status, "200");
    assert_eq!(metric(&text, "quintet_poisoned").as_deref(), Some("0"));
    assert_eq!(metric(&text, "quintet_ready").as_deref(), Some("1"));
    assert_eq!(get(http_address, "/readyz"), ("200".to_owned(), "ready\n".to_owned()));

    env.inject(Fault::new(&[Call::Sync], When::Nth(1), Effect::Io));
    assert_eq!(ask(&mut client, "SET k lost"), "", "a write without a sync was acknowledged");
    assert_eq!(env.faults_fired(), 1);
    let (status, text) = get(http_address, "/metrics");
    assert_eq!(status, "200");
    assert_eq!(metric(&text, "quintet_poisoned").as_deref(), Some("1"));
    assert_eq!(metric(&text, "quintet_ready").as_deref(), Some("0"));
    let (status, reason) = get(http_address, "/readyz");
    assert_eq!(status, "503");
    assert!(reason.starts_with("writes are refused until the server is started again"), "{reason}");
    assert!(reason.contains("sync"), "{reason}");
    // The process lives, so nothing should restart it before an operator has looked.
    assert_eq!(get(http_address, "/healthz").0, "200");
    // A disk that works again does not end it: what the failed sync had may be lost.
    let mut client = BufReader::new(connect(redis_address));
    let refused = ask(&mut client, "SET k again");
    assert!(refused.starts_with('-'), "{refused}");
    assert_eq!(get(http_address, "/readyz").0, "503");
    assert_eq!(ask(&mut client, "EXISTS k"), ":1");
    server.end();
}
