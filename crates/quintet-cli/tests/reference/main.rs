//! The generated parts of `docs/reference`, compared with the code.
//!
//! A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`. All else on a
//! page is written by hand. `cargo xtask reference` runs these tests so that they rewrite the
//! parts. The tests are here and not in `xtask`, which must build without the library.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod command_line;
mod limits;
mod options;
mod page;
mod statistics;
