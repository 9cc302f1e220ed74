//! A running command: its arguments, its reply, and what it may read and change.

use crate::{
    failure::{Done, Fail},
    number::{parse_f64, parse_i64},
    resp::{Args, Reply},
    spec::Spec,
    state::{AppendFsync, Block, Server, Session},
    store::{Collection, DatabaseId, Kind, Unit, event},
};

/// A running command.
#[derive(Debug)]
pub(crate) struct Call<'c, 's> {
    /// Keys and values, with the changes that commit together.
    pub(crate) unit: &'c mut Unit<'s>,
    /// The arguments, the name first.
    pub(crate) args: Args<'c>,
    /// The reply.
    pub(crate) reply: &'c mut Reply,
    /// The connection.
    pub(crate) session: &'c mut Session,
    /// The server.
    pub(crate) server: &'s Server,
}

/// Runs a command. The keys of its row are locked.
pub(crate) type Handler = for<'c, 's> fn(&mut Call<'c, 's>) -> Done;

/// A row of the table of commands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// Its columns.
    pub(crate) spec: Spec,
    /// Its function.
    pub(crate) action: Action,
}

/// The function of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// A function.
    Run(Handler),
    /// The dispatcher, because it concerns other commands.
    Exec,
}

/// Makes the rows of a group:
/// `"get" 2 [READ FAST] Keys::ONE, get, "1.0.0", "Returns the value.";`
macro_rules! commands {
    ($group:expr; $($name:literal $arity:literal [$($flag:ident)*] $keys:expr, $handler:expr,
        $since:literal, $summary:literal;)*) => {
        /// The rows of this group.
        pub(crate) const COMMANDS: &[crate::command::call::Command] = &[$(
            crate::command::call::Command {
                spec: crate::spec::Spec {
                    name: $name,
                    arity: $arity,
                    flags: 0 $(| crate::spec::flag::$flag)*,
                    keys: $keys,
                    group: $group,
                    since: $since,
                    summary: $summary,
                },
                action: crate::command::call::Action::Run($handler),
            }
        ),*];
    };
}
pub(crate) use commands;

impl<'c> Call<'c, '_> {
    /// The database of the connection.
    pub(crate) fn database(&self) -> DatabaseId {
        self.session.database
    }

    /// When writes of the connection are on disk.
    pub(crate) fn appendfsync(&self) -> AppendFsync {
        self.session.durability.unwrap_or_else(|| self.server.settings.appendfsync())
    }

    /// Argument 1, the key of most commands.
    pub(crate) fn key(&self) -> &'c [u8] {
        self.args.at(1)
    }

    /// Argument `index` as an integer.
    pub(crate) fn integer(&self, index: usize) -> Done<i64> {
        parse_i64(self.args.at(index)).ok_or(Fail::NOT_INTEGER)
    }

    /// Argument `index` as a number.
    pub(crate) fn float(&self, index: usize) -> Done<f64> {
        parse_f64(self.args.at(index)).ok_or(Fail::NOT_FLOAT)
    }

    /// Opens the collection at a key.
    pub(crate) fn open(&mut self, key: &[u8], kind: Kind) -> Done<Option<Collection<'_>>> {
        self.unit.open(self.session.database, key, kind)
    }

    /// Opens the collection at a key, or makes one.
    pub(crate) fn create(&mut self, key: &[u8], kind: Kind) -> Done<Collection<'_>> {
        self.unit.open_or_create(self.session.database, key, kind)
    }

    /// Notes an event of a key of the connection's database.
    pub(crate) fn notify(&mut self, class: u32, name: &'static str, key: &[u8]) {
        self.unit.notify(class, name, self.session.database, key);
    }

    /// Notes the event of a command that has replaced what was at its target by a result: `name`,
    /// or `del` if the result is empty and there was something.
    pub(crate) fn notify_stored(
        &mut self,
        class: u32,
        name: &'static str,
        key: &[u8],
        (was_present, is_present): (bool, bool),
    ) {
        if was_present {
            self.unit.cancel_new(self.session.database, key);
        }
        if is_present {
            self.notify(class, name, key);
        } else if was_present {
            self.notify(event::GENERIC, "del", key);
        }
    }

    /// Counts bytes by which a value has grown that the unit keeps. Fails beyond the limit of the
    /// command's memory.
    pub(crate) fn grow(&self, bytes: usize) -> Done {
        let flow = self.unit.limits.load(bytes);
        if flow.is_break() { self.unit.limits.check() } else { Ok(()) }
    }

    /// Looks at the time of the command. Fails beyond its limit.
    pub(crate) fn look(&self) -> Done {
        let flow = self.unit.limits.look();
        if flow.is_break() { self.unit.limits.check() } else { Ok(()) }
    }

    /// Counts bytes that the command collects. Fails beyond the limit of its memory.
    pub(crate) fn hold(&self, bytes: usize) -> Done {
        let flow = self.unit.limits.hold(bytes);
        if flow.is_break() { self.unit.limits.check() } else { Ok(()) }
    }

    /// Fails with `WRONGTYPE` if a key exists and has another type. Returns whether it exists.
    pub(crate) fn check_kind(&mut self, key: &[u8], kind: Kind) -> Done<bool> {
        match self.unit.head(self.session.database, key)? {
            None => Ok(false),
            Some(head) if head.kind() == kind => Ok(true),
            Some(_) => Err(Fail::WRONG_TYPE),
        }
    }

    /// Waits until one of the keys changes, and runs the command again. In a transaction, and at
    /// the end of the time, `on_timeout` writes the reply.
    pub(crate) fn wait_for(
        &mut self,
        keys: &[&[u8]],
        timeout: Option<std::time::Duration>,
        on_timeout: fn(&mut Reply),
    ) {
        if self.session.is_executing {
            on_timeout(self.reply);
            return;
        }
        let names: Vec<_> = keys.iter().map(|key| (self.session.database, key.to_vec())).collect();
        let client = &self.session.client;
        // Under the stripes of the keys, so that no change is missed.
        self.server.store.changes.wait(&names, client.id, &client.wake);
        if !self.session.is_retry {
            self.session.deadline = timeout.map(|timeout| std::time::Instant::now() + timeout);
        }
        let until = self.session.deadline;
        self.session.block = Some(Block { until, keys: names, on_timeout, is_paused: false });
    }
}
