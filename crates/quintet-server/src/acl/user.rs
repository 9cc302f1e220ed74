//! A user: its passwords, and what it may do.
//!
//! A user has permissions, and may have *selectors*: further permissions. A request is allowed if
//! one of them allows all of it. Commands are a bit set over the rows of the table of commands, so
//! a check reads one bit. Patterns are matched only if not all keys are allowed.
//!
//! Invariant: a user does not change. A change makes a new one, which replaces the old one.

use super::access::{KeyAccess, RowAccess};
use crate::{
    glob,
    resp::Args,
    spec::{Registry, Spec},
    store::DEFAULT_NAMESPACE,
};

/// The user of connections that have not named another.
pub(crate) const DEFAULT_USER: &str = "default";

/// A set of rows of the table of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RowSet(Vec<u64>);

impl RowSet {
    /// Adds or removes a row.
    pub(super) fn set(&mut self, row: usize, is_member: bool) {
        let (word, bit) = (row / 64, 1_u64 << (row % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            if is_member {
                *word |= bit;
            } else {
                *word &= !bit;
            }
        }
        // Equal sets have equal words.
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// Whether a row is a member.
    pub(super) fn has(&self, row: usize) -> bool {
        self.0.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }
}

/// Keys that permissions cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyPattern {
    pub(super) access: KeyAccess,
    pub(super) pattern: String,
}

impl KeyPattern {
    fn rule(&self) -> String {
        let pattern = &self.pattern;
        match (self.access.reads, self.access.writes) {
            (true, false) => format!("%R~{pattern}"),
            (false, true) => format!("%W~{pattern}"),
            _ => format!("~{pattern}"),
        }
    }
}

/// Commands, keys and channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permissions {
    pub(super) commands: RowSet,
    /// The rules that made [`Self::commands`], in order.
    pub(super) command_rules: Vec<String>,
    pub(super) has_all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    pub(super) has_all_channels: bool,
    pub(super) channels: Vec<String>,
}

/// Why a user may not run a request. Later ones say more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denial {
    /// The command is not allowed.
    Command,
    /// The key at this argument is not allowed.
    Key(usize),
    /// The channel at this argument is not allowed.
    Channel(usize),
}

/// A request to check: its row in the table of commands, and its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'r> {
    /// The number of the row.
    pub(crate) row: usize,
    /// The columns of the row.
    pub(crate) spec: &'r Spec,
    /// The access to its keys.
    pub(crate) access: RowAccess,
    /// The arguments, the name first.
    pub(crate) args: Args<'r>,
}

impl Permissions {
    fn allows_key(&self, key: &[u8], access: KeyAccess) -> bool {
        self.has_all_keys
            || self.keys.iter().any(|allowed| {
                (allowed.access.reads || !access.reads)
                    && (allowed.access.writes || !access.writes)
                    && glob::matches(allowed.pattern.as_bytes(), key)
            })
    }

    /// A pattern must be one of the user's own, because it may match more than they do.
    fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        self.has_all_channels
            || self.channels.iter().any(|allowed| {
                let allowed = allowed.as_bytes();
                if is_pattern { allowed == name } else { glob::matches(allowed, name) }
            })
    }

    fn check(&self, request: &Request<'_>) -> Result<(), Denial> {
        if !self.commands.has(request.row) {
            return Err(Denial::Command);
        }
        let Request { spec, args, access, .. } = *request;
        if !self.has_all_keys {
            for (index, position) in spec.keys.positions(args).into_iter().enumerate() {
                if !self.allows_key(args.at(position), access.at(index, args)) {
                    return Err(Denial::Key(position));
                }
            }
        }
        let (channels, is_pattern) = match spec.name {
            "publish" | "spublish" => (1..2, false),
            "subscribe" | "ssubscribe" => (1..args.len(), false),
            "psubscribe" => (1..args.len(), true),
            _ => return Ok(()),
        };
        for position in channels {
            if !self.allows_channel(args.at(position), is_pattern) {
                return Err(Denial::Channel(position));
            }
        }
        Ok(())
    }

    fn allows_everything(&self, registry: &Registry) -> bool {
        let has_all_commands = (0..registry.specs().len()).all(|row| self.commands.has(row));
        has_all_commands && self.has_all_keys && self.has_all_channels
    }

    /// The rules of keys.
    pub(crate) fn key_rules(&self) -> Vec<String> {
        if self.has_all_keys {
            return vec!["~*".to_owned()];
        }
        self.keys.iter().map(KeyPattern::rule).collect()
    }

    /// The rules of channels.
    pub(crate) fn channel_rules(&self) -> Vec<String> {
        if self.has_all_channels {
            return vec!["&*".to_owned()];
        }
        self.channels.iter().map(|channel| format!("&{channel}")).collect()
    }

    /// The rules of commands, in the order in which they apply.
    pub(crate) fn command_rules(&self) -> &[String] {
        &self.command_rules
    }

    fn rules(&self) -> Vec<String> {
        let mut rules = self.key_rules();
        if !self.has_all_channels {
            rules.push("resetchannels".to_owned());
        }
        rules.extend(self.channel_rules());
        rules.extend_from_slice(&self.command_rules);
        rules
    }
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Its name.
    pub(crate) name: String,
    /// Whether it can log in.
    pub(crate) is_enabled: bool,
    /// Whether each password is right.
    pub(crate) is_nopass: bool,
    /// The argon2id hashes of its passwords.
    pub(crate) hashes: Vec<String>,
    /// What it may do without its selectors.
    pub(crate) root: Permissions,
    /// Further permissions.
    pub(crate) selectors: Vec<Permissions>,
    /// The namespaces that it may use, the first one it begins in; `*` is all. Without any it may
    /// use `default`.
    pub(crate) namespaces: Vec<String>,
    /// Whether [`Self::check`] allows everything, in all namespaces or in `default`. Kept up by
    /// [`Self::finish`].
    pub(crate) is_unrestricted: bool,
}

impl User {
    /// A user that may do nothing.
    pub(crate) fn new(name: &str) -> Self {
        let nothing = vec!["-@all".to_owned()];
        Self {
            name: name.to_owned(),
            is_enabled: false,
            is_nopass: false,
            hashes: Vec::new(),
            root: Permissions { command_rules: nothing, ..Permissions::default() },
            selectors: Vec::new(),
            namespaces: Vec::new(),
            is_unrestricted: false,
        }
    }

    /// Computes what is kept beside the rules.
    pub(super) fn finish(&mut self, registry: &Registry) {
        self.is_unrestricted = self.root.allows_everything(registry) && !self.is_confined();
    }

    /// Whether rules name the namespaces that it may use, and not all of them. It runs no commands
    /// of administrators then, because they concern all namespaces.
    pub(crate) fn is_confined(&self) -> bool {
        !self.namespaces.is_empty() && !self.namespaces.iter().any(|name| name == "*")
    }

    /// Whether it may use a namespace. Without a rule that is `default`. The user `default` may use
    /// all then, if it may do everything.
    pub(crate) fn allows_namespace(&self, name: &str) -> bool {
        if self.namespaces.is_empty() {
            let is_all = self.is_unrestricted && self.name == DEFAULT_USER;
            return is_all || name == DEFAULT_NAMESPACE;
        }
        self.namespaces.iter().any(|own| own == name || own == "*")
    }

    /// The namespace in which its connections begin.
    pub(crate) fn first_namespace(&self) -> &str {
        let first = self.namespaces.first().map(String::as_str);
        first.filter(|name| *name != "*").unwrap_or(DEFAULT_NAMESPACE)
    }

    fn permissions(&self) -> impl Iterator<Item = &Permissions> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Fails if no permissions allow the request.
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<(), Denial> {
        let mut denial = Denial::Command;
        for permissions in self.permissions() {
            match permissions.check(request) {
                Ok(()) => return Ok(()),
                Err(other) => denial = denial.max(other),
            }
        }
        Err(denial)
    }

    /// Whether permissions that allow a row allow to read all keys, as `SORT BY` needs.
    pub(crate) fn reads_all_keys(&self, row: usize) -> bool {
        self.is_unrestricted
            || self.permissions().any(|permissions| {
                let is_all = |key: &KeyPattern| key.access.reads && key.pattern == "*";
                permissions.commands.has(row)
                    && (permissions.has_all_keys || permissions.keys.iter().any(is_all))
            })
    }

    /// Whether each password is right for a login now.
    pub(crate) fn is_open(&self) -> bool {
        self.is_enabled && self.is_nopass
    }

    /// Whether a subscription is allowed.
    pub(crate) fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        self.permissions().any(|permissions| permissions.allows_channel(name, is_pattern))
    }

    /// Whether a row is allowed with some arguments.
    pub(crate) fn allows_row(&self, row: usize) -> bool {
        self.permissions().any(|permissions| permissions.commands.has(row))
    }

    /// `on` or `off`, and `nopass`.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_enabled { "on" } else { "off" }];
        if self.is_nopass {
            flags.push("nopass");
        }
        flags
    }

    /// The rules that make this user from a new one.
    pub(crate) fn rules(&self) -> Vec<String> {
        let flags = self.flags().into_iter().map(str::to_owned);
        flags.chain(self.rules_without_flags()).collect()
    }

    /// The rules without [`Self::flags`].
    pub(crate) fn rules_without_flags(&self) -> Vec<String> {
        let mut rules = Vec::new();
        rules.extend(self.hashes.iter().map(|hash| format!("#{hash}")));
        rules.extend(self.namespaces.iter().map(|name| format!("namespace={name}")));
        rules.extend(self.root.rules());
        rules.extend(self.selectors.iter().map(|own| format!("({})", own.rules().join(" "))));
        rules
    }
}
