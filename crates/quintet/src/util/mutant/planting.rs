//! Planting of bugs, for tests.

use super::{Bug, switch::Planted};

/// Makes `bug` active on the calling thread.
pub fn plant(bug: Bug) -> Planted {
    Planted::here(bug.position())
}

/// Makes `bug` active on every thread of the process.
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
