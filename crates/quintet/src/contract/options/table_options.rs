//! The options of a table, by name, and how an engine reads them.

use std::collections::BTreeMap;

use super::{
    engine_kind::EngineKind,
    engine_option::{EngineOption, OptionDefault, OptionWord},
};
use crate::{Error, Result, util::types::TableTypes};

/// The option of every engine that names the merge operator.
const MERGE: &str = "merge";
/// Maximum length of the name of a merge operator, in bytes.
const MERGE_NAME_BYTES_MAX: usize = 64;

/// The engine, engine options and types of a new table.
///
/// Options are set by name here. The builder of an engine, such as
/// [`SlmOptions`](crate::SlmOptions), has a method for each of its options instead.
/// [`engine_options`](crate::engine_options) lists the options of an engine.
/// [`Database::create_table`](crate::Database::create_table) checks names and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    kind: EngineKind,
    settings: BTreeMap<String, String>,
    types: Option<TableTypes>,
}

impl TableOptions {
    /// Returns the default options of this engine.
    pub fn new(kind: EngineKind) -> Self {
        Self { kind, settings: BTreeMap::new(), types: None }
    }

    /// Sets an engine option by name, as `--option name=value` does on the command line. Unchecked
    /// until the table is created; [`check_table_options`](crate::check_table_options) checks it
    /// earlier.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Fixes the types of keys and values. Writes of other bytes fail with [`Error::TypeMismatch`].
    /// Without types, a table accepts any bytes.
    #[must_use]
    pub fn types(mut self, types: TableTypes) -> Self {
        self.types = Some(types);
        self
    }

    /// Names the merge operator of the table, which never changes: `add_i64`, `add_u64`, `max`,
    /// `min`, `append`, or one that [`Options::merge_operator`](crate::Options::merge_operator) has
    /// added. [`Table::merge`](crate::Table::merge) describes them. The same as the option `merge`.
    #[must_use]
    pub fn merge(self, operator: impl Into<String>) -> Self {
        self.set(MERGE, operator)
    }

    /// Returns the name of the merge operator, if there is one.
    pub fn merge_operator(&self) -> Option<&str> {
        self.get(MERGE)
    }

    /// Returns the types, if they are fixed.
    pub fn table_types(&self) -> Option<&TableTypes> {
        self.types.as_ref()
    }

    /// Returns the engine.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// Returns the options that were set, by name.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the options that were set, each by its current name in `known`. An option that
    /// `known` lacks keeps its name.
    pub(crate) fn current_settings(&self, known: &[EngineOption]) -> Vec<(String, String)> {
        let current = |name: &str| known.iter().find(|option| option.is_named(name));
        let settings = self.settings.iter().map(|(name, value)| {
            let name = current(name).map_or_else(|| name.clone(), |option| option.name.to_owned());
            (name, value.clone())
        });
        settings.collect::<BTreeMap<_, _>>().into_iter().collect()
    }

    /// Returns the value of the option that was set under this name.
    fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }
}

/// The options of a table, checked against the table of options of its engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionReader<'a> {
    options: &'a TableOptions,
    known: &'static [EngineOption],
}

impl<'a> OptionReader<'a> {
    /// Fails with [`Error::InvalidOption`] if an option is not in `known`, is set under two names,
    /// or has a value that it does not accept.
    pub(crate) fn new(options: &'a TableOptions, known: &'static [EngineOption]) -> Result<Self> {
        for (name, value) in options.settings() {
            if name == MERGE {
                check_merge_name(value)?;
                continue;
            }
            let Some(option) = known.iter().find(|option| option.is_named(name)) else {
                let names: Vec<&str> = known.iter().map(|option| option.name).collect();
                return Err(Error::InvalidOption {
                    name: name.to_owned(),
                    what: format!(
                        "the {} engine has no such option; it has: {}",
                        options.kind(),
                        names.join(", ")
                    ),
                });
            };
            let is_set = |other: &&str| *other != name && options.get(other).is_some();
            if name != option.name
                && let Some(other) = option.names().find(is_set)
            {
                return Err(option.invalid(if other == option.name {
                    format!("it is set twice, once under its former name {name}")
                } else {
                    format!("it is set twice, under its former names {name} and {other}")
                }));
            }
            option.check_for(&format!("the {} engine", options.kind()), value)?;
        }
        Ok(Self { options, known })
    }

    /// Returns whether the option is set.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.option(name).is_ok_and(|option| self.text(option).is_some())
    }

    /// Returns the option's number, or its default.
    pub(crate) fn number(&self, name: &str) -> Result<u64> {
        self.number_or(name, |default| default)
    }

    /// Returns the option's number. If it is not set, returns what `compute` makes of the default,
    /// which is 0 for a default that only `compute` knows.
    pub(crate) fn number_or(&self, name: &str, compute: impl FnOnce(u64) -> u64) -> Result<u64> {
        let option = self.option(name)?;
        let Some(text) = self.text(option) else {
            return match option.default {
                OptionDefault::Number { value, .. } => Ok(compute(value)),
                OptionDefault::Computed(_) => Ok(compute(0)),
                OptionDefault::Word(word) => Err(option.invalid(format!("{word} is no number"))),
            };
        };
        text.parse().map_err(|_| option.invalid(format!("{text:?} is no number")))
    }

    /// Returns the option's word, or its default.
    pub(crate) fn word<W: OptionWord>(&self, name: &str) -> Result<W> {
        let option = self.option(name)?;
        let text = match (self.text(option), option.default) {
            (Some(text), _) => text,
            (None, OptionDefault::Word(word)) => word,
            (None, _) => "",
        };
        let found = W::ALL.iter().find(|(_, word)| *word == text);
        found.map(|(value, _)| *value).ok_or_else(|| option.invalid(format!("{text:?} is no word")))
    }

    /// Returns the option's path; `None` if it is not set.
    pub(crate) fn path(&self, name: &str) -> Result<Option<&'a str>> {
        Ok(self.text(self.option(name)?))
    }

    fn option(&self, name: &str) -> Result<&'static EngineOption> {
        self.known.iter().find(|option| option.name == name).ok_or_else(|| Error::InvalidOption {
            name: name.to_owned(),
            what: format!("the {} engine reads it but does not declare it", self.options.kind()),
        })
    }

    fn text(&self, option: &EngineOption) -> Option<&'a str> {
        option.names().find_map(|name| self.options.get(name))
    }
}

/// Fails with [`Error::InvalidOption`] if a merge operator cannot have this name.
fn check_merge_name(name: &str) -> Result<()> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if !name.is_empty() && name.len() <= MERGE_NAME_BYTES_MAX && name.bytes().all(is_allowed) {
        return Ok(());
    }
    let what = format!(
        "{name:?} is no name of a merge operator; it has 1 to {MERGE_NAME_BYTES_MAX} characters of \
         A-Z a-z 0-9 _ . -"
    );
    Err(Error::InvalidOption { name: MERGE.to_owned(), what })
}
