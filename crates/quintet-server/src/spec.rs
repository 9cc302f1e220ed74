//! The columns of the table of commands, without the handlers.

use std::collections::HashMap;

use crate::resp::Args;

/// The version of Redis whose commands the server has.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// Flags of commands, as bits.
pub(crate) mod flag {
    /// Reads keys.
    pub(crate) const READ: u32 = 1;
    /// May change keys.
    pub(crate) const WRITE: u32 = 1 << 1;
    /// Is refused when memory is short.
    pub(crate) const DENYOOM: u32 = 1 << 2;
    /// Needs the right of an administrator.
    pub(crate) const ADMIN: u32 = 1 << 3;
    /// Publishes or subscribes.
    pub(crate) const PUBSUB: u32 = 1 << 4;
    /// May wait.
    pub(crate) const BLOCKING: u32 = 1 << 5;
    /// Takes constant or logarithmic time.
    pub(crate) const FAST: u32 = 1 << 6;
    /// Is allowed before a password.
    pub(crate) const NO_AUTH: u32 = 1 << 7;
    /// Is not queued by `MULTI`.
    pub(crate) const NO_MULTI: u32 = 1 << 8;
    /// Reads or changes keys that its arguments do not name.
    pub(crate) const KEYSPACE: u32 = 1 << 9;
    /// Needs the locks of all keys.
    pub(crate) const LOCK_ALL: u32 = 1 << 10;
    /// Can be dangerous for others: the ACL category.
    pub(crate) const DANGEROUS: u32 = 1 << 11;
    /// Is allowed while subscribed in RESP2.
    pub(crate) const SUBSCRIBED: u32 = 1 << 12;

    /// Is run by a subcommand only.
    pub(crate) const CONTAINER: u32 = 1 << 13;

    /// Runs after the earlier commands of its pipeline have committed.
    pub(crate) const COMMIT_FIRST: u32 = 1 << 14;

    /// May have a password among its arguments.
    pub(crate) const SECRET: u32 = 1 << 15;

    /// The flags that `COMMAND` replies, by name.
    pub(crate) const NAMES: [(u32, &str); 8] = [
        (WRITE, "write"),
        (READ, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (PUBSUB, "pubsub"),
        (BLOCKING, "blocking"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
    ];
}

/// The group of a command in Redis's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Group {
    /// Keys of any type.
    Generic,
    /// Strings.
    String,
    /// Bits of strings.
    Bitmap,
    /// Hashes.
    Hash,
    /// Lists.
    List,
    /// Sets.
    Set,
    /// Sorted sets.
    SortedSet,
    /// Sorted sets of places.
    Geo,
    /// Estimates of distinct elements.
    HyperLogLog,
    /// Streams.
    Stream,
    /// Publish and subscribe.
    PubSub,
    /// Transactions.
    Transactions,
    /// Connections.
    Connection,
    /// The server.
    Server,
}

impl Group {
    /// All groups, in the order of the documentation.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 14] = [
        Self::String,
        Self::Bitmap,
        Self::Generic,
        Self::Hash,
        Self::List,
        Self::Set,
        Self::SortedSet,
        Self::Geo,
        Self::HyperLogLog,
        Self::Stream,
        Self::PubSub,
        Self::Transactions,
        Self::Connection,
        Self::Server,
    ];

    /// The name in `COMMAND DOCS`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::String => "string",
            Self::Bitmap => "bitmap",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Geo => "geo",
            Self::HyperLogLog => "hyperloglog",
            Self::Stream => "stream",
            Self::PubSub => "pubsub",
            Self::Transactions => "transactions",
            Self::Connection => "connection",
            Self::Server => "server",
        }
    }

    /// The ACL category.
    pub(crate) fn category(self) -> Option<&'static str> {
        Some(match self {
            Self::Generic => "keyspace",
            Self::SortedSet => "sortedset",
            Self::Transactions => "transaction",
            Self::Server => return None,
            other => other.name(),
        })
    }
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// None.
    None,
    /// Each `step` arguments from `first` to `last`; a negative last counts from the end.
    Range {
        /// The first key.
        first: usize,
        /// The last key.
        last: i32,
        /// The distance of keys.
        step: usize,
    },
    /// As many as argument `count` says, which they follow; `target`, if not 0, is one too.
    Counted {
        /// A key before the count.
        target: usize,
        /// Where the count is.
        count: usize,
    },
    /// Argument 1, and the argument behind each `STORE` or `STOREDIST`.
    Stored,
    /// The first half of what follows `STREAMS`.
    Streams,
}

impl Keys {
    /// Argument 1.
    pub(crate) const ONE: Self = Self::Range { first: 1, last: 1, step: 1 };
    /// Argument 2, behind a subcommand.
    pub(crate) const SECOND: Self = Self::Range { first: 2, last: 2, step: 1 };
    /// Arguments 1 and 2.
    pub(crate) const TWO: Self = Self::Range { first: 1, last: 2, step: 1 };
    /// All arguments.
    pub(crate) const ALL: Self = Self::Range { first: 1, last: -1, step: 1 };
    /// All arguments but the last.
    pub(crate) const ALL_BUT_LAST: Self = Self::Range { first: 1, last: -2, step: 1 };
    /// Each second argument.
    pub(crate) const PAIRS: Self = Self::Range { first: 1, last: -1, step: 2 };

    /// The positions of the keys. Empty if the arguments do not say.
    pub(crate) fn positions(self, args: Args<'_>) -> Vec<usize> {
        let count = args.len();
        match self {
            Self::None => Vec::new(),
            Self::Range { first, last, step } => {
                let last = match usize::try_from(last) {
                    Ok(last) => last.min(count.saturating_sub(1)),
                    Err(_) => count.saturating_sub(usize::try_from(-last).unwrap_or(1)),
                };
                if first > last || count == 0 {
                    Vec::new()
                } else {
                    (first..=last).step_by(step).collect()
                }
            }
            Self::Counted { target, count: at } => {
                let keys = crate::number::parse_u64(args.at(at));
                let keys = keys.and_then(|keys| usize::try_from(keys).ok()).unwrap_or(0);
                let keys = keys.min(count.saturating_sub(at + 1));
                let target = (target > 0).then_some(target);
                target.into_iter().chain(at + 1..at + 1 + keys).collect()
            }
            Self::Streams => {
                let Some(at) = (1..count).find(|at| args.is(*at, "streams")) else {
                    return Vec::new();
                };
                (at + 1..at + 1 + (count - at - 1) / 2).collect()
            }
            Self::Stored => {
                let targets = (2..count.saturating_sub(1))
                    .filter(|at| args.is(*at, "store") || args.is(*at, "storedist"))
                    .map(|at| at + 1);
                std::iter::once(1).chain(targets).collect()
            }
        }
    }

    /// First key, last key and step as `COMMAND` replies them.
    pub(crate) fn triple(self) -> (i64, i64, i64) {
        match self {
            Self::None | Self::Streams | Self::Counted { target: 0, .. } => (0, 0, 0),
            Self::Range { first, last, step } => (
                i64::try_from(first).unwrap_or(0),
                i64::from(last),
                i64::try_from(step).unwrap_or(0),
            ),
            Self::Counted { .. } | Self::Stored => (1, 1, 1),
        }
    }
}

/// A row of the table of commands, without its handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// The name in lower case; `client|id` for a subcommand.
    pub(crate) name: &'static str,
    /// Number of arguments with the name; at least its negative if negative.
    pub(crate) arity: i32,
    /// Bits of [`flag`].
    pub(crate) flags: u32,
    /// The keys.
    pub(crate) keys: Keys,
    /// The group.
    pub(crate) group: Group,
    /// The version of Redis that introduced it.
    pub(crate) since: &'static str,
    /// One sentence.
    pub(crate) summary: &'static str,
}

impl Spec {
    /// Whether it has a flag.
    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether the number of arguments is allowed.
    pub(crate) fn accepts(&self, count: usize) -> bool {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        if self.arity >= 0 { count == self.arity } else { count >= -self.arity }
    }

    /// The ACL categories of commands that Redis has put elsewhere than their group says.
    fn own_categories(&self) -> &'static [&'static str] {
        match self.name {
            "sort" | "sort_ro" => &["list", "set", "sortedset"],
            "wait" => &["connection"],
            "lolwut" => &["read"],
            name if name == "command" || name.starts_with("command|") => &["connection"],
            _ => &[],
        }
    }

    /// The ACL categories.
    pub(crate) fn categories(&self) -> Vec<&'static str> {
        if self.has(flag::CONTAINER) && self.arity < -1 {
            return vec!["slow"];
        }
        let mut found = self.own_categories().to_vec();
        let is_generic = self.group == Group::Generic && found.is_empty();
        let is_keyspace = is_generic || self.has(flag::KEYSPACE);
        for (has, name) in [
            (is_keyspace, "keyspace"),
            (self.has(flag::READ), "read"),
            (self.has(flag::WRITE), "write"),
            (self.has(flag::ADMIN), "admin"),
            (self.has(flag::ADMIN | flag::DANGEROUS), "dangerous"),
            (self.has(flag::BLOCKING), "blocking"),
            (self.has(flag::FAST), "fast"),
            (!self.has(flag::FAST), "slow"),
        ] {
            if has {
                found.push(name);
            }
        }
        let has_own = found.iter().any(|name| self.own_categories().contains(name));
        let group = self.group.category().filter(|name| !has_own && !found.contains(name));
        found.extend(group);
        found
    }
}

/// The commands by name.
#[derive(Debug)]
pub(crate) struct Registry {
    specs: Vec<Spec>,
    by_name: HashMap<&'static str, usize>,
}

impl Registry {
    /// Makes the index of the commands.
    pub(crate) fn new(specs: Vec<Spec>) -> Self {
        let by_name = specs.iter().enumerate().map(|(at, spec)| (spec.name, at)).collect();
        Self { specs, by_name }
    }

    /// All commands and subcommands, in the order of the table.
    pub(crate) fn specs(&self) -> &[Spec] {
        &self.specs
    }

    /// The position of a command by its name in lower case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(std::str::from_utf8(name).ok()?).copied()
    }

    /// The row at a position.
    pub(crate) fn spec(&self, at: usize) -> Option<&Spec> {
        self.specs.get(at)
    }

    /// As [`Self::select`]. `last` is the row of an earlier request, which is tried first: most
    /// requests of a client have the command of the one before.
    pub(crate) fn select_again(&self, args: Args<'_>, last: usize) -> Selection {
        match self.spec(last) {
            Some(spec)
                if !spec.has(flag::CONTAINER)
                    && !spec.name.contains('|')
                    && args.at(0).eq_ignore_ascii_case(spec.name.as_bytes()) =>
            {
                Selection::Command(last)
            }
            _ => self.select(args),
        }
    }

    /// The row that a request selects: the subcommand's, if the command has subcommands.
    pub(crate) fn select(&self, args: Args<'_>) -> Selection {
        let mut buffer = [0; NAME_BYTES_MAX];
        // The names of subcommands' rows are no names of commands.
        let name = Some(lower(&mut buffer, &[args.at(0)])).filter(|name| !name.contains(&b'|'));
        let Some(command) = name.and_then(|name| self.find(name)) else {
            return Selection::Unknown;
        };
        if self.spec(command).is_some_and(|spec| !spec.has(flag::CONTAINER)) || args.len() < 2 {
            return Selection::Command(command);
        }
        match self.find(lower(&mut buffer, &[args.at(0), b"|", args.at(1)])) {
            Some(found) => Selection::Command(found),
            None => Selection::UnknownSubcommand(command),
        }
    }
}

/// Longest name of a command with a subcommand in bytes. Longer names are of no command.
const NAME_BYTES_MAX: usize = 40;

/// Joins parts in lower case. Empty if they are too long.
fn lower<'b>(buffer: &'b mut [u8; NAME_BYTES_MAX], parts: &[&[u8]]) -> &'b [u8] {
    let mut length = 0;
    for byte in parts.iter().copied().flatten() {
        let Some(slot) = buffer.get_mut(length) else { return &[] };
        *slot = byte.to_ascii_lowercase();
        length += 1;
    }
    buffer.get(..length).unwrap_or(&[])
}

/// The row that a request selects from the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// A row.
    Command(usize),
    /// No command has the name.
    Unknown,
    /// The command at this row has no such subcommand.
    UnknownSubcommand(usize),
}

impl Selection {
    /// The row of the command or, without such a subcommand, of what contains it.
    pub(crate) fn row(self) -> Option<usize> {
        match self {
            Self::Command(row) | Self::UnknownSubcommand(row) => Some(row),
            Self::Unknown => None,
        }
    }
}
