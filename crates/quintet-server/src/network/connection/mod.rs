//! A connection: reads requests, runs them, writes replies.
//!
//! One task serves one connection. It runs all whole requests that it has read, commits them, and
//! writes all replies at once. While it writes it does not read, so a client that does not read
//! its replies cannot make the server hold more than one buffer for it. The limits of its memory
//! are in `state/output.rs` and `state/memory.rs`.

mod hold;
mod output;

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use output::{EndOfConnection, note_end, write_output};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::watch,
    time::{Sleep, sleep_until, timeout},
};
use zeroize::Zeroize as _;

use crate::{
    command::{pubsub::end_subscriptions, transactions::end_watch},
    dispatch::{Dispatcher, Pipeline},
    resp::{Args, Limits, Parser, Reply},
    spec::flag,
    state::{AppendFsync, Block, Buffer, Client, Event, Server, Session, Stats},
    work::run_work,
};

/// Most arguments, and longest one, before the password.
const UNAUTHENTICATED_ARGS_MAX: usize = 10;
const UNAUTHENTICATED_BULK_MAX: usize = 16 << 10;
/// Most bytes that wait to be parsed before the password.
const UNAUTHENTICATED_BUFFER_MAX: usize = 64 << 10;
/// Time to give the password.
const AUTHENTICATION_TIME: Duration = Duration::from_secs(10);
/// Longest time between two checks of the idle time.
const IDLE_CHECK_TIME: Duration = Duration::from_secs(10);
/// Bytes of replies after which they are written, before further requests run.
const OUTPUT_BYTES: usize = 1 << 20;
/// The same before the password.
const UNAUTHENTICATED_OUTPUT_BYTES: usize = 64 << 10;
/// Bytes that are read at a time, unless a long argument is expected.
const READ_BYTES: usize = 16 << 10;
const LONG_READ_BYTES: usize = 1 << 20;
/// Bytes of the buffer of an idle connection. There may be thousands of them.
const IDLE_READ_BYTES: usize = 512;
/// Most bytes that a waiting client can send ahead.
const AHEAD_BYTES_MAX: usize = 1 << 20;

/// A connection.
pub(super) struct Connection<S> {
    server: Arc<Server>,
    dispatcher: Arc<Dispatcher>,
    stream: S,
    session: Session,
    /// What was read; the request under way begins at `start`.
    buffer: Vec<u8>,
    start: usize,
    parser: Parser,
    reply: Reply,
    /// Whether the buffers were freed and nothing has been read since.
    is_idle: bool,
    /// Whether the request under way may have a password, whose bytes are then overwritten.
    has_secret: bool,
    /// When the idle time began: at the start, at the last read, or when the last request that had
    /// to wait was answered.
    active: Instant,
    /// Wakes the task to check the idle time. It is set when it fires, not at each read.
    idle: Pin<Box<Sleep>>,
    ending: watch::Receiver<bool>,
}

/// What follows after the requests that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// More must be read.
    Read,
    /// There are more requests.
    Again,
    /// The request of this length waits for keys.
    Wait(usize),
    /// The request of this length waits for work on another thread.
    Work(usize),
    /// A pause of clients holds the request.
    Hold,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A connection of a client.
    pub(super) fn new(
        stream: S,
        dispatcher: Arc<Dispatcher>,
        registered: &RegisteredClient,
    ) -> Self {
        let (server, client) = (registered.server.clone(), registered.client.clone());
        let has_password = !server.settings.password().is_empty();
        let ending = server.ending.subscribe();
        Self {
            session: Session::new(client, &server.acl, has_password, &server.store.databases),
            server,
            dispatcher,
            stream,
            buffer: Vec::new(),
            start: 0,
            parser: Parser::default(),
            reply: Reply::default(),
            is_idle: false,
            has_secret: false,
            active: Instant::now(),
            idle: Box::pin(sleep_until((Instant::now() + AUTHENTICATION_TIME).into())),
            ending,
        }
    }

    /// Serves the connection until it ends.
    pub(super) async fn serve(mut self) {
        // The reason of the end is the client's, the network's or a limit's.
        let _ = self.serve_requests().await;
        note_end(&self.server, &self.session.client);
        end_watch(&mut self.session, &self.server.store.changes);
        end_subscriptions(&mut self.session, &self.server);
        let _ = timeout(Duration::from_secs(1), self.stream.shutdown()).await;
    }

    async fn serve_requests(&mut self) -> Result<(), EndOfConnection> {
        if *self.ending.borrow() {
            return Err(EndOfConnection);
        }
        loop {
            let (step, has_committed) = self.process();
            self.sync_and_write(has_committed).await?;
            match step {
                Step::Again => {}
                Step::Read => self.read().await?,
                Step::Wait(length) => self.wait(length).await?,
                Step::Work(length) => self.work(length).await?,
                Step::Hold => self.hold().await?,
            }
        }
    }

    fn limits(&self) -> Limits {
        if self.session.is_authenticated {
            let max = self.server.settings.proto_max_bulk_len.load(Ordering::Relaxed);
            let bulk_bytes_max = usize::try_from(max).unwrap_or(usize::MAX);
            let args_max = self.server.settings.proto_max_args.load(Ordering::Relaxed);
            let args_max = usize::try_from(args_max).unwrap_or(usize::MAX);
            Limits { args_max, bulk_bytes_max, is_authenticated: true }
        } else {
            Limits {
                args_max: UNAUTHENTICATED_ARGS_MAX,
                bulk_bytes_max: UNAUTHENTICATED_BULK_MAX,
                is_authenticated: false,
            }
        }
    }

    /// Runs the whole requests in the buffer. Returns whether something was committed.
    fn process(&mut self) -> (Step, bool) {
        let server = self.server.clone();
        let mut pipeline = Pipeline::new(&server);
        let (mut last_command, mut looked_at) = (None, 0_usize);
        self.reply.limit = self.session.client.output_limit().hard_bytes();
        let step = loop {
            if self.session.is_closing {
                break Step::Read;
            }
            let limits = self.limits();
            let is_known = limits.is_authenticated;
            let most = if is_known { OUTPUT_BYTES } else { UNAUTHENTICATED_OUTPUT_BYTES };
            if self.reply.out.len() >= most {
                break Step::Again;
            }
            let request = self.buffer.get(self.start..).unwrap_or(&[]);
            if looked_at == 0 && is_known && self.session.queue.is_none() {
                looked_at = pipeline.look_ahead(self.session.database, request, &limits);
            }
            looked_at = looked_at.saturating_sub(1);
            let length = match self.parser.parse(request, &limits) {
                Ok(Some(length)) => length,
                Ok(None) => {
                    self.check_query(&mut pipeline);
                    break Step::Read;
                }
                Err(error) => {
                    pipeline.commit(&mut self.reply);
                    self.reply.error(&format!("ERR {}", error.0));
                    self.session.is_closing = true;
                    break Step::Read;
                }
            };
            last_command = self.run(&server, &mut pipeline).or(last_command);
            if self.session.is_held {
                break Step::Hold;
            }
            if self.session.block.is_some() {
                break Step::Wait(length);
            }
            if self.session.work.is_some() {
                break Step::Work(length);
            }
            self.end_request(length);
        };
        pipeline.commit(&mut self.reply);
        // Errors of a failed commit that are longer than the replies.
        self.session.is_closing |= self.reply.take_overflow();
        if let Some(command) = last_command {
            let mut info = self.session.client.info();
            info.command.clear();
            info.command.push_str(command);
            info.active = Some(pipeline.clock());
            info.queued = self.session.queue.as_ref().map(Vec::len);
        }
        (step, pipeline.has_committed)
    }

    fn end_request(&mut self, length: usize) {
        if std::mem::take(&mut self.has_secret) {
            let end = self.start + length;
            self.buffer.get_mut(self.start..end).unwrap_or(&mut []).zeroize();
            self.parser.words.zeroize();
        }
        self.start += length;
        self.parser.reset();
        if self.start >= self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            if self.buffer.capacity() > LONG_READ_BYTES {
                self.buffer.shrink_to(READ_BYTES);
            }
        }
    }

    /// Writes the replies and messages, after a sync if the writes need one.
    async fn sync_and_write(&mut self, has_committed: bool) -> Result<(), EndOfConnection> {
        let durability = self.session.durability;
        let when = durability.unwrap_or_else(|| self.server.settings.appendfsync());
        let owes_sync = std::mem::take(&mut self.session.owes_sync);
        if has_committed && (owes_sync || when == AppendFsync::Always) {
            // Without the sync the writes are not acknowledged: the client gets no reply.
            let started = Instant::now();
            let synced = self.server.syncer.sync().await;
            let elapsed = started.elapsed();
            self.server.stats.sync_latency.record(elapsed);
            self.server.note_latency(Event::Sync, elapsed);
            synced.map_err(|_| EndOfConnection)?;
        } else if has_committed && when == AppendFsync::EverySec {
            self.server.syncer.sync_within_a_second();
        }
        self.session.refresh_user(&self.server.acl);
        if !self.session.is_revoked {
            self.session.client.take_messages(&mut self.reply.out);
        }
        self.note_memory();
        if !self.reply.out.is_empty() {
            Stats::add(&self.server.stats.bytes_out, self.reply.out.len());
            let client = &self.session.client;
            let out = &mut self.reply.out;
            let written = write_output(&self.server, &mut self.stream, out, client).await;
            if std::mem::take(&mut self.session.has_secret_reply) {
                out.zeroize();
            }
            written?;
            self.reply.out.clear();
            if self.reply.out.capacity() > LONG_READ_BYTES {
                self.reply.out.shrink_to(READ_BYTES);
            }
        }
        self.note_memory();
        let client = &self.session.client;
        // Not by a timer alone: requests that always follow would keep it from being asked.
        let is_late =
            !self.session.is_authenticated && client.connected.elapsed() >= AUTHENTICATION_TIME;
        let is_killed = client.is_killed.load(Ordering::Acquire);
        if self.session.is_closing || is_killed || is_late { Err(EndOfConnection) } else { Ok(()) }
    }

    /// Checks the idle time when its timer has fired, and sets the timer again.
    fn check_idle(&mut self) -> Result<(), EndOfConnection> {
        let seconds = self.server.settings.timeout.load(Ordering::Relaxed);
        let is_exempt = seconds == 0 || self.session.subscription_count() > 0;
        let now = Instant::now();
        let deadline = if !self.session.is_authenticated {
            self.session.client.connected + AUTHENTICATION_TIME
        } else if is_exempt {
            now + IDLE_CHECK_TIME
        } else {
            self.active + Duration::from_secs(seconds)
        };
        if deadline <= now {
            return Err(EndOfConnection);
        }
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
            self.reply.out = Vec::new();
            self.parser = Parser::default();
            self.is_idle = true;
            self.note_memory();
        }
        // A setting that changes takes effect at the next check.
        self.idle.as_mut().reset(deadline.min(now + IDLE_CHECK_TIME).into());
        Ok(())
    }

    /// Reads more, or returns for messages.
    async fn read(&mut self) -> Result<(), EndOfConnection> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let is_authenticated = self.session.is_authenticated;
        if !is_authenticated && self.buffer.len() >= UNAUTHENTICATED_BUFFER_MAX {
            return Err(EndOfConnection);
        }
        // A client that always has bytes to read would keep the branches below from being asked.
        if *self.ending.borrow() {
            return Err(EndOfConnection);
        }
        self.reserve();
        tokio::select! {
            biased;
            count = self.stream.read_buf(&mut self.buffer) => {
                let count = count?;
                if count == 0 {
                    return Err(EndOfConnection);
                }
                Stats::add(&self.server.stats.bytes_in, count);
                self.active = Instant::now();
                self.is_idle = false;
                Ok(())
            }
            () = self.session.client.wake.notified() => Ok(()),
            _ = self.ending.changed() => Err(EndOfConnection),
            () = &mut self.idle => self.check_idle(),
        }
    }

    /// Waits for what a blocking command needs, and runs it again each time its keys change.
    async fn wait(&mut self, length: usize) -> Result<(), EndOfConnection> {
        self.session.client.info().is_blocked = true;
        self.session.client.unblock.store(0, Ordering::Release);
        let mut names = Vec::new();
        let waited = self.wait_for_keys(&mut names).await;
        self.server.store.changes.end_wait(&names, self.session.client.id);
        self.session.client.info().is_blocked = false;
        self.session.is_retry = false;
        self.session.block = None;
        self.active = Instant::now();
        let has_committed = waited?;
        self.end_request(length);
        self.sync_and_write(has_committed).await
    }

    /// Waits for the work of a request on another thread, and runs the request again.
    async fn work(&mut self, length: usize) -> Result<(), EndOfConnection> {
        let mut has_committed = false;
        while let Some(work) = self.session.work.take() {
            let server = self.server.clone();
            let answer = tokio::select! {
                answer = run_work(&server, self.session.client.ip, work) => answer,
                _ = self.ending.changed() => return Err(EndOfConnection),
            };
            self.session.answer = Some(answer);
            self.session.is_retry = true;
            let mut pipeline = Pipeline::new(&server);
            self.run(&server, &mut pipeline);
            pipeline.commit(&mut self.reply);
            has_committed |= pipeline.has_committed;
            self.session.is_retry = false;
            self.session.answer = None;
        }
        self.end_request(length);
        self.sync_and_write(has_committed).await
    }

    async fn wait_for_keys(
        &mut self,
        names: &mut Vec<crate::store::KeyName>,
    ) -> Result<bool, EndOfConnection> {
        let (wake, server) = (self.session.client.wake.clone(), self.server.clone());
        loop {
            let Some(block) = self.session.block.take() else { return Ok(false) };
            for name in &block.keys {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            let may_read = self.buffer.len() - self.start < AHEAD_BYTES_MAX;
            tokio::select! {
                biased;
                () = wake.notified() => {}
                () = server.pause.wait(), if block.is_paused => {}
                () = sleep_to(block.until) => {
                    (block.on_timeout)(&mut self.reply);
                    return Ok(false);
                }
                count = self.stream.read_buf(&mut self.buffer), if may_read => {
                    if count? == 0 {
                        return Err(EndOfConnection);
                    }
                    self.session.block = Some(block);
                    self.note_memory();
                    if self.session.client.is_killed.load(Ordering::Acquire) {
                        return Err(EndOfConnection);
                    }
                    continue;
                }
                _ = self.ending.changed() => return Err(EndOfConnection),
            }
            if self.session.client.is_killed.load(Ordering::Acquire) {
                return Err(EndOfConnection);
            }
            match self.session.client.unblock.swap(0, Ordering::AcqRel) {
                1 => {
                    (block.on_timeout)(&mut self.reply);
                    return Ok(false);
                }
                2 => {
                    self.reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
                    return Ok(false);
                }
                _ => {}
            }
            if let Some(has_committed) = self.retry(&block) {
                return Ok(has_committed);
            }
            self.server.store.changes.pass_on(names, self.session.client.id);
            // Messages do not wait for the keys.
            self.sync_and_write(false).await?;
        }
    }
}

impl<S> Connection<S> {
    /// Makes room for the next read. A long argument is read in longer parts, but never in one of
    /// its declared length. The buffer grows by a sixteenth at least, so that growing costs time in
    /// proportion to the bytes.
    fn reserve(&mut self) {
        let length = self.buffer.len();
        let spare = self.buffer.capacity() - length;
        let least = if self.is_idle { IDLE_READ_BYTES } else { READ_BYTES };
        if spare < least {
            let wanted = self.parser.wanted().saturating_sub(length);
            let step = wanted.min(LONG_READ_BYTES.max(length / 4));
            self.buffer.reserve_exact(step.max(least).max(length / 16));
        }
        self.note_memory();
    }

    /// Notes the memory of the connection. Ends the largest clients if all clients have too much.
    fn note_memory(&self) {
        let memory = &self.session.client.memory;
        let query = self.buffer.capacity() + self.parser.memory();
        let is_more = memory.note(Buffer::Query, query)
            | memory.note(Buffer::Reply, self.reply.out.capacity())
            | memory.note(Buffer::Held, self.session.held_bytes());
        if is_more {
            self.server.end_largest_clients();
        }
    }

    /// Ends the connection if the request under way is too long.
    fn check_query(&mut self, pipeline: &mut Pipeline<'_>) {
        let max = self.server.settings.query_bytes_max();
        if self.buffer.len().saturating_sub(self.start) <= max {
            return;
        }
        Stats::add(&self.server.stats.query_disconnections, 1);
        pipeline.commit(&mut self.reply);
        self.reply.error(&format!(
            "ERR Protocol error: the request is longer than client-query-buffer-limit, {max} bytes"
        ));
        self.session.is_closing = true;
    }

    /// Runs the waiting request again. Returns whether it committed, or `None` if it still waits.
    fn retry(&mut self, block: &Block) -> Option<bool> {
        self.session.is_retry = true;
        let start = self.reply.out.len();
        let server = self.server.clone();
        let mut pipeline = Pipeline::new(&server);
        self.run(&server, &mut pipeline);
        pipeline.commit(&mut self.reply);
        if std::mem::take(&mut self.session.is_held) {
            self.session.block = Some(Block { keys: Vec::new(), is_paused: true, ..*block });
        }
        // A key of another type has come. The client waits for one of its type.
        if self.reply.out.get(start..).is_some_and(|reply| reply.starts_with(b"-WRONGTYPE")) {
            self.reply.out.truncate(start);
            self.session.block = Some(Block { keys: Vec::new(), is_paused: false, ..*block });
        }
        self.session.block.is_none().then_some(pipeline.has_committed)
    }

    /// Runs the request that the parser has. Returns the name of its command.
    fn run<'s>(&mut self, server: &'s Server, pipeline: &mut Pipeline<'s>) -> Option<&'s str> {
        let request = self.buffer.get(self.start..).unwrap_or(&[]);
        let source = if self.parser.words.is_empty() { request } else { &self.parser.words };
        let args = Args::new(source, &self.parser.ranges);
        if args.len() == 0 {
            return None;
        }
        let (session, reply) = (&mut self.session, &mut self.reply);
        let row = self.dispatcher.run(server, pipeline, session, reply, args)?;
        let spec = server.registry.spec(row)?;
        self.has_secret = spec.has(flag::SECRET);
        Some(spec.name)
    }
}

/// Waits until a moment, or for ever.
async fn sleep_to(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// A client in the list of clients. The end of this value removes it.
pub(super) struct RegisteredClient {
    pub(super) server: Arc<Server>,
    pub(super) client: Arc<Client>,
}

impl Drop for RegisteredClient {
    fn drop(&mut self) {
        self.server.tracking.disable(&self.client);
        self.server.clients.remove(&self.client);
    }
}
