//! Runs requests: finds the command, checks what it may do, locks its keys, and commits.
//!
//! Consecutive commands of one pipeline are one unit. The unit commits when it is large and when a
//! lock is not free. It commits too before commands that concern other keys or clients, and at the
//! end of what was read.
//! Replies are sent after the commit. If the commit fails, each of the replies becomes the error.

mod limits;
mod monitor;
mod next_requests;
mod pause;
mod queue;
mod rights;
mod timing;
mod tracking;

use std::{fmt::Write as _, sync::atomic::Ordering, time::Instant};

use monitor::monitor;
use next_requests::NextRequests;
use quintet::Durability;
use timing::Tally;

use crate::{
    command::{
        call::{Action, Call, Command, Handler},
        transactions::end_watch,
    },
    failure::{Done, Fail},
    resp::{Args, Limits, Reply},
    spec::{Keys, Selection, Spec, flag},
    state::{Event, Queued, ReplyMode, Server, Session, Stats},
    store::{DatabaseId, Position, Unit, event, now_millis},
};

/// Runs requests.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    commands: Vec<Command>,
}

/// The commands of one pipeline that have not been committed.
#[derive(Debug)]
pub(crate) struct Pipeline<'s> {
    server: &'s Server,
    unit: Unit<'s>,
    /// Where the first reply of the unit begins, and the number of its replies.
    first_reply: usize,
    replies: usize,
    /// Whether something was committed, which `appendfsync always` must sync.
    pub(crate) has_committed: bool,
    tally: Tally<'s>,
}

impl<'s> Pipeline<'s> {
    /// An empty pipeline.
    pub(crate) fn new(server: &'s Server) -> Self {
        Self {
            server,
            unit: Unit::new(&server.store, now_millis()),
            first_reply: 0,
            replies: 0,
            has_committed: false,
            tally: Tally::new(server),
        }
    }

    /// An empty pipeline for the commands of a master.
    pub(crate) fn of_link(server: &'s Server) -> Self {
        Self { unit: Unit::of_link(&server.store, now_millis()), ..Self::new(server) }
    }

    /// The time of the last call or commit.
    pub(crate) fn clock(&self) -> Instant {
        self.tally.clock
    }

    /// Prefetches what the requests at the start of `requests` will read. Returns how many it has
    /// looked at.
    pub(crate) fn look_ahead(
        &mut self,
        database: DatabaseId,
        requests: &[u8],
        limits: &Limits,
    ) -> usize {
        let next = NextRequests::look(requests, limits);
        if let keys @ [_, _, ..] = next.keys() {
            self.unit.prefetch(database, keys);
        }
        next.requests
    }

    /// Notes the position of a replica behind the command that runs next.
    pub(crate) fn expect_position(&mut self, position: Position) {
        self.unit.expect_position(position);
    }

    /// Commits the unit. After a failure its replies are errors.
    pub(crate) fn commit(&mut self, reply: &mut Reply) {
        if self.unit.is_changed() {
            let committed = self.unit.commit(Durability::Buffered);
            // Since the end of the last call.
            let elapsed = self.tally.pass();
            self.server.stats.commit_latency.record(elapsed);
            self.server.note_latency(Event::Commit, elapsed);
            match committed {
                Ok(_) => self.has_committed = true,
                Err(fail) => {
                    self.server.stats.note_failure(&fail);
                    self.fail(reply, &fail);
                }
            }
        } else {
            self.unit.end_unchanged();
        }
        self.replies = 0;
    }

    /// Discards the unit. Its replies become errors.
    fn fail(&mut self, reply: &mut Reply, fail: &Fail) {
        self.unit.discard();
        reply.out.truncate(self.first_reply);
        let text = fail.text();
        for _ in 0..self.replies {
            let start = reply.out.len();
            reply.error(&text);
            self.server.stats.note_reply(reply, start);
        }
        self.replies = 0;
    }

    /// Counts the call of a command that has ended.
    fn note_call(&mut self, session: &Session, row: usize, args: Args<'_>) {
        let lookups = std::mem::take(&mut self.unit.lookups);
        self.tally.end(session, row, args, lookups);
    }

    /// Notes that a reply which begins at `start` is complete.
    fn end_reply(&mut self, session: &mut Session, reply: &mut Reply, start: usize) {
        match session.reply_mode {
            ReplyMode::On => {
                if self.replies == 0 {
                    self.first_reply = start;
                }
                self.replies += 1;
            }
            ReplyMode::Off => reply.out.truncate(start),
            ReplyMode::Skipping => {
                reply.out.truncate(start);
                session.reply_mode = ReplyMode::Skip;
            }
            ReplyMode::Skip => {
                reply.out.truncate(start);
                session.reply_mode = ReplyMode::On;
            }
        }
    }
}

impl Dispatcher {
    /// A dispatcher over the table of commands.
    pub(crate) fn new(commands: Vec<Command>) -> Self {
        Self { commands }
    }

    /// Runs one request. The reply is complete unless the session has a block afterwards, has work,
    /// or is held. Returns the row of the command, if its name is known.
    pub(crate) fn run<'s>(
        &self,
        server: &'s Server,
        pipeline: &mut Pipeline<'s>,
        session: &mut Session,
        reply: &mut Reply,
        args: Args<'_>,
    ) -> Option<usize> {
        let start = reply.out.len();
        let selection = server.registry.select_again(args, session.last_row);
        let row = selection.row();
        let (at, command) = match self.admit(server, session, reply, args, selection) {
            Ok(admitted) => admitted,
            Err(fail) => {
                session.is_queue_bad |= session.queue.is_some();
                tracking::end_caching(session, None);
                reply.error(&fail.text());
                server.stats.note_reply(reply, start);
                pipeline.end_reply(session, reply, start);
                return row;
            }
        };
        let is_held = match (command.action, session.queue.as_deref()) {
            (Action::Exec, Some(queue)) => {
                pause::is_exec_held(server, session, &self.commands, queue)
            }
            _ => pause::is_held(server, session, &command.spec),
        };
        if is_held {
            session.is_held = true;
            return row;
        }
        session.last_row = at;
        pipeline.unit.client = session.client.id;
        pipeline.tally.begin(at);
        if server.clients.has_monitors() && !session.is_retry {
            monitor(server, session, args);
        }
        let is_queued = session.queue.is_some() && !command.spec.has(flag::NO_MULTI);
        if is_queued {
            queue::queue(server, session, reply, at, args);
        } else {
            match command.action {
                Action::Exec if session.queue.is_some() => {
                    self.execute(server, pipeline, session, reply);
                }
                Action::Exec => reply.error("ERR EXEC without MULTI"),
                Action::Run(handler) => {
                    run_handler(server, pipeline, session, reply, (args, &command.spec, handler));
                }
            }
        }
        if session.block.is_some() || session.work.is_some() || session.is_held {
            return row;
        }
        tracking::end_caching(session, Some(&command.spec));
        // A position within a transaction is none.
        if session.queue.is_none() {
            pipeline.unit.advance(session.database);
        }
        // A commit within the command moves the start.
        let start = start.min(reply.out.len());
        limits::limit_reply(session, reply, start);
        server.stats.note_reply(reply, start);
        pipeline.end_reply(session, reply, start);
        if is_queued {
            // Counted when it runs.
            pipeline.tally.pass();
        } else {
            pipeline.note_call(session, at, args);
        }
        if !pipeline.unit.is_changed() {
            pipeline.unit.end_unchanged();
            pipeline.replies = 0;
        } else if pipeline.unit.is_full() {
            pipeline.commit(reply);
        }
        row
    }

    /// Finds the command of a request and checks what needs no lock.
    fn admit(
        &self,
        server: &Server,
        session: &mut Session,
        reply: &Reply,
        args: Args<'_>,
        selection: Selection,
    ) -> Done<(usize, &Command)> {
        let at = match selection {
            Selection::Command(at) => at,
            Selection::Unknown => return Err(unknown(args)),
            Selection::UnknownSubcommand(at) => {
                let name = self.commands.get(at).map_or("", |command| command.spec.name);
                return Err(Fail::with(format!(
                    "ERR unknown subcommand '{}'. Try {} HELP.",
                    shorten(args.at(1)),
                    name.to_ascii_uppercase()
                )));
            }
        };
        let command = self.commands.get(at).ok_or(Fail::SYNTAX)?;
        let spec = &command.spec;
        let rejected = |fail: Fail| -> Done<(usize, &Command)> {
            if let Some(counters) = server.stats.by_command.get(at) {
                Stats::add(&counters.rejected, 1);
            }
            Err(fail)
        };
        if !spec.accepts(args.len())
            || (spec.has(flag::CONTAINER) && args.len() < 2 && spec.arity < -1)
        {
            let name = spec.name;
            return rejected(Fail::with(format!(
                "ERR wrong number of arguments for '{name}' command"
            )));
        }
        if !session.is_authenticated && !spec.has(flag::NO_AUTH) {
            return rejected(Fail::new("NOAUTH Authentication required."));
        }
        let is_subscriber = session.subscription_count() > 0 && !reply.is_resp3();
        if is_subscriber && !spec.has(flag::SUBSCRIBED) {
            return rejected(Fail::with(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
                spec.name
            )));
        }
        if let Some(fail) = rights::refusal(server, session, at, args) {
            return rejected(fail);
        }
        match server.replication.refusal(spec, session.is_link) {
            Some(fail) => rejected(fail),
            None => Ok((at, command)),
        }
    }

    /// Runs the commands since `MULTI` as one commit.
    fn execute<'s>(
        &self,
        server: &'s Server,
        pipeline: &mut Pipeline<'s>,
        session: &mut Session,
        reply: &mut Reply,
    ) {
        let queue = session.queue.take().unwrap_or_default();
        pipeline.commit(reply);
        if !self.begin_execution(server, pipeline, session, reply, &queue) {
            if session.is_held {
                session.queue = Some(queue);
            }
            return;
        }
        let start = reply.out.len();
        reply.array(queue.len());
        session.is_executing = true;
        let mut failure = None;
        limits::begin(server, &mut pipeline.unit, session, pipeline.tally.clock);
        for queued in &queue {
            let Some(command) = self.commands.get(queued.command) else { continue };
            let Action::Run(handler) = command.action else { continue };
            pipeline.tally.begin(queued.command);
            let args = Args::new(&queued.buffer, &queued.ranges);
            let at = reply.out.len();
            if let Some(fail) = rights::refusal_at_exec(server, session, queued.command, args) {
                reply.error(&fail.text());
                continue;
            }
            if command.spec.has(flag::READ) {
                let (unit, spec) = (&mut pipeline.unit, &command.spec);
                note_misses(server, unit, session.database, spec, args);
            }
            tracking::remember(server, session, &command.spec, args);
            let unit = &mut pipeline.unit;
            let result = handler(&mut Call { unit, args, reply, session, server });
            let result = result.and_then(|()| pipeline.unit.limits.check());
            pipeline.unit.end_command();
            if let Err(fail) = result {
                reply.out.truncate(at);
                reply.error(&fail.text());
                server.stats.note_reply(reply, at);
                if fail.is_partial() {
                    failure = Some(fail);
                    break;
                }
            }
            pipeline.note_call(session, queued.command, args);
        }
        session.is_executing = false;
        pipeline.unit.advance(session.database);
        let committed = match failure {
            Some(fail) => {
                pipeline.unit.discard();
                Err(fail)
            }
            None => pipeline.unit.commit(Durability::Buffered),
        };
        match committed {
            Ok(changes) => pipeline.has_committed |= changes > 0,
            Err(fail) => {
                server.stats.note_failure(&fail);
                reply.out.truncate(start);
                reply.error(&fail.text());
            }
        }
    }

    /// Locks the keys of queued commands. Returns `false`, with the reply, if they must not run.
    /// If a pause holds them, it returns `false` without a reply.
    fn begin_execution<'s>(
        &self,
        server: &'s Server,
        pipeline: &mut Pipeline<'s>,
        session: &mut Session,
        reply: &mut Reply,
        queue: &[Queued],
    ) -> bool {
        if std::mem::take(&mut session.is_queue_bad) {
            end_watch(session, &server.store.changes);
            reply.error("EXECABORT Transaction discarded because of previous errors.");
            return false;
        }
        self.lock_queue(pipeline, session, queue);
        if pause::is_exec_held(server, session, &self.commands, queue) {
            session.is_held = true;
            return false;
        }
        // It may follow a master since the commands were queued.
        let specs = queue.iter().filter_map(|queued| self.commands.get(queued.command));
        let refusal =
            |command: &Command| server.replication.refusal(&command.spec, session.is_link);
        let fail = specs.into_iter().find_map(refusal);
        if let Some(fail) = fail.or_else(|| rights::lost_namespace(session)) {
            pipeline.unit.discard();
            end_watch(session, &server.store.changes);
            let text = fail.text();
            reply.error(&format!("EXECABORT Transaction discarded because of: {text}"));
            return false;
        }
        let is_broken = is_watch_broken(&mut pipeline.unit, session);
        end_watch(session, &server.store.changes);
        if is_broken {
            pipeline.unit.discard();
            reply.null_array();
            return false;
        }
        true
    }

    /// Locks the keys of queued commands and the watched keys.
    fn lock_queue(&self, pipeline: &mut Pipeline<'_>, session: &Session, queue: &[Queued]) {
        let specs = queue.iter().filter_map(|queued| {
            let spec = &self.commands.get(queued.command)?.spec;
            Some((spec, Args::new(&queued.buffer, &queued.ranges)))
        });
        let needs_all =
            specs.clone().any(|(spec, _)| spec.has(flag::LOCK_ALL) || spec.name == "select")
                || session.watched.iter().any(|((database, _), _)| *database != session.database);
        if needs_all {
            pipeline.unit.lock_all();
            return;
        }
        let keys = specs.flat_map(|(spec, args)| {
            spec.keys.positions(args).into_iter().map(move |position| args.at(position))
        });
        let watched = session.watched.iter().map(|((_, key), _)| key.as_slice());
        pipeline.unit.lock(session.database, keys.chain(watched));
    }
}

/// Whether a watched key has changed or expired since `WATCH`. Its stripe is held.
fn is_watch_broken(unit: &mut Unit<'_>, session: &Session) -> bool {
    if session.is_watch_broken.load(Ordering::Acquire) {
        return true;
    }
    unit.now = now_millis();
    session.watched.iter().any(|((database, key), was_present)| {
        let is_present = !key.is_empty() && unit.exists(*database, key).unwrap_or(true);
        *was_present && !is_present
    })
}

/// Locks the keys of a command and runs it.
fn run_handler<'s>(
    server: &'s Server,
    pipeline: &mut Pipeline<'s>,
    session: &mut Session,
    reply: &mut Reply,
    (args, spec, handler): (Args<'_>, &Spec, Handler),
) {
    let commits_first = flag::KEYSPACE | flag::COMMIT_FIRST | flag::PUBSUB | flag::LOCK_ALL;
    if spec.has(commits_first | flag::BLOCKING) {
        pipeline.commit(reply);
    }
    if !lock(&mut pipeline.unit, session.database, spec, args) {
        pipeline.commit(reply);
        // An empty unit waits, so this cannot fail.
        lock(&mut pipeline.unit, session.database, spec, args);
    }
    // Checked again under the locks: a pause or a load may have begun since the first check.
    if pause::is_held(server, session, spec) {
        session.is_held = true;
        return;
    }
    let refusal = server.replication.refusal(spec, session.is_link);
    if let Some(fail) = refusal.or_else(|| rights::namespace_refusal(session, spec)) {
        reply.error(&fail.text());
        return;
    }
    if spec.has(flag::READ) {
        note_misses(server, &mut pipeline.unit, session.database, spec, args);
    }
    let start = reply.out.len();
    limits::begin(server, &mut pipeline.unit, session, pipeline.tally.clock);
    tracking::remember(server, session, spec, args);
    let unit = &mut pipeline.unit;
    let result = handler(&mut Call { unit, args, reply, session, server });
    let result = result.and_then(|()| pipeline.unit.limits.check());
    pipeline.unit.end_command();
    let Err(fail) = result else { return };
    server.stats.note_failure(&fail);
    session.block = None;
    session.work = None;
    reply.out.truncate(start);
    reply.error(&fail.text());
    let row = server.registry.find(spec.name.as_bytes());
    if let Some(counters) = row.and_then(|row| server.stats.by_command.get(row)) {
        Stats::add(&counters.failed, 1);
    }
    if limits::is_discarding(&fail, spec) && pipeline.unit.is_changed() {
        // The command may have changed a part. The unit is discarded with the earlier commands.
        reply.out.truncate(start);
        pipeline.fail(reply, &fail);
        reply.error(&fail.text());
    }
}

/// Publishes reads of keys that are absent, if clients receive them.
fn note_misses(
    server: &Server,
    unit: &mut Unit<'_>,
    database: DatabaseId,
    spec: &Spec,
    args: Args<'_>,
) {
    let notifications = &server.store.changes.notifications;
    if !notifications.wants(event::MISS) {
        return;
    }
    let keys = spec.keys.positions(args).into_iter().map(|position| args.at(position));
    for key in keys.filter(|key| !key.is_empty()) {
        // The command itself reports a failed read.
        if matches!(unit.exists(database, key), Ok(false)) {
            notifications.send(event::MISS, "keymiss", database, key);
        }
    }
}

fn lock(unit: &mut Unit<'_>, database: DatabaseId, spec: &Spec, args: Args<'_>) -> bool {
    if spec.has(flag::LOCK_ALL) {
        return unit.lock_all();
    }
    match spec.keys {
        Keys::None => true,
        Keys::Range { first, last, .. } if i32::try_from(first) == Ok(last) => {
            unit.lock_one(database, args.at(first))
        }
        keys => {
            let positions = keys.positions(args);
            unit.lock(database, positions.into_iter().map(|position| args.at(position)))
        }
    }
}

fn unknown(args: Args<'_>) -> Fail {
    let name = args.at(0);
    for script in [
        b"eval".as_slice(),
        b"evalsha",
        b"eval_ro",
        b"evalsha_ro",
        b"function",
        b"fcall",
        b"fcall_ro",
        b"script",
    ] {
        if name.eq_ignore_ascii_case(script) {
            let name = shorten(name);
            return Fail::with(format!("ERR '{name}' is not supported: Quintet runs no scripts"));
        }
    }
    for cluster in [b"cluster".as_slice(), b"readonly", b"readwrite", b"asking"] {
        if name.eq_ignore_ascii_case(cluster) {
            return Fail::new("ERR This instance has cluster support disabled");
        }
    }
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", shorten(name));
    for argument in args.from(1) {
        if text.len() > 128 {
            break;
        }
        // A write to a string cannot fail.
        let _ = write!(text, "'{}' ", shorten(argument));
    }
    Fail::with(text)
}

/// A word of a request for a message: at most 128 bytes.
fn shorten(word: &[u8]) -> String {
    String::from_utf8_lossy(word.get(..128).unwrap_or(word)).into_owned()
}
