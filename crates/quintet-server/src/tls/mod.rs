//! TLS: the certificates of the server, which certificates clients need, and reloading.
//!
//! The files are read at the start and at SIGHUP. A reload replaces the configuration as a whole,
//! and connections that are open keep theirs. A file that is wrong changes nothing. A certificate
//! that has expired is served with a warning: a server that does not start helps no client.

mod validity;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::Deserialize;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::WebPkiClientVerifier,
    },
};

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;

/// Which certificates clients need, if there is an authority that signs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsAuthClients {
    /// Each client needs one.
    #[default]
    Yes,
    /// None is asked for.
    No,
    /// One is checked if the client has one.
    Optional,
}

impl std::str::FromStr for TlsAuthClients {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "yes" => Ok(Self::Yes),
            "no" => Ok(Self::No),
            "optional" => Ok(Self::Optional),
            _ => Err(format!("{text:?} is not yes, no or optional")),
        }
    }
}

/// The files of TLS, and what they are for.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    /// The certificate of the server, with the intermediate ones behind it, in PEM.
    pub(crate) cert: PathBuf,
    /// Its private key in PEM.
    pub(crate) key: PathBuf,
    /// The authorities that sign certificates of clients, in PEM.
    pub(crate) ca: Option<PathBuf>,
    /// Which clients need a certificate.
    pub(crate) auth_clients: TlsAuthClients,
}

/// The TLS of a server.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    /// Longest time of a handshake.
    pub(crate) handshake_time: Duration,
    current: RwLock<LoadedTls>,
}

/// What the files had when they were read last.
struct LoadedTls {
    acceptor: TlsAcceptor,
    /// When the first certificate of the server expires, in seconds since 1970.
    expires: i64,
}

impl std::fmt::Debug for LoadedTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedTls").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Seconds since 1970.
fn now_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl Tls {
    /// Reads the files. Fails with the file and what is wrong. Warns about expired certificates on
    /// standard error.
    pub(crate) fn load(files: TlsFiles, handshake_time: Duration) -> Result<Self, String> {
        let current = RwLock::new(read(&files)?);
        Ok(Self { files, handshake_time, current })
    }

    /// Reads the files again, for new connections. Keeps the old state if one is wrong.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let loaded = read(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }

    /// Makes the connections of clients.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current.read().unwrap_or_else(PoisonError::into_inner).acceptor.clone()
    }

    /// Whole days until the first certificate of the server expires; negative if it has.
    pub(crate) fn days_left(&self) -> i64 {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        (current.expires - now_seconds()).div_euclid(DAY_SECONDS)
    }
}

/// A failure with its file.
fn explain(path: &Path, what: impl std::fmt::Display) -> String {
    format!("TLS file {}: {what}", path.display())
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| explain(path, error))?;
    let found: Result<Vec<_>, _> = found.collect();
    let found = found.map_err(|error| explain(path, error))?;
    if found.is_empty() { Err(explain(path, "it has no certificate")) } else { Ok(found) }
}

/// When the first of some certificates expires. Warns if it has.
fn expiry(path: &Path, certificates: &[CertificateDer<'_>]) -> Result<i64, String> {
    let mut first = i64::MAX;
    for certificate in certificates {
        let expires = validity::not_after(certificate)
            .ok_or_else(|| explain(path, "a certificate has no date of expiry"))?;
        first = first.min(expires);
    }
    let now = now_seconds();
    if first <= now {
        let days = (now - first) / DAY_SECONDS;
        let path = path.display();
        tracing::warn!(%path, days, "a certificate has expired; clients that check it refuse it");
    }
    Ok(first)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let metadata = fs::metadata(path).map_err(|error| explain(path, error))?;
    if metadata.permissions().mode() & 0o027 != 0 {
        return Err(explain(path, "other users can read or write the key; run `chmod 600` on it"));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| explain(path, error))
}

fn read(files: &TlsFiles) -> Result<LoadedTls, String> {
    let chain = read_certificates(&files.cert)?;
    let expires = expiry(&files.cert, &chain)?;
    let key = read_key(&files.key)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let wanted = files.ca.as_ref().filter(|_| files.auth_clients != TlsAuthClients::No);
    let builder = match wanted {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let authorities = read_certificates(path)?;
            expiry(path, &authorities)?;
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                roots.add(authority).map_err(|error| explain(path, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match files.auth_clients {
                TlsAuthClients::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|e| explain(path, e))?)
        }
    };
    let config = builder.with_single_cert(chain, key).map_err(|error| {
        explain(&files.key, format_args!("it does not fit the certificate: {error}"))
    })?;
    Ok(LoadedTls { acceptor: TlsAcceptor::from(Arc::new(config)), expires })
}
