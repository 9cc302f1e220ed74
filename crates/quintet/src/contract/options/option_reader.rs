//! How an engine reads its options.

use super::{
    engine_option::{EngineOption, OptionDefault},
    table_options::TableOptions,
    words::OptionWord,
};
use crate::{Error, Result};

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
            if name != option.name && options.get(option.name).is_some() {
                let what = format!("it is set twice, once under its former name {name}");
                return Err(option.invalid(what));
            }
            option.check(value)?;
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

    fn option(&self, name: &str) -> Result<&'static EngineOption> {
        self.known.iter().find(|option| option.name == name).ok_or_else(|| Error::InvalidOption {
            name: name.to_owned(),
            what: format!("the {} engine reads it but does not declare it", self.options.kind()),
        })
    }

    fn text(&self, option: &EngineOption) -> Option<&'a str> {
        let mut names = std::iter::once(&option.name).chain(option.aliases);
        names.find_map(|name| self.options.get(name))
    }
}
