//! Declarations of options, as macros.

/// Declares an enum whose values are the words of an option.
macro_rules! option_words {
    (
        $(#[$attribute:meta])*
        $name:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)+ }
    ) => {
        $(#[$attribute])*
        ///
        /// Displays as the option's word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $value,)+ }

        impl $name {
            /// The words, in the order of the values.
            pub(crate) const WORDS: &'static [&'static str] = &[$($word),+];
        }

        impl $crate::contract::options::OptionWord for $name {
            const ALL: &'static [(Self, &'static str)] = &[$((Self::$value, $word)),+];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $(Self::$value => $word,)+ })
            }
        }
    };
}
pub(crate) use option_words;

/// Declares the options of an engine: their table, and the builder with a method for each.
///
/// `values` is `number(min, max)`, `power_of_two(min, max)`, `multiple(of, min, max)`, or the enum
/// of a word: `words(Type)`, or `words(Type, ["some", "of", "its", "words"])`, or
/// `path(absolute)`. `default` is
/// `number(value)`, `number(value, "remark")`, `word("word")` or `computed("how")`. Numbers are
/// literals, so that they appear in the documentation of the builder.
macro_rules! engine_options {
    (
        $(#[$attribute:meta])*
        $builder:ident: $kind:ident;
        $(
            $name:ident {
                values: $shape:ident($($value:tt)+),
                unit: $unit:tt,
                default: $form:ident($($default:tt)+),
                meaning: $meaning:literal,
                change_when: $change_when:literal,
                audience: $audience:ident,
                $(aliases: [$($alias:literal),+],)?
            }
        )+
    ) => {
        $(#[$attribute])*
        ///
        /// [`Database::create_table`](crate::Database::create_table) and the other functions that
        /// create a table take it as it is. It converts into
        /// [`TableOptions`](crate::TableOptions). `docs/reference/options.md` has tables of the
        /// options of all engines.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $builder($crate::contract::TableOptions);

        impl $builder {
            /// The options. The message about an unknown option lists them in this order.
            pub(crate) const OPTIONS: &'static [$crate::contract::EngineOption] = &[$(
                $crate::contract::EngineOption {
                    name: stringify!($name),
                    aliases: &[$($($alias),+)?],
                    values: $crate::contract::options::declaration::engine_options!(
                        @values $shape($($value)+)
                    ),
                    default: $crate::contract::options::declaration::engine_options!(
                        @default $form($($default)+)
                    ),
                    unit: $unit,
                    meaning: $meaning,
                    change_when: $change_when,
                    audience: $crate::contract::OptionAudience::$audience,
                },
            )+];

            /// Returns the default options.
            pub fn new() -> Self {
                Self($crate::contract::TableOptions::new($crate::contract::EngineKind::$kind))
            }

            $(
                #[doc = concat!("Sets `", stringify!($name), "`: ", $meaning, ".")]
                #[doc = ""]
                #[doc = $crate::contract::options::declaration::engine_options!(
                    @text $shape($($value)+), $unit, $form($($default)+)
                )]
                #[doc = concat!("Change it when ", $change_when, ".")]
                #[must_use]
                pub fn $name(
                    self,
                    value: $crate::contract::options::declaration::engine_options!(
                        @type $shape($($value)+)
                    ),
                ) -> Self {
                    Self(self.0.set(stringify!($name), value.to_string()))
                }
            )+

            /// Fixes the types of keys and values, as
            /// [`TableOptions::types`](crate::TableOptions::types) does.
            #[must_use]
            pub fn types(self, types: $crate::TableTypes) -> Self {
                Self(self.0.types(types))
            }

            /// Names the merge operator, as [`TableOptions::merge`](crate::TableOptions::merge)
            /// does.
            #[must_use]
            pub fn merge(self, operator: impl Into<String>) -> Self {
                Self(self.0.merge(operator))
            }
        }

        impl Default for $builder {
            fn default() -> Self {
                Self::new()
            }
        }

        impl From<$builder> for $crate::contract::TableOptions {
            fn from(options: $builder) -> Self {
                options.0
            }
        }

        impl std::borrow::Borrow<$crate::contract::TableOptions> for $builder {
            fn borrow(&self) -> &$crate::contract::TableOptions {
                &self.0
            }
        }
    };

    (@values number($min:literal, $max:literal)) => {
        $crate::contract::OptionValues::Number { min: $min, max: $max }
    };
    (@values power_of_two($min:literal, $max:literal)) => {
        $crate::contract::OptionValues::PowerOfTwo { min: $min, max: $max }
    };
    (@values multiple($of:literal, $min:literal, $max:literal)) => {
        $crate::contract::OptionValues::Multiple { of: $of, min: $min, max: $max }
    };
    (@values words($type:ident)) => { $crate::contract::OptionValues::Words($type::WORDS) };
    (@values words($type:ident, $words:tt)) => { $crate::contract::OptionValues::Words(&$words) };

    (@values path(absolute)) => { $crate::contract::OptionValues::Path };

    (@default number($value:literal)) => {
        $crate::contract::OptionDefault::Number { value: $value, note: "" }
    };
    (@default number($value:literal, $note:literal)) => {
        $crate::contract::OptionDefault::Number { value: $value, note: $note }
    };
    (@default word($word:literal)) => { $crate::contract::OptionDefault::Word($word) };
    (@default computed($text:literal)) => { $crate::contract::OptionDefault::Computed($text) };

    (@type words($type:ident $(, $words:tt)?)) => { $type };
    (@type path(absolute)) => { &str };
    (@type $shape:ident($($value:tt)+)) => { u64 };

    (@text $shape:ident($($value:tt)+), $unit:tt, $form:ident($($default:tt)+)) => {
        concat!(
            $crate::contract::options::declaration::engine_options!(
                @range $shape($($value)+), $unit
            ),
            "Default: ",
            $crate::contract::options::declaration::engine_options!(@shown $form($($default)+)),
            "."
        )
    };
    (@range number($min:literal, $max:literal), $unit:tt) => {
        concat!(
            "Values: ",
            $min,
            " to ",
            $max,
            $crate::contract::options::declaration::engine_options!(@unit $unit)
        )
    };
    (@range power_of_two($min:literal, $max:literal), $unit:tt) => {
        concat!(
            "Values: a power of two, ",
            $min,
            " to ",
            $max,
            $crate::contract::options::declaration::engine_options!(@unit $unit)
        )
    };
    (@range multiple($of:literal, $min:literal, $max:literal), $unit:tt) => {
        concat!(
            "Values: a multiple of ",
            $of,
            ", ",
            $min,
            " to ",
            $max,
            $crate::contract::options::declaration::engine_options!(@unit $unit)
        )
    };
    (@range words($type:ident), $unit:tt) => { "" };
    (@range words($type:ident, [$first:literal $(, $word:literal)*]), $unit:tt) => {
        concat!("Values: `", $first, "`", $(", `", $word, "`",)* ". ")
    };
    (@range path(absolute), $unit:tt) => { "Values: an absolute path. " };
    (@unit "") => { ". " };
    (@unit $unit:tt) => { concat!(" ", $unit, ". ") };
    (@shown number($value:literal)) => { $value };
    (@shown number($value:literal, $note:literal)) => { concat!($value, " (", $note, ")") };
    (@shown word($word:literal)) => { concat!("`", $word, "`") };
    (@shown computed($text:literal)) => { $text };
}
pub(crate) use engine_options;
