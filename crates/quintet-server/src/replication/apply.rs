//! Applies the commands of a master through the dispatcher, as one of the clients.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use super::link::{LinkFailure, Linked};
use crate::{
    dispatch::{Dispatcher, Pipeline},
    resp::{Args, Limits, Parser, Reply},
    state::{Client, Server, Session},
    store::{DatabaseId, Position},
};

/// Most arguments of a command, and their longest in bytes.
const LIMITS: Limits =
    Limits { args_max: 1 << 24, bulk_bytes_max: 512 << 20, is_authenticated: true };
/// Commands that change no keys and that this server does not have.
const SKIPPED: [&str; 4] = ["function", "script", "spublish", "module"];

/// Applies commands.
pub(super) struct Applier {
    server: Arc<Server>,
    dispatcher: Arc<Dispatcher>,
    session: Session,
    client: Arc<Client>,
    parser: Parser,
    reply: Reply,
    epoch: u64,
    /// Behind the last command, which may be within a transaction.
    position: Position,
    /// Behind the last command that has been committed.
    pub(super) committed: Position,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Applied {
    /// Bytes of the buffer that were used.
    pub(super) used: usize,
    /// Whether something was committed.
    pub(super) has_committed: bool,
    /// Whether the master asks for an acknowledgement.
    pub(super) must_acknowledge: bool,
}

impl Drop for Applier {
    fn drop(&mut self) {
        self.server.clients.remove(&self.client);
    }
}

impl Applier {
    /// Applies commands from a position on.
    pub(super) fn new(
        server: &Arc<Server>,
        dispatcher: &Arc<Dispatcher>,
        address: String,
        (epoch, position): (u64, Position),
    ) -> Self {
        let client = server.clients.add((address, String::new()), None);
        let mut session = Session::of_link(client.clone(), &server.acl, &server.store.databases);
        session.database = DatabaseId::of_default(position.database);
        Self {
            server: server.clone(),
            dispatcher: dispatcher.clone(),
            session,
            client,
            parser: Parser::default(),
            reply: Reply::default(),
            epoch,
            committed: position.clone(),
            position,
        }
    }

    /// Applies the whole commands at the start of `buffer`, and commits them. If one cannot be
    /// applied, those before it have been.
    pub(super) fn step(&mut self, buffer: &[u8]) -> Linked<Applied> {
        let server = self.server.clone();
        let _applying = server.replication.lock_applying();
        if !server.replication.is_current(self.epoch) {
            return Err(LinkFailure::passing("REPLICAOF has changed the master"));
        }
        let start = self.session.queue.is_none().then(|| self.committed.clone());
        match (self.apply(&server, buffer, Applied::default(), false), start) {
            (Err(failure), Some(start)) if failure.is_final => {
                self.apply_each(&server, buffer, &start)
            }
            (applied, _) => applied,
        }
    }

    /// Applies the commands that have not been committed, each as a commit.
    fn apply_each(&mut self, server: &Server, buffer: &[u8], start: &Position) -> Linked<Applied> {
        let stored = server.store.databases.position();
        let stored = stored.map_err(|fail| LinkFailure::lasting(fail.text()))?;
        let stored = stored.and_then(|bytes| Position::decode(&bytes));
        let resumed = stored.filter(|stored| stored.offset > start.offset);
        let resumed = resumed.unwrap_or_else(|| start.clone());
        let used = usize::try_from(resumed.offset - start.offset).unwrap_or(usize::MAX);
        self.session.queue = None;
        self.session.database = DatabaseId::of_default(resumed.database);
        self.parser.reset();
        self.position = resumed;
        self.apply(server, buffer, Applied { used, ..Applied::default() }, true)
    }

    fn apply(
        &mut self,
        server: &Server,
        buffer: &[u8],
        mut step: Applied,
        commits_each: bool,
    ) -> Linked<Applied> {
        let mut pipeline = Pipeline::of_link(server);
        loop {
            let rest = buffer.get(step.used..).unwrap_or(&[]);
            let parsed = self.parser.parse(rest, &LIMITS).map_err(|error| {
                LinkFailure::passing(format!("the master sends no command: {}", error.0))
            })?;
            let Some(length) = parsed else { break };
            self.position.offset += u64::try_from(length).unwrap_or(0);
            step.must_acknowledge |= self.run(server, &mut pipeline, rest)?;
            step.used += length;
            self.parser.reset();
            if commits_each {
                self.commit(server, &mut pipeline)?;
            }
        }
        self.commit(server, &mut pipeline)?;
        step.has_committed = pipeline.has_committed;
        Ok(step)
    }

    fn commit(&mut self, server: &Server, pipeline: &mut Pipeline<'_>) -> Linked {
        pipeline.commit(&mut self.reply);
        self.check("a commit")?;
        if self.session.queue.is_none() {
            self.position.database = self.session.database.index();
            self.committed.clone_from(&self.position);
        }
        let committed = self.committed.clone();
        server.replication.note(|status| {
            status.position = Some(committed);
            status.heard = Some(Instant::now());
        });
        Ok(())
    }

    /// Runs the command that the parser has. Returns whether it asks for an acknowledgement.
    fn run<'s>(
        &mut self,
        server: &'s Server,
        pipeline: &mut Pipeline<'s>,
        request: &[u8],
    ) -> Linked<bool> {
        let source = if self.parser.words.is_empty() { request } else { &self.parser.words };
        let args = Args::new(source, &self.parser.ranges);
        if args.len() == 0 {
            return Ok(false);
        }
        if args.is(0, "replconf") {
            return Ok(args.is(1, "getack"));
        }
        if SKIPPED.iter().any(|name| args.is(0, name)) {
            server.replication.skipped.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        pipeline.expect_position(self.position.clone());
        let name = String::from_utf8_lossy(args.at(0)).into_owned();
        _ = self.dispatcher.run(server, pipeline, &mut self.session, &mut self.reply, args);
        if self.session.block.take().is_some() {
            return Err(LinkFailure::lasting(format!("the master sends {name}, which waits")));
        }
        self.check(&name)?;
        Ok(false)
    }

    /// Fails if a reply is an error: the master has run the command, so the data would differ.
    fn check(&mut self, name: &str) -> Linked {
        let failed = first_error(&self.reply.out);
        self.reply.out.clear();
        match failed {
            None => Ok(()),
            Some(error) => Err(LinkFailure::lasting(format!(
                "{name} at offset {} cannot be replicated: {error}; the keys are those before it. \
                 Remove the cause on the master and run REPLICAOF again",
                self.position.offset
            ))),
        }
    }
}

/// The first error among replies in RESP2, also within arrays.
fn first_error(mut replies: &[u8]) -> Option<String> {
    while let Some(end) = replies.windows(2).position(|pair| pair == b"\r\n") {
        let (line, after) = replies.split_at(end);
        replies = after.get(2..).unwrap_or(&[]);
        let rest = line.get(1..).unwrap_or(&[]);
        match line.first() {
            Some(b'-') => return Some(String::from_utf8_lossy(rest).into_owned()),
            Some(b'$') => {
                let length = crate::number::parse_u64(rest);
                let length = length.and_then(|length| usize::try_from(length).ok());
                if let Some(length) = length {
                    replies = replies.get(length + 2..).unwrap_or(&[]);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::first_error;

    #[test]
    fn errors_are_found_within_arrays_and_not_within_strings() {
        assert_eq!(first_error(b"+OK\r\n$6\r\n-ERR\r\n\r\n:1\r\n*-1\r\n$-1\r\n"), None);
        let replies = b"*2\r\n+OK\r\n-ERR bad\r\n";
        assert_eq!(first_error(replies).as_deref(), Some("ERR bad"));
    }
}
