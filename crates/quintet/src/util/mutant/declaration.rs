//! The macro that declares the planted bugs: variant, documentation, number and name. It also
//! declares the functions that plant a bug and that ask for one, so that the list has its file for
//! itself.

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

        /// Returns whether `bug` is planted: its site must do the wrong thing.
        #[cfg(not(feature = "testing"))]
        #[inline]
        pub const fn active(_bug: Bug) -> bool {
            false
        }

        /// Returns whether `bug` is planted: its site must do the wrong thing. Costs two loads.
        #[cfg(feature = "testing")]
        #[inline]
        pub fn active(bug: Bug) -> bool {
            switch::is_on(bug.position())
        }

        /// Makes `bug` active on the calling thread.
        #[cfg(feature = "testing")]
        pub fn plant(bug: Bug) -> Planted {
            Planted::here(bug.position())
        }

        /// Makes `bug` active on every thread of the process.
        #[cfg(feature = "testing")]
        pub fn plant_everywhere(bug: Bug) -> Planted {
            Planted::everywhere(bug.position())
        }

        /// Asserts that `test` reaches the site of `bug` and fails when it is planted.
        ///
        /// # Panics
        ///
        /// If the test passes, or does not reach the site.
        #[cfg(test)]
        pub fn finds(bug: Bug, test: fn()) {
            let planted = plant(bug);
            let outcome = std::panic::catch_unwind(test);
            assert!(planted.was_reached(), "{bug}: the test does not reach it");
            assert!(outcome.is_err(), "{bug} was not found");
        }
    };
}
pub(super) use bugs;
