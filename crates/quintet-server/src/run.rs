//! Starts a server, and ends it in order.

use std::{
    net::SocketAddr,
    num::NonZero,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use quintet::{Durability, Options};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};

use crate::{
    acl::Acl,
    command,
    config::{Config, StartFailure, refuse},
    connection_threads::ConnectionThreads,
    data_directory::prepare_directory,
    dispatch::Dispatcher,
    failure::Fail,
    http::Http,
    migrate::refuse_unfinished,
    network::{Listener, bind},
    notify::Notifier,
    replication,
    sampler::sample_until_end,
    spec::Registry,
    state::{AppendFsync, Event, Replication, Server, Settings, Stats},
    store::{Changes, Databases, Engines, Store, Stripes, now_millis, parse_classes},
    sweeper::{Sweeper, Swept},
    tls::Tls,
};

/// Time that connections have to end after a signal.
const DRAIN_TIME: Duration = Duration::from_secs(10);
/// Threads for all but connections: listeners, HTTP, the sweep, replication.
const OWN_THREADS: usize = 2;
/// Time between two searches for expired keys.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two syncs of what was written under `everysec`.
const SYNC_INTERVAL: Duration = Duration::from_millis(900);
/// Files that the store may need besides the sockets of clients.
const OWN_FILES: u64 = 128;

/// Bytes of buffers that all clients may have on a small machine, beside one value of the longest
/// size. A smaller limit would end honest clients.
const CLIENT_BYTES_MIN: u64 = 64 << 20;

/// Runs a server on the directory `dir` until SIGTERM, SIGINT or `SHUTDOWN`. Calls `on_start` with
/// the addresses when it accepts connections.
///
/// Fails if the configuration is refused, if the directory cannot be opened, and if an address is
/// in use. Writes that were acknowledged survive each end of the process; when they survive a power
/// loss, `appendfsync` says.
pub fn serve(
    dir: &Path,
    config: &Config,
    on_start: impl FnOnce(&[String]),
) -> Result<(), StartFailure> {
    if rustix::process::geteuid().is_root() && !config.allow_root {
        return refuse(
            "the server does not run as root; start it as another user, or accept it with \
             --allow-root",
        );
    }
    let endpoints = config.endpoints()?;
    let registry = command::registry(&command::table());
    let acl = Acl::new(&registry, config.aclfile.as_deref(), &config.users)
        .map_err(|why| StartFailure(format!("cannot read the users: {why}")))?;
    let default = acl.default_user();
    let has_password = !config.requirepass.is_empty();
    let is_open = default.is_open() && !has_password;
    config.check_open(&endpoints, is_open)?;
    let tls = load_tls(config)?;
    let engines = config.engines()?;
    let http_address = config.http_address(is_open)?;
    let notifier = Notifier::from_environment();
    log_start(dir, config);
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    prepare_directory(dir)?;
    let failed = |error| StartFailure(format!("cannot start threads: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(OWN_THREADS)
        .enable_all()
        .build()
        .map_err(failed)?;
    let threads = config.threads.unwrap_or_else(processors);
    let threads = Arc::new(ConnectionThreads::start(threads).map_err(failed)?);
    runtime.block_on(async {
        let listeners = bind(&endpoints, tls.as_ref(), config.unix.as_deref())
            .await
            .map_err(|error| StartFailure(error.to_string()))?;
        let http = match http_address {
            Some((address, has_console)) => {
                Some(start_http(address, Http::new(has_console, &config.http_hosts)).await?)
            }
            None => None,
        };
        tokio::spawn(notifier.clone().watch());
        notifier.status("opening the database");
        let server =
            Arc::new(open(dir, config, engines, (registry, acl, tls), port_of(&listeners))?);
        // From now on no signal is lost.
        let signals = Signals::listen()?;
        tokio::spawn(sample_until_end(server.clone()));
        let mut addresses = names_of(&listeners);
        if let Some((http, address)) = http {
            http.open(&server);
            addresses.push(format!("http://{address}"));
        }
        let shown = addresses.join(", ");
        tracing::info!(addresses = shown, "ready");
        notifier.ready(&format!("accepts connections on {shown}"));
        on_start(&addresses);
        let running = (listeners, threads.clone());
        run(&server, running, config, (&notifier, signals)).await
    })?;
    drop((runtime, threads));
    Ok(())
}

/// Returns the number of processors that the process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Logs the version and the settings, but for the password.
fn log_start(dir: &Path, config: &Config) {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), dir = %dir.display(), "starting");
    tracing::info!(
        listen = config.listen.join(", "),
        unix = config.unix.as_ref().map(|path| path.display().to_string()),
        has_password = !config.requirepass.is_empty(),
        appendfsync = config.appendfsync.name(),
        memory_budget = config.memory_budget,
        maxclients = config.maxclients,
        timeout = config.timeout,
        http = config.http,
        http_expose = ?config.http_expose,
        threads = config.threads,
        keys_engine = config.keys_engine,
        keys_options = ?config.keys_options,
        elements_engine = config.elements_engine,
        elements_options = ?config.elements_options,
        "configuration"
    );
}

/// Opens the HTTP port. It answers from now on, also while the database is being opened.
async fn start_http(
    address: SocketAddr,
    http: Arc<Http>,
) -> Result<(Arc<Http>, SocketAddr), StartFailure> {
    let listener = TcpListener::bind(address).await;
    let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) =
        bound.map_err(|error| StartFailure(format!("cannot listen on http {address}: {error}")))?;
    tokio::spawn(http.clone().run(listener));
    Ok((http, address))
}

fn names_of(listeners: &[Listener]) -> Vec<String> {
    let name = |listener: &Listener| match listener {
        Listener::Tcp(listener, _) => {
            listener.local_addr().map_or_else(|_| String::new(), |a| a.to_string())
        }
        Listener::Unix(_, path) => path.display().to_string(),
    };
    listeners.iter().map(name).collect()
}

fn port_of(listeners: &[Listener]) -> u16 {
    let port = |listener: &Listener| match listener {
        Listener::Tcp(listener, _) => listener.local_addr().ok().map(|address| address.port()),
        Listener::Unix(..) => None,
    };
    listeners.iter().find_map(port).unwrap_or(0)
}

/// Opens the store and makes the state of the server.
fn open(
    dir: &Path,
    config: &Config,
    (keys, elements): (quintet::TableOptions, quintet::TableOptions),
    (registry, acl, tls): (Registry, Acl, Option<Arc<Tls>>),
    port: u16,
) -> Result<Server, StartFailure> {
    let failed = |error: quintet::Error| {
        StartFailure(format!("cannot open the database {}: {error}", dir.display()))
    };
    let interval = match config.appendfsync {
        AppendFsync::Always | AppendFsync::EverySec => Duration::from_secs(1),
        AppendFsync::No => Duration::from_secs(30),
    };
    let mut options = Options::new().durability(Durability::Buffered).sync_interval(interval);
    if let Some(bytes) = config.memory_budget {
        options = options.memory_budget(bytes);
    }
    let started = Instant::now();
    let database = options.open(dir).map_err(failed)?;
    let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(millis, tables = database.table_count(), "the database is open");
    let budget = database.stats().memory_budget_bytes;
    let databases = Databases::open(database, Engines { keys, elements }).map_err(failed)?;
    let store = Store { databases, stripes: Stripes::new(), changes: Changes::default() };
    let explain = |fail: Fail| StartFailure(format!("{}: {}", dir.display(), fail.text()));
    // The keys of an unfinished synchronization are removed, and those of an import refused.
    if store.databases.master().map_err(explain)?.is_none() {
        refuse_unfinished(dir, &store)?;
    }
    let replication = Replication::open(&store, dir.to_owned()).map_err(explain)?;
    let settings = settings(config, budget);
    Server::new(store, registry, settings, (acl, tls, replication), port)
        .map_err(|error| StartFailure(format!("cannot start a thread: {error}")))
}

/// The settings of a configuration, with the memory budget of the store in bytes.
pub(crate) fn settings(config: &Config, budget: u64) -> Settings {
    let settings = Settings::default();
    settings.set_appendfsync(config.appendfsync);
    settings.set_password(&config.requirepass);
    settings.set_master_login(Some(&config.masteruser), Some(&config.masterauth));
    let classes = parse_classes(&config.notify_keyspace_events).unwrap_or(0);
    settings.notify_classes.store(classes, Ordering::Relaxed);
    settings.needs_password.store(config.needs_password(), Ordering::Relaxed);
    // It has been checked.
    let _ = settings.output_limits.set(&config.client_output_buffer_limit);
    let least = CLIENT_BYTES_MIN + config.proto_max_bulk_len;
    let maxmemory_clients = config.maxmemory_clients.unwrap_or_else(|| least.max(budget / 10));
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = files.map_or(u64::MAX, |files| files.saturating_sub(OWN_FILES).max(1));
    for (setting, value) in [
        (&settings.maxclients, config.maxclients.min(most)),
        (&settings.maxclients_of_files, most),
        (&settings.timeout, config.timeout),
        (&settings.client_query_buffer_limit, config.client_query_buffer_limit),
        (&settings.maxmemory_clients, maxmemory_clients),
        (&settings.command_time_limit, config.command_time_limit),
        (&settings.command_memory_limit, config.command_memory_limit),
        (&settings.proto_max_args, config.proto_max_args),
        (&settings.proto_max_bulk_len, config.proto_max_bulk_len),
        (&settings.slowlog_log_slower_than, config.slowlog_log_slower_than),
        (&settings.latency_monitor_threshold, config.latency_monitor_threshold),
        (&settings.slowlog_max_len, config.slowlog_max_len),
        (&settings.tracking_table_max_keys, config.tracking_table_max_keys),
        (&settings.acllog_max_len, config.acllog_max_len),
        (&settings.maxmemory, budget),
    ] {
        setting.store(value, Ordering::Relaxed);
    }
    settings
}

/// Accepts connections until the server ends; then drains, syncs and closes.
async fn run(
    server: &Arc<Server>,
    (listeners, threads): (Vec<Listener>, Arc<ConnectionThreads>),
    config: &Config,
    (notifier, signals): (&Notifier, Signals),
) -> Result<(), StartFailure> {
    let dispatcher = Arc::new(Dispatcher::new(command::table()));
    for listener in listeners {
        let serving = (server.clone(), dispatcher.clone());
        tokio::spawn(listener.run(serving, threads.clone(), config.maxclients_per_ip));
    }
    let sweeping = tokio::spawn(sweep(server.clone()));
    let replicating = tokio::spawn(replication::run(server.clone(), dispatcher.clone()));
    if config.appendfsync == AppendFsync::No {
        // The store syncs each 30 seconds then, but a connection may have chosen `everysec`.
        tokio::spawn(sync_each_second(server.clone()));
    }
    wait_for_end(server, signals).await;
    server.end();
    notifier.stopping();
    tracing::info!(clients = server.clients.count(), "shutting down");
    let deadline = Instant::now() + DRAIN_TIME;
    while server.clients.count() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The task ends with the server; a failure of it has been counted.
    let _ = sweeping.await;
    let _ = replicating.await;
    let database = server.store.databases.database();
    let closed = database.sync().and_then(|()| database.close());
    match closed {
        Ok(()) => {
            tracing::info!("the database is closed");
            Ok(())
        }
        Err(error) => {
            tracing::error!(%error, "the database cannot be closed");
            refuse(format!("cannot close the database: {error}"))
        }
    }
}

/// Reads the certificates, if there is an address with TLS.
fn load_tls(config: &Config) -> Result<Option<Arc<Tls>>, StartFailure> {
    let time = Duration::from_secs(config.tls_handshake_timeout);
    let load = |files| Tls::load(files, time).map(Arc::new).map_err(StartFailure);
    config.tls_files()?.map(load).transpose()
}

/// Reads certificates and users again, as SIGHUP asks. What cannot be read stays as it is.
fn reload(server: &Server) {
    let certificates = server.tls.as_ref().map(|tls| ("certificates", tls.reload()));
    let users = server
        .acl
        .has_file()
        .then(|| ("users", server.acl.load(&|| server.settings.may_be_open())));
    for (what, result) in certificates.into_iter().chain(users) {
        match result {
            Ok(()) => tracing::info!("SIGHUP: read the {what} again"),
            Err(why) => tracing::error!("SIGHUP: kept the old {what}: {why}"),
        }
    }
    server.clients.wake_all();
    Stats::add(&server.stats.reloads, 1);
}

/// The signals that the server reacts to.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> Result<Self, StartFailure> {
        let listen = |kind| {
            signal(kind).map_err(|error| StartFailure(format!("cannot receive signals: {error}")))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }
}

/// Waits for a signal that ends the server, or `SHUTDOWN`. Reloads at SIGHUP.
async fn wait_for_end(server: &Arc<Server>, mut signals: Signals) {
    let mut ending = server.ending.subscribe();
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => {
                tracing::info!(signal = "SIGTERM", "a signal has come");
                break;
            }
            _ = signals.interrupt.recv() => {
                tracing::info!(signal = "SIGINT", "a signal has come");
                break;
            }
            _ = ending.wait_for(|is_ending| *is_ending) => break,
            _ = signals.hangup.recv() => {}
        }
        let own = server.clone();
        // A failure has been written to standard error.
        let _ = tokio::task::spawn_blocking(move || reload(&own)).await;
    }
}

/// Syncs what connections have written under `everysec`, until the server ends.
async fn sync_each_second(server: Arc<Server>) {
    let mut ending = server.ending.subscribe();
    loop {
        tokio::select! {
            () = tokio::time::sleep(SYNC_INTERVAL) => {}
            _ = ending.wait_for(|is_ending| *is_ending) => break,
        }
        // After a failure the store refuses writes, and they report it.
        if server.syncer.take_due() && server.syncer.sync().await.is_err() {
            break;
        }
    }
}

/// Removes expired keys and elements of removed collections until the server ends.
async fn sweep(server: Arc<Server>) {
    let mut ending = server.ending.subscribe();
    loop {
        let own = server.clone();
        let step = move || {
            if own.replication.is_loading() || own.pause.current().is_some() {
                return Ok(Swept::default());
            }
            // The master of a replica removes what has expired.
            let now = (!own.replication.is_replica()).then(now_millis);
            Sweeper::step(&own.store, now)
        };
        let started = Instant::now();
        let swept = tokio::task::spawn_blocking(step).await;
        server.note_latency(Event::ExpireCycle, started.elapsed());
        let is_more = match swept {
            Ok(Ok(swept)) => {
                Stats::add(&server.stats.expired, swept.keys);
                Stats::add(&server.stats.expired_fields, swept.fields);
                swept.is_more
            }
            // A full disk or a failed table: writes report it to the clients.
            Ok(Err(fail)) => {
                server.stats.note_failure(&fail);
                false
            }
            Err(_) => false,
        };
        let pause = if is_more { Duration::from_millis(1) } else { SWEEP_INTERVAL };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = ending.wait_for(|is_ending| *is_ending) => break,
        }
    }
}
