//! TLS: which certificates are accepted, reloading, and handshakes that do not end.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use quintet_server::{Config, TlsAuthClients, serve};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};

use super::{
    client::Client,
    running::{HANGUP, Server, config},
};

/// An authority that signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key in PEM.
struct Identity {
    cert: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for `localhost` that is valid until a year.
    fn sign(&self, year: i32) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { cert, key: key.serialize_pem() }
    }
}

/// Writes the files of a server.
fn write_files(dir: &Path, identity: &Identity, authority: Option<&Authority>) {
    fs::write(dir.join("cert.pem"), &identity.cert).unwrap();
    fs::write(dir.join("key.pem"), &identity.key).unwrap();
    fs::set_permissions(dir.join("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    if let Some(authority) = authority {
        fs::write(dir.join("ca.pem"), &authority.pem).unwrap();
    }
}

fn tls_config(dir: &Path) -> Config {
    Config {
        listen: Vec::new(),
        tls_listen: vec!["127.0.0.1:0".to_owned()],
        tls_cert: Some(dir.join("cert.pem")),
        tls_key: Some(dir.join("key.pem")),
        ..config()
    }
}

/// Connects a client that trusts an authority and may have a certificate.
fn connect(
    port: u16,
    authority: &Authority,
    identity: Option<&Identity>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let cert = CertificateDer::from_pem_slice(identity.cert.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut stream = StreamOwned::new(session, socket);
    // In TLS 1.3 the server judges the client's certificate after the client's handshake.
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    assert_eq!(&reply, b"+PONG\r\n");
    Ok(stream)
}

fn end(stream: StreamOwned<ClientConnection, TcpStream>, server: Server) {
    let mut client = Client::over_stream(stream);
    client.send(b"SHUTDOWN\r\n");
    server.end();
}

#[test]
fn clients_check_the_server_and_it_shows_its_days() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new(), Authority::new());
    write_files(dir.path(), &authority.sign(2999), None);
    let server = Server::start_in(dir.path(), tls_config(dir.path()));
    assert!(connect(server.port, &other, None).is_err(), "another authority was accepted");
    let mut client = Client::over_stream(connect(server.port, &authority, None).unwrap());
    assert_eq!(client.call("set k v").text(), "+OK");
    assert_eq!(client.call("get k").text(), "v");
    let info = client.call("info server").text();
    let days = info.lines().find_map(|l| l.strip_prefix("quintet_tls_certificate_days_left:"));
    assert!(days.unwrap().parse::<i64>().unwrap() > 300_000, "{info}");
    // A client without TLS is told, and does not end the others.
    let mut plain = Client::connect(server.port);
    plain.send(b"PING\r\n");
    assert_eq!(plain.read().text(), "-ERR this port needs TLS");
    assert!(plain.is_ended());
    assert_eq!(client.call("get k").text(), "v");
    client.send(b"SHUTDOWN\r\n");
    server.end();
}

#[test]
fn an_expired_certificate_is_served_and_refused_by_clients() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    write_files(dir.path(), &authority.sign(2020), None);
    let plain = Config { listen: vec!["127.0.0.1:0".to_owned()], ..tls_config(dir.path()) };
    let server = Server::start_in(dir.path(), plain);
    // The first address is the one without TLS.
    let mut client = server.client();
    let info = client.call("info server").text();
    assert!(info.contains("quintet_tls_certificate_days_left:-"), "{info}");
}

#[test]
fn clients_need_a_certificate_unless_it_is_optional() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, clients, other) = (Authority::new(), Authority::new(), Authority::new());
    write_files(dir.path(), &authority.sign(2999), Some(&clients));
    let (good, expired, foreign) = (clients.sign(2999), clients.sign(2020), other.sign(2999));
    for (auth_clients, without) in
        [(TlsAuthClients::Yes, false), (TlsAuthClients::Optional, true), (TlsAuthClients::No, true)]
    {
        let ca = Some(dir.path().join("ca.pem"));
        let config =
            Config { tls_ca: ca, tls_auth_clients: auth_clients, ..tls_config(dir.path()) };
        let server = Server::start_in(dir.path(), config);
        let is_accepted =
            |identity: Option<&Identity>| connect(server.port, &authority, identity).is_ok();
        assert_eq!(is_accepted(None), without, "{auth_clients:?}");
        let is_unchecked = auth_clients == TlsAuthClients::No;
        assert_eq!(is_accepted(Some(&foreign)), is_unchecked, "{auth_clients:?}");
        assert_eq!(is_accepted(Some(&expired)), is_unchecked, "{auth_clients:?}");
        end(connect(server.port, &authority, Some(&good)).unwrap(), server);
    }
}

#[test]
fn a_hangup_reads_the_certificates_again() {
    let _hangup = HANGUP.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Authority::new(), Authority::new());
    write_files(dir.path(), &first.sign(2999), None);
    let server = Server::start_in(dir.path(), tls_config(dir.path()));
    let mut open = Client::over_stream(connect(server.port, &first, None).unwrap());
    let mut hang_up = |count: usize| {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::HUP).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !open.call("info stats").text().contains(&format!("quintet_reloads_total:{count}\r"))
        {
            assert!(Instant::now() < deadline, "the signal was not answered");
        }
    };
    // A key that does not fit keeps the old state.
    fs::write(dir.path().join("key.pem"), &second.sign(2999).key).unwrap();
    hang_up(1);
    assert!(connect(server.port, &first, None).is_ok());
    write_files(dir.path(), &second.sign(2999), None);
    hang_up(2);
    assert!(connect(server.port, &first, None).is_err());
    // A connection that is open has gone on.
    end(connect(server.port, &second, None).unwrap(), server);
}

#[test]
fn a_handshake_that_does_not_end_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    write_files(dir.path(), &authority.sign(2999), None);
    let config = Config { tls_handshake_timeout: 1, ..tls_config(dir.path()) };
    let server = Server::start_in(dir.path(), config);
    // Nothing, and the start of a handshake.
    for bytes in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut socket = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(bytes).unwrap();
        assert_eq!(socket.read(&mut [0; 64]).unwrap(), 0, "the server sent something");
    }
    end(connect(server.port, &authority, None).unwrap(), server);
}

#[test]
fn wrong_files_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (one, other) = (authority.sign(2999), authority.sign(2999));
    let refusal = || {
        let config = tls_config(dir.path());
        serve(&dir.path().join("data"), &config, |_| ()).unwrap_err().0
    };
    assert!(refusal().contains("cert.pem"));
    write_files(dir.path(), &Identity { cert: one.cert.clone(), key: other.key }, None);
    assert!(refusal().contains("does not fit"), "{}", refusal());
    write_files(dir.path(), &Identity { cert: "x".to_owned(), key: one.key.clone() }, None);
    assert!(refusal().contains("no certificate"));
    write_files(dir.path(), &one, None);
    fs::set_permissions(dir.path().join("key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refusal().contains("chmod 600"));
}
