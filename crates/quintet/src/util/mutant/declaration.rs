//! The macro that declares the planted bugs: variant, documentation, number and name.

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $name:literal;)+) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Bug {
            $($(#[doc = $doc])+ $variant,)+
        }

        #[cfg(feature = "testing")]
        impl Bug {
            /// Every bug, in the order of their layers.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// A short name for messages and for the command line of a test: `log-skips-sync`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Describes the error in a sentence.
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim_ascii(),)+
                }
            }

            /// Position of the bug in the sets: word and bit.
            const fn position(self) -> (usize, u64) {
                let number: usize = match self {
                    $(Self::$variant => $number,)+
                };
                (number / 64, 1 << (number % 64))
            }
        }

        #[cfg(feature = "testing")]
        impl std::fmt::Display for Bug {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(super) use bugs;
