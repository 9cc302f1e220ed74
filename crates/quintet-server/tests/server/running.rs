//! Servers to test: one of ours in this process, one of Redis.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quintet_server::{Config, serve};

use super::client::Client;

/// Held by a test that sends SIGHUP, and by one whose server must not get it: each server of the
/// process gets the signal.
pub(crate) static HANGUP: Mutex<()> = Mutex::new(());

/// A server in this process on a directory of its own.
pub(crate) struct Server {
    pub(crate) port: u16,
    /// What the server says it listens on; the HTTP port is the last.
    addresses: Vec<String>,
    thread: Option<JoinHandle<()>>,
    /// Removed behind the end of the server.
    dir: Option<tempfile::TempDir>,
}

/// The configuration of tests: any free port, little memory.
pub(crate) fn config() -> Config {
    Config {
        listen: vec!["127.0.0.1:0".to_owned()],
        memory_budget: Some(64 << 20),
        threads: Some(2),
        allow_root: true,
        ..Config::default()
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Self::start_in(dir.path(), config());
        server.dir = Some(dir);
        server
    }

    pub(crate) fn start_in(dir: &Path, config: Config) -> Self {
        let (sender, receiver) = mpsc::channel();
        let dir = dir.join("data");
        let thread = thread::spawn(move || {
            let started = |addresses: &[String]| sender.send(addresses.to_vec()).unwrap();
            serve(&dir, &config, started).unwrap();
        });
        let addresses = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        let port = port_of(&addresses[0]);
        Self { port, addresses, thread: Some(thread), dir: None }
    }

    /// The HTTP port of a server that has one.
    pub(crate) fn http_port(&self) -> u16 {
        assert!(self.addresses.len() > 1, "there is no HTTP port: {:?}", self.addresses);
        port_of(self.addresses.last().unwrap())
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// Ends the server as a client does, and waits for it.
    pub(crate) fn end(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = std::io::Write::write_all(&mut stream, b"AUTH secret\r\nSHUTDOWN\r\n");
        }
        let ended = thread.join();
        drop(self.dir.take());
        if !thread::panicking() {
            ended.unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn port_of(address: &str) -> u16 {
    address.rsplit(':').next().unwrap().parse().unwrap()
}

/// Redis's own server.
pub(crate) struct Redis {
    pub(crate) port: u16,
    child: Child,
    dir: tempfile::TempDir,
}

impl Redis {
    /// Starts Redis, or says that it is missing.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[], |_| ())
    }

    /// Starts Redis with arguments in a directory that `prepare` has filled.
    pub(crate) fn start_with(arguments: &[&str], prepare: impl Fn(&Path)) -> Option<Self> {
        // The port is free now. Another program may take it before Redis does, so this is repeated.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let dir = tempfile::tempdir().unwrap();
            prepare(dir.path());
            let child = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"])
                .args(["--bind", "127.0.0.1", "--dir"])
                .arg(dir.path())
                .args(arguments)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let Ok(child) = child else {
                eprintln!("SKIPPED: redis-server is not installed (apt-get install redis-server)");
                return None;
            };
            let redis = Self { port, child, dir };
            let deadline = Instant::now() + Duration::from_secs(5);
            while Instant::now() < deadline {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Some(redis);
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        panic!("redis-server is installed and does not start");
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// Where Redis saves its dump.
    pub(crate) fn dump_path(&self) -> std::path::PathBuf {
        self.dir.path().join("dump.rdb")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
