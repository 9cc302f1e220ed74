//! The HTTP port: metrics, health checks, and the console.
//!
//! | path | what | password |
//! |---|---|---|
//! | `/healthz` | the process answers | never |
//! | `/readyz` | the server takes reads and writes; 503 with the reason if not | never |
//! | `/metrics` | metrics for Prometheus | never |
//! | `/`, `/api/...` | the console and its data | if the server has one |
//!
//! The port is off by default. It serves this machine only, unless [`Exposure`] says more. It
//! answers before the database is open, so that `/readyz` can tell that it is being recovered.
//!
//! Limits: requests have no body, heads have at most 16 KiB and 64 fields and must arrive within 10
//! seconds. There are at most 64 connections. Each ends after a minute.
//!
//! A page of another origin cannot reach it through a name that resolves to this machine: the Host
//! field must be an address, `localhost`, or a configured name.

mod answer;
mod auth;
mod console;
mod metrics;
#[cfg(test)]
mod poisoned_tests;
mod tables;

use std::{
    convert::Infallible,
    net::IpAddr,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hyper::{Method, Request, StatusCode, body::Body as _, body::Incoming, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use crate::state::Server;
use answer::{Answer, header, text};

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// Most bytes of the head of a request. Hyper refuses longer ones with status 431.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most fields of the head of a request.
const HEAD_FIELDS_MAX: usize = 64;
/// Time in which the head of a request must arrive, also on an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Time after which a connection ends: after the answer under way.
const CONNECTION_TIME: Duration = Duration::from_mins(1);
/// Time that an answer may take beyond [`CONNECTION_TIME`].
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// What the HTTP port serves at an address that is not of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Exposure {
    /// Nothing: such an address is refused.
    #[default]
    None,
    /// Metrics and health checks.
    Metrics,
    /// The console too. The server must have a password.
    Console,
}

/// The HTTP port.
#[derive(Debug)]
pub(crate) struct Http {
    /// Set when the database is open.
    server: OnceLock<Arc<Server>>,
    /// Whether the console is served.
    has_console: bool,
    /// Names that the Host field may have besides addresses.
    hosts: Vec<String>,
    connections: Arc<Semaphore>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    /// Answers by class of status: 2xx, 3xx, 4xx, 5xx.
    answers: [AtomicU64; 4],
    rejected: AtomicU64,
}

impl Http {
    /// A port whose server is not open yet.
    pub(crate) fn new(has_console: bool, hosts: &[String]) -> Arc<Self> {
        Arc::new(Self {
            server: OnceLock::new(),
            has_console,
            hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            counters: Counters::default(),
        })
    }

    /// Sets the server, which is open now.
    pub(crate) fn open(&self, server: &Arc<Server>) {
        // It is set once.
        let _ = self.server.set(server.clone());
    }

    /// Accepts connections until the process ends.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => match self.connections.clone().try_acquire_owned() {
                    Ok(permit) => {
                        tokio::spawn(self.clone().serve((stream, peer.ip()), permit));
                    }
                    Err(_) => {
                        self.counters.rejected.fetch_add(1, Ordering::Relaxed);
                    }
                },
                // Too many open files, or a client that has gone: the next attempt may succeed.
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn serve(
        self: Arc<Self>,
        (stream, ip): (TcpStream, IpAddr),
        permit: OwnedSemaphorePermit,
    ) {
        let service = hyper::service::service_fn(|request| {
            let http = self.clone();
            async move { Ok::<_, Infallible>(http.answer(request, ip).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEAD_FIELDS_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        // The reason of an end is the client's, the network's or a limit's.
        if timeout(CONNECTION_TIME, connection.as_mut()).await.is_err() {
            connection.as_mut().graceful_shutdown();
            let _ = timeout(DRAIN_TIME, connection).await;
        }
        drop(permit);
    }

    async fn answer(&self, request: Request<Incoming>, ip: IpAddr) -> Answer {
        let answer = self.route(&request, ip).await;
        let class = usize::from(answer.status().as_u16() / 100).saturating_sub(2);
        if let Some(counter) = self.counters.answers.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    async fn route(&self, request: &Request<Incoming>, ip: IpAddr) -> Answer {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n");
            return header(refused, hyper::header::ALLOW, "GET, HEAD");
        }
        if !request.body().is_end_stream() {
            let refused = text(StatusCode::PAYLOAD_TOO_LARGE, "a request must have no body\n");
            return header(refused, hyper::header::CONNECTION, "close");
        }
        if !auth::is_host_allowed(request, &self.hosts) {
            return text(
                StatusCode::MISDIRECTED_REQUEST,
                "the Host field must be an address, localhost, or a name in http-hosts\n",
            );
        }
        let path = request.uri().path();
        if path == "/healthz" {
            return text(StatusCode::OK, "ok\n");
        }
        let Some(server) = self.server.get() else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the database is being opened\n");
        };
        match path {
            "/readyz" => match server.unreadiness() {
                None => text(StatusCode::OK, "ready\n"),
                Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{reason}\n")),
            },
            "/metrics" => {
                let metrics = text(StatusCode::OK, &self.metrics(server));
                header(metrics, hyper::header::CONTENT_TYPE, metrics::CONTENT_TYPE)
            }
            _ if self.has_console => console::answer(server, request, ip).await,
            _ => text(StatusCode::NOT_FOUND, "there is nothing at this path\n"),
        }
    }

    /// The metrics of the server and of this port.
    fn metrics(&self, server: &Server) -> String {
        let mut out = metrics::Exposition::default();
        metrics::write(&mut out, server);
        let mut family =
            out.counter("quintet_http_answers_total", "Answers of the HTTP port by status.");
        for (class, counter) in ["2xx", "3xx", "4xx", "5xx"].iter().zip(&self.counters.answers) {
            family.labelled(&[("status", class)], counter.load(Ordering::Relaxed));
        }
        out.counter(
            "quintet_http_rejected_connections_total",
            "Connections to the HTTP port that were refused because there were too many.",
        )
        .value(self.counters.rejected.load(Ordering::Relaxed));
        out.finish()
    }
}
