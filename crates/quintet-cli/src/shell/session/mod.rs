//! The commands of the shell.

mod words;

use std::{ffi::OsString, io::Write, os::unix::ffi::OsStringExt as _};

use quintet::{
    CasOutcome, Database, Error, Snapshot, Table, TableInfo, TableOptions, Transaction,
    TransactionOptions,
};
use words::Words;

use crate::{
    bytes::quote,
    context::{table_name, warn_if_emulated},
    entries::{EntrySelection, Visit},
    failure::{Failure, Outcome},
    figures,
    form::{Form, Typing},
    hierarchy::print_children,
    listing::matches,
};

/// Maximum number of entries that `scan` prints on a terminal.
const SCAN_ENTRIES_ON_TERMINAL: u64 = 100;

/// One command, for `help` and completion.
#[derive(Debug)]
pub(super) struct Help {
    /// Its name.
    pub(super) name: &'static str,
    /// Its arguments.
    arguments: &'static str,
    /// Its effect.
    effect: &'static str,
}

const fn help(name: &'static str, arguments: &'static str, effect: &'static str) -> Help {
    Help { name, arguments, effect }
}

/// Every command.
pub(super) const COMMANDS: &[Help] = &[
    help("put", "KEY [VALUE]", "set a value: the rest of the line (default: empty)"),
    help("get", "KEY", "print a value in quotes, or (absent)"),
    help("del", "KEY", "delete a key"),
    help("scan", "[PREFIX]", "print entries whose keys start with PREFIX"),
    help("count", "", "print the number of entries"),
    help("use", "TABLE", "use this table in the following commands"),
    help("tables", "[PATTERN]", "list the tables, or those whose path matches (* and ?)"),
    help("list", "[PATH]", "list a directory of tables or a mount"),
    help(
        "create",
        "TABLE ENGINE [NAME=VALUE]...",
        "create a table and use it; key-type=.. and value-type=.. set its types",
    ),
    help("rename", "TABLE NAME", "rename a table or a directory of tables"),
    help("drop", "TABLE", "drop a table"),
    help("update", "KEY OLD NEW", "set a value to NEW if it is OLD; else print the value"),
    help("merge", "KEY OPERAND", "change a value by the merge operator of the table"),
    help("begin", "", "begin a transaction over any tables; reads show its moment and its writes"),
    help("commit", "", "commit the transaction, if no other commit has changed what it read"),
    help("rollback", "", "discard the writes of the transaction (also: abort)"),
    help("snapshot", "", "let get, scan and count show this moment until release"),
    help("release", "", "end the snapshot"),
    help("persist", "", "write what the table has in memory and in the log to its files"),
    help("compact", "", "release the disk space of deleted, replaced and expired entries"),
    help("stats", "[TABLE]", "print statistics"),
    help("help", "", "print this text"),
    help("quit", "", "leave the shell"),
];

/// Whether the shell reads the next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Quit,
}

/// What a read shows.
#[derive(Debug)]
enum ReadView {
    /// The tables as they are.
    Current,
    /// The moment of `snapshot`.
    Snapshot(Snapshot),
    /// The moment of `begin`, with the writes since: their number.
    Transaction(Box<Transaction>, usize),
}

/// One run of the shell.
#[derive(Debug)]
pub(super) struct Session<'a> {
    database: &'a Database,
    table: Option<Table>,
    view: ReadView,
    is_terminal: bool,
}

impl<'a> Session<'a> {
    /// Starts with the table `name`, or with the only table if there is exactly one.
    pub(super) fn new(
        database: &'a Database,
        name: Option<&str>,
        is_terminal: bool,
    ) -> Outcome<Self> {
        let tables = database.tables();
        let table = match (name, tables.as_slice()) {
            (Some(name), _) => Some(database.table(name)?),
            (None, [only]) => Some(database.table(&only.name)?),
            (None, _) => None,
        };
        let mut session = Self { database, table: None, view: ReadView::Current, is_terminal };
        if let Some(table) = table {
            session.choose(table)?;
        }
        Ok(session)
    }

    /// Lets the following commands use a table.
    fn choose(&mut self, table: Table) -> Outcome {
        if !self.database.is_read_only() {
            warn_if_emulated(&table)?;
        }
        self.table = Some(table);
        Ok(())
    }

    /// Returns the prompt.
    pub(super) fn prompt(&self) -> String {
        let table = self.table.as_ref().map(Table::name);
        let mark = match self.view {
            ReadView::Current => "",
            ReadView::Snapshot(_) => "@",
            ReadView::Transaction(..) => "*",
        };
        format!("{}{mark}> ", table.as_deref().unwrap_or("quintet"))
    }

    /// Returns the names of all tables, for completion.
    pub(super) fn table_names(&self) -> Vec<String> {
        let tables = self.database.tables();
        tables.into_iter().map(|table| table.name).collect()
    }

    /// Ends the session. Fails if the input ended between `begin` and `commit`.
    pub(super) fn end(&self) -> Outcome {
        match self.view {
            ReadView::Transaction(_, writes) if writes > 0 => Err(Failure::Failed(format!(
                "the input ended between begin and commit: {writes} writes were not done"
            ))),
            _ => Ok(()),
        }
    }

    /// Runs one line. Empty lines and lines that start with # do nothing.
    pub(super) fn execute(&mut self, line: &[u8], out: &mut dyn Write) -> Outcome<Flow> {
        let mut words = Words::new(line);
        let Some(command) = words.next()? else { return Ok(Flow::Continue) };
        let command = command.to_ascii_lowercase();
        let words = &mut words;
        match command.as_slice() {
            [b'#', ..] => {}
            b"put" => self.put(words, out)?,
            b"get" => self.get(words, out)?,
            b"del" | b"delete" => self.delete(words, out)?,
            b"scan" => self.scan(words, out)?,
            b"count" => self.count(words, out)?,
            b"use" => {
                let name = table_name(last(words, "TABLE")?)?;
                self.choose(self.database.table(&name)?)?;
                self.done(out)?;
            }
            b"tables" => {
                let pattern = words.next()?.unwrap_or_else(|| b"*".to_vec());
                words.end()?;
                let is_listed = |table: &TableInfo| matches(&pattern, table.name.as_bytes());
                for table in self.database.tables().into_iter().filter(is_listed) {
                    writeln!(out, "{}\t{}", table.name, table.kind)?;
                }
            }
            b"list" => {
                let path = words.next()?.map(table_name).transpose()?.unwrap_or_default();
                words.end()?;
                print_children(self.database, &path, false, out)?;
            }
            b"create" => self.create(words, out)?,
            b"rename" => {
                let name = table_name(words.need("TABLE")?)?;
                self.database.rename(&name, &table_name(last(words, "NAME")?)?)?;
                self.done(out)?;
            }
            b"drop" => {
                self.database.drop_table(&table_name(last(words, "TABLE")?)?)?;
                self.done(out)?;
            }
            b"update" => self.update(words, out)?,
            b"merge" => self.merge(words, out)?,
            b"begin" | b"commit" | b"rollback" | b"abort" | b"snapshot" | b"release" => {
                self.change_view(&command, words)?;
                self.done(out)?;
            }
            b"persist" => {
                words.end()?;
                self.table()?.persist()?;
                self.done(out)?;
            }
            b"compact" => {
                words.end()?;
                self.table()?.compact()?;
                self.done(out)?;
            }
            b"stats" | b"statistic" => self.stats(words, out)?,
            b"help" => print_help(out)?,
            b"quit" | b"exit" => return words.end().map(|()| Flow::Quit),
            other => {
                let what = format!("there is no command {}; help lists the commands", quote(other));
                return Err(Failure::Usage(what));
            }
        }
        Ok(Flow::Continue)
    }

    /// Begins or ends a transaction or a snapshot.
    fn change_view(&mut self, command: &[u8], words: &mut Words<'_>) -> Outcome {
        match command {
            b"begin" => {
                self.check_no_view(words)?;
                let transaction = self.database.begin(TransactionOptions::new())?;
                self.view = ReadView::Transaction(Box::new(transaction), 0);
            }
            b"snapshot" => {
                self.check_no_view(words)?;
                self.view = ReadView::Snapshot(self.database.snapshot()?);
            }
            b"release" => {
                words.end()?;
                if !matches!(self.view, ReadView::Snapshot(_)) {
                    return Err(Failure::Usage("no snapshot is open".to_owned()));
                }
                self.view = ReadView::Current;
            }
            b"commit" => self.take_transaction(words)?.commit()?,
            _ => self.take_transaction(words)?.rollback(),
        }
        Ok(())
    }

    /// Answers a command without output.
    fn done(&self, out: &mut dyn Write) -> Outcome {
        if !self.is_terminal {
            writeln!(out, "ok")?;
        }
        Ok(())
    }

    fn table(&self) -> Outcome<&Table> {
        let none = || Failure::Usage("no table is chosen; choose one with use TABLE".to_owned());
        self.table.as_ref().ok_or_else(none)
    }

    fn put(&mut self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let key = words.need("KEY")?;
        let value = words.value()?;
        let table = self.table()?.clone();
        let form = form(&table)?;
        let (key, value) = (form.key(&key)?, form.value(&value)?);
        match &mut self.view {
            ReadView::Transaction(transaction, writes) => {
                transaction.put(&table, &key, &value)?;
                *writes += 1;
            }
            _ => table.put(&key, &value)?,
        }
        self.done(out)
    }

    fn delete(&mut self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let key = last(words, "KEY")?;
        let table = self.table()?.clone();
        let key = form(&table)?.key(&key)?;
        match &mut self.view {
            ReadView::Transaction(transaction, writes) => {
                transaction.delete(&table, &key)?;
                *writes += 1;
            }
            _ => table.delete(&key)?,
        }
        self.done(out)
    }

    /// Merges an operand into a value.
    fn merge(&mut self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let (key, operand) = (words.need("KEY")?, words.value()?);
        let table = self.table()?.clone();
        let form = form(&table)?;
        let (key, operand) = (form.key(&key)?, form.value(&operand)?);
        match &mut self.view {
            ReadView::Transaction(transaction, writes) => {
                transaction.merge(&table, &key, &operand)?;
                *writes += 1;
            }
            _ => table.merge(&key, &operand)?,
        }
        self.done(out)
    }

    /// Sets a value if it is the expected one.
    fn update(&mut self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let (key, old) = (words.need("KEY")?, words.need("OLD")?);
        let new = words.value()?;
        let table = self.table()?.clone();
        let form = form(&table)?;
        let (key, old, new) = (form.key(&key)?, form.value(&old)?, form.value(&new)?);
        let current = match &mut self.view {
            ReadView::Transaction(transaction, writes) => {
                let current = transaction.get(&table, &key)?;
                if current.as_deref() == Some(&*old) {
                    transaction.put(&table, &key, &new)?;
                    *writes += 1;
                    return self.done(out);
                }
                current
            }
            _ => match table.compare_and_swap(&key, Some(&old), Some(&new))? {
                CasOutcome::Swapped => return self.done(out),
                CasOutcome::Different { current } => current,
            },
        };
        match current {
            Some(value) => writeln!(out, "not changed: {}", form.quote_value(&value))?,
            None => writeln!(out, "not changed: (absent)")?,
        }
        Ok(())
    }

    fn get(&self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let key = last(words, "KEY")?;
        let table = self.table()?;
        let form = form(table)?;
        let key = form.key(&key)?;
        let value = match &self.view {
            ReadView::Current => table.get(key)?,
            ReadView::Snapshot(snapshot) => snapshot.get(table, key)?,
            ReadView::Transaction(transaction, _) => transaction.get(table, key)?,
        };
        match value {
            Some(value) => writeln!(out, "{}", form.quote_value(&value))?,
            None => writeln!(out, "(absent)")?,
        }
        Ok(())
    }

    /// Calls `visit` with the selected entries of the table, as reads show them.
    fn for_each(&self, selection: &EntrySelection, visit: &mut Visit<'_>) -> Outcome {
        let table = self.table()?;
        match &self.view {
            ReadView::Current => selection.for_each(table, visit),
            ReadView::Snapshot(snapshot) => {
                selection.for_each_in(table, &snapshot.table(table), visit)
            }
            ReadView::Transaction(transaction, _) => {
                selection.for_each_in(table, &transaction.table(table), visit)
            }
        }
    }

    fn scan(&self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let prefix = words.next()?.map(OsString::from_vec);
        words.end()?;
        let form = form(self.table()?)?;
        let prefix = form.prefix(prefix.as_ref())?;
        let selection = EntrySelection { prefix, ..EntrySelection::default() };
        let limit = if self.is_terminal { SCAN_ENTRIES_ON_TERMINAL } else { u64::MAX };
        let mut printed = 0;
        self.for_each(&selection, &mut |key, value| {
            if printed == limit {
                writeln!(
                    out,
                    "(only the first {limit}; scan PREFIX, or the scan command, shows more)"
                )?;
                return Ok(false);
            }
            printed += 1;
            writeln!(out, "{}\t{}", form.show_key(key), form.quote_value(value))?;
            Ok(true)
        })
    }

    fn count(&self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        words.end()?;
        let mut count = 0_u64;
        self.for_each(&EntrySelection::default(), &mut |_, _| {
            count += 1;
            Ok(true)
        })?;
        Ok(writeln!(out, "{count}")?)
    }

    fn create(&mut self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let name = table_name(words.need("TABLE")?)?;
        let engine = table_name(words.need("ENGINE")?)?;
        let mut options = TableOptions::new(engine.parse()?);
        let mut typing = Typing::default();
        while let Some(word) = words.next()? {
            let text = String::from_utf8_lossy(&word);
            let Some((name, value)) = text.split_once('=') else {
                return Err(Failure::Usage(format!("{text:?} is not NAME=VALUE")));
            };
            match name {
                "key-type" => {
                    let types = value.split(',').map(str::parse).collect::<Result<_, Error>>()?;
                    typing.key_type = Some(types);
                }
                "value-type" => typing.value_type = Some(value.parse()?),
                _ => options = options.set(name, value),
            }
        }
        self.choose(self.database.create_table(&name, typing.apply(options)?)?)?;
        self.done(out)
    }

    /// Fails if a transaction or a snapshot is open.
    fn check_no_view(&self, words: &mut Words<'_>) -> Outcome {
        words.end()?;
        let what = match self.view {
            ReadView::Current => return Ok(()),
            ReadView::Snapshot(_) => "a snapshot is open; release it first",
            ReadView::Transaction(..) => "begin is already active; commit or rollback first",
        };
        Err(Failure::Usage(what.to_owned()))
    }

    fn take_transaction(&mut self, words: &mut Words<'_>) -> Outcome<Transaction> {
        words.end()?;
        match std::mem::replace(&mut self.view, ReadView::Current) {
            ReadView::Transaction(transaction, _) => Ok(*transaction),
            view => {
                self.view = view;
                Err(Failure::Usage("begin is not active".to_owned()))
            }
        }
    }

    fn stats(&self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let figures = match words.next()? {
            Some(name) => figures::of_table(&self.database.table(&table_name(name)?)?)?,
            None => figures::of_database(self.database),
        };
        words.end()?;
        Ok(write!(out, "{}", figures::as_text(&figures))?)
    }
}

/// Returns how the keys and values of a table are written.
fn form(table: &Table) -> Outcome<Form> {
    Form::of(table, &Typing::default(), false)
}

/// Returns the next word, which must be the last.
fn last(words: &mut Words<'_>, what: &str) -> Outcome<Vec<u8>> {
    let word = words.need(what)?;
    words.end()?;
    Ok(word)
}

fn print_help(out: &mut dyn Write) -> Outcome {
    for Help { name, arguments, effect } in COMMANDS {
        writeln!(out, "{:38}{effect}", format!("{name} {arguments}"))?;
    }
    writeln!(out, "Keys and values may be in double quotes. In quotes, the escapes")?;
    Ok(writeln!(out, "\\n \\t \\r \\0 \\\\ \\\" \\xFF \\u{{1F600}} stand for special characters.")?)
}
