//! The states that a crash may leave: a prefix of the commits that holds all those acknowledged as
//! durable, under the acknowledged names.
//!
//! Commits and changes of names are two orders. A commit is in the log: after power loss the state
//! is a prefix of the log that holds all synced commits. A change of names is in the catalog. It is
//! durable when it returns, and so is every commit before it. The state after a crash is a pair: a
//! number of changes of names, and a number of commits, at least those before the last of these
//! changes.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    ops::RangeInclusive,
    sync::Arc,
};

use quintet::testing::disk::sim::Policy;

/// Number of a table that no other table ever has.
pub type TableId = u64;
/// The contents of a database: table names, keys, values.
pub type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// A value with its expiry in milliseconds since 1970.
#[derive(Clone, Debug, Hash)]
pub struct Stored {
    pub bytes: Arc<[u8]>,
    pub expires: Option<u64>,
}

/// One operation of a commit. No value: a delete.
#[derive(Clone, Debug, Hash)]
pub struct Change {
    pub table: TableId,
    pub key: Vec<u8>,
    pub value: Option<Stored>,
}

/// A change of names. Names are whole paths. A drop removes everything below as well.
#[derive(Clone, Debug, Hash)]
pub enum Naming {
    Create { name: String, table: TableId },
    Rename { from: String, to: String },
    Drop { name: String },
}

/// A change of names in a trace.
#[derive(Clone, Debug)]
pub struct NameChange {
    pub naming: Naming,
    pub times: Times,
    /// The number of commits before it.
    pub commits_before: usize,
}

/// Numbers of events: the last before a step began, the one at which it was acknowledged, and the
/// one at which it became known to be durable (never: `u64::MAX`).
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub started: u64,
    pub acknowledged: u64,
    pub durable: u64,
}

impl Times {
    /// Done before anything else.
    pub const BEFORE: Self = Self { started: 0, acknowledged: 0, durable: 0 };
}

/// All steps on a database, in order.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub names: Vec<NameChange>,
    pub commits: Vec<(Vec<Change>, Times)>,
}

/// Bounds of the prefix of a trace that may be found.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Bounds {
    names_floor: usize,
    names_issued: usize,
    /// Minimum number of commits after power loss, and after the death of the process.
    power_floor: usize,
    kill_floor: usize,
    issued: usize,
    /// Whether only the process died.
    kill: bool,
}

impl Bounds {
    /// Everything, exactly.
    pub fn all(trace: &Trace) -> Self {
        let (names, commits) = (trace.names.len(), trace.commits.len());
        Self {
            names_floor: names,
            names_issued: names,
            power_floor: commits,
            kill_floor: commits,
            issued: commits,
            kill: true,
        }
    }

    /// Everything but the last commit, exactly.
    pub fn all_but_last(trace: &Trace) -> Self {
        let commits = trace.commits.len().saturating_sub(1);
        Self { power_floor: commits, kill_floor: commits, issued: commits, ..Self::all(trace) }
    }

    fn commits(&self) -> RangeInclusive<usize> {
        let floor = if self.kill { self.kill_floor } else { self.power_floor };
        floor..=self.issued
    }

    /// The same after another crash before anything was served.
    pub fn after(self, policy: Policy) -> Self {
        Self { kill: self.kill && policy.is_kill(), ..self }
    }
}

/// The prefix of a trace that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    names: usize,
    commits: usize,
}

impl Trace {
    /// Returns the bounds after a crash right after `event`.
    pub fn bounds(&self, event: u64, policy: Policy) -> Bounds {
        // The process died within the step that the stores of the last event belong to.
        let copying = matches!(policy, Policy::KilledCopying { .. });
        let acknowledged =
            |times: &Times| times.acknowledged < event || (times.acknowledged == event && !copying);
        let durable = |times: &Times| times.durable <= event;
        let started = |times: &Times| times.started < event;
        let names = |is: &dyn Fn(&Times) -> bool| {
            self.names.iter().rposition(|change| is(&change.times)).map_or(0, |last| last + 1)
        };
        let commits = |is: &dyn Fn(&Times) -> bool| {
            self.commits.iter().rposition(|(_, times)| is(times)).map_or(0, |last| last + 1)
        };
        Bounds {
            names_floor: names(&acknowledged),
            names_issued: names(&started),
            power_floor: commits(&durable),
            kill_floor: commits(&acknowledged),
            issued: commits(&started),
            kill: policy.is_kill(),
        }
    }

    /// Returns the names after `count` changes.
    fn names_at(&self, count: usize) -> BTreeMap<String, TableId> {
        let mut names = BTreeMap::new();
        for change in self.names.iter().take(count) {
            match &change.naming {
                Naming::Create { name, table } => {
                    names.insert(name.clone(), *table);
                }
                Naming::Rename { from, to } => {
                    if let Some(table) = names.remove(from) {
                        names.insert(to.clone(), table);
                    }
                }
                Naming::Drop { name } => {
                    let below = format!("{name}/");
                    names.retain(|other, _| other != name && !other.starts_with(&below));
                }
            }
        }
        names
    }

    /// The names now, oldest table first.
    pub fn names_now(&self) -> Vec<(String, TableId)> {
        let mut names: Vec<_> = self.names_at(self.names.len()).into_iter().collect();
        names.sort_by_key(|(_, table)| *table);
        names
    }

    /// Finds `contents` within the bounds, at `now`. Returns the longest prefix if several agree.
    pub fn find(&self, contents: &Contents, bounds: Bounds, now: u64) -> Result<Found, String> {
        let mut best = None;
        for names in bounds.names_floor..=bounds.names_issued {
            let tables = self.names_at(names);
            if !tables.keys().eq(contents.keys()) {
                continue;
            }
            let before = self.names.get(..names).and_then(<[_]>::last);
            let floor = before.map_or(0, |change| change.commits_before);
            let commits = bounds.commits();
            let commits = floor.max(*commits.start())..=*commits.end();
            let found = self.find_commits(&tables, contents, commits, now);
            best = best.max(found.map(|commits| (names, commits)));
        }
        best.map(|(names, commits)| Found { names, commits })
            .ok_or_else(|| self.describe(contents, bounds, now))
    }

    fn find_commits(
        &self,
        tables: &BTreeMap<String, TableId>,
        contents: &Contents,
        commits: RangeInclusive<usize>,
        now: u64,
    ) -> Option<usize> {
        let mut model = Model::default();
        for (changes, _) in self.commits.iter().take(*commits.start()) {
            model.apply(changes);
        }
        let mut best = None;
        for count in commits {
            if model.shows(tables, contents, now) {
                best = Some(count);
            }
            if let Some((changes, _)) = self.commits.get(count) {
                model.apply(changes);
            }
        }
        best
    }

    /// Describes why no prefix within the bounds agrees.
    fn describe(&self, contents: &Contents, bounds: Bounds, now: u64) -> String {
        let shown: Vec<String> = contents
            .iter()
            .map(|(name, entries)| {
                let entries: Vec<String> = entries
                    .iter()
                    .map(|(key, value)| {
                        format!("{}={} bytes", String::from_utf8_lossy(key), value.len())
                    })
                    .collect();
                format!("{name}: {{{}}}", entries.join(" "))
            })
            .collect();
        let everything = Bounds { names_floor: 0, power_floor: 0, kill_floor: 0, ..bounds };
        let elsewhere = if bounds.names_floor + *bounds.commits().start() > 0 {
            self.find(contents, everything, now).ok()
        } else {
            None
        };
        let what = match elsewhere {
            Some(found) => format!("acknowledged work is lost: found {found:?}"),
            None => "the state is no prefix of what was done".to_owned(),
        };
        format!(
            "{what}; allowed: {}..={} changes of names, {:?} commits; found {}",
            bounds.names_floor,
            bounds.names_issued,
            bounds.commits(),
            shown.join(", ")
        )
    }

    /// Returns the trace of a database that continues from the prefix found.
    pub fn cut(&self, found: Found, bounds: Bounds) -> Self {
        let names = self.names.iter().take(found.names).cloned();
        let commits = self.commits.iter().take(found.commits).cloned().enumerate();
        Self {
            names: names.map(|change| NameChange { times: Times::BEFORE, ..change }).collect(),
            commits: commits
                .map(|(index, (changes, _))| {
                    // The disk has everything that a power loss left; the page cache may have more.
                    let durable = !bounds.kill || index < bounds.power_floor;
                    let durable = if durable { 0 } else { u64::MAX };
                    (changes, Times { durable, ..Times::BEFORE })
                })
                .collect(),
        }
    }

    /// Hashes the allowed states: equal images under different traces are verified separately.
    pub fn hash(&self, bounds: Bounds) -> u64 {
        let mut hasher = DefaultHasher::new();
        bounds.hash(&mut hasher);
        for change in self.names.iter().take(bounds.names_issued) {
            (&change.naming, change.commits_before).hash(&mut hasher);
        }
        for (changes, _) in self.commits.iter().take(bounds.issued) {
            for change in changes {
                let value = change.value.as_ref().map(|value| (value.bytes.len(), value.expires));
                (change.table, &change.key, value).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

/// The values after a prefix of the commits.
#[derive(Default)]
struct Model<'a> {
    tables: HashMap<TableId, BTreeMap<&'a [u8], &'a Stored>>,
}

impl<'a> Model<'a> {
    fn apply(&mut self, changes: &'a [Change]) {
        for change in changes {
            let table = self.tables.entry(change.table).or_default();
            match &change.value {
                Some(value) => table.insert(&change.key, value),
                None => table.remove(change.key.as_slice()),
            };
        }
    }

    fn shows(&self, names: &BTreeMap<String, TableId>, contents: &Contents, now: u64) -> bool {
        let empty = BTreeMap::new();
        names.iter().zip(contents.values()).all(|((_, table), found)| {
            let expected = self.tables.get(table).unwrap_or(&empty);
            let visible = expected
                .iter()
                .filter(|(_, value)| value.expires.is_none_or(|expires| expires > now));
            visible
                .map(|(key, value)| (*key, &*value.bytes))
                .eq(found.iter().map(|(key, value)| (key.as_slice(), value.as_slice())))
        })
    }
}
