//! Logs of a running server: what they have, and what they must not have.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
};

use quintet_server::Config;

use super::{
    http::{get_with, with_http},
    running::Server,
};

/// What all servers of this process have logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Logs of this process from now on. Servers of other tests log here too.
    fn collect() -> Self {
        static LINES: OnceLock<Lines> = OnceLock::new();
        let start = || {
            let (lines, own) = (Self::default(), Self::default());
            let writer = Self(lines.0.clone());
            drop(own);
            let logger = tracing_subscriber::fmt().json().flatten_event(true);
            let logger = logger.with_writer(move || writer.clone()).finish();
            tracing::subscriber::set_global_default(logger).unwrap();
            lines
        };
        LINES.get_or_init(start).clone()
    }

    /// The events with a message.
    fn events(&self, message: &str) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let events = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        events.filter(|event: &serde_json::Value| event["message"] == message).collect()
    }

    fn contains(&self, secret: &str) -> bool {
        String::from_utf8_lossy(&self.0.lock().unwrap()).contains(secret)
    }
}

#[test]
fn events_have_fields_and_neither_values_nor_passwords() {
    let lines = Lines::collect();
    let dir = tempfile::tempdir().unwrap();
    let config = Config { requirepass: "secret".to_owned().into(), maxclients: 3, ..with_http() };
    let server = Server::start_in(dir.path(), config);
    let address = format!("127.0.0.1:{}", server.port);
    let ready = lines.events("ready");
    assert!(ready.iter().any(|event| event["addresses"].as_str().unwrap().contains(&address)));
    let path = dir.path().display().to_string();
    let is_own = |event: &&serde_json::Value| event["dir"].as_str().unwrap().starts_with(&path);
    assert_eq!(lines.events("starting").iter().filter(is_own).count(), 1);
    assert!(lines.events("configuration").iter().any(|event| event["has_password"] == true));

    let mut client = server.client();
    assert!(client.call("auth wrong-hTq7").text().starts_with("-WRONGPASS"));
    let basic = "Authorization: Basic d3Jvbmc6d3Jvbmc=\r\n";
    assert_eq!(get_with(server.http_port(), "/", basic).status, 401);
    let failed = lines.events("authentication failed");
    assert!(failed.iter().any(|event| event["address"] == "http 127.0.0.1"), "{failed:?}");
    assert!(failed.len() >= 2, "{failed:?}");

    client.call("auth secret");
    client.call("config set slowlog-log-slower-than 0");
    client.call("set key-xK93 value-pZ41");
    client.call("config set slowlog-log-slower-than 1000000");
    client.call("config set requirepass new-secret-mW58 masterauth other-pT77");
    let slow = lines.events("slow command");
    let set = slow.iter().find(|event| event["command"] == "set" && event["bytes"] == 21);
    let set = set.unwrap_or_else(|| panic!("{slow:?}"));
    assert_eq!(set["arguments"], 3);
    assert_eq!(set["level"], "WARN");
    let changed = lines.events("configuration changed");
    assert!(changed.iter().any(|event| event["value"] == "(redacted)"), "{changed:?}");
    for secret in ["key-xK93", "value-pZ41", "new-secret-mW58", "other-pT77", "wrong-hTq7"] {
        assert!(!lines.contains(secret), "{secret}");
    }

    let others: Vec<_> = (0..4).map(|_| server.client()).collect();
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    let is_refused =
        |event: &serde_json::Value| event["reason"] == "maxclients" && event["level"] == "WARN";
    while !lines.events("connection refused").iter().any(is_refused) {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(others);
    client.call("config set requirepass secret maxclients 100");
    drop(client);
    server.end();
    assert!(!lines.events("shutting down").is_empty());
    assert!(!lines.events("the database is closed").is_empty());
}
