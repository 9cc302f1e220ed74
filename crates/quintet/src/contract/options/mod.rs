//! Options of tables: the kinds of engines, options by name, and the options that an engine has.
//!
//! Each engine declares its options once, in `engine/<name>/options.rs`, with the macro
//! `engine_options!`. The declaration makes the table of [`EngineOption`]s and a builder with a
//! method for each option. From the table come the check of names and values
//! ([`OptionReader`]), `quintet options`, and `docs/reference/options.md`.

mod compression;
pub(crate) mod declaration;
mod engine_kind;
mod engine_option;
mod table_options;
#[cfg(test)]
#[cfg(not(model))]
pub(crate) mod tests;

pub use self::{
    compression::Compression,
    engine_kind::EngineKind,
    engine_option::{EngineOption, OptionAudience, OptionDefault, OptionValues},
    table_options::TableOptions,
};
pub(crate) use self::{engine_option::OptionWord, table_options::OptionReader};
