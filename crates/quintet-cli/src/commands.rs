//! Runs the commands: calls the library and prints the results.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use clap::CommandFactory as _;
use quintet::{CheckLevel, Database, Error, PutOptions, Report, Table, check_table_path};
use serde_json::json;

use crate::{
    arguments::{self, Arguments, Command, DurabilityChoice, Selection},
    changes,
    context::{
        Context, explain_missing, is_database, must_not_be_file, open_import_table, open_or_create,
        open_table, warn_if_emulated,
    },
    entries::EntrySelection,
    export::{self, ExportSummary, ExportTarget, NewFile, RowShape},
    failure::{Failure, Outcome},
    figures,
    form::Form,
    formats::{Format, dump::Coding},
    hierarchy,
    import::{self, ImportProgress, ImportSource, ImportTarget},
    inspect, listing, options,
    progress::Meter,
    redis_dump, shell,
    store_import::{self, StoreKind},
};

/// Runs one command.
pub fn run(arguments: Arguments, out: &mut dyn Write) -> Outcome {
    let mut context = Context { memory_budget: arguments.memory_budget, out };
    let context = &mut context;
    match arguments.command {
        Command::Create(command) => create(context, &command),
        Command::Options(command) => Ok(options::print(command.engine, context.out)?),
        Command::Tables(command) => listing::tables(context, &command),
        Command::List(command) => hierarchy::list(context, &command),
        Command::Mount(command) => hierarchy::mount(context, &command),
        Command::Unmount(command) => hierarchy::unmount(context, &command),
        Command::Mounts(command) => hierarchy::mounts(context, &command),
        Command::Defaults(command) => hierarchy::defaults(context, &command),
        Command::Drop(command) => drop_table(context, &command),
        Command::Rename(command) => rename(context, &command),
        Command::Get(command) => get(context, &command),
        Command::Put(command) => put(context, &command),
        Command::Del(command) => del(context, &command),
        Command::Scan(command) => scan(context, &command),
        Command::Count(command) => count(context, &command),
        Command::Import(command) => run_import(context, &command),
        Command::Export(command) => run_export(context, &command),
        Command::Stats(command) => stats(context, &command),
        Command::Compact(command) => compact(context, &command),
        Command::Check(command) => check(context, &command),
        Command::Changes(command) => changes::changes(context, &command),
        Command::Inspect(command) => inspect::inspect(&command.file, context.out),
        Command::Shell(command) => shell::run(context, &command),
        #[cfg(feature = "serve")]
        Command::Serve(command) => crate::serve::serve(context, &command),
        Command::Bench(command) => quintet_bench::cli::run(&command, context.out),
        Command::Completions(command) => {
            let mut definition = Arguments::command();
            let mut script = Vec::new();
            clap_complete::generate(command.shell, &mut definition, "quintet", &mut script);
            Ok(context.out.write_all(&script)?)
        }
    }
}

fn create(context: &mut Context<'_>, command: &arguments::CreateArgs) -> Outcome {
    let (dir, name) = (&command.target.dir, &command.target.table);
    // Before the database is opened: a refused command creates no directory.
    check_table_path(name)?;
    let Some(engine) = command.engine else {
        if !command.options.is_empty() || command.typing.types()?.is_some() {
            return Err(Failure::Usage("options and types need --engine".to_owned()));
        }
        must_not_be_file(dir)?;
        if !is_database(dir) {
            let what = format!("{} holds no database", dir.display());
            return Err(Failure::Usage(format!("{what}; its first table needs --engine ENGINE")));
        }
        let database = context.open_to_write(dir, DurabilityChoice::Sync)?;
        warn_if_emulated(&database.create_default_table(name)?)?;
        return Ok(database.close()?);
    };
    let options = options::of_table(engine, &command.options, &command.typing)?;
    let database = open_or_create(&context.options(), dir)?;
    warn_if_emulated(&database.create_table(name, options)?)?;
    Ok(database.close()?)
}

fn drop_table(context: &mut Context<'_>, command: &arguments::DropArgs) -> Outcome {
    let database = context.open_to_write(&command.target.dir, DurabilityChoice::Sync)?;
    let (dir, name) = (&command.target.dir, command.target.table.as_str());
    let dropped = if command.tree { database.drop_tree(name) } else { database.drop_table(name) };
    dropped.map_err(|error| match error {
        Error::NoSuchTable { .. } if !command.tree && database.children(name).is_ok() => {
            Failure::Failed(format!(
                "{name:?} is a directory of tables; `quintet drop {} {name} --tree` drops it with \
                 all its tables",
                dir.display()
            ))
        }
        other => explain_missing(other, &database, dir, name),
    })?;
    Ok(database.close()?)
}

fn rename(context: &mut Context<'_>, command: &arguments::RenameArgs) -> Outcome {
    let database = context.open_to_write(&command.target.dir, DurabilityChoice::Sync)?;
    let (dir, name) = (&command.target.dir, &command.target.table);
    database
        .rename(name, &command.new_name)
        .map_err(|error| explain_missing(error, &database, dir, name))?;
    Ok(database.close()?)
}

fn get(context: &mut Context<'_>, command: &arguments::GetArgs) -> Outcome {
    let database = context.open_to_read(&command.target.dir)?;
    let table = open_table(&database, &command.target.dir, &command.target.table)?;
    let form = Form::of(&table, &command.typing, command.hex)?;
    let key = form.key_argument(&command.key)?;
    let Some(value) = table.get(&key)? else {
        let what = format!("no key {} in table {}", form.quote_key(&key), command.target.table);
        return Err(Failure::Failed(what));
    };
    if command.raw {
        context.out.write_all(&value)?;
    } else if command.json {
        writeln!(context.out, "{}", form.json(&key, Some(&value)))?;
    } else {
        writeln!(context.out, "{}", form.show_value(&value))?;
    }
    Ok(())
}

fn put(context: &mut Context<'_>, command: &arguments::PutArgs) -> Outcome {
    let mut options = PutOptions::new();
    if let Some(ttl) = command.ttl {
        options = options.ttl(ttl);
    }
    if let Some(tag) = command.type_tag {
        options = options.type_tag(tag);
    }
    if command.if_absent {
        options = options.if_absent();
    }
    if command.if_present {
        options = options.if_present();
    }
    let from_file = command.value_file.as_deref().map(read_whole).transpose()?;
    let database = context.open_to_write(&command.target.dir, command.writing.durability)?;
    let table = open_table(&database, &command.target.dir, &command.target.table)?;
    let form = Form::of(&table, &command.typing, command.hex)?;
    let key = form.key_argument(&command.key)?;
    let value = match (from_file, &command.value) {
        (Some(bytes), _) if command.hex => form.value(bytes.trim_ascii())?,
        // The file has the bytes of the value, whatever the table's types are.
        (Some(bytes), _) => bytes,
        (None, value) => form.value(value.as_deref().unwrap_or_default().as_bytes())?,
    };
    let was_applied = table.put_with(&key, &value, options)?;
    database.close()?;
    if was_applied {
        return Ok(());
    }
    let state = if command.if_absent { "already has a value" } else { "has no value" };
    Err(Failure::Failed(format!("not written: key {} {state}", form.quote_key(&key))))
}

fn read_whole(file: &Path) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = open_input(file)?.read_to_end(&mut bytes);
    read.map_err(|error| Failure::io(file.display(), &error))?;
    Ok(bytes)
}

/// Opens a file, or standard input for `-`.
fn open_input(file: &Path) -> Outcome<Box<dyn Read>> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let opened = File::open(file).map_err(|error| Failure::io(file.display(), &error))?;
    Ok(Box::new(opened))
}

fn del(context: &mut Context<'_>, command: &arguments::DelArgs) -> Outcome {
    let database = context.open_to_write(&command.target.dir, command.writing.durability)?;
    let table = open_table(&database, &command.target.dir, &command.target.table)?;
    let form = Form::of(&table, &command.typing, command.hex)?;
    let from = form.some_key(command.from.as_ref())?;
    let to = form.some_key(command.to.as_ref())?;
    let keys: Vec<_> =
        command.keys.iter().map(|key| form.key_argument(key)).collect::<Outcome<_>>()?;
    if keys.is_empty() {
        match (from, to) {
            (Some(from), Some(to)) => table.delete_range(from..to)?,
            (Some(from), None) => table.delete_range(from..)?,
            (None, Some(to)) => table.delete_range(..to)?,
            (None, None) => return Err(Failure::Usage("give keys, or --from and --to".into())),
        }
        return Ok(database.close()?);
    }
    let mut found = 0_u64;
    // One batch: if a key is refused, no key is deleted.
    let mut batch = database.batch();
    for key in &keys {
        found += u64::from(table.contains(key)?);
        batch.delete(&table, key);
    }
    batch.commit()?;
    database.close()?;
    Ok(writeln!(context.out, "deleted {found} of {}", keys.len())?)
}

fn selected(selection: &Selection, is_reverse: bool, form: &Form) -> Outcome<EntrySelection> {
    Ok(EntrySelection {
        prefix: form.prefix(selection.prefix.as_ref())?,
        from: form.some_key(selection.from.as_ref())?,
        to: form.some_key(selection.to.as_ref())?,
        is_reverse,
    })
}

fn scan(context: &mut Context<'_>, command: &arguments::ScanArgs) -> Outcome {
    let database = context.open_to_read(&command.target.dir)?;
    let table = open_table(&database, &command.target.dir, &command.target.table)?;
    let form = Form::of(&table, &command.typing, command.hex)?;
    let selected = selected(&command.selection, command.reverse, &form)?;
    let mut remaining = command.limit.unwrap_or(u64::MAX);
    if remaining == 0 {
        return Ok(());
    }
    let out = &mut *context.out;
    selected.for_each(&table, &mut |key, value| {
        let value = Some(value).filter(|_| !command.keys_only);
        if command.json {
            writeln!(out, "{}", form.json(key, value))?;
        } else if let Some(value) = value {
            writeln!(out, "{}\t{}", form.show_key(key), form.show_value(value))?;
        } else {
            writeln!(out, "{}", form.show_key(key))?;
        }
        remaining -= 1;
        Ok(remaining > 0)
    })
}

fn count(context: &mut Context<'_>, command: &arguments::CountArgs) -> Outcome {
    let database = context.open_to_read(&command.target.dir)?;
    let table = open_table(&database, &command.target.dir, &command.target.table)?;
    let form = Form::of(&table, &command.typing, command.hex)?;
    let selected = selected(&command.selection, false, &form)?;
    let mut count = 0_u64;
    selected.for_each(&table, &mut |_, _| {
        count += 1;
        Ok(true)
    })?;
    if command.json {
        writeln!(context.out, "{}", json!({ "count": count }))?;
    } else {
        writeln!(context.out, "{count}")?;
    }
    Ok(())
}

fn run_import(context: &mut Context<'_>, command: &arguments::ImportArgs) -> Outcome {
    if let Some(file) = &command.rdb {
        let target = (command.dir.as_path(), command.namespace.as_deref());
        return redis_dump::import(context, target, file, command.json);
    }
    if let Some((kind, dir)) = StoreKind::of_arguments(&command.store) {
        return store_import::run(context, command, kind, dir);
    }
    if command.store.library.is_some() || !command.store.family.is_empty() {
        let what = "--library and --family are for --rocksdb and --leveldb";
        return Err(Failure::Usage(what.to_owned()));
    }
    let (Some(table_name), Some(file)) = (&command.table, &command.file) else {
        return Err(Failure::Usage("give a TABLE and a FILE".to_owned()));
    };
    let name = file.to_string_lossy().into_owned();
    let format = command
        .format
        .or_else(|| Format::of_name(&name))
        .ok_or_else(|| Failure::Usage(format!("{name}: give --format csv, tsv, jsonl or dump")))?;
    let source = ImportSource {
        name,
        format,
        key: command.key.clone(),
        value: command.value.clone(),
        has_header: !command.no_header,
        has_quotes: !command.no_quotes,
        database: command.database.clone(),
    };
    source.check()?;
    let size = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file);
    let meter = Meter::bytes(size.map(|found| found.len()));
    let mut rows = source.open(Box::new(meter.wrap(open_input(file)?)))?;
    let (database, table) = import_target(context, command, table_name)?;
    // A dump is bytes; every other format is text.
    let form = Form::of(&table, &command.typing, false)?;
    let form = Some(form).filter(|_| format != Format::Dump);
    let out = &mut *context.out;
    let target = ImportTarget { database: &database, table: &table, form: form.as_ref() };
    let result = if command.sorted {
        import::import_sorted(&target, &source, &mut *rows)
    } else {
        import::import(&target, &source, &mut *rows, command.batch, &mut |progress| {
            if command.acknowledge {
                writeln!(out, "acknowledged {}", progress.rows)?;
                out.flush()?;
            }
            Ok(())
        })
    };
    meter.finish();
    let progress = result?;
    database.close()?;
    let ImportProgress { rows, replaced, batches } = progress;
    if command.json {
        let summary = json!({ "rows": rows, "replaced": replaced, "batches": batches });
        writeln!(context.out, "{summary}")?;
    } else {
        let what = format!("{rows} rows into {table_name}; {replaced} replaced a value");
        writeln!(context.out, "imported {what}")?;
    }
    Ok(())
}

/// Opens the database and the table of an import. A wrong name or option creates nothing.
fn import_target(
    context: &Context<'_>,
    command: &arguments::ImportArgs,
    name: &str,
) -> Outcome<(Database, Table)> {
    let of_engine = |engine| {
        check_table_path(name)?;
        options::of_table(engine, &[], &command.typing)
    };
    let table_options = command.engine.map(of_engine).transpose()?;
    let database = context.open_to_import(command)?;
    let table = open_import_table(&database, &command.dir, name, table_options)?;
    Ok((database, table))
}

/// Fails with [`Failure::Usage`] if an argument does not apply to the format.
fn check_export(command: &arguments::ExportArgs, format: Format) -> Outcome {
    let is_dump = format == Format::Dump;
    let what = if is_dump && (command.rows || command.columns.is_some()) {
        "a dump holds pairs, not rows or columns"
    } else if !is_dump && command.print {
        "--print is for dumps"
    } else if command.no_header && !matches!(format, Format::Csv | Format::Tsv) {
        "--no-header is for CSV and TSV"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(what.to_owned()))
}

fn run_export(context: &mut Context<'_>, command: &arguments::ExportArgs) -> Outcome {
    if let Some(file) = &command.rdb {
        let source = (command.dir.as_path(), command.namespace.as_deref());
        return redis_dump::export(context, source, file, command.json);
    }
    let Some(table_name) = &command.table else {
        return Err(Failure::Usage("give a TABLE".to_owned()));
    };
    let path = command.file.as_deref().unwrap_or(Path::new("-"));
    let to_output = path == Path::new("-");
    let name = path.to_string_lossy().into_owned();
    let guessed = if to_output { Some(Format::Jsonl) } else { Format::of_name(&name) };
    let format = command
        .format
        .or(guessed)
        .ok_or_else(|| Failure::Usage(format!("{name}: give --format csv, tsv, jsonl or dump")))?;
    check_export(command, format)?;
    let mut target = ExportTarget {
        format,
        shape: match (&command.columns, command.rows, command.pairs) {
            (Some(names), ..) => RowShape::Columns(names.clone()),
            (None, true, _) => RowShape::Rows,
            (None, false, true) => RowShape::Pairs,
            (None, false, false) => RowShape::Guessed,
        },
        has_header: !command.no_header,
        form: None,
        coding: if command.print { Coding::Print } else { Coding::ByteValue },
    };
    let database = context.open_to_read(&command.dir)?;
    let table = open_table(&database, &command.dir, table_name)?;
    // A dump is bytes; every other format is text.
    let form = Form::of(&table, &command.typing, false)?;
    target.form = Some(form).filter(|_| format != Format::Dump);
    let meter = Meter::entries(table.stats()?.keys);
    let tick = &mut || meter.add(1);
    if to_output {
        let out = Box::new(&mut *context.out);
        let result = export::export(&table, &target, "standard output", out, tick);
        meter.finish();
        warn_about_stripped(result?.stripped);
        return Ok(());
    }
    let explain = |error| Failure::io(&name, &error);
    let mut file = NewFile::create(path).map_err(explain)?;
    let result = export::export(&table, &target, &name, Box::new(&mut file), tick);
    meter.finish();
    let ExportSummary { entries, stripped } = result?;
    file.finish().map_err(explain)?;
    warn_about_stripped(stripped);
    Ok(writeln!(context.out, "exported {entries} entries of {table_name} to {name}")?)
}

/// Prints a note on standard error if an export omitted expiry times or type tags.
fn warn_about_stripped(stripped: u64) {
    if stripped > 0 {
        let _ = writeln!(
            io::stderr(),
            "quintet: note: expiry times and type tags are not exported; {stripped} entries had one"
        );
    }
}

fn stats(context: &mut Context<'_>, command: &arguments::StatsArgs) -> Outcome {
    if command.tables {
        return listing::stats(context, command);
    }
    listing::must_be_empty(&command.selection)?;
    let database = context.open_to_read(&command.dir)?;
    let figures = match &command.table {
        Some(name) => figures::of_table(&open_table(&database, &command.dir, name)?)?,
        None => figures::of_database(&database),
    };
    if command.json {
        writeln!(context.out, "{}", figures::as_json(figures))?;
    } else {
        write!(context.out, "{}", figures::as_text(&figures))?;
    }
    Ok(())
}

/// Compacts a table, or all, and prints the bytes of files before and after.
fn compact(context: &mut Context<'_>, command: &arguments::CompactArgs) -> Outcome {
    let database = context.open_to_write(&command.dir, DurabilityChoice::Sync)?;
    let names = match &command.table {
        Some(name) => vec![name.clone()],
        None => database.tables().into_iter().map(|table| table.name).collect(),
    };
    for name in names {
        let table = open_table(&database, &command.dir, &name)?;
        let before = table.stats()?.file_bytes;
        table.compact()?;
        table.persist()?;
        let after = table.stats()?.file_bytes;
        writeln!(context.out, "{name}: {before} bytes of files before, {after} after")?;
    }
    Ok(database.close()?)
}

fn check(context: &mut Context<'_>, command: &arguments::CheckArgs) -> Outcome {
    let level = if command.quick { CheckLevel::Quick } else { CheckLevel::Deep };
    let report = match context.open_to_read(&command.dir) {
        Ok(database) => database.check_with(level)?,
        Err(Failure::Damage(what)) => return Err(Failure::Damage(what)),
        Err(other) => return Err(other),
    };
    print_report(context.out, &report, command.json)?;
    match report.findings.len() {
        0 => Ok(()),
        1 => Err(Failure::Damage(format!("{} is damaged", command.dir.display()))),
        count => {
            let what = format!("{} is damaged in {count} places", command.dir.display());
            Err(Failure::Damage(what))
        }
    }
}

fn print_report(out: &mut dyn Write, report: &Report, as_json: bool) -> Outcome {
    if as_json {
        let findings: Vec<_> = report
            .findings
            .iter()
            .map(|f| json!({ "file": f.file, "offset": f.offset, "what": f.what }))
            .collect();
        let summary = json!({
            "sound": report.is_sound(),
            "checked_bytes": report.checked_bytes,
            "checked_entries": report.checked_entries,
            "findings": findings,
            "notes": report.notes,
        });
        return Ok(writeln!(out, "{summary}")?);
    }
    for finding in &report.findings {
        writeln!(out, "{} at byte {}: {}", finding.file, finding.offset, finding.what)?;
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    let verdict = if report.is_sound() { "sound" } else { "damaged" };
    let (entries, bytes) = (report.checked_entries, report.checked_bytes);
    let what = "entries and log records";
    Ok(writeln!(out, "{verdict}: {entries} {what}, {bytes} bytes of files checked")?)
}
