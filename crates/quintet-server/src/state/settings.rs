//! Settings that `CONFIG SET` can change at run time.

use std::{
    ops::RangeInclusive,
    str::FromStr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
};

use serde::Deserialize;
use zeroize::Zeroizing;

use super::output::{OutputClass, OutputLimit, OutputLimits, parse_memory};
use crate::store::{format_classes, parse_classes};

/// Bytes of a request beside its longest argument that are always allowed.
const QUERY_ROOM_BYTES: u64 = 1 << 20;

/// When a write is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppendFsync {
    /// Before its reply. Connections share syncs.
    Always,
    /// At most a second later.
    #[default]
    EverySec,
    /// When the log is synced anyway, at most 30 seconds later.
    No,
}

impl AppendFsync {
    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::EverySec => "everysec",
            Self::No => "no",
        }
    }
}

impl FromStr for AppendFsync {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "always" => Ok(Self::Always),
            "everysec" => Ok(Self::EverySec),
            "no" => Ok(Self::No),
            _ => Err(format!("{text:?} is not always, everysec or no")),
        }
    }
}

/// The settings. Numbers are read for each command, so each is an atomic.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    appendfsync: AtomicU8,
    password: RwLock<Zeroizing<String>>,
    /// User and password at a master.
    master_login: RwLock<(String, Zeroizing<String>)>,
    /// Most clients.
    pub(crate) maxclients: AtomicU64,
    /// Most clients that the limit of open files of the process allows; 0: not known.
    pub(crate) maxclients_of_files: AtomicU64,
    /// Seconds after which an idle connection ends; 0 for never.
    pub(crate) timeout: AtomicU64,
    /// Milliseconds that a command may take before it commits; 0 for no limit.
    pub(crate) command_time_limit: AtomicU64,
    /// Most bytes that a command collects; 0 for no limit.
    pub(crate) command_memory_limit: AtomicU64,
    /// Most arguments of a request.
    pub(crate) proto_max_args: AtomicU64,
    /// Longest value in bytes.
    pub(crate) proto_max_bulk_len: AtomicU64,
    /// Microseconds from which a command is slow.
    pub(crate) slowlog_log_slower_than: AtomicU64,
    /// Milliseconds from which something is a latency event; 0 for none.
    pub(crate) latency_monitor_threshold: AtomicU64,
    /// Most entries of `ACL LOG`.
    pub(crate) acllog_max_len: AtomicU64,
    /// Most keys that clients in `CLIENT TRACKING` cache; 0 for no limit.
    pub(crate) tracking_table_max_keys: AtomicU64,
    /// Most entries of the list of slow commands.
    pub(crate) slowlog_max_len: AtomicU64,
    /// Classes of events of keys that are published.
    pub(crate) notify_classes: Arc<AtomicU32>,
    /// Most bytes of output that waits for a client, by class.
    pub(crate) output_limits: OutputLimits,
    /// Most bytes of a request, and of the commands since `MULTI`.
    pub(crate) client_query_buffer_limit: AtomicU64,
    /// Most bytes of buffers of all clients; 0 for no limit.
    pub(crate) maxmemory_clients: AtomicU64,
    /// Whether clients of other machines may connect, which need a password then.
    pub(crate) needs_password: AtomicBool,
    /// Memory of the store in bytes, as configured.
    pub(crate) maxmemory: AtomicU64,
}

/// Bytes that `command-memory-limit` leaves for copies of the longest value.
const LONGEST_VALUES: u64 = 4;

/// A number that `CONFIG` reads and writes: its name, where it is, its limits.
type Number = (&'static str, fn(&Settings) -> &AtomicU64, u64, u64);

/// The numbers. `maxmemory` is fixed at the start.
const NUMBERS: [Number; 13] = [
    ("command-time-limit", |settings| &settings.command_time_limit, 0, 1_000_000_000),
    ("command-memory-limit", |settings| &settings.command_memory_limit, 0, u64::MAX),
    ("maxmemory-clients", |settings| &settings.maxmemory_clients, 0, u64::MAX),
    (
        "client-query-buffer-limit",
        |settings| &settings.client_query_buffer_limit,
        *QUERY_BYTES.start(),
        *QUERY_BYTES.end(),
    ),
    ("acllog-max-len", |settings| &settings.acllog_max_len, 0, 10_000),
    ("maxclients", |settings| &settings.maxclients, 1, 1_000_000),
    ("timeout", |settings| &settings.timeout, 0, 1_000_000_000),
    ("proto-max-bulk-len", |settings| &settings.proto_max_bulk_len, 1 << 20, 512 << 20),
    ("proto-max-args", |settings| &settings.proto_max_args, 1024, 1 << 20),
    ("slowlog-log-slower-than", |settings| &settings.slowlog_log_slower_than, 0, u64::MAX),
    ("latency-monitor-threshold", |settings| &settings.latency_monitor_threshold, 0, 1_000_000_000),
    ("slowlog-max-len", |settings| &settings.slowlog_max_len, 0, 10_000),
    ("tracking-table-max-keys", |settings| &settings.tracking_table_max_keys, 0, 1 << 40),
];

/// Numbers of bytes, which may have a unit.
const SIZES: [&str; 4] = [
    "maxmemory-clients",
    "client-query-buffer-limit",
    "proto-max-bulk-len",
    "command-memory-limit",
];

/// The limits of `client-query-buffer-limit` in bytes.
pub(crate) const QUERY_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// Settings that clients read and that have one value here.
const FIXED: [(&str, &str); 11] = [
    ("save", ""),
    ("appendonly", "yes"),
    ("databases", "16"),
    ("maxmemory-policy", "noeviction"),
    ("maxmemory-samples", "5"),
    ("hash-max-listpack-entries", "128"),
    ("list-max-listpack-size", "128"),
    ("set-max-intset-entries", "512"),
    ("zset-max-listpack-entries", "128"),
    ("cluster-enabled", "no"),
    ("lazyfree-lazy-user-del", "yes"),
];

/// Why `CONFIG SET` refuses a setting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such setting.
    Unknown,
    /// The setting cannot change at run time.
    Fixed,
    /// The value is not allowed.
    Value(String),
}

/// A setting with a value that has been checked.
#[derive(Debug)]
pub(crate) enum SettingChange {
    AppendFsync(AppendFsync),
    /// The password of the user `default`.
    Password(Zeroizing<String>),
    MasterUser(String),
    MasterPassword(Zeroizing<String>),
    NotifyClasses(u32),
    OutputLimits(Vec<(usize, [u64; 3])>),
    Number(fn(&Settings) -> &AtomicU64, u64),
    /// The setting cannot change, and has this value.
    None,
}

impl Settings {
    /// When a write is on disk.
    pub(crate) fn appendfsync(&self) -> AppendFsync {
        match self.appendfsync.load(Ordering::Relaxed) {
            0 => AppendFsync::Always,
            1 => AppendFsync::EverySec,
            _ => AppendFsync::No,
        }
    }

    /// Changes when writes are on disk.
    pub(crate) fn set_appendfsync(&self, value: AppendFsync) {
        let code = match value {
            AppendFsync::Always => 0,
            AppendFsync::EverySec => 1,
            AppendFsync::No => 2,
        };
        self.appendfsync.store(code, Ordering::Relaxed);
    }

    /// The password of the user `default`, empty if there is none.
    pub(crate) fn password(&self) -> Zeroizing<String> {
        self.password.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the user `default` may need no password of its own: no other machine reaches the
    /// server, or `requirepass` is set.
    pub(crate) fn may_be_open(&self) -> bool {
        !self.needs_password.load(Ordering::Relaxed) || !self.password().is_empty()
    }

    /// Changes the password.
    pub(crate) fn set_password(&self, password: &str) {
        let mut own = self.password.write().unwrap_or_else(PoisonError::into_inner);
        *own = Zeroizing::new(password.to_owned());
    }

    /// User and password at a master, both empty if it needs none.
    pub(crate) fn master_login(&self) -> (String, Zeroizing<String>) {
        self.master_login.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes user and password at a master.
    pub(crate) fn set_master_login(&self, user: Option<&str>, password: Option<&str>) {
        let mut own = self.master_login.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(user) = user {
            user.clone_into(&mut own.0);
        }
        if let Some(password) = password {
            own.1 = Zeroizing::new(password.to_owned());
        }
    }

    /// The limit of output of a class. Each value that may be written can be read.
    pub(crate) fn output_limit(&self, class: OutputClass) -> OutputLimit {
        let longest = self.proto_max_bulk_len.load(Ordering::Relaxed);
        self.output_limits.of(class).with_room_for(longest)
    }

    /// Most bytes of a request, and of the commands since `MULTI`; an argument of the longest size
    /// always fits.
    pub(crate) fn query_bytes_max(&self) -> usize {
        let longest = self.proto_max_bulk_len.load(Ordering::Relaxed);
        let limit = self.client_query_buffer_limit.load(Ordering::Relaxed);
        let max = limit.max(longest.saturating_add(QUERY_ROOM_BYTES));
        usize::try_from(max).unwrap_or(usize::MAX)
    }

    /// Most bytes that a command collects. A command can always hold some of the longest values.
    pub(crate) fn command_bytes_max(&self) -> usize {
        let limit = self.command_memory_limit.load(Ordering::Relaxed);
        let longest = self.proto_max_bulk_len.load(Ordering::Relaxed);
        let max = limit.max(longest.saturating_mul(LONGEST_VALUES));
        if limit == 0 { usize::MAX } else { usize::try_from(max).unwrap_or(usize::MAX) }
    }

    /// All settings with their values, also passwords: `CONFIG GET` shows them, as in Redis.
    pub(crate) fn list(&self) -> Vec<(&'static str, Zeroizing<String>)> {
        let numbers = NUMBERS
            .iter()
            .map(|(name, number, ..)| (*name, number(self).load(Ordering::Relaxed).to_string()));
        let fixed = FIXED.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let plain = [
            ("appendfsync", self.appendfsync().name().to_owned()),
            ("masteruser", self.master_login().0),
            ("notify-keyspace-events", format_classes(self.notify_classes.load(Ordering::Relaxed))),
            ("client-output-buffer-limit", self.output_limits.to_string()),
            ("maxmemory", self.maxmemory.load(Ordering::Relaxed).to_string()),
        ];
        let secret = [("requirepass", self.password()), ("masterauth", self.master_login().1)];
        let plain = plain.into_iter().chain(numbers).chain(fixed);
        secret.into_iter().chain(plain.map(|(name, value)| (name, value.into()))).collect()
    }

    /// Checks a setting and its value. Nothing changes before [`Self::apply`].
    pub(crate) fn check(&self, name: &str, value: &str) -> Result<SettingChange, Refusal> {
        Ok(match name {
            "appendfsync" => SettingChange::AppendFsync(value.parse().map_err(Refusal::Value)?),
            "requirepass" => SettingChange::Password(Zeroizing::new(value.to_owned())),
            "masteruser" => SettingChange::MasterUser(value.to_owned()),
            "masterauth" => SettingChange::MasterPassword(Zeroizing::new(value.to_owned())),
            "notify-keyspace-events" => {
                let unknown = || {
                    Refusal::Value(
                        "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned(),
                    )
                };
                SettingChange::NotifyClasses(parse_classes(value).ok_or_else(unknown)?)
            }
            "client-output-buffer-limit" => {
                let limits = OutputLimits::parse(value).map_err(Refusal::Value)?;
                SettingChange::OutputLimits(limits)
            }
            "maxmemory" => return Err(Refusal::Fixed),
            _ => return self.check_number(name, value),
        })
    }

    fn check_number(&self, name: &str, value: &str) -> Result<SettingChange, Refusal> {
        let Some((_, number, min, max)) = NUMBERS.iter().find(|(own, ..)| *own == name) else {
            return match FIXED.iter().find(|(own, _)| *own == name) {
                Some((_, same)) if *same == value => Ok(SettingChange::None),
                Some(_) => Err(Refusal::Fixed),
                None => Err(Refusal::Unknown),
            };
        };
        let parsed = if SIZES.contains(&name) {
            parse_memory(value)
        } else {
            crate::number::parse_u64(value.as_bytes())
        };
        let parsed = parsed.filter(|parsed| (*min..=*max).contains(parsed)).ok_or_else(|| {
            Refusal::Value(format!("argument must be between {min} and {max} inclusive"))
        })?;
        let most = self.maxclients_of_files.load(Ordering::Relaxed);
        if name == "maxclients" && most > 0 && parsed > most {
            return Err(Refusal::Value(format!(
                "the process may open files for {most} clients; raise its limit (ulimit -n) and \
                 start the server again"
            )));
        }
        Ok(SettingChange::Number(*number, parsed))
    }

    /// Changes a setting.
    pub(crate) fn apply(&self, change: &SettingChange) {
        match change {
            SettingChange::AppendFsync(value) => self.set_appendfsync(*value),
            SettingChange::Password(password) => self.set_password(password),
            SettingChange::MasterUser(user) => self.set_master_login(Some(user), None),
            SettingChange::MasterPassword(password) => self.set_master_login(None, Some(password)),
            SettingChange::NotifyClasses(classes) => {
                self.notify_classes.store(*classes, Ordering::Relaxed);
            }
            SettingChange::OutputLimits(limits) => self.output_limits.apply(limits),
            SettingChange::Number(number, value) => number(self).store(*value, Ordering::Relaxed),
            SettingChange::None => {}
        }
    }
}
