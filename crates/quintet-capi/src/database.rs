//! Databases: opening, closing, checks, mounts, snapshots, and the tree of tables.

use quintet::{CheckLevel, ChildKind, Database, MountOptions, Snapshot, TableOptions};

use crate::{
    boundary::{Buffer, InOut, Out, Slice, export, required},
    failure::Failure,
    handles::Handle,
    options::{self, OptionList},
    statistics::{self, quote},
    table::TableHandle,
};

/// Returns a text for a buffer of the program.
fn text(buffer: InOut<'_, Buffer>, text: String) -> Result<(), Failure> {
    required(buffer, "buffer")?.set(text.into_bytes());
    Ok(())
}

/// Returns options as lines of names and values, the engine and the types first.
fn describe(options: &TableOptions) -> String {
    let mut lines = format!("engine {}\n", options.kind());
    if let Some(types) = options.table_types() {
        lines += &format!("types {types}\n");
    }
    for (name, value) in options.settings() {
        lines += &format!("{name} {value}\n");
    }
    lines
}

export! {
    /// Opens the database in directory `path` (UTF-8), and creates it if the options allow. `options`
    /// may be null. Free the handle with `quintet_database_free`. Any number of threads may use it.
    pub fn quintet_open(
        path: Slice, options: Handle<OptionList>, database: Out<Handle<Database>>,
    ) {
        let path = path.text()?;
        let out = required(database, "database")?;
        let database = options::of_database(options)?.open(path)?;
        out.write(Handle::new(database)?);
        Ok(())
    }

    /// Closes a database: writes what is in memory and releases the directory. Handles of its tables
    /// and snapshots fail with `QUINTET_CLOSED` from then on; free them all the same. The handle of
    /// the database stays until it is freed.
    pub fn quintet_close(database: Handle<Database>) {
        Ok(database.get()?.close()?)
    }

    /// Frees the handle of a database. Null is allowed. Without `quintet_close`, the database stays
    /// open until its tables, snapshots, batches and transactions are freed too.
    pub fn quintet_database_free(database: Handle<Database>) {
        database.free().map(drop)
    }

    /// Makes every returned write durable in the log: it survives a power loss.
    pub fn quintet_sync(database: Handle<Database>) {
        Ok(database.get()?.sync()?)
    }

    /// Checkpoints all tables, so that opening the database replays nothing.
    pub fn quintet_persist(database: Handle<Database>) {
        Ok(database.get()?.persist()?)
    }

    /// Stores whether the database was opened read-only.
    pub fn quintet_is_read_only(database: Handle<Database>, read_only: Out<bool>) {
        required(read_only, "read_only")?.write(database.get()?.is_read_only());
        Ok(())
    }

    /// Checks the database: the catalog and the log, and if `deep` every file and entry. Stores
    /// whether it is sound, and one line for each defect or fact in `report`. Damage is no error of
    /// this function.
    pub fn quintet_check(
        database: Handle<Database>, deep: bool, sound: Out<bool>, report: InOut<Buffer>,
    ) {
        let level = if deep { CheckLevel::Deep } else { CheckLevel::Quick };
        let found = database.get()?.check_with(level)?;
        required(sound, "sound")?.write(found.is_sound());
        if let Some(report) = report {
            let mut lines = String::new();
            for finding in &found.findings {
                lines += &format!("{}:{}: {}\n", finding.file, finding.offset, finding.what);
            }
            found.notes.iter().for_each(|note| lines += &format!("{note}\n"));
            report.set(lines.into_bytes());
        }
        Ok(())
    }

    /// Stores the statistics of a database as a JSON object: a number for each statistic, and under
    /// `tables` an object for each open table.
    pub fn quintet_stats_json(database: Handle<Database>, json: InOut<Buffer>) {
        text(json, statistics::database_json(&database.get()?.stats()))
    }

    /// Stores a statistic of a database by the name that the JSON has. An unknown name is
    /// `QUINTET_INVALID_OPTION`.
    pub fn quintet_stat(database: Handle<Database>, name: Slice, value: Out<u64>) {
        let stats = database.get()?.stats();
        let number = statistics::find(&statistics::of_database(&stats), name.text()?)?;
        required(value, "value")?.write(number);
        Ok(())
    }

    /// Takes a snapshot: all tables at one moment. Free it with `quintet_snapshot_free`. Any number
    /// of threads may use it.
    pub fn quintet_snapshot_new(database: Handle<Database>, snapshot: Out<Handle<Snapshot>>) {
        let out = required(snapshot, "snapshot")?;
        out.write(Handle::new(database.get()?.snapshot()?)?);
        Ok(())
    }

    /// Frees a snapshot. Null is allowed. Tables that were opened in it keep it.
    pub fn quintet_snapshot_free(snapshot: Handle<Snapshot>) {
        snapshot.free().map(drop)
    }

    /// Creates a table. `engine` is `naive`, `hashlog`, `trie`, `btree`, `slm` or `tph`; the options
    /// are those of the engine, or null. Free the handle with `quintet_table_free`.
    pub fn quintet_create_table(
        database: Handle<Database>, name: Slice, engine: Slice, options: Handle<OptionList>,
        table: Out<Handle<TableHandle>>,
    ) {
        let (database, out) = (database.get()?, required(table, "table")?);
        let options = options::of_table(engine.text()?, options)?;
        out.write(TableHandle::live(database.create_table(name.text()?, options)?)?);
        Ok(())
    }

    /// Creates a table with the default options of its directory.
    pub fn quintet_create_default_table(
        database: Handle<Database>, name: Slice, table: Out<Handle<TableHandle>>,
    ) {
        let (database, out) = (database.get()?, required(table, "table")?);
        out.write(TableHandle::live(database.create_default_table(name.text()?)?)?);
        Ok(())
    }

    /// Opens a table. Fails with `QUINTET_NO_SUCH_TABLE`.
    pub fn quintet_open_table(
        database: Handle<Database>, name: Slice, table: Out<Handle<TableHandle>>,
    ) {
        let (database, out) = (database.get()?, required(table, "table")?);
        out.write(TableHandle::live(database.table(name.text()?)?)?);
        Ok(())
    }

    /// Opens a table, or creates it as `quintet_create_table` does.
    pub fn quintet_open_or_create_table(
        database: Handle<Database>, name: Slice, engine: Slice, options: Handle<OptionList>,
        table: Out<Handle<TableHandle>>,
    ) {
        let (database, out) = (database.get()?, required(table, "table")?);
        let options = options::of_table(engine.text()?, options)?;
        out.write(TableHandle::live(database.open_or_create_table(name.text()?, options)?)?);
        Ok(())
    }

    /// Renames a table or a directory of tables.
    pub fn quintet_rename(database: Handle<Database>, from: Slice, to: Slice) {
        Ok(database.get()?.rename(from.text()?, to.text()?)?)
    }

    /// Drops a table. Its handles fail with `QUINTET_STALE_TABLE` from then on.
    pub fn quintet_drop_table(database: Handle<Database>, name: Slice) {
        Ok(database.get()?.drop_table(name.text()?)?)
    }

    /// Drops a directory with all tables in it.
    pub fn quintet_drop_tree(database: Handle<Database>, directory: Slice) {
        Ok(database.get()?.drop_tree(directory.text()?)?)
    }

    /// Stores the tables in a directory and below it (the empty text: of the database) as a JSON
    /// array of objects with `name`, `engine` and `types`.
    pub fn quintet_tables_json(database: Handle<Database>, directory: Slice, json: InOut<Buffer>) {
        let tables = database.get()?.walk(directory.text()?)?;
        let tables = tables.iter().map(|table| {
            let types = table.types.as_ref().map_or("null".to_owned(), |t| quote(&t.to_string()));
            let (name, engine) = (quote(&table.name), quote(table.kind.name()));
            format!("{{\"name\":{name},\"engine\":{engine},\"types\":{types}}}")
        });
        text(json, format!("[{}]", tables.collect::<Vec<_>>().join(",")))
    }

    /// Stores what is directly in a directory (the empty text: the top) as a JSON array of objects
    /// with `name` and `kind`: the engine of a table, `directory` or `mount`.
    pub fn quintet_children_json(
        database: Handle<Database>, directory: Slice, json: InOut<Buffer>,
    ) {
        let children = database.get()?.children(directory.text()?)?;
        let children = children.iter().map(|child| {
            let kind = match &child.kind {
                ChildKind::Table(table) => table.name(),
                ChildKind::Directory => "directory",
                ChildKind::Mount => "mount",
                _ => "other",
            };
            format!("{{\"name\":{},\"kind\":{}}}", quote(&child.name), quote(kind))
        });
        text(json, format!("[{}]", children.collect::<Vec<_>>().join(",")))
    }

    /// Sets the options of tables that are created in a directory by default. An absent engine
    /// removes them.
    pub fn quintet_set_default_options(
        database: Handle<Database>, directory: Slice, engine: Slice, options: Handle<OptionList>,
    ) {
        let defaults = match engine.is_none() {
            true => None,
            false => Some(options::of_table(engine.text()?, options)?),
        };
        Ok(database.get()?.set_default_options(directory.text()?, defaults.as_ref())?)
    }

    /// Stores the default options of a directory as lines of a name and a value, the engine first,
    /// and whether there are any.
    pub fn quintet_default_options(
        database: Handle<Database>, directory: Slice, options: InOut<Buffer>, found: Out<bool>,
    ) {
        let defaults = database.get()?.default_options(directory.text()?)?;
        required(found, "found")?.write(defaults.is_some());
        text(options, defaults.as_ref().map(describe).unwrap_or_default())
    }

    /// Mounts a directory of tables (`subtree`, empty for all) of the database in directory `target`
    /// at a path.
    pub fn quintet_mount(
        database: Handle<Database>, path: Slice, target: Slice, subtree: Slice, read_only: bool,
    ) {
        let mut options = MountOptions::new(target.text()?).read_only(read_only);
        if !subtree.bytes()?.is_empty() {
            options = options.subtree(subtree.text()?);
        }
        Ok(database.get()?.mount(path.text()?, options)?)
    }

    /// Removes a mount. The mounted database is not changed.
    pub fn quintet_unmount(database: Handle<Database>, path: Slice) {
        Ok(database.get()?.unmount(path.text()?)?)
    }

    /// Opens a handle of the database behind a mount, for batches, snapshots and transactions of it.
    pub fn quintet_mounted(
        database: Handle<Database>, path: Slice, mounted: Out<Handle<Database>>,
    ) {
        let out = required(mounted, "mounted")?;
        out.write(Handle::new(database.get()?.mounted(path.text()?)?)?);
        Ok(())
    }

    /// Stores the mounts as a JSON array of objects with `name`, `target`, `subtree`, `read_only`.
    pub fn quintet_mounts_json(database: Handle<Database>, json: InOut<Buffer>) {
        let mounts = database.get()?.mounts();
        let mounts = mounts.iter().map(|mount| {
            let target = quote(&mount.target.to_string_lossy());
            let (name, subtree) = (quote(&mount.name), quote(&mount.subtree));
            let read_only = mount.read_only;
            format!(
                "{{\"name\":{name},\"target\":{target},\"subtree\":{subtree},\
                 \"read_only\":{read_only}}}"
            )
        });
        text(json, format!("[{}]", mounts.collect::<Vec<_>>().join(",")))
    }
}
