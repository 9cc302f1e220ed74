//! Users and what they may do: the access control lists of Redis.
//!
//! [`Acl`] has the users by name. A connection keeps its user, and compares a number at each
//! command that each change of users increases. Only then it asks for the user again. So the check
//! of an unrestricted user costs one load and one branch.
//!
//! Passwords are argon2id hashes (`password`). Rules are those of Redis 7 (`rules`). A file keeps
//! the users (`file`); the log has the last refusals (`log`).
//!
//! Locks: `changing` is held while a change hashes its passwords, on the blocking pool. `users` is
//! taken within it, and for moments only.

mod access;
mod file;
mod log;
mod password;
mod rules;
mod user;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use zeroize::Zeroizing;

pub(crate) use access::RowAccess;
pub(crate) use log::{Log, LogEntry, Reason};
pub(crate) use password::{Login, fill_random};
pub(crate) use rules::Rule;
pub(crate) use user::{DEFAULT_USER, Denial, Permissions, Request, User};

use crate::{resp::Args, spec::Registry};

/// Most users.
const USERS_MAX: usize = 10_000;

/// Why `ACL LOAD` and `ACL SAVE` are refused without a file.
const NO_FILE: &str = "This server is not configured to use an ACL file. Name one with `aclfile` \
     in the configuration";

/// Why a change that opens the server to other machines is refused.
const OPEN_DEFAULT: &str = "other machines reach this server, and the user 'default' would need no \
     password; give it one, switch it off, or set requirepass first";

/// Whether the user `default` may be one that needs no password.
pub(crate) type MayBeOpen<'m> = &'m dyn Fn() -> bool;

type Users = BTreeMap<String, Arc<User>>;

/// The users.
#[derive(Debug)]
pub(crate) struct Acl {
    users: RwLock<Users>,
    /// Number of changes of users.
    generation: AtomicU64,
    /// Held while users change.
    changing: Mutex<()>,
    registry: Registry,
    /// The access to keys, by row of the table of commands.
    access: Vec<RowAccess>,
    file: Option<PathBuf>,
    /// The last refusals.
    pub(crate) log: Log,
}

/// The user `default` of a new server: it may do everything without a password.
fn default_user(registry: &Registry) -> User {
    let rules = ["on", "nopass", "allkeys", "allchannels", "allcommands"];
    let rules = rules.map(|rule| Zeroizing::new(rule.to_owned()));
    let mut user = User::new(DEFAULT_USER);
    // These rules are sound.
    let _ = rules::apply(&mut user, &rules, registry);
    user
}

/// The users of a list of names with their rules. `default` is added if it is missing.
fn make_users(lists: &BTreeMap<String, Vec<Rule>>, registry: &Registry) -> Result<Users, String> {
    if lists.len() > USERS_MAX {
        return Err(format!("there are more than {USERS_MAX} users"));
    }
    let mut users = Users::new();
    for (name, list) in lists {
        rules::check_name(name).map_err(|why| format!("user {name:?}: {why}"))?;
        let mut user = User::new(name);
        rules::apply(&mut user, list, registry).map_err(|why| format!("user {name:?}: {why}"))?;
        users.insert(name.clone(), Arc::new(user));
    }
    let default = || Arc::new(default_user(registry));
    users.entry(DEFAULT_USER.to_owned()).or_insert_with(default);
    Ok(users)
}

impl Acl {
    /// The users of the configuration: those of `file`, or else `lists`. Fails if a rule is wrong,
    /// and if other users of the machine can read the file.
    pub(crate) fn new(
        registry: &Registry,
        file: Option<&Path>,
        lists: &BTreeMap<String, Vec<Rule>>,
    ) -> Result<Self, String> {
        let registry = Registry::new(registry.specs().to_vec());
        let users = match file {
            Some(path) => make_users(&file::read(path)?, &registry)?,
            None => make_users(lists, &registry)?,
        };
        Ok(Self {
            users: RwLock::new(users),
            generation: AtomicU64::new(1),
            changing: Mutex::new(()),
            access: registry.specs().iter().map(RowAccess::of).collect(),
            registry,
            file: file.map(Path::to_owned),
            log: Log::default(),
        })
    }

    /// A number that increases with each change of a user.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// A user by its name.
    pub(crate) fn user(&self, name: &str) -> Option<Arc<User>> {
        self.users.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The user `default`, which always exists.
    pub(crate) fn default_user(&self) -> Arc<User> {
        self.user(DEFAULT_USER).unwrap_or_else(|| Arc::new(User::new(DEFAULT_USER)))
    }

    /// A user that may do everything, whatever the rules of others are: the link to a master.
    pub(crate) fn master_user(&self) -> Arc<User> {
        Arc::new(default_user(&self.registry))
    }

    /// All users by name.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.users.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Whether a file keeps the users.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Fails if a user may not run a request.
    pub(crate) fn check(&self, user: &User, row: usize, args: Args<'_>) -> Result<(), Denial> {
        if user.is_unrestricted {
            return Ok(());
        }
        let (Some(spec), Some(access)) = (self.registry.spec(row), self.access.get(row)) else {
            return Err(Denial::Command);
        };
        user.check(&Request { row, spec, access: *access, args })
    }

    /// Whether a user may run a command with some arguments.
    pub(crate) fn allows_command(&self, user: &User, name: &str) -> bool {
        self.registry.find(name.as_bytes()).is_some_and(|row| user.allows_row(row))
    }

    /// Whether a user may run a command on all keys, reading them.
    pub(crate) fn reads_all_keys(&self, user: &User, name: &[u8]) -> bool {
        user.is_unrestricted || self.registry.find(name).is_some_and(|row| user.reads_all_keys(row))
    }

    /// Replaces the users. The caller holds `changing`. Fails, and keeps the old ones, if `default`
    /// would need no password and must not.
    fn install(&self, users: Users, may_be_open: MayBeOpen<'_>) -> Result<(), String> {
        let mut own = self.users.write().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that no other change removes the other password meanwhile.
        if users.get(DEFAULT_USER).is_some_and(|user| user.is_open()) && !may_be_open() {
            return Err(OPEN_DEFAULT.to_owned());
        }
        *own = users;
        drop(own);
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Calls `change` with the user `default`, which nothing else changes meanwhile.
    pub(crate) fn with_default_user<T>(&self, change: impl FnOnce(Option<&User>) -> T) -> T {
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
        change(users.get(DEFAULT_USER).map(Arc::as_ref))
    }

    fn snapshot(&self) -> Users {
        self.users.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes or changes a user. All rules apply, or none. Blocks while it hashes passwords. Fails
    /// if `default` would need no password and must not.
    pub(crate) fn set_user(
        &self,
        name: &str,
        list: &[Rule],
        may_be_open: MayBeOpen<'_>,
    ) -> Result<(), String> {
        rules::check_name(name)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut users = self.snapshot();
        let mut user = match users.get(name) {
            Some(user) => User::clone(user),
            None if users.len() >= USERS_MAX => {
                return Err(format!("there are at most {USERS_MAX} users"));
            }
            None => User::new(name),
        };
        rules::apply(&mut user, list, &self.registry)?;
        users.insert(name.to_owned(), Arc::new(user));
        self.install(users, may_be_open)
    }

    /// Removes users. Returns how many existed. Blocks while other changes hash passwords.
    pub(crate) fn delete_users(
        &self,
        names: &[String],
        may_be_open: MayBeOpen<'_>,
    ) -> Result<usize, String> {
        if names.iter().any(|name| name == DEFAULT_USER) {
            return Err("The 'default' user cannot be removed".to_owned());
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut users = self.snapshot();
        let removed = names.iter().filter(|name| users.remove(name.as_str()).is_some()).count();
        self.install(users, may_be_open)?;
        Ok(removed)
    }

    /// Reads the file again. Keeps the old users if it cannot be read, if a rule is wrong, and if
    /// `default` would need no password and must not.
    pub(crate) fn load(&self, may_be_open: MayBeOpen<'_>) -> Result<(), String> {
        let path = self.file.as_deref().ok_or(NO_FILE)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let users = make_users(&file::read(path)?, &self.registry)?;
        self.install(users, may_be_open)
    }

    /// Writes the file: the new one replaces the old one and is on disk, or the old one stays.
    pub(crate) fn save(&self) -> Result<(), String> {
        let path = self.file.as_deref().ok_or(NO_FILE)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        file::write(path, self.snapshot().values().map(Arc::as_ref))
    }
}
