//! Sockets: listeners accept connections within the limits.

mod connection;
mod handshake;

use std::{
    fs, io,
    net::IpAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use connection::{Connection, RegisteredClient};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::{
    config::Endpoint,
    connection_threads::ConnectionThreads,
    dispatch::Dispatcher,
    state::{Client, Server, Stats},
    tls::Tls,
};

/// A socket that accepts connections.
#[derive(Debug)]
pub(crate) enum Listener {
    /// A TCP port, with TLS or without.
    Tcp(TcpListener, Option<Arc<Tls>>),
    /// A Unix socket at a path.
    Unix(UnixListener, PathBuf),
}

/// Opens the TCP listeners of `endpoints`. Fails with the address that cannot be opened. Loopback
/// of IPv6 is optional, because not each machine has it.
pub(crate) async fn bind(
    endpoints: &[Endpoint],
    tls: Option<&Arc<Tls>>,
    unix: Option<&Path>,
) -> io::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for Endpoint { address, is_tls } in endpoints {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                listeners.push(Listener::Tcp(listener, tls.filter(|_| *is_tls).cloned()));
            }
            Err(_) if address.is_ipv6() && address.ip().is_loopback() && !listeners.is_empty() => {}
            Err(error) => {
                return Err(io::Error::new(
                    error.kind(),
                    format!("cannot listen on {address}: {error}"),
                ));
            }
        }
    }
    if let Some(path) = unix {
        listeners.push(bind_unix(path)?);
    }
    Ok(listeners)
}

/// Opens a Unix socket that only the owner may use.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    let explain = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen on {}: {error}", path.display()))
    };
    // A socket of a server that has ended refuses connections. One that accepts them is in use.
    if std::os::unix::net::UnixStream::connect(path).is_err() {
        use std::os::unix::fs::FileTypeExt as _;
        let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
        if is_socket {
            fs::remove_file(path).map_err(explain)?;
        }
    }
    let listener = UnixListener::bind(path).map_err(explain)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(explain)?;
    Ok(Listener::Unix(listener, path.to_owned()))
}

impl Listener {
    /// Accepts connections until the server ends.
    pub(crate) async fn run(
        self,
        (server, dispatcher): (Arc<Server>, Arc<Dispatcher>),
        threads: Arc<ConnectionThreads>,
        per_ip: usize,
    ) {
        let mut ending = server.ending.subscribe();
        loop {
            tokio::select! {
                () = self.accept((&server, &dispatcher), &threads, per_ip) => {}
                _ = ending.wait_for(|is_ending| *is_ending) => break,
            }
        }
        if let Self::Unix(_, path) = &self {
            // The path may have been removed already.
            let _ = fs::remove_file(path);
        }
    }

    async fn accept(
        &self,
        (server, dispatcher): (&Arc<Server>, &Arc<Dispatcher>),
        threads: &ConnectionThreads,
        per_ip: usize,
    ) {
        let accepted = match self {
            Self::Tcp(listener, tls) => match listener.accept().await {
                Ok((stream, address)) => {
                    // Without this option a reply would wait for the next one.
                    let _ = stream.set_nodelay(true);
                    let local = stream.local_addr().map(|local| local.to_string());
                    let addresses = (address.to_string(), local.unwrap_or_default());
                    let Some(client) = admit(server, Some(address.ip()), per_ip, addresses) else {
                        refuse(stream.into_std());
                        return;
                    };
                    let client = RegisteredClient { server: server.clone(), client };
                    let serving =
                        serve_tcp(stream.into_std(), tls.clone(), dispatcher.clone(), client);
                    threads.spawn(serving);
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Self::Unix(listener, path) => match listener.accept().await {
                Ok((stream, _)) => {
                    let address = format!("{}:0", path.display());
                    let addresses = (address.clone(), address);
                    let Some(client) = admit(server, None, per_ip, addresses) else {
                        refuse(stream.into_std());
                        return;
                    };
                    let client = RegisteredClient { server: server.clone(), client };
                    threads.spawn(serve_unix(stream.into_std(), dispatcher.clone(), client));
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = accepted {
            if let Some(left_out) = server.stats.log_limits.refused.admit() {
                tracing::warn!(%error, left_out, "connection refused");
            }
            // Too many open files, or a client that has gone: the next attempt may succeed.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Registers a client by its address and the one it connected to, unless there are too many.
fn admit(
    server: &Server,
    ip: Option<IpAddr>,
    per_ip: usize,
    addresses: (String, String),
) -> Option<Arc<Client>> {
    let max = server.settings.maxclients.load(Ordering::Relaxed);
    let is_full = u64::try_from(server.clients.count()).unwrap_or(u64::MAX) >= max;
    // Programs of this machine share the loopback address.
    let is_many =
        ip.filter(|ip| !ip.is_loopback()).is_some_and(|ip| server.clients.count_of(ip) >= per_ip);
    if is_full || is_many {
        Stats::add(&server.stats.rejected_connections, 1);
        if let Some(left_out) = server.stats.log_limits.refused.admit() {
            let reason = if is_full { "maxclients" } else { "maxclients-per-ip" };
            tracing::warn!(address = addresses.0, reason, left_out, "connection refused");
        }
        return None;
    }
    Stats::add(&server.stats.connections, 1);
    tracing::debug!(address = addresses.0, "connection accepted");
    Some(server.clients.add(addresses, ip))
}

/// Tells a client that there are too many. The socket does not block, so this waits for nothing.
fn refuse<S: io::Write>(stream: io::Result<S>) {
    if let Ok(mut stream) = stream {
        let _ = stream.write_all(b"-ERR max number of clients reached\r\n");
    }
}

/// Serves a connection of a TCP port. Dropping `registered` removes the client, also after a panic.
async fn serve_tcp(
    stream: io::Result<std::net::TcpStream>,
    tls: Option<Arc<Tls>>,
    dispatcher: Arc<Dispatcher>,
    registered: RegisteredClient,
) {
    let Ok(stream) = stream.and_then(TcpStream::from_std) else { return };
    match tls {
        Some(tls) => handshake::serve(stream, &tls, dispatcher, &registered).await,
        None => Connection::new(stream, dispatcher, &registered).serve().await,
    }
}

/// Serves a connection of a Unix socket. Otherwise as [`serve_tcp`].
async fn serve_unix(
    stream: io::Result<std::os::unix::net::UnixStream>,
    dispatcher: Arc<Dispatcher>,
    registered: RegisteredClient,
) {
    let Ok(stream) = stream.and_then(UnixStream::from_std) else { return };
    Connection::new(stream, dispatcher, &registered).serve().await;
}
