//! The options of a table, by name.

use std::collections::BTreeMap;

use super::engine_kind::EngineKind;
use crate::{Result, util::types::TableTypes};

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
    /// until the table is created.
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

    /// Returns the value of the option that was set under this name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Fails with [`Error::UnknownEngine`] if this build lacks the engine.
    pub(crate) fn check(&self) -> Result<()> {
        if EngineKind::AVAILABLE.contains(&self.kind) {
            return Ok(());
        }
        Err(EngineKind::unknown(self.kind.name()))
    }
}
