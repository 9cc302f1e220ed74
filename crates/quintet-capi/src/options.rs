//! Options of databases, tables, transactions, loads and change feeds, by name and value.

use std::{ffi::c_int, sync::Mutex, time::Duration};

use quintet::{
    ChangeFeedOptions, Durability, EngineKind, Error, Isolation, LoadOptions, Options,
    TableOptions, TableTypes, TransactionOptions, TypeTag,
};

use crate::{
    boundary::{Buffer, Context, Out, Slice, View, export, required},
    failure::Failure,
    handles::Handle,
};

/// A merge operator: computes `merged` from `old` and `operand`. `old` is null for an absent key.
///
/// Returns 0 and sets `merged` by `quintet_buffer_set`. Another number refuses the operand, and
/// `merged` may have a text with the reason then. `merged` is empty at each call. It may run in
/// several threads at once, and more than once for one merge, so equal arguments must have equal
/// results. It runs without a lock.
pub type MergeFunction = extern "C-unwind" fn(
    context: Context,
    key: View,
    old: *const View,
    operand: View,
    merged: *mut Buffer,
) -> c_int;

/// A list of options, for one or several calls. One thread at a time changes it.
#[derive(Debug, Default)]
pub struct OptionList(Mutex<Lists>);

#[derive(Clone, Debug, Default)]
struct Lists {
    settings: Vec<(String, String)>,
    operators: Vec<(String, MergeFunction, Context)>,
}

impl OptionList {
    fn lists(&self) -> Lists {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Lists)) {
        change(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

fn lists(options: Handle<OptionList>) -> Result<Lists, Failure> {
    if options.is_null() { Ok(Lists::default()) } else { Ok(options.get()?.lists()) }
}

fn invalid(name: &str, what: impl Into<String>) -> Failure {
    Error::InvalidOption { name: name.to_owned(), what: what.into() }.into()
}

fn number(name: &str, text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| invalid(name, format!("{text:?} is no whole number")))
}

fn flag(name: &str, text: &str) -> Result<bool, Failure> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(invalid(name, format!("{text:?} is neither true nor false"))),
    }
}

fn durability(name: &str, text: &str) -> Result<Durability, Failure> {
    match text {
        "buffered" => Ok(Durability::Buffered),
        "sync" => Ok(Durability::Sync),
        _ => Err(invalid(name, format!("{text:?} is neither buffered nor sync"))),
    }
}

/// Returns the options of a database.
pub fn of_database(options: Handle<OptionList>) -> Result<Options, Failure> {
    let lists = lists(options)?;
    let mut options = Options::new();
    for (name, value) in &lists.settings {
        let millis = || number(name, value).map(Duration::from_millis);
        options = match name.as_str() {
            "durability" => options.durability(durability(name, value)?),
            "memory_budget" => options.memory_budget(number(name, value)?),
            "sync_interval" => options.sync_interval(millis()?),
            "checkpoint_interval" => options.checkpoint_interval(millis()?),
            "recovery_budget" => options.recovery_budget(number(name, value)?),
            "space_reserve" => options.space_reserve(number(name, value)?),
            "read_only" => options.read_only(flag(name, value)?),
            "create" => options.create(flag(name, value)?),
            "segment_bytes" => options.segment_bytes(number(name, value)?),
            "log_retention" => options.log_retention(number(name, value)?),
            "snapshot_limit" => options.snapshot_limit(number(name, value)?),
            "snapshot_max_age" => options.snapshot_max_age(millis()?),
            "allow_missing_merge_operators" => {
                options.allow_missing_merge_operators(flag(name, value)?)
            }
            _ => return Err(invalid(name, "a database has no such option")),
        };
    }
    for (name, function, context) in lists.operators {
        options = options.merge_operator(name, move |key, old, operand| {
            merge(function, context, key, old, operand)
        });
    }
    Ok(options)
}

/// Calls the program's merge operator.
fn merge(
    function: MergeFunction,
    context: Context,
    key: &[u8],
    old: Option<&[u8]>,
    operand: &[u8],
) -> Result<Vec<u8>, String> {
    let mut merged = Buffer::EMPTY;
    let old = old.map(View::of);
    let old = old.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let result = function(context, View::of(key), old, View::of(operand), &raw mut merged);
    let merged = merged.take();
    if result == 0 { Ok(merged) } else { Err(String::from_utf8_lossy(&merged).into_owned()) }
}

/// Returns the options of a table of an engine.
pub fn of_table(engine: &str, options: Handle<OptionList>) -> Result<TableOptions, Failure> {
    let kind: EngineKind = engine.parse()?;
    let mut options_of_table = TableOptions::new(kind);
    for (name, value) in lists(options)?.settings {
        options_of_table = match name.as_str() {
            "types" => options_of_table.types(types(&value)?),
            _ => options_of_table.set(name, value),
        };
    }
    Ok(options_of_table)
}

/// Parses `string,u64 -> blob`, the types of a table.
pub fn types(text: &str) -> Result<TableTypes, Failure> {
    let Some((key, value)) = text.split_once("->") else {
        return Err(invalid("types", format!("{text:?} is not of the form `u64 -> blob`")));
    };
    let tags = key.split(',').map(|tag| tag.trim().parse()).collect::<Result<Vec<TypeTag>, _>>()?;
    Ok(TableTypes::new(tags, value.trim().parse()?)?)
}

/// Returns the options of a transaction.
pub fn of_transaction(options: Handle<OptionList>) -> Result<TransactionOptions, Failure> {
    let mut transaction = TransactionOptions::new();
    for (name, value) in &lists(options)?.settings {
        transaction = match (name.as_str(), value.as_str()) {
            ("isolation", "serializable") => transaction.isolation(Isolation::Serializable),
            ("isolation", "snapshot") => transaction.isolation(Isolation::Snapshot),
            ("isolation", _) => {
                return Err(invalid(
                    name,
                    format!("{value:?} is neither serializable nor snapshot"),
                ));
            }
            ("durability", _) => transaction.durability(durability(name, value)?),
            ("lock_timeout", _) => {
                transaction.lock_timeout(Duration::from_millis(number(name, value)?))
            }
            _ => return Err(invalid(name, "a transaction has no such option")),
        };
    }
    Ok(transaction)
}

/// Returns the options of a sorted load.
pub fn of_load(options: Handle<OptionList>) -> Result<LoadOptions, Failure> {
    let mut load = LoadOptions::new();
    for (name, value) in &lists(options)?.settings {
        load = match name.as_str() {
            "logged" if flag(name, value)? => load.logged(),
            "logged" => load,
            "durability" => load.durability(durability(name, value)?),
            _ => return Err(invalid(name, "a sorted load has no such option")),
        };
    }
    Ok(load)
}

/// Returns the options of a change feed.
pub fn of_feed(options: Handle<OptionList>) -> Result<ChangeFeedOptions, Failure> {
    let mut feed = ChangeFeedOptions::new();
    for (name, value) in lists(options)?.settings {
        feed = match name.as_str() {
            "path" => feed.path(value),
            "unsynced" => feed.unsynced(flag(&name, &value)?),
            _ => return Err(invalid(&name, "a change feed has no such option")),
        };
    }
    Ok(feed)
}

export! {
    /// Makes an empty list of options. Names and values are text.
    ///
    /// Of databases: `"durability"` is `"buffered"` or `"sync"`. `"memory_budget"`,
    /// `"recovery_budget"`, `"space_reserve"`, `"segment_bytes"`, `"log_retention"` and
    /// `"snapshot_limit"` are in bytes. `"sync_interval"`, `"checkpoint_interval"` and
    /// `"snapshot_max_age"` are in milliseconds. `"read_only"`, `"create"` and
    /// `"allow_missing_merge_operators"` are `"true"` or `"false"`.
    ///
    /// Of tables: the options of the engine, `"merge"` (the name of a merge operator) and
    /// `"types"` (such as `"string,u64 -> blob"`).
    ///
    /// Of transactions: `"isolation"` is `"serializable"` or `"snapshot"`, `"lock_timeout"` is in
    /// milliseconds, `"durability"` as above. Of sorted loads: `"logged"` is `"true"` or
    /// `"false"`, `"durability"` as above.
    ///
    /// Of change feeds: each `"path"` adds a table, or a directory with the tables below it;
    /// without any, the feed shows all tables. `"unsynced"` is `"true"` for commits that a power
    /// loss can undo.
    ///
    /// Errors: those of every function.
    pub fn quintet_options_new(options: Out<Handle<OptionList>>) {
        required(options, "options")?.write(Handle::new(OptionList::default())?);
        Ok(())
    }

    /// Sets an option to a value. The function that gets the list checks both. The last value of a
    /// name counts, except for `"path"`.
    ///
    /// Errors: those of every function.
    pub fn quintet_options_set(options: Handle<OptionList>, name: Slice, value: Slice) {
        let setting = (name.text()?.to_owned(), value.text()?.to_owned());
        options.get()?.change(|lists| lists.settings.push(setting));
        Ok(())
    }

    /// Adds a merge operator to the options of a database. The tables name it by the option
    /// `"merge"`. Each call of `merge` gets `context`, which must stay valid until the database and
    /// its tables are freed, and usable by several threads.
    ///
    /// Errors: those of every function.
    pub fn quintet_options_add_merge_operator(
        options: Handle<OptionList>, name: Slice, merge: Option<MergeFunction>, context: Context,
    ) {
        let operator = (name.text()?.to_owned(), required(merge, "merge")?, context);
        options.get()?.change(|lists| lists.operators.push(operator));
        Ok(())
    }

    /// Frees a list of options. Null is allowed. Objects that were opened with it stay as they are.
    ///
    /// Errors: those of every function.
    pub fn quintet_options_free(options: Handle<OptionList>) {
        options.free().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    /// Returns the list of one option, `?`, which no option accepts.
    fn list(name: &str) -> Handle<OptionList> {
        let list = OptionList::default();
        list.change(|lists| lists.settings.push((name.to_owned(), "?".to_owned())));
        Handle::new(list).expect("a handle")
    }

    #[test]
    fn each_option_of_a_database_has_its_name() {
        for option in quintet::database_options() {
            let message = of_database(list(option.name)).expect_err("a bad value").message();
            assert!(!message.contains("no such option"), "{message}");
        }
        let message = of_database(list("colour")).expect_err("a bad name").message();
        assert!(message.contains("no such option"), "{message}");
    }

    #[test]
    fn options_of_transactions_loads_and_feeds_are_checked() {
        for name in ["isolation", "durability", "lock_timeout", "colour"] {
            assert_eq!(of_transaction(list(name)).expect_err(name).code(), Code::InvalidOption);
        }
        for name in ["unsynced", "colour"] {
            assert_eq!(of_feed(list(name)).expect_err(name).code(), Code::InvalidOption);
        }
        for name in ["logged", "durability", "colour"] {
            assert_eq!(of_load(list(name)).expect_err(name).code(), Code::InvalidOption);
        }
    }

    #[test]
    fn types_are_parsed() {
        assert_eq!(types("string, u64 -> blob").expect("types").to_string(), "string,u64 -> blob");
        for text in ["", "u64", "-> u64", "u64 ->", "tree -> blob"] {
            assert!(types(text).is_err(), "{text:?}");
        }
    }
}
