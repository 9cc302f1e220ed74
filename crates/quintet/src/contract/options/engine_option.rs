//! What an option is: its values, its default, and its text.

use std::fmt;

use crate::{Error, Result};

/// From this power of two on, numbers are displayed as powers.
const POWER_MIN: u32 = 32;

/// An option of an engine. [`engine_options`](crate::engine_options) returns all of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOption {
    /// The name, as in [`TableOptions::set`](crate::TableOptions::set).
    pub name: &'static str,
    /// Former names. They are accepted for one release.
    pub aliases: &'static [&'static str],
    /// The values that it accepts.
    pub values: OptionValues,
    /// The value of a table that does not set it.
    pub default: OptionDefault,
    /// The unit of a number; empty for a word, and for a number of what `meaning` says.
    pub unit: &'static str,
    /// What the option does: a phrase without a final stop, in Markdown.
    pub meaning: &'static str,
    /// When to change it: a phrase that follows "when", in Markdown.
    pub change_when: &'static str,
    /// The users who change it.
    pub audience: OptionAudience,
}

/// The values that an option accepts. Displays as a phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionValues {
    /// Whole numbers.
    Number {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// Powers of two.
    PowerOfTwo {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// Multiples of a number.
    Multiple {
        /// That number.
        of: u64,
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// Words.
    Words(&'static [&'static str]),
    /// Absolute paths of directories.
    Path,
}

/// The default of an option. Displays as a phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionDefault {
    /// A number.
    Number {
        /// The number.
        value: u64,
        /// A remark, such as a bound by the memory budget; may be empty.
        note: &'static str,
    },
    /// A word.
    Word(&'static str),
    /// A number or a path that depends on the memory budget or on other options: how it is
    /// computed.
    Computed(&'static str),
}

/// The users who change an option. Displays as its lower-case name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum OptionAudience {
    /// All users: the best value depends on the data or on the machine.
    General,
    /// Users who have measured their workload: the option trades one cost for another.
    Expert,
    /// Users who repeat an experiment of the engine's paper.
    Paper,
}

/// An enum whose values are the words of an option. `option_words!` implements it.
pub(crate) trait OptionWord: Copy + 'static {
    /// All values with their words.
    const ALL: &'static [(Self, &'static str)];
}

impl EngineOption {
    /// Fails with [`Error::InvalidOption`] if `text` is not a value that the option accepts.
    pub fn check(&self, text: &str) -> Result<()> {
        self.check_for("the option", text)
    }

    /// As [`EngineOption::check`]. The message says that `acceptor` refuses the value.
    pub(super) fn check_for(&self, acceptor: &str, text: &str) -> Result<()> {
        let number =
            |min, max| text.parse().ok().filter(|number: &u64| (min..=max).contains(number));
        let is_accepted = match self.values {
            OptionValues::Number { min, max } => number(min, max).is_some(),
            OptionValues::PowerOfTwo { min, max } => {
                number(min, max).is_some_and(u64::is_power_of_two)
            }
            OptionValues::Multiple { of, min, max } => {
                number(min, max).is_some_and(|number| number.is_multiple_of(of))
            }
            OptionValues::Words(words) => words.contains(&text),
            OptionValues::Path => text.starts_with('/'),
        };
        if is_accepted {
            return Ok(());
        }
        let accepted = self.accepted();
        Err(self.invalid(format!("{acceptor} does not accept {text:?}; it accepts {accepted}")))
    }

    /// Returns the accepted values as a phrase, with numbers as the user writes them.
    fn accepted(&self) -> String {
        let (shape, min, max) = match self.values {
            OptionValues::Number { min, max } => ("a whole number".to_owned(), min, max),
            OptionValues::PowerOfTwo { min, max } => ("a power of two".to_owned(), min, max),
            OptionValues::Multiple { of, min, max } => (format!("a multiple of {of}"), min, max),
            OptionValues::Words(words) => return format!("one of: {}", words.join(", ")),
            OptionValues::Path => return "an absolute path".to_owned(),
        };
        match self.unit {
            "" => format!("{shape} from {min} to {max}"),
            unit => format!("{shape} from {min} to {max} {unit}"),
        }
    }

    /// Builds [`Error::InvalidOption`] for this option.
    pub(super) fn invalid(&self, what: String) -> Error {
        Error::InvalidOption { name: self.name.to_owned(), what }
    }

    /// Returns its name, and then its former names.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Returns whether `name` is its name or a former one.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.names().any(|own| own == name)
    }
}

impl fmt::Display for OptionValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { .. } => {}
            Self::PowerOfTwo { .. } => f.write_str("a power of two, ")?,
            Self::Multiple { of, .. } => write!(f, "a multiple of {}, ", grouped(*of))?,
            Self::Words(words) => return f.write_str(&words.join(", ")),
            Self::Path => return f.write_str("an absolute path"),
        }
        match self {
            Self::Number { min, max }
            | Self::PowerOfTwo { min, max }
            | Self::Multiple { min, max, .. } => {
                write!(f, "{} to {}", grouped(*min), grouped(*max))
            }
            Self::Words(_) | Self::Path => Ok(()),
        }
    }
}

impl fmt::Display for OptionDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { value, note: "" } => f.write_str(&grouped(*value)),
            Self::Number { value, note } => write!(f, "{} ({note})", grouped(*value)),
            Self::Word(word) => f.write_str(word),
            Self::Computed(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for OptionAudience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::General => "general",
            Self::Expert => "expert",
            Self::Paper => "paper",
        })
    }
}

/// Returns a number with a comma before each group of three digits, or a large power of two as
/// `2^n`.
fn grouped(number: u64) -> String {
    if number.is_power_of_two() && number.ilog2() >= POWER_MIN {
        return format!("2^{}", number.ilog2());
    }
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
