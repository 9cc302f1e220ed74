//! Tells systemd the state of the server (`Type=notify`): a datagram to the socket that the
//! variable `NOTIFY_SOCKET` names. Without the variable nothing is sent.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// Sends states.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notifier {
    socket: Option<OsString>,
    /// Time within which systemd expects a sign of life.
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The notifier that the environment asks for.
    pub(crate) fn from_environment() -> Self {
        let micros = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        // The watchdog is for another process, if the variable names one.
        let is_own = std::env::var("WATCHDOG_PID")
            .map_or(true, |process| process == std::process::id().to_string());
        Self::new(
            std::env::var_os("NOTIFY_SOCKET"),
            micros.filter(|micros| is_own && *micros > 0).map(Duration::from_micros),
        )
    }

    fn new(socket: Option<OsString>, watchdog: Option<Duration>) -> Self {
        Self { socket, watchdog }
    }

    /// The server accepts connections.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// What the server does before it is ready.
    pub(crate) fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}"));
    }

    /// The server ends.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=shutting down");
    }

    /// Sends signs of life until the task is dropped. Returns at once without a watchdog.
    pub(crate) async fn watch(self) {
        let Some(interval) = self.watchdog else { return };
        loop {
            self.send("WATCHDOG=1");
            tokio::time::sleep(interval / 3).await;
        }
    }

    /// Sends a state. A failure changes nothing for the clients, so it is only logged.
    fn send(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = send(socket, state) {
            tracing::warn!(%error, "cannot notify systemd");
        }
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    // A name that begins with '@' is abstract: it is no file.
    let address = match socket.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn states_reach_the_socket_by_path_and_by_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("quintet-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        for (socket, target) in
            [(by_path, path.into_os_string()), (by_name, format!("@{name}").into())]
        {
            let notifier = Notifier::new(Some(target), None);
            notifier.status("opening the database");
            assert_eq!(receive(&socket), "STATUS=opening the database");
            notifier.ready("accepts connections");
            assert_eq!(receive(&socket), "READY=1\nSTATUS=accepts connections");
            notifier.stopping();
            assert!(receive(&socket).starts_with("STOPPING=1\n"));
        }
    }

    #[test]
    fn without_a_socket_nothing_happens() {
        Notifier::default().ready("");
        assert!(send(OsStr::new("/missing/socket"), "READY=1").is_err());
    }

    #[tokio::test]
    async fn the_watchdog_hears_again_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path.into_os_string()), Some(Duration::from_millis(3)));
        let watching = tokio::spawn(notifier.watch());
        let heard = tokio::task::spawn_blocking(move || [receive(&socket), receive(&socket)]);
        assert_eq!(heard.await.unwrap(), ["WATCHDOG=1", "WATCHDOG=1"]);
        watching.abort();
        Notifier::default().watch().await;
    }
}
