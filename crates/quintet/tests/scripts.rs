//! Golden scripts: every `scripts/*.script` runs on every engine, on the simulated system, and must
//! print exactly its expected output.
//!
//! A script is text. A line that starts with `> ` is a command, and the lines after it are its
//! expected output. Comments (`#`) and blank lines are kept. `UPDATE=1` rewrites the scripts with
//! the actual output: review the difference.
//!
//! In words, `a*300` is `a` 300 times, `""` is no byte, `\x00` is a byte by its number. A table is
//! named by its path, or `@name` for a handle that `hold` kept.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/modes.rs"]
mod modes;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use quintet::{
    Cursor, Database, DeleteOptions, Durability, EngineKind, Error, Options, PutOptions, Result,
    Table, TableOptions, Value,
    testing::disk::{
        Env as _,
        sim::{Policy, SimEnv},
    },
};

use crate::modes::{Mode, modes, with_mode};

/// The state of a running script: the simulated system, and the handles open on it.
struct Session {
    env: SimEnv,
    engine: EngineKind,
    /// Options of every table, besides those of the script.
    variant: Mode,
    db: Option<Database>,
    held: BTreeMap<String, Table>,
}

/// Whether a scan of all entries prints the same lines in another order: that of the hash.
fn is_reordered(variant: Mode) -> bool {
    variant.contains(&("hash", "none"))
}

#[test]
fn scripts_print_their_expected_output_on_every_engine() {
    let update = std::env::var_os("UPDATE").is_some();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let script = fs::read_to_string(&path).unwrap();
        // `# engines: ...` on the first line: only these.
        let only = script.lines().next().and_then(|line| line.strip_prefix("# engines: "));
        let chosen = |engine: &&EngineKind| {
            only.is_none_or(|only| only.split(' ').any(|name| name == engine.name()))
        };
        let engines = EngineKind::AVAILABLE.iter().filter(chosen);
        let runs = engines.flat_map(|engine| modes(*engine).iter().map(move |one| (engine, *one)));
        for (engine, variant) in runs {
            let printed = run(&script, *engine, variant);
            if is_reordered(variant) {
                let lines = |text: &str| {
                    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                    lines.sort();
                    lines
                };
                assert_eq!(lines(&printed), lines(&script), "{} {variant:?}", path.display());
            } else if update && printed != script {
                fs::write(&path, &printed).unwrap();
            } else if printed != script {
                let line =
                    printed.lines().zip(script.lines()).position(|(one, other)| one != other);
                panic!(
                    "{} on {engine} {variant:?}, line {}: run with UPDATE=1 and review; it prints\n\
                     {printed}",
                    path.display(),
                    line.map_or(0, |line| line + 1),
                );
            }
        }
    }
}

fn run(script: &str, engine: EngineKind, variant: Mode) -> String {
    let is_in_pool = variant.iter().any(|(name, _)| *name == "pmem_bytes");
    let env = if is_in_pool { SimEnv::with_persistent_memory(1) } else { SimEnv::new(1) };
    let mut session = Session { env, engine, variant, db: None, held: BTreeMap::new() };
    let mut printed = String::new();
    for line in script.lines() {
        if let Some(command) = line.strip_prefix("> ") {
            writeln!(printed, "{line}").unwrap();
            let answer = session.command(command).unwrap_or_else(|error| match error {
                // The size of an entry depends on the engine.
                Error::OutOfMemory { .. } => "error: out of memory".to_owned(),
                error => format!("error: {error}"),
            });
            writeln!(printed, "{answer}").unwrap();
        } else if line.is_empty() || line.starts_with('#') {
            writeln!(printed, "{line}").unwrap();
        }
    }
    printed
}

fn word(text: &str) -> Vec<u8> {
    if text == "\"\"" {
        return Vec::new();
    }
    if let Some((piece, count)) = text.rsplit_once('*')
        && let Ok(count) = count.parse()
    {
        return word(piece).repeat(count);
    }
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if let [b'\\', b'x', high, low, tail @ ..] = rest {
            let digits = String::from_utf8(vec![*high, *low]).unwrap();
            bytes.push(u8::from_str_radix(&digits, 16).unwrap());
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

fn show(bytes: &[u8]) -> String {
    match bytes {
        [] => "\"\"".to_owned(),
        [first, ..] if bytes.len() > 80 && bytes.iter().all(|byte| byte == first) => {
            format!("{}*{}", [*first].escape_ascii(), bytes.len())
        }
        _ => bytes.escape_ascii().to_string(),
    }
}

fn show_value(value: &Value) -> String {
    let mut line = show(value);
    if let Some(tag) = value.type_tag() {
        write!(line, " type={tag}").unwrap();
    }
    line
}

impl Session {
    fn options(words: &[&str]) -> Options {
        let mut options = Options::new().memory_budget(4 << 20).segment_bytes(64 << 10);
        for word in words {
            options = match word.split_once('=') {
                None if *word == "read-only" => options.read_only(true),
                None if *word == "no-create" => options.create(false),
                Some(("memory", bytes)) => options.memory_budget(bytes.parse().unwrap()),
                Some(("recovery", bytes)) => options.recovery_budget(bytes.parse().unwrap()),
                Some(("segment", bytes)) => options.segment_bytes(bytes.parse().unwrap()),
                _ => panic!("no such option: {word}"),
            };
        }
        options
    }

    fn db(&self) -> Database {
        self.db.clone().expect("no database is open")
    }

    fn table(&self, name: &str) -> Result<Table> {
        match name.strip_prefix('@') {
            Some(name) => Ok(self.held[name].clone()),
            None => self.db().table(name),
        }
    }

    fn command(&mut self, command: &str) -> Result<String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let ok = |()| "ok".to_owned();
        match words.as_slice() {
            ["open", options @ ..] => self.open(&Self::options(options)).map(ok),
            ["open-again", options @ ..] => {
                Self::options(options).open_in(Arc::new(self.env.clone()), "db").map(|_| ok(()))
            }
            ["close"] => self.db().close().map(ok),
            ["drop-handles"] => {
                self.held.clear();
                self.db = None;
                Ok(ok(()))
            }
            ["reopen", options @ ..] => {
                self.db().close()?;
                self.open(&Self::options(options)).map(ok)
            }
            ["kill", options @ ..] => {
                self.env = self.env.kill();
                self.open(&Self::options(options)).map(ok)
            }
            ["crash", options @ ..] => {
                self.env = self.env.crash(Policy::AllLost);
                self.open(&Self::options(options)).map(ok)
            }
            ["tick", millis] => {
                self.env.advance(Duration::from_millis(millis.parse().unwrap()));
                self.env.run_due();
                Ok(ok(()))
            }
            ["jump", millis] => {
                self.env.jump_wall_clock(millis.parse().unwrap());
                Ok(ok(()))
            }
            ["hold", name, table] => {
                let table = self.table(table)?;
                self.held.insert((*name).to_owned(), table);
                Ok(ok(()))
            }
            _ => self.database_command(&words),
        }
    }

    fn open(&mut self, options: &Options) -> Result<()> {
        self.held.clear();
        self.db = None;
        self.db = Some(options.open_in(Arc::new(self.env.clone()), "db")?);
        Ok(())
    }

    fn database_command(&mut self, words: &[&str]) -> Result<String> {
        let db = self.db();
        let ok = |()| "ok".to_owned();
        let names = |tables: Vec<quintet::TableInfo>| {
            let names: Vec<_> = tables.into_iter().map(|table| table.name).collect();
            if names.is_empty() { "(none)".to_owned() } else { names.join("\n") }
        };
        match words {
            ["create", name, settings @ ..] => {
                db.create_table(name, self.table_options(settings)).map(|_| ok(()))
            }
            ["ensure", name, settings @ ..] => {
                db.open_or_create_table(name, self.table_options(settings)).map(|_| ok(()))
            }
            ["create-kind", name, kind] => {
                db.create_table(name, TableOptions::new(kind.parse()?)).map(|_| ok(()))
            }
            ["tables"] => Ok(names(db.tables())),
            ["tables", path] => db.tables_in(path).map(names),
            ["rename", from, to] => db.rename(from, to).map(ok),
            ["drop", name] => db.drop_table(name).map(ok),
            ["drop-tree", name] => db.drop_tree(name).map(ok),
            ["batch", rest @ ..] => self.batch(rest),
            ["persist"] => db.persist().map(ok),
            ["sync"] => db.sync().map(ok),
            ["check"] => {
                let report = db.check()?;
                if report.is_sound() { Ok("sound".to_owned()) } else { Ok(format!("{report:?}")) }
            }
            ["dirs"] => {
                let dir = self.env.open_dir("db/tables".as_ref(), false);
                let entries = dir.and_then(|dir| dir.list()).unwrap();
                Ok(format!("{} table directories", entries.len()))
            }
            _ => self.table_command(words),
        }
    }

    fn table_options(&self, settings: &[&str]) -> TableOptions {
        let options = with_mode(TableOptions::new(self.engine), self.variant);
        settings.iter().fold(options, |options, setting| {
            let (name, value) = setting.split_once('=').unwrap();
            options.set(name, value)
        })
    }

    fn batch(&self, words: &[&str]) -> Result<String> {
        let mut batch = self.db().batch();
        for op in words.split(|word| *word == ";") {
            match op {
                ["put", table, key, value, options @ ..] => {
                    let options = self.put_options(options)?;
                    batch.put_with(&self.table(table)?, word(key), word(value), options);
                }
                ["del", table, key] => {
                    batch.delete(&self.table(table)?, word(key));
                }
                _ => panic!("no such operation: {op:?}"),
            }
        }
        let count = batch.len();
        batch.commit()?;
        Ok(format!("ok, {count} operations"))
    }

    fn put_options(&self, words: &[&str]) -> Result<PutOptions> {
        let mut options = PutOptions::new();
        for word in words {
            options = match word.split_once('=') {
                None if *word == "absent" => options.if_absent(),
                None if *word == "present" => options.if_present(),
                None if *word == "sync" => options.durability(Durability::Sync),
                Some(("ttl", millis)) => {
                    options.ttl(Duration::from_millis(millis.parse().unwrap()))
                }
                Some(("until", millis)) => {
                    let millis: i64 = millis.parse().unwrap();
                    let time = self.env.unix_millis().saturating_add_signed(millis);
                    options.expires_at(SystemTime::UNIX_EPOCH + Duration::from_millis(time))
                }
                Some(("type", tag)) => options.type_tag(tag.parse()?),
                _ => panic!("no such option: {word}"),
            };
        }
        Ok(options)
    }

    fn table_command(&self, words: &[&str]) -> Result<String> {
        let (command, name) = match words {
            [command, name, ..] => (*command, *name),
            _ => panic!("no such command: {words:?}"),
        };
        let table = self.table(name)?;
        let ok = |()| "ok".to_owned();
        let applied = |applied| if applied { "ok" } else { "not done" }.to_owned();
        let shown = |value: Option<Value>| value.map_or("(none)".to_owned(), |v| show_value(&v));
        match (command, words.get(2..).unwrap_or_default()) {
            ("put", [key, value, options @ ..]) => {
                let options = self.put_options(options)?;
                table.put_with(word(key), word(value), options).map(applied)
            }
            ("get", [key]) => table.get(word(key)).map(shown),
            ("get-into", [key]) => {
                let mut value = b"before".to_vec();
                let found = table.get_into(word(key), &mut value)?;
                Ok(format!("{found} {}", show(&value)))
            }
            ("multi-get", keys) => {
                let keys: Vec<_> = keys.iter().map(|key| word(key)).collect();
                let values = table.multi_get(&keys)?;
                Ok(values.into_iter().map(shown).collect::<Vec<_>>().join(" | "))
            }
            ("contains", [key]) => table.contains(word(key)).map(|found| found.to_string()),
            ("del", [key]) => table.delete(word(key)).map(ok),
            ("del", [key, "present"]) => {
                table.delete_with(word(key), DeleteOptions::new().if_present()).map(applied)
            }
            ("scan", []) => scan(&table),
            ("count", []) => Ok(all(&table)?.len().to_string()),
            ("bad-cursor", []) => table.scan(Cursor(vec![1, 2, 3]), 10).map(|_| ok(())),
            ("range", [start, end]) => {
                let entries = table.range(word(start)..word(end))?;
                let lines = entries.map(|entry| {
                    entry.map(|(key, value)| format!("{} = {}", show(&key), show_value(&value)))
                });
                Ok(lines.collect::<Result<Vec<_>>>()?.join("\n"))
            }
            ("delete-range", [start, end]) => table.delete_range(word(start)..word(end)).map(ok),
            ("fill", [count, bytes]) => {
                let value = vec![b'v'; bytes.parse().unwrap()];
                for number in 0..count.parse::<u32>().unwrap() {
                    table.put(number.to_be_bytes(), &value)?;
                }
                Ok(ok(()))
            }
            ("name", []) => Ok(table.name()),
            ("persist", []) => table.persist().map(ok),
            ("compact", []) => table.compact().map(ok),
            ("keys", []) => table.stats().map(|stats| stats.keys.to_string()),
            other => panic!("no such command: {other:?}"),
        }
    }
}

fn all(table: &Table) -> Result<BTreeMap<Vec<u8>, Value>> {
    let (mut entries, mut cursor) = (BTreeMap::new(), Cursor::START);
    loop {
        let (page, next) = table.scan(&cursor, 3)?;
        entries.extend(page);
        if next.is_start() {
            return Ok(entries);
        }
        cursor = next;
    }
}

/// Sorts the lines: engines differ in the order of a scan.
fn scan(table: &Table) -> Result<String> {
    let entries = all(table)?;
    if entries.is_empty() {
        return Ok("(none)".to_owned());
    }
    let line = |(key, value): (&Vec<u8>, &Value)| format!("{} = {}", show(key), show_value(value));
    Ok(entries.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// A script cannot show this error, because it names a path of the machine.
#[test]
fn a_directory_without_a_catalog_is_no_database() {
    let env = SimEnv::new(1);
    let dir = env.open_dir("db".as_ref(), true).unwrap();
    dir.open("precious.txt", quintet::testing::disk::Open::CREATE).unwrap();
    let opened = Options::new().memory_budget(4 << 20).open_in(Arc::new(env.clone()), "db");
    assert!(matches!(opened, Err(Error::NotADatabase { .. })), "{opened:?}");
    assert_eq!(dir.list().unwrap().len(), 2, "a lock file at most is added");
}
