//! Merge operators: functions that compute a key's new value from its value and an operand.
//!
//! A table names its operator when it is created, and keeps it. [`MergeOperators`] are those that
//! the database knows: the built-in ones ([`builtin`]) and those of the application. [`TableMerge`]
//! is the operator of one table.
//!
//! A merge reads the value, computes the new one, and commits that: one atomic update
//! ([`crate::db::commit::update`]). The log has the new value and not the operand. Replay may apply
//! a record to files that have its effect already: a value gives the same state then, an operand
//! would count twice. So no recovery, flush or compaction calls a function of the application, and
//! all engines give equal results. The cost is a read at each merge.
//!
//! Invariants:
//! - A table whose operator is not registered takes no merges.
//! - No lock is held while a function of the application runs.

mod builtin;

use std::{collections::BTreeMap, fmt, sync::Arc};

use builtin::BuiltinMerge;

use crate::{
    Error, Result,
    util::types::{TableTypes, TypeTag},
};

/// A merge operator of the application: gets the key, its value if it has one, and the operand.
/// Returns the new value, or the reason why the operand cannot be merged.
///
/// Of an equal value and operand it must return an equal result: it may be called more than once
/// for one merge.
pub(crate) type MergeFunction =
    dyn Fn(&[u8], Option<&[u8]>, &[u8]) -> std::result::Result<Vec<u8>, String> + Send + Sync;

/// The merge operators of an open database.
#[derive(Clone, Default)]
pub(crate) struct MergeOperators {
    registered: BTreeMap<String, Arc<MergeFunction>>,
    /// Tables may be opened whose operator is unknown.
    pub(crate) may_be_missing: bool,
}

/// The merge operator of a table.
#[derive(Clone)]
pub(crate) struct TableMerge {
    pub(crate) name: Box<str>,
    operator: FoundOperator,
}

#[derive(Clone)]
enum FoundOperator {
    Builtin(BuiltinMerge),
    Registered(Arc<MergeFunction>),
    Missing,
}

impl fmt::Debug for MergeOperators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.registered.keys()).finish()
    }
}

impl fmt::Debug for TableMerge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableMerge").field(&self.name).finish()
    }
}

impl MergeOperators {
    /// Adds an operator of the application. One that was added under this name is replaced.
    pub(crate) fn register(&mut self, name: String, function: Arc<MergeFunction>) {
        self.registered.insert(name, function);
    }

    /// Fails with [`Error::InvalidOption`] if an operator was added under the name of a built-in
    /// one.
    pub(crate) fn validate(&self) -> Result<()> {
        let taken = self.registered.keys().find(|name| BuiltinMerge::find(name).is_some());
        match taken {
            None => Ok(()),
            Some(name) => Err(Error::InvalidOption {
                name: "merge_operator".to_owned(),
                what: format!("{name} is the name of a built-in operator; choose another"),
            }),
        }
    }

    /// Returns the operator of this name, known or not.
    pub(crate) fn find(&self, name: &str) -> TableMerge {
        let operator = match (BuiltinMerge::find(name), self.registered.get(name)) {
            (Some(builtin), _) => FoundOperator::Builtin(builtin),
            (None, Some(function)) => FoundOperator::Registered(Arc::clone(function)),
            (None, None) => FoundOperator::Missing,
        };
        TableMerge { name: name.into(), operator }
    }
}

impl TableMerge {
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.operator, FoundOperator::Missing)
    }

    /// Returns whether it calls a function of the application.
    pub(crate) fn is_registered(&self) -> bool {
        matches!(self.operator, FoundOperator::Registered(_))
    }

    /// Fails with [`Error::InvalidOption`] if the operator makes no values of these types.
    pub(crate) fn check_types(&self, types: &TableTypes) -> Result<()> {
        let FoundOperator::Builtin(builtin) = self.operator else { return Ok(()) };
        if builtin.accepts(types.value()) {
            return Ok(());
        }
        let (name, value) = (&self.name, types.value());
        let what = format!("{name} makes no values of the type {value}");
        Err(Error::InvalidOption { name: "merge".to_owned(), what })
    }

    /// Computes the new value. Fails with the reason why the operand cannot be merged.
    pub(crate) fn merge(
        &self,
        value_type: Option<TypeTag>,
        (key, old): (&[u8], Option<&[u8]>),
        operand: &[u8],
    ) -> std::result::Result<Vec<u8>, String> {
        match &self.operator {
            FoundOperator::Builtin(builtin) => builtin.merge(value_type, old, operand),
            FoundOperator::Registered(function) => function(key, old, operand),
            FoundOperator::Missing => Err("the operator is not registered".to_owned()),
        }
    }
}
