//! The connection to a master: its replies, and the handshake.

use std::{fmt::Write as _, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use zeroize::Zeroizing;

use crate::{
    state::{Master, Server},
    store::Position,
};

/// Longest time to connect.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Longest time without a byte of the master, which pings every ten seconds.
pub(super) const SILENCE_TIME: Duration = Duration::from_mins(1);
/// Longest line of the master in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Longest head of an argument: its letter, its length, and the ends of two lines.
const HEAD_BYTES_MAX: usize = 32;
/// Bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;

/// Why a link has ended.
#[derive(Debug)]
pub(super) struct LinkFailure {
    /// The reason, for `INFO`.
    pub(super) text: String,
    /// Whether another try would fail in the same way.
    pub(super) is_final: bool,
}

impl LinkFailure {
    /// A failure that may pass.
    pub(super) fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_final: false }
    }

    /// A failure that stays.
    pub(super) fn lasting(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_final: true }
    }
}

pub(super) type Linked<T = ()> = Result<T, LinkFailure>;

/// What the master sends next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SyncReply {
    /// A dump, and commands from this position on.
    Full(Position),
    /// Commands, of this history if it has another name now.
    Continue(Option<String>),
}

/// A connection to a master.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    /// What was read and not used.
    pub(super) buffer: Vec<u8>,
    master: Master,
}

impl Link {
    /// Connects.
    pub(super) async fn connect(master: &Master) -> Linked<Self> {
        let connecting = TcpStream::connect((master.host.as_str(), master.port));
        let stream = match timeout(CONNECT_TIME, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return Err(LinkFailure::passing(format!("cannot connect to {master}: {error}")));
            }
            Err(_) => {
                return Err(LinkFailure::passing(format!(
                    "cannot connect to {master} within {} s",
                    CONNECT_TIME.as_secs()
                )));
            }
        };
        // Without it acknowledgements are late, no more.
        let _ = stream.set_nodelay(true);
        Ok(Self { stream, buffer: Vec::new(), master: master.clone() })
    }

    /// Reads more bytes. Fails at the end of the connection, and after a long silence.
    pub(super) async fn read(&mut self) -> Linked<usize> {
        self.buffer.reserve(READ_BYTES);
        let master = &self.master;
        match timeout(SILENCE_TIME, self.stream.read_buf(&mut self.buffer)).await {
            Ok(Ok(0)) => Err(LinkFailure::passing(format!("{master} has closed the connection"))),
            Ok(Ok(count)) => Ok(count),
            Ok(Err(error)) => {
                Err(LinkFailure::passing(format!("the connection to {master} is lost: {error}")))
            }
            Err(_) => Err(LinkFailure::passing(format!(
                "{master} has sent nothing for {} s",
                SILENCE_TIME.as_secs()
            ))),
        }
    }

    /// Writes bytes.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Linked {
        let master = &self.master;
        match timeout(SILENCE_TIME, self.stream.write_all(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                Err(LinkFailure::passing(format!("the connection to {master} is lost: {error}")))
            }
            Err(_) => Err(LinkFailure::passing(format!("{master} does not read"))),
        }
    }

    /// Writes a command. Its copy is overwritten, since an argument may be a password.
    pub(super) async fn send(&mut self, args: &[&str]) -> Linked {
        // Room for all, because a string that grows would leave a copy.
        let room = args.iter().map(|argument| argument.len() + HEAD_BYTES_MAX).sum::<usize>();
        let mut request = Zeroizing::new(String::with_capacity(HEAD_BYTES_MAX + room));
        let _ = write!(request, "*{}\r\n", args.len());
        for argument in args {
            // A write to a string cannot fail.
            let _ = write!(request, "${}\r\n{argument}\r\n", argument.len());
        }
        self.write(request.as_bytes()).await
    }

    /// Acknowledges the commands up to an offset.
    pub(super) async fn acknowledge(&mut self, offset: u64) -> Linked {
        self.send(&["REPLCONF", "ACK", &offset.to_string()]).await
    }

    /// Reads a line without its end. Empty lines only show that the master lives.
    pub(super) async fn line(&mut self) -> Linked<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let line = line.trim_ascii_end();
                if !line.is_empty() {
                    return Ok(String::from_utf8_lossy(line).into_owned());
                }
                continue;
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                let master = &self.master;
                let text = format!("{master} is no Redis server: it sends a line without an end");
                return Err(LinkFailure::lasting(text));
            }
            self.read().await?;
        }
    }

    /// Sends a command and reads its reply of one line.
    async fn ask(&mut self, args: &[&str]) -> Linked<String> {
        self.send(args).await?;
        self.line().await
    }

    /// Introduces this server.
    pub(super) async fn introduce(&mut self, server: &Server) -> Linked {
        let master = self.master.clone();
        let reply = self.ask(&["PING"]).await?;
        let is_known = ["+PONG", "-NOAUTH", "-NOPERM", "-ERR operation not permitted"]
            .iter()
            .any(|start| reply.starts_with(start));
        if !is_known {
            return Err(LinkFailure::passing(format!("{master} answers PING with {reply:?}")));
        }
        let (user, password) = server.settings.master_login();
        if !password.is_empty() {
            let reply = if user.is_empty() {
                self.ask(&["AUTH", &password]).await?
            } else {
                self.ask(&["AUTH", &user, &password]).await?
            };
            if !reply.starts_with("+OK") {
                return Err(LinkFailure::passing(format!(
                    "{master} refuses masteruser and masterauth: {reply}"
                )));
            }
        } else if reply.starts_with("-NOAUTH") {
            return Err(LinkFailure::passing(format!("{master} needs a password: set masterauth")));
        }
        let port = server.port.to_string();
        // An old master does not know these; it works without.
        self.ask(&["REPLCONF", "listening-port", &port]).await?;
        self.ask(&["REPLCONF", "capa", "eof", "capa", "psync2"]).await?;
        Ok(())
    }

    /// Asks for the commands behind a position.
    pub(super) async fn synchronize(&mut self, position: Option<&Position>) -> Linked<SyncReply> {
        let master = self.master.clone();
        let reply = match position {
            Some(Position { id, offset, .. }) => {
                let next = (offset + 1).to_string();
                self.ask(&["PSYNC", id, &next]).await?
            }
            None => self.ask(&["PSYNC", "?", "-1"]).await?,
        };
        let words: Vec<&str> = reply.split(' ').collect();
        match words.as_slice() {
            ["+FULLRESYNC", id, offset] => {
                let offset = offset.parse().map_err(|_| {
                    LinkFailure::passing(format!("{master} answers PSYNC with {reply:?}"))
                })?;
                Ok(SyncReply::Full(Position { id: (*id).to_owned(), offset, database: 0 }))
            }
            ["+CONTINUE"] => Ok(SyncReply::Continue(None)),
            ["+CONTINUE", id] => Ok(SyncReply::Continue(Some((*id).to_owned()))),
            ["-LOADING", ..] => {
                Err(LinkFailure::passing(format!("{master} loads its own data: {reply}")))
            }
            _ => Err(LinkFailure::passing(format!("{master} refuses PSYNC: {reply}"))),
        }
    }
}
