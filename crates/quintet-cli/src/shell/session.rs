//! What the shell's commands do.

use std::{ffi::OsString, io::Write, os::unix::ffi::OsStringExt as _};

use quintet::{Database, Error, Table, TableOptions};

use super::words::Words;
use crate::{
    bytes::quote,
    context::table_name,
    entries::Wanted,
    failure::{Failure, Outcome},
    figures,
    form::{Form, Typing},
    hierarchy::print_children,
};

/// Entries that `scan` shows on a terminal.
const SCAN_ENTRIES_ON_TERMINAL: u64 = 100;

/// One command, for `help` and completion.
#[derive(Debug)]
pub(super) struct Help {
    /// Its name.
    pub(super) name: &'static str,
    /// What follows the name.
    arguments: &'static str,
    /// What it does.
    effect: &'static str,
}

const fn help(name: &'static str, arguments: &'static str, effect: &'static str) -> Help {
    Help { name, arguments, effect }
}

/// Every command.
pub(super) const COMMANDS: &[Help] = &[
    help("put", "KEY [VALUE]", "set a value: the rest of the line, empty without"),
    help("get", "KEY", "print a value in quotes, or (absent)"),
    help("del", "KEY", "delete a key"),
    help("scan", "[PREFIX]", "print entries whose keys start with PREFIX"),
    help("count", "", "print how many entries there are"),
    help("use", "TABLE", "work on this table from now on"),
    help("tables", "", "list the tables"),
    help("list", "[PATH]", "list a directory of tables, a mount too"),
    help(
        "create",
        "TABLE ENGINE [NAME=VALUE]...",
        "create a table and use it; key-type=.. and value-type=.. fix types",
    ),
    help("rename", "TABLE NAME", "rename a table or a directory of tables"),
    help("drop", "TABLE", "drop a table"),
    help("begin", "", "collect put and del, over any tables, until commit"),
    help("commit", "", "write what was collected, all or nothing"),
    help("abort", "", "forget what was collected"),
    help("stats", "[TABLE]", "print figures"),
    help("help", "", "print this"),
    help("quit", "", "leave"),
];

/// Whether to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Quit,
}

/// A write that waits for `commit`.
#[derive(Debug)]
struct Staged {
    table: Table,
    key: Vec<u8>,
    /// `None` deletes.
    value: Option<Vec<u8>>,
}

/// One run of the shell.
#[derive(Debug)]
pub(super) struct Session<'a> {
    database: &'a Database,
    table: Option<Table>,
    /// Since `begin`.
    staged: Option<Vec<Staged>>,
    is_terminal: bool,
}

impl<'a> Session<'a> {
    /// Starts with the table `name`, or with the only one.
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
        Ok(Self { database, table, staged: None, is_terminal })
    }

    /// What stands before the cursor.
    pub(super) fn prompt(&self) -> String {
        let table = self.table.as_ref().map(Table::name);
        let mark = if self.staged.is_some() { "*" } else { "" };
        format!("{}{mark}> ", table.as_deref().unwrap_or("quintet"))
    }

    /// For completion.
    pub(super) fn table_names(&self) -> Vec<String> {
        let tables = self.database.tables();
        tables.into_iter().map(|table| table.name).collect()
    }

    /// The input has ended: says what is lost.
    pub(super) fn end(&self) -> Outcome {
        match &self.staged {
            Some(staged) if !staged.is_empty() => Err(Failure::Failed(format!(
                "the input ended between begin and commit: {} writes were not done",
                staged.len()
            ))),
            _ => Ok(()),
        }
    }

    /// Runs one line. An empty line, and one that starts with #, does nothing.
    pub(super) fn execute(&mut self, line: &[u8], out: &mut dyn Write) -> Outcome<Flow> {
        let mut words = Words::new(line);
        let Some(command) = words.next()? else { return Ok(Flow::Continue) };
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
                self.table = Some(self.database.table(&name)?);
                self.done(out)?;
            }
            b"tables" => {
                words.end()?;
                for table in self.database.tables() {
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
            b"begin" => {
                words.end()?;
                if self.staged.is_some() {
                    return Err(Failure::Usage("begin was given already".to_owned()));
                }
                self.staged = Some(Vec::new());
                self.done(out)?;
            }
            b"commit" => self.commit(words, out)?,
            b"abort" => {
                words.end()?;
                self.take_staged()?;
                self.done(out)?;
            }
            b"stats" | b"statistic" => self.stats(words, out)?,
            b"help" => print_help(out)?,
            b"quit" | b"exit" => return words.end().map(|()| Flow::Quit),
            other => {
                let what = format!("there is no command {}; help lists them", quote(other));
                return Err(Failure::Usage(what));
            }
        }
        Ok(Flow::Continue)
    }

    /// Answers a command that has nothing to show.
    fn done(&self, out: &mut dyn Write) -> Outcome {
        if !self.is_terminal {
            writeln!(out, "ok")?;
        }
        Ok(())
    }

    fn table(&self) -> Outcome<&Table> {
        let none = || Failure::Usage("no table is chosen; use TABLE chooses one".to_owned());
        self.table.as_ref().ok_or_else(none)
    }

    fn put(&mut self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let key = words.need("KEY")?;
        let value = words.value()?;
        let table = self.table()?.clone();
        let form = form(&table)?;
        let (key, value) = (form.key(&key)?, form.value(&value)?);
        match &mut self.staged {
            Some(staged) => staged.push(Staged { table, key, value: Some(value) }),
            None => table.put(&key, &value)?,
        }
        self.done(out)
    }

    fn delete(&mut self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let key = last(words, "KEY")?;
        let table = self.table()?.clone();
        let key = form(&table)?.key(&key)?;
        match &mut self.staged {
            Some(staged) => staged.push(Staged { table, key, value: None }),
            None => table.delete(&key)?,
        }
        self.done(out)
    }

    fn get(&self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let key = last(words, "KEY")?;
        let table = self.table()?;
        let form = form(table)?;
        match table.get(form.key(&key)?)? {
            Some(value) => writeln!(out, "{}", form.quote_value(&value))?,
            None => writeln!(out, "(absent)")?,
        }
        Ok(())
    }

    fn scan(&self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        let prefix = words.next()?.map(OsString::from_vec);
        words.end()?;
        let form = form(self.table()?)?;
        let prefix = form.prefix(prefix.as_ref())?;
        let wanted = Wanted { prefix, ..Wanted::default() };
        let limit = if self.is_terminal { SCAN_ENTRIES_ON_TERMINAL } else { u64::MAX };
        let mut shown = 0;
        wanted.for_each(self.table()?, &mut |key, value| {
            if shown == limit {
                writeln!(
                    out,
                    "(only the first {limit}; scan PREFIX, or the scan command, shows more)"
                )?;
                return Ok(false);
            }
            shown += 1;
            writeln!(out, "{}\t{}", form.show_key(key), form.quote_value(value))?;
            Ok(true)
        })
    }

    fn count(&self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        words.end()?;
        let mut count = 0_u64;
        Wanted::default().for_each(self.table()?, &mut |_, _| {
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
        self.table = Some(self.database.create_table(&name, typing.apply(options)?)?);
        self.done(out)
    }

    fn take_staged(&mut self) -> Outcome<Vec<Staged>> {
        self.staged.take().ok_or_else(|| Failure::Usage("begin was not given".to_owned()))
    }

    fn commit(&mut self, words: &mut Words<'_>, out: &mut dyn Write) -> Outcome {
        words.end()?;
        let staged = self.take_staged()?;
        let mut batch = self.database.batch();
        for Staged { table, key, value } in &staged {
            match value {
                Some(value) => batch.put(table, key, value),
                None => batch.delete(table, key),
            };
        }
        batch.commit()?;
        self.done(out)
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

/// How a table's keys and values are written.
fn form(table: &Table) -> Outcome<Form> {
    Form::of(table, &Typing::default(), false)
}

/// The next word, which must be the last.
fn last(words: &mut Words<'_>, what: &str) -> Outcome<Vec<u8>> {
    let word = words.need(what)?;
    words.end()?;
    Ok(word)
}

fn print_help(out: &mut dyn Write) -> Outcome {
    for Help { name, arguments, effect } in COMMANDS {
        writeln!(out, "{:38}{effect}", format!("{name} {arguments}"))?;
    }
    writeln!(out, "Keys, and values that start with one, may stand in double quotes, with")?;
    Ok(writeln!(out, "\\n \\t \\r \\0 \\\\ \\\" \\xFF \\u{{1F600}} for what cannot be typed.")?)
}
