//! `import --rocksdb` and `--leveldb`: reads a database of another store into tables.
//!
//! Problem: the entries are in files that the library of the other store reads. It is C++, may be
//! missing, and may crash on damaged files. The database must not change.
//! How: [`directory`] checks and locks the database. [`scratch`] makes a directory that `LevelDB`
//! may change. [`launch`] starts this program again to read it. That process ([`reader`]) loads the
//! library and sends entries as [`stream`] defines. Here [`writer`] commits them in batches.
//!
//! Invariants:
//! - No file of the source changes. No other process opens it for writing meanwhile.
//! - The target is opened after the source. So a source that cannot be read creates nothing.
//! - At each moment the tables have the entries of whole batches, in the order of the keys. The
//!   same command again writes the same entries.
//!
//! Memory: one batch, and what the library takes in the other process.

mod directory;
mod interrupt;
mod kind;
mod launch;
mod reader;
mod scratch;
mod stream;
mod writer;

pub use kind::StoreKind;

use std::{
    io::{self, Write as _},
    path::Path,
};

use quintet::{Database, TableOptions, check_table_path};
use quintet_compat::{engines::MERGE_OPERATOR, store::table_name};
use serde_json::json;

use crate::{
    arguments::ImportArgs,
    bytes::escape,
    context::{Context, open_import_table},
    failure::{Failure, Outcome},
    options,
    progress::Meter,
};
use launch::{ReaderProcess, directory_to_read};
use reader::ReadRequest;
use scratch::Scratch;
use stream::Frame;
use writer::{FamilyCounts, FamilyTable, FamilyWriter};

/// Runs `import` for the database in `source`.
pub fn run(
    context: &mut Context<'_>,
    command: &ImportArgs,
    kind: StoreKind,
    source: &Path,
) -> Outcome {
    if let Some(dir) = directory_to_read() {
        let library = command.store.library.as_deref();
        let families = &*command.store.family;
        let request = ReadRequest { kind, dir: &dir, source, library, families };
        return reader::serve(&request, context.out);
    }
    check_arguments(command, kind, source)?;
    directory::check(kind, source)?;
    // Until the end of the import.
    let _lock = directory::lock(source)?;
    interrupt::watch();
    let scratch = match kind {
        StoreKind::LevelDb => Some(Scratch::new(source)?),
        StoreKind::RocksDb => None,
    };
    if let Some(bytes) = scratch.as_ref().map(|scratch| scratch.copied_bytes).filter(|n| *n > 0) {
        let shown = source.display();
        let note = format!("{shown}: {bytes} bytes of tables were copied, for want of hard links");
        let _ = writeln!(io::stderr(), "quintet: note: {note}");
    }
    let dir = scratch.as_ref().map_or(source, Scratch::path);
    let mut reader = ReaderProcess::start(kind, dir)?;
    let Frame::Opened { families, total } = reader.next()? else { return Err(unexpected()) };
    let names = table_names(command, source, families)?;
    let options = table_options(command)?;
    let database = context.open_to_import(command)?;
    let tables = open_tables(&database, command, names, options.as_ref())?;
    let meter = match kind {
        StoreKind::RocksDb => Meter::entries(total),
        StoreKind::LevelDb => Meter::bytes(Some(total)),
    };
    let result = import_families(context, command, &database, &tables, &mut reader, &meter);
    meter.finish();
    drop(reader);
    let counts = result?;
    database.close()?;
    print_counts(context, command, &tables, &counts)
}

/// Checks what the command line alone tells.
fn check_arguments(command: &ImportArgs, kind: StoreKind, source: &Path) -> Outcome {
    let what = if kind == StoreKind::LevelDb && !command.store.family.is_empty() {
        "--family is for --rocksdb; LevelDB has no column families"
    } else if command.table.is_none() && command.typing.types()?.is_some() {
        "types need a TABLE"
    } else if same_directory(&command.dir, source) {
        "the Quintet database must be in another directory"
    } else {
        return command.table.as_deref().map_or(Ok(()), |name| Ok(check_table_path(name)?));
    };
    Err(Failure::Usage(what.to_owned()))
}

fn same_directory(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Returns the families with the paths of their tables.
fn table_names(
    command: &ImportArgs,
    source: &Path,
    families: Vec<String>,
) -> Outcome<Vec<(String, String)>> {
    let Some(table) = &command.table else {
        let named = families.into_iter().map(|family| {
            let table = table_name(&family);
            (family, table)
        });
        return Ok(named.collect());
    };
    if let [family] = &*families {
        return Ok(vec![(family.clone(), table.clone())]);
    }
    Err(Failure::Failed(format!(
        "{} has the column families {}; choose one by --family NAME, or import all without TABLE",
        source.display(),
        families.join(", ")
    )))
}

/// Returns the options of a new table, with `--engine`.
fn table_options(command: &ImportArgs) -> Outcome<Option<TableOptions>> {
    let Some(engine) = command.engine else { return Ok(None) };
    let options = options::of_table(engine, &[], &command.typing)?;
    // The compatible libraries create their tables with this operator.
    Ok(Some(if command.table.is_none() { options.merge(MERGE_OPERATOR) } else { options }))
}

fn open_tables(
    database: &Database,
    command: &ImportArgs,
    names: Vec<(String, String)>,
    options: Option<&TableOptions>,
) -> Outcome<Vec<FamilyTable>> {
    let has_stored_keys = command.table.is_none();
    let open = |(family, name): (String, String)| {
        let table = open_import_table(database, &command.dir, &name, options.cloned())?;
        Ok(FamilyTable { family, name, table, has_stored_keys })
    };
    names.into_iter().map(open).collect()
}

/// Imports all families. A failure says how far the import came.
fn import_families(
    context: &mut Context<'_>,
    command: &ImportArgs,
    database: &Database,
    tables: &[FamilyTable],
    reader: &mut ReaderProcess,
    meter: &Meter,
) -> Outcome<Vec<FamilyCounts>> {
    let mut counts: Vec<FamilyCounts> = Vec::new();
    let mut tables = tables.iter();
    loop {
        let before = counts.iter().map(|count| count.entries).sum();
        let mut committed = before;
        let family = import_family(
            reader,
            tables.next(),
            meter,
            &mut |table| FamilyWriter::new(database, table, command.batch, command.sorted),
            &mut |in_family| {
                committed = before + in_family;
                if command.acknowledge {
                    writeln!(context.out, "acknowledged {committed}")?;
                    context.out.flush()?;
                }
                Ok(())
            },
        );
        match family {
            Ok(Some(count)) => counts.push(count),
            Ok(None) => return Ok(counts),
            Err(failure) => return Err(with_progress(failure, committed, command.sorted)),
        }
    }
}

/// Imports the next family. Returns `None` if there is none.
fn import_family<'a>(
    reader: &mut ReaderProcess,
    table: Option<&'a FamilyTable>,
    meter: &Meter,
    start: &mut dyn FnMut(&'a FamilyTable) -> Outcome<FamilyWriter<'a>>,
    acknowledge: &mut dyn FnMut(u64) -> Outcome,
) -> Outcome<Option<FamilyCounts>> {
    let table = match (reader.next()?, table) {
        (Frame::Family(name), Some(table)) if name == table.family => table,
        (Frame::End, None) => return Ok(None),
        _ => return Err(unexpected()),
    };
    let mut writer = start(table)?;
    loop {
        match reader.next()? {
            Frame::Entry => {
                let (key, value) = reader.entry();
                if writer.put(key, value)? {
                    acknowledge(writer.committed())?;
                    interrupt::check()?;
                }
            }
            Frame::Progress(growth) => {
                meter.add(growth);
                interrupt::check()?;
            }
            Frame::FamilyEnd(entries) => return Ok(Some(writer.finish(entries)?)),
            _ => return Err(unexpected()),
        }
    }
}

fn unexpected() -> Failure {
    Failure::Failed("the process with the library sent a frame out of order".to_owned())
}

/// Adds the number of imported entries to the message of a failed import.
fn with_progress(failure: Failure, committed: u64, is_sorted: bool) -> Failure {
    let note = |what: String| match committed {
        0 if is_sorted => format!("{what}; a sorted load of btree imports all or nothing"),
        0 => format!("{what}; nothing was imported"),
        entries => format!(
            "{what}; the first {entries} entries were imported, and the same command imports all"
        ),
    };
    match failure {
        Failure::Failed(what) => Failure::Failed(note(what)),
        Failure::Damage(what) => Failure::Damage(note(what)),
        other => other,
    }
}

fn print_counts(
    context: &mut Context<'_>,
    command: &ImportArgs,
    tables: &[FamilyTable],
    counts: &[FamilyCounts],
) -> Outcome {
    let out = &mut *context.out;
    let families = tables.iter().zip(counts);
    if command.json {
        let families = families.map(|(table, count)| {
            json!({
                "family": table.family,
                "table": table.name,
                "entries": count.entries,
                "bytes": count.bytes,
                "replaced": count.replaced,
            })
        });
        let families: Vec<_> = families.collect();
        return Ok(writeln!(out, "{}", json!({ "families": families }))?);
    }
    for (FamilyTable { family, name, .. }, count) in families {
        let FamilyCounts { entries, bytes, replaced } = count;
        let family = escape(family.as_bytes());
        let what = format!("{entries} entries, {bytes} bytes, of column family {family}");
        writeln!(out, "imported {what} into {name}; {replaced} replaced a value")?;
    }
    Ok(())
}
