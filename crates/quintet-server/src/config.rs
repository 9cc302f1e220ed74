//! The configuration: flags, environment, a TOML file, and defaults, in this order of precedence.

use std::{
    collections::BTreeMap, env::VarError, fs, net::SocketAddr, ops::RangeInclusive, path::PathBuf,
    str::FromStr as _,
};

use clap::Args;
use quintet::{EngineKind, TableOptions, check_table_options};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::{
    config_error,
    http::Exposure,
    logging::{LogFormat, LogLevel},
    state::{AppendFsync, OutputLimits, QUERY_BYTES},
    store::parse_classes,
    tls::{TlsAuthClients, TlsFiles},
};

/// The numbers of threads that run commands.
const THREADS: RangeInclusive<usize> = 1..=1024;
/// The longest times of a TLS handshake in seconds.
const HANDSHAKE_SECONDS: RangeInclusive<u64> = 1..=600;
/// The most arguments of a request. The list of a million takes 16 MiB.
const ARGS: RangeInclusive<u64> = 1024..=1 << 20;
/// The sizes of the longest value in bytes.
const BULK_BYTES: RangeInclusive<u64> = 1 << 20..=512 << 20;

/// `quintet serve`
///
/// Each setting but DIR and --config can be given in three ways. A flag has precedence over its
/// environment variable, and that over the configuration file.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// The database directory; it is created if it is missing
    pub dir: PathBuf,
    /// A configuration file in TOML
    #[arg(long, value_name = "FILE", env = "QUINTET_SERVE_CONFIG")]
    pub config: Option<PathBuf>,
    /// An address and port to listen on; may be repeated (default: port 6379 of this machine)
    #[arg(long, value_name = "ADDR", env = "QUINTET_SERVE_LISTEN", value_delimiter = ',')]
    pub listen: Vec<String>,
    /// An address and port to listen on with TLS; may be repeated (default: none)
    #[arg(long, value_name = "ADDR", env = "QUINTET_SERVE_TLS_LISTEN", value_delimiter = ',')]
    pub tls_listen: Vec<String>,
    /// The certificate of the server in PEM, with the intermediate ones
    #[arg(long, value_name = "FILE", env = "QUINTET_SERVE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate in PEM
    #[arg(long, value_name = "FILE", env = "QUINTET_SERVE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// The authorities that sign certificates of clients, in PEM
    #[arg(long, value_name = "FILE", env = "QUINTET_SERVE_TLS_CA")]
    pub tls_ca: Option<PathBuf>,
    /// Whether clients need a certificate of --tls-ca: yes (default), no or optional
    #[arg(long, value_name = "WHEN", env = "QUINTET_SERVE_TLS_AUTH_CLIENTS")]
    pub tls_auth_clients: Option<TlsAuthClients>,
    /// A Unix socket to listen on, for this user only
    #[arg(long, value_name = "PATH", env = "QUINTET_SERVE_UNIX")]
    pub unix: Option<PathBuf>,
    /// When a write is on disk: always (before its reply), everysec or no
    #[arg(long, value_name = "WHEN", env = "QUINTET_SERVE_APPENDFSYNC")]
    pub appendfsync: Option<AppendFsync>,
    /// Most clients at a time (default: 10000)
    #[arg(long, value_name = "COUNT", env = "QUINTET_SERVE_MAXCLIENTS")]
    pub maxclients: Option<u64>,
    /// Seconds after which an idle connection ends, 0 for never (default: 300)
    #[arg(long, value_name = "SECONDS", env = "QUINTET_SERVE_TIMEOUT")]
    pub timeout: Option<u64>,
    /// An address and port for metrics, health checks and the console (default: none)
    #[arg(long, value_name = "ADDR", env = "QUINTET_SERVE_HTTP")]
    pub http: Option<String>,
    /// What --http serves beyond this machine: none, metrics or console (default: none)
    #[arg(
        long,
        value_name = "WHAT",
        env = "QUINTET_SERVE_HTTP_EXPOSE",
        hide_possible_values = true
    )]
    pub http_expose: Option<Exposure>,
    /// A name that browsers and Prometheus use for the address of --http; may be repeated
    #[arg(long, value_name = "NAME", env = "QUINTET_SERVE_HTTP_HOSTS", value_delimiter = ',')]
    pub http_hosts: Vec<String>,
    /// Events to log to standard error: off, error, warn, info or debug (default: info)
    #[arg(
        long,
        value_name = "LEVEL",
        env = "QUINTET_SERVE_LOG_LEVEL",
        hide_possible_values = true
    )]
    pub log_level: Option<LogLevel>,
    /// The form of the log: text or json (default: text)
    #[arg(
        long,
        value_name = "FORM",
        env = "QUINTET_SERVE_LOG_FORMAT",
        hide_possible_values = true
    )]
    pub log_format: Option<LogFormat>,
    /// Threads that run commands (default: one for each processor)
    #[arg(long, value_name = "COUNT", env = "QUINTET_SERVE_THREADS")]
    pub threads: Option<usize>,
    /// Listen beyond this machine although passwords and data are not encrypted
    #[arg(long, env = "QUINTET_SERVE_INSECURE_I_KNOW")]
    pub insecure_i_know: bool,
    /// Run as root
    #[arg(long, env = "QUINTET_SERVE_ALLOW_ROOT")]
    pub allow_root: bool,
}

/// The configuration file. Unknown names are refused.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Addresses and ports to listen on.
    pub listen: Vec<String>,
    /// Addresses and ports to listen on with TLS.
    pub tls_listen: Vec<String>,
    /// The certificate of the server in PEM, with the intermediate ones behind it.
    pub tls_cert: Option<PathBuf>,
    /// Its private key in PEM.
    pub tls_key: Option<PathBuf>,
    /// The authorities that sign certificates of clients, in PEM.
    pub tls_ca: Option<PathBuf>,
    /// Whether clients need a certificate of [`Self::tls_ca`].
    pub tls_auth_clients: TlsAuthClients,
    /// Longest time of a TLS handshake in seconds.
    pub tls_handshake_timeout: u64,
    /// A Unix socket to listen on.
    pub unix: Option<PathBuf>,
    /// The password. Also from the variable `QUINTET_SERVE_REQUIREPASS`, but never a flag: other
    /// users can read the flags of a process.
    pub requirepass: Zeroizing<String>,
    /// The user at a master (`REPLICAOF`); the default user if it is empty.
    pub masteruser: String,
    /// The password at a master. Also from the variable `QUINTET_SERVE_MASTERAUTH`.
    pub masterauth: Zeroizing<String>,
    /// The users, each with its rules. Not together with [`Self::aclfile`].
    pub users: BTreeMap<String, Vec<Zeroizing<String>>>,
    /// The file of the users, which `ACL SAVE` writes.
    pub aclfile: Option<PathBuf>,
    /// Most entries of `ACL LOG`.
    pub acllog_max_len: u64,
    /// When a write is on disk.
    pub appendfsync: AppendFsync,
    /// Memory of the store in bytes; a quarter of the machine's if it is missing.
    pub memory_budget: Option<u64>,
    /// Most clients at a time.
    pub maxclients: u64,
    /// Most clients of one address that is not of this machine.
    pub maxclients_per_ip: usize,
    /// Seconds after which an idle connection ends; 0 for never.
    pub timeout: u64,
    /// Most bytes of output that waits for a client, by class: `CLASS HARD SOFT SECONDS`.
    pub client_output_buffer_limit: String,
    /// Most bytes of a request, and of the commands since `MULTI`.
    pub client_query_buffer_limit: u64,
    /// Most bytes of buffers of all clients, 0 for no limit. If it is missing, a tenth of the
    /// memory of the store, but at least 64 MiB more than the longest value.
    pub maxmemory_clients: Option<u64>,
    /// Milliseconds that a command may take before it commits; 0 for no limit.
    pub command_time_limit: u64,
    /// Most bytes that a command collects, 0 for no limit; at least four of the longest values.
    pub command_memory_limit: u64,
    /// Most arguments of a request, with its name.
    pub proto_max_args: u64,
    /// Longest value in bytes.
    pub proto_max_bulk_len: u64,
    /// Microseconds from which a command is in `SLOWLOG`.
    pub slowlog_log_slower_than: u64,
    /// Milliseconds from which something is a latency event; 0 for none.
    pub latency_monitor_threshold: u64,
    /// Most commands in `SLOWLOG`.
    pub slowlog_max_len: u64,
    /// Most keys that clients in `CLIENT TRACKING` cache, 0 for no limit.
    pub tracking_table_max_keys: u64,
    /// Classes of events of keys that are published, as in Redis: letters of `AKEg$lshzxetmnd`.
    pub notify_keyspace_events: String,
    /// An address and port for metrics, health checks and the console.
    pub http: Option<String>,
    /// What `http` serves beyond this machine.
    pub http_expose: Exposure,
    /// Names of hosts that requests to `http` may have besides addresses and `localhost`.
    pub http_hosts: Vec<String>,
    /// The least important events that are logged.
    pub log_level: LogLevel,
    /// The form of the log.
    pub log_format: LogFormat,
    /// Threads that run commands.
    pub threads: Option<usize>,
    /// The engine of keys with their strings and small collections.
    pub keys_engine: String,
    /// Options of that engine, by name.
    pub keys_options: BTreeMap<String, String>,
    /// The engine of elements of large collections, an ordered one.
    pub elements_engine: String,
    /// Options of that engine, by name.
    pub elements_options: BTreeMap<String, String>,
    /// Listen beyond this machine without encryption.
    pub insecure_i_know: bool,
    /// Run as root.
    pub allow_root: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec!["127.0.0.1:6379".to_owned(), "[::1]:6379".to_owned()],
            tls_listen: Vec::new(),
            tls_cert: None,
            tls_key: None,
            tls_ca: None,
            tls_auth_clients: TlsAuthClients::default(),
            tls_handshake_timeout: 10,
            unix: None,
            requirepass: Zeroizing::default(),
            masteruser: String::new(),
            masterauth: Zeroizing::default(),
            users: BTreeMap::new(),
            aclfile: None,
            acllog_max_len: 128,
            appendfsync: AppendFsync::default(),
            memory_budget: None,
            maxclients: 10_000,
            maxclients_per_ip: 1000,
            timeout: 300,
            client_output_buffer_limit: "normal 64mb 16mb 30 pubsub 64mb 16mb 30".to_owned(),
            client_query_buffer_limit: 256 << 20,
            maxmemory_clients: None,
            command_time_limit: 30_000,
            command_memory_limit: 512 << 20,
            proto_max_args: 65_536,
            proto_max_bulk_len: 64 << 20,
            slowlog_log_slower_than: 10_000,
            latency_monitor_threshold: 0,
            slowlog_max_len: 128,
            tracking_table_max_keys: 1_000_000,
            notify_keyspace_events: String::new(),
            http: None,
            http_expose: Exposure::default(),
            http_hosts: Vec::new(),
            log_level: LogLevel::default(),
            log_format: LogFormat::default(),
            threads: None,
            keys_engine: "hashlog".to_owned(),
            keys_options: BTreeMap::new(),
            elements_options: BTreeMap::new(),
            elements_engine: "btree".to_owned(),
            insecure_i_know: false,
            allow_root: false,
        }
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
}

/// Why a server does not start.
#[derive(Debug)]
pub struct StartFailure(pub String);

impl std::fmt::Display for StartFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartFailure {}

/// A failure with a message.
pub(crate) fn refuse<T>(message: impl Into<String>) -> Result<T, StartFailure> {
    Err(StartFailure(message.into()))
}

impl Config {
    /// Parses a configuration file. Fails with the number of the line and the setting that is
    /// wrong; the failure has no value of the file.
    pub fn parse(text: &str) -> Result<Self, StartFailure> {
        toml::from_str(text)
            .map_err(|error| StartFailure(config_error::explain::<Self>(text, &error)))
    }

    /// The configuration of a command line. `memory_budget` is the flag of the whole command.
    pub fn load(args: &ServeArgs, memory_budget: Option<u64>) -> Result<Self, StartFailure> {
        let mut config = match &args.config {
            None => Self::default(),
            Some(path) => {
                let explain = |what: &dyn std::fmt::Display| {
                    StartFailure(format!("configuration file {}: {what}", path.display()))
                };
                let text = fs::read_to_string(path).map_err(|error| explain(&error))?;
                let text = Zeroizing::new(text);
                Self::parse(&text).map_err(|error| explain(&error))?
            }
        };
        if !args.listen.is_empty() {
            config.listen.clone_from(&args.listen);
        }
        if !args.tls_listen.is_empty() {
            config.tls_listen.clone_from(&args.tls_listen);
        }
        config.tls_cert = args.tls_cert.clone().or(config.tls_cert);
        config.tls_key = args.tls_key.clone().or(config.tls_key);
        config.tls_ca = args.tls_ca.clone().or(config.tls_ca);
        config.tls_auth_clients = args.tls_auth_clients.unwrap_or(config.tls_auth_clients);
        config.unix = args.unix.clone().or(config.unix);
        config.appendfsync = args.appendfsync.unwrap_or(config.appendfsync);
        config.maxclients = args.maxclients.unwrap_or(config.maxclients);
        config.timeout = args.timeout.unwrap_or(config.timeout);
        config.http = args.http.clone().or(config.http);
        config.http_expose = args.http_expose.unwrap_or(config.http_expose);
        if !args.http_hosts.is_empty() {
            config.http_hosts.clone_from(&args.http_hosts);
        }
        config.log_level = args.log_level.unwrap_or(config.log_level);
        config.log_format = args.log_format.unwrap_or(config.log_format);
        config.threads = args.threads.or(config.threads);
        config.memory_budget = memory_budget.or(config.memory_budget);
        config.insecure_i_know |= args.insecure_i_know;
        config.allow_root |= args.allow_root;
        for (name, password) in [
            ("QUINTET_SERVE_REQUIREPASS", &mut config.requirepass),
            ("QUINTET_SERVE_MASTERAUTH", &mut config.masterauth),
        ] {
            match std::env::var(name) {
                Ok(given) => *password = Zeroizing::new(given),
                Err(VarError::NotPresent) => {}
                // Without this, the server would ask for no password.
                Err(VarError::NotUnicode(_)) => {
                    return refuse(format!("{name} is not UTF-8; choose another password"));
                }
            }
        }
        config.check_ranges()?;
        Ok(config)
    }

    /// Fails if a number is outside of its range, and if settings exclude one another.
    fn check_ranges(&self) -> Result<(), StartFailure> {
        if self.aclfile.is_some() && !self.users.is_empty() {
            return refuse("users are in `aclfile` or in `users`, not in both");
        }
        let threads = self.threads.unwrap_or(1);
        if !THREADS.contains(&threads) {
            let (least, most) = (THREADS.start(), THREADS.end());
            return refuse(format!("threads = {threads} is not {least} to {most}"));
        }
        let classes = &self.notify_keyspace_events;
        if parse_classes(classes).is_none() {
            return refuse(format!(
                "notify-keyspace-events = {classes:?} has a letter that is none of AKEg$lshzxetmnd"
            ));
        }
        let seconds = self.tls_handshake_timeout;
        if !HANDSHAKE_SECONDS.contains(&seconds) {
            let (least, most) = (HANDSHAKE_SECONDS.start(), HANDSHAKE_SECONDS.end());
            return refuse(format!(
                "tls-handshake-timeout = {seconds} is not {least} to {most} seconds"
            ));
        }
        OutputLimits::default()
            .set(&self.client_output_buffer_limit)
            .map_err(|why| StartFailure(format!("client-output-buffer-limit: {why}")))?;
        let bytes = self.client_query_buffer_limit;
        if !QUERY_BYTES.contains(&bytes) {
            let (least, most) = (QUERY_BYTES.start(), QUERY_BYTES.end());
            return refuse(format!(
                "client-query-buffer-limit = {bytes} is not {least} to {most} bytes"
            ));
        }
        let bytes = self.proto_max_bulk_len;
        if !BULK_BYTES.contains(&bytes) {
            let (least, most) = (BULK_BYTES.start(), BULK_BYTES.end());
            return refuse(format!("proto-max-bulk-len = {bytes} is not {least} to {most} bytes"));
        }
        let args = self.proto_max_args;
        if !ARGS.contains(&args) {
            let (least, most) = (ARGS.start(), ARGS.end());
            return refuse(format!("proto-max-args = {args} is not {least} to {most}"));
        }
        Ok(())
    }

    /// The addresses to listen on, without TLS first. Fails for an address without TLS that is not
    /// of this machine, because passwords and data would cross the network unencrypted.
    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>, StartFailure> {
        let plain = self.listen.iter().map(|text| (text, false));
        let mut endpoints = Vec::new();
        for (text, is_tls) in plain.chain(self.tls_listen.iter().map(|text| (text, true))) {
            let Ok(address) = text.parse::<SocketAddr>() else {
                return refuse(format!(
                    "listen address {text:?} is not an address with a port, such as 127.0.0.1:6379"
                ));
            };
            if !address.ip().is_loopback() && !is_tls && !self.insecure_i_know {
                return refuse(format!(
                    "listen address {address} is reachable from other machines, and connections \
                     are not encrypted; listen on 127.0.0.1 and use a tunnel, listen with TLS \
                     (--tls-listen), or accept it with --insecure-i-know"
                ));
            }
            endpoints.push(Endpoint { address, is_tls });
        }
        if endpoints.is_empty() && self.unix.is_none() {
            return refuse("nothing to listen on: give --listen, --tls-listen or --unix");
        }
        Ok(endpoints)
    }

    /// Fails if clients of other machines may do everything without a password. `is_open` says
    /// whether a new connection is one of a user without a password.
    pub(crate) fn check_open(
        &self,
        endpoints: &[Endpoint],
        is_open: bool,
    ) -> Result<(), StartFailure> {
        let reachable = endpoints.iter().find(|endpoint| !endpoint.address.ip().is_loopback());
        match reachable {
            Some(endpoint) if is_open && !self.insecure_i_know => refuse(format!(
                "listen address {} is reachable from other machines, and the user `default` \
                 needs no password; set requirepass, give `default` a password or switch it off \
                 in the ACL file, or accept it with --insecure-i-know",
                endpoint.address
            )),
            _ => Ok(()),
        }
    }

    /// Whether the user `default` must not be open: other machines reach an address.
    pub(crate) fn needs_password(&self) -> bool {
        let is_reachable = |text: &String| {
            text.parse::<SocketAddr>().is_ok_and(|address| !address.ip().is_loopback())
        };
        let has_console = self.http_expose == Exposure::Console;
        let clients = self.listen.iter().chain(&self.tls_listen).any(is_reachable);
        (clients && !self.insecure_i_know)
            || (has_console && self.http.as_ref().is_some_and(is_reachable))
    }

    /// The files of TLS, if there is an address with TLS. Fails if one is missing.
    pub(crate) fn tls_files(&self) -> Result<Option<TlsFiles>, StartFailure> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) if !self.tls_listen.is_empty() => Ok(Some(TlsFiles {
                cert: cert.clone(),
                key: key.clone(),
                ca: self.tls_ca.clone(),
                auth_clients: self.tls_auth_clients,
            })),
            (None, None) if self.tls_listen.is_empty() && self.tls_ca.is_none() => Ok(None),
            _ => refuse(
                "TLS needs --tls-listen, --tls-cert and --tls-key together, or none of them and \
                 no --tls-ca",
            ),
        }
    }

    /// The address of the HTTP port, and whether it serves the console. Fails for an address that
    /// other machines reach, unless `http-expose` allows it.
    pub(crate) fn http_address(
        &self,
        is_open: bool,
    ) -> Result<Option<(SocketAddr, bool)>, StartFailure> {
        let Some(text) = &self.http else { return Ok(None) };
        let Ok(address) = text.parse::<SocketAddr>() else {
            return refuse(format!(
                "http address {text:?} is not an address with a port, such as 127.0.0.1:9121"
            ));
        };
        if address.ip().is_loopback() {
            return Ok(Some((address, true)));
        }
        match self.http_expose {
            Exposure::None => refuse(format!(
                "http address {address} is reachable from other machines, and connections are not \
                 encrypted; use 127.0.0.1 and a tunnel or a proxy, or accept it with \
                 --http-expose=metrics or --http-expose=console"
            )),
            Exposure::Console if is_open => refuse(format!(
                "http address {address} would show all keys to other machines: set requirepass \
                 or users, or serve metrics only with --http-expose=metrics"
            )),
            exposure => Ok(Some((address, exposure == Exposure::Console))),
        }
    }

    /// The engines of the tables with their options: of keys, and of elements.
    pub(crate) fn engines(&self) -> Result<(TableOptions, TableOptions), StartFailure> {
        let keys = table_options("keys", &self.keys_engine, &self.keys_options)?;
        let elements = table_options("elements", &self.elements_engine, &self.elements_options)?;
        if !matches!(elements.kind(), EngineKind::BTree | EngineKind::Slm | EngineKind::Tph) {
            return refuse(format!(
                "elements-engine = {:?} keeps no order; choose btree, slm or tph",
                self.elements_engine
            ));
        }
        Ok((keys, elements))
    }
}

/// The options of the tables `what`.
fn table_options(
    what: &str,
    engine: &str,
    options: &BTreeMap<String, String>,
) -> Result<TableOptions, StartFailure> {
    let kind = EngineKind::from_str(engine)
        .map_err(|error| StartFailure(format!("{what}-engine = {engine:?}: {error}")))?;
    let set = |table: TableOptions, (name, value): (&String, &String)| table.set(name, value);
    let table = options.iter().fold(TableOptions::new(kind), set);
    check_table_options(&table)
        .map_err(|error| StartFailure(format!("{what}-options of {engine}: {error}")))?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_file_has_the_defaults() {
        let example = include_str!("../../../examples/quintet-serve.toml");
        assert_eq!(Config::parse(example).unwrap(), Config::default());
        // What is commented out is valid too.
        let lines = example.lines().map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") => rest,
            _ => line,
        });
        let all = lines.collect::<Vec<_>>().join("\n");
        assert_ne!(Config::parse(&all).unwrap(), Config::default());
    }

    #[test]
    fn unknown_names_and_open_addresses_are_refused() {
        let failure = Config::parse("maxclient = 1").unwrap_err();
        assert!(failure.0.starts_with("line 1: there is no setting"), "{failure}");
        let mut config = Config { listen: vec!["0.0.0.0:1".to_owned()], ..Config::default() };
        let failure = config.endpoints().unwrap_err();
        assert!(failure.0.contains("--insecure-i-know"), "{failure}");
        config.insecure_i_know = true;
        assert_eq!(config.endpoints().unwrap().len(), 1);
        config.listen = vec!["localhost".to_owned()];
        assert!(config.endpoints().unwrap_err().0.contains("address with a port"));
        let tls = Config {
            listen: Vec::new(),
            tls_listen: vec!["0.0.0.0:1".to_owned()],
            ..Config::default()
        };
        let endpoints = tls.endpoints().unwrap();
        assert!(tls.check_open(&endpoints, true).unwrap_err().0.contains("requirepass"));
        assert!(tls.check_open(&endpoints, false).is_ok());
        assert!(tls.tls_files().unwrap_err().0.contains("--tls-cert"));
        for (text, what) in [
            (
                "client-output-buffer-limit = \"normal 1 2\"",
                "client-output-buffer-limit: Wrong number of arguments",
            ),
            ("client-query-buffer-limit = 1", "client-query-buffer-limit = 1 is not 1048576"),
            ("threads = 0", "threads = 0 is not 1 to 1024"),
            ("proto-max-args = 2", "proto-max-args = 2 is not 1024 to 1048576"),
            ("proto-max-bulk-len = 1", "proto-max-bulk-len = 1 is not 1048576 to 536870912"),
        ] {
            let failure = Config::parse(text).unwrap().check_ranges().unwrap_err();
            assert!(failure.0.starts_with(what), "{failure}");
        }
        let http = |address: &str, http_expose| Config {
            http: Some(address.to_owned()),
            http_expose,
            ..Config::default()
        };
        assert_eq!(Config::default().http_address(true).unwrap(), None);
        let local = http("[::1]:9", Exposure::None).http_address(true).unwrap();
        assert_eq!(local, Some(("[::1]:9".parse().unwrap(), true)));
        for (address, expose, what) in [
            ("localhost:9", Exposure::Console, "is not an address with a port"),
            ("0.0.0.0:9", Exposure::None, "--http-expose=metrics"),
            ("10.0.0.1:9", Exposure::Console, "set requirepass"),
        ] {
            let failure = http(address, expose).http_address(true).unwrap_err();
            assert!(failure.0.contains(what), "{failure}");
        }
        let mut open = http("0.0.0.0:9", Exposure::Metrics);
        assert!(matches!(open.http_address(true), Ok(Some((_, false)))));
        open.http_expose = Exposure::Console;
        assert!(matches!(open.http_address(false), Ok(Some((_, true)))));
        let unordered = Config { elements_engine: "hashlog".to_owned(), ..Config::default() };
        assert!(unordered.engines().unwrap_err().0.contains("keeps no order"));
    }

    #[test]
    fn options_of_engines_are_checked() {
        let text = "elements-engine = \"slm\"\n[keys-options]\nlive_ratio = \"30\"\n\
                    [elements-options]\ncompression = \"lz4\"\n";
        let config: Config = toml::from_str(text).unwrap();
        let (keys, elements) = config.engines().unwrap();
        assert_eq!(keys, TableOptions::new(EngineKind::HashLog).set("live_ratio", "30"));
        assert_eq!(elements, TableOptions::new(EngineKind::Slm).set("compression", "lz4"));
        for (name, value, what) in
            [("live_ratio", "95", "live_ratio"), ("page_bytes", "4096", "page_bytes")]
        {
            let keys_options = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            let refused = Config { keys_options, ..Config::default() }.engines().unwrap_err();
            let (start, what) = ("keys-options of hashlog: ", format!("option {what}"));
            assert!(refused.0.starts_with(start) && refused.0.contains(&what), "{refused}");
        }
    }
}
