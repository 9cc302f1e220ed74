//! Starts a server, and ends it in order.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use quintet::{Durability, Options};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{
    command,
    config::{Config, StartFailure, prepare_directory, refuse},
    dispatch::Dispatcher,
    failure::Fail,
    http::Http,
    migrate::refuse_unfinished,
    network::{Listener, bind},
    notify::Notifier,
    replication,
    sampler::sample_until_end,
    state::{AppendFsync, Event, Replication, Server, Settings, Stats},
    store::{Changes, Databases, Engines, Store, Stripes, parse_classes},
    sweeper::Sweeper,
};

/// Time that connections have to end after a signal.
const DRAIN_TIME: Duration = Duration::from_secs(10);
/// Time between two searches for expired keys.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// Files that the store may need besides the sockets of clients.
const OWN_FILES: u64 = 128;

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
    let addresses = config.addresses()?;
    let engines = config.engines()?;
    let http_address = config.http_address()?;
    let notifier = Notifier::from_environment();
    log_start(dir, config);
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    prepare_directory(dir)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = config.threads {
        runtime.worker_threads(threads);
    }
    let runtime = runtime
        .enable_all()
        .build()
        .map_err(|error| StartFailure(format!("cannot start threads: {error}")))?;
    runtime.block_on(async {
        let listeners = bind(&addresses, config.unix.as_deref())
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
        let server = Arc::new(open(dir, config, engines, &listeners)?);
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
        run(&server, listeners, config, &notifier).await
    })?;
    drop(runtime);
    Ok(())
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
        elements_engine = config.elements_engine,
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
        Listener::Tcp(listener) => {
            listener.local_addr().map_or_else(|_| String::new(), |a| a.to_string())
        }
        Listener::Unix(_, path) => path.display().to_string(),
    };
    listeners.iter().map(name).collect()
}

fn port_of(listeners: &[Listener]) -> u16 {
    let port = |listener: &Listener| match listener {
        Listener::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
        Listener::Unix(..) => None,
    };
    listeners.iter().find_map(port).unwrap_or(0)
}

/// Opens the store and makes the state of the server.
fn open(
    dir: &Path,
    config: &Config,
    (keys, elements): (quintet::EngineKind, quintet::EngineKind),
    listeners: &[Listener],
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
    let registry = command::registry(&command::table());
    let settings = settings(config, budget);
    Server::new(store, registry, settings, port_of(listeners), replication)
        .map_err(|error| StartFailure(format!("cannot start a thread: {error}")))
}

fn settings(config: &Config, budget: u64) -> Settings {
    let settings = Settings::default();
    settings.set_appendfsync(config.appendfsync);
    settings.set_password(&config.requirepass);
    settings.set_master_login(Some(&config.masteruser), Some(&config.masterauth));
    let classes = parse_classes(&config.notify_keyspace_events).unwrap_or(0);
    settings.notify_classes.store(classes, Ordering::Relaxed);
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = files.map_or(u64::MAX, |files| files.saturating_sub(OWN_FILES).max(1));
    for (setting, value) in [
        (&settings.maxclients, config.maxclients.min(most)),
        (&settings.timeout, config.timeout),
        (&settings.proto_max_bulk_len, config.proto_max_bulk_len),
        (&settings.slowlog_log_slower_than, config.slowlog_log_slower_than),
        (&settings.latency_monitor_threshold, config.latency_monitor_threshold),
        (&settings.slowlog_max_len, config.slowlog_max_len),
        (&settings.maxmemory, budget),
    ] {
        setting.store(value, Ordering::Relaxed);
    }
    settings
}

/// Accepts connections until the server ends; then drains, syncs and closes.
async fn run(
    server: &Arc<Server>,
    listeners: Vec<Listener>,
    config: &Config,
    notifier: &Notifier,
) -> Result<(), StartFailure> {
    let dispatcher = Arc::new(Dispatcher::new(command::table()));
    for listener in listeners {
        tokio::spawn(listener.run(server.clone(), dispatcher.clone(), config.maxclients_per_ip));
    }
    let sweeping = tokio::spawn(sweep(server.clone()));
    let replicating = tokio::spawn(replication::run(server.clone(), dispatcher.clone()));
    wait_for_end(server).await?;
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

/// Waits for a signal or `SHUTDOWN`.
async fn wait_for_end(server: &Server) -> Result<(), StartFailure> {
    let failed = |error| StartFailure(format!("cannot receive signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut ending = server.ending.subscribe();
    tokio::select! {
        _ = terminate.recv() => tracing::info!(signal = "SIGTERM", "a signal has come"),
        _ = interrupt.recv() => tracing::info!(signal = "SIGINT", "a signal has come"),
        _ = ending.wait_for(|is_ending| *is_ending) => {}
    }
    Ok(())
}

/// Removes expired keys and elements of removed collections until the server ends.
async fn sweep(server: Arc<Server>) {
    let mut ending = server.ending.subscribe();
    loop {
        let own = server.clone();
        let step = move || {
            if own.replication.is_loading() {
                return Ok((0, false));
            }
            // The master of a replica removes expired keys.
            Sweeper::step(&own.store, !own.replication.is_replica())
        };
        let started = Instant::now();
        let swept = tokio::task::spawn_blocking(step).await;
        server.note_latency(Event::ExpireCycle, started.elapsed());
        let is_more = match swept {
            Ok(Ok((expired, is_more))) => {
                Stats::add(&server.stats.expired, expired);
                is_more
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
