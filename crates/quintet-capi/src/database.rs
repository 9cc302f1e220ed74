//! Databases: opening, closing, checks, mounts, snapshots, and the tree of tables.

use std::fmt::Write as _;

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
        let _ = writeln!(lines, "types {types}");
    }
    for (name, value) in options.settings() {
        let _ = writeln!(lines, "{name} {value}");
    }
    lines
}

export! {
    /// Opens the database in directory `path`, which is UTF-8. Creates it unless option `"create"`
    /// is `"false"`. `options` may be null. A directory can be open once at a time.
    ///
    /// Errors: `QUINTET_LOCKED`, `QUINTET_NOT_A_DATABASE`, `QUINTET_INVALID_OPTION`,
    /// `QUINTET_MERGE_OPERATOR_MISSING`, `QUINTET_CORRUPTION`, `QUINTET_NEWER_FORMAT`,
    /// `QUINTET_IO`, `QUINTET_DISK_FULL`, `QUINTET_OUT_OF_MEMORY`.
    pub fn quintet_open(
        path: Slice, options: Handle<OptionList>, database: Out<Handle<Database>>,
    ) {
        let path = path.text()?;
        let out = required(database, "database")?;
        let database = options::of_database(options)?.open(path)?;
        out.write(Handle::new(database)?);
        Ok(())
    }

    /// Closes a database: writes what is in memory, stops its threads and releases the directory.
    /// Handles of its tables and snapshots fail with `QUINTET_CLOSED` from then on. They and
    /// `database` must still be freed.
    ///
    /// Errors: those of a write.
    pub fn quintet_close(database: Handle<Database>) {
        Ok(database.get()?.close()?)
    }

    /// Frees the handle of a database. Null is allowed. Without `quintet_close`, the database stays
    /// open until its tables, snapshots, batches and transactions are freed too.
    ///
    /// Errors: those of every function.
    pub fn quintet_database_free(database: Handle<Database>) {
        database.free().map(drop)
    }

    /// Waits until every write that has returned is in the log on disk. Such a write survives a
    /// power loss.
    ///
    /// Errors: `QUINTET_CLOSED`, `QUINTET_LOG_FAILED`, `QUINTET_IO`, `QUINTET_DISK_FULL`.
    pub fn quintet_sync(database: Handle<Database>) {
        Ok(database.get()?.sync()?)
    }

    /// Checkpoints all tables, so that the next open replays nothing of the log.
    ///
    /// Errors: those of a write.
    pub fn quintet_persist(database: Handle<Database>) {
        Ok(database.get()?.persist()?)
    }

    /// Stores whether the database was opened read-only.
    ///
    /// Errors: those of every function.
    pub fn quintet_is_read_only(database: Handle<Database>, read_only: Out<bool>) {
        required(read_only, "read_only")?.write(database.get()?.is_read_only());
        Ok(())
    }

    /// Checks the catalog and the log, and if `deep` every file and entry. Stores whether the
    /// database is sound. `report` (may be null) gets one line for each defect or fact. Damage is
    /// reported and is no error of this function.
    ///
    /// Errors: those of a read.
    pub fn quintet_check(
        database: Handle<Database>, deep: bool, sound: Out<bool>, report: InOut<Buffer>,
    ) {
        let level = if deep { CheckLevel::Deep } else { CheckLevel::Quick };
        let found = database.get()?.check_with(level)?;
        required(sound, "sound")?.write(found.is_sound());
        if let Some(report) = report {
            let mut lines = String::new();
            for finding in &found.findings {
                let (file, offset, what) = (&finding.file, finding.offset, &finding.what);
                let _ = writeln!(lines, "{file}:{offset}: {what}");
            }
            for note in &found.notes {
                let _ = writeln!(lines, "{note}");
            }
            report.set(lines.into_bytes());
        }
        Ok(())
    }

    /// Stores the statistics of a database as a JSON object: a number for each statistic, and under
    /// `"tables"` an object for each open table.
    ///
    /// Errors: those of every function.
    pub fn quintet_stats_json(database: Handle<Database>, json: InOut<Buffer>) {
        text(json, statistics::database_json(&database.get()?.stats()))
    }

    /// Stores a statistic of a database. `name` is a name of `quintet_stats_json`.
    ///
    /// Errors: `QUINTET_INVALID_OPTION` if there is no such statistic.
    pub fn quintet_stat(database: Handle<Database>, name: Slice, value: Out<u64>) {
        let stats = database.get()?.stats();
        let number = statistics::find(&stats.numbers(), name.text()?)?;
        required(value, "value")?.write(number);
        Ok(())
    }

    /// Takes a snapshot: all tables at one moment. Its cost is independent of the size of the
    /// tables.
    ///
    /// Errors: those of every function; `QUINTET_CLOSED`.
    pub fn quintet_snapshot_new(database: Handle<Database>, snapshot: Out<Handle<Snapshot>>) {
        let out = required(snapshot, "snapshot")?;
        out.write(Handle::new(database.get()?.snapshot()?)?);
        Ok(())
    }

    /// Stores the LSN of a snapshot: the commits below it are in the snapshot.
    ///
    /// Errors: those of every function.
    pub fn quintet_snapshot_lsn(snapshot: Handle<Snapshot>, lsn: Out<u64>) {
        required(lsn, "lsn")?.write(snapshot.get()?.lsn().0);
        Ok(())
    }

    /// Frees a snapshot. Null is allowed. Tables that were opened in it keep it until they are
    /// freed.
    ///
    /// Errors: those of every function.
    pub fn quintet_snapshot_free(snapshot: Handle<Snapshot>) {
        snapshot.free().map(drop)
    }

    /// Creates a table and opens it. `engine` is `"naive"`, `"hashlog"`, `"trie"`, `"btree"`,
    /// `"slm"` or `"tph"`. `options` may be null; see `quintet_options_new`. A `/` in the name
    /// separates directories.
    ///
    /// Errors: those of a write, `QUINTET_TABLE_EXISTS`, `QUINTET_UNKNOWN_ENGINE`,
    /// `QUINTET_INVALID_OPTION`, `QUINTET_MERGE_OPERATOR_MISSING`, `QUINTET_MOUNT`.
    pub fn quintet_create_table(
        database: Handle<Database>, name: Slice, engine: Slice, options: Handle<OptionList>,
        table: Out<Handle<TableHandle>>,
    ) {
        let (database, out) = (database.get()?, required(table, "table")?);
        let options = options::of_table(engine.text()?, options)?;
        out.write(TableHandle::live(database.create_table(name.text()?, options)?)?);
        Ok(())
    }

    /// Creates a table with the default options of its directory and opens it. See
    /// `quintet_set_default_options`.
    ///
    /// Errors: those of `quintet_create_table`; `QUINTET_INVALID_OPTION` if the directory has no
    /// default options.
    pub fn quintet_create_default_table(
        database: Handle<Database>, name: Slice, table: Out<Handle<TableHandle>>,
    ) {
        let (database, out) = (database.get()?, required(table, "table")?);
        out.write(TableHandle::live(database.create_default_table(name.text()?)?)?);
        Ok(())
    }

    /// Opens a table. Several handles of one table are allowed.
    ///
    /// Errors: those of a read, `QUINTET_NO_SUCH_TABLE`, `QUINTET_MERGE_OPERATOR_MISSING`,
    /// `QUINTET_MOUNT`.
    pub fn quintet_open_table(
        database: Handle<Database>, name: Slice, table: Out<Handle<TableHandle>>,
    ) {
        let (database, out) = (database.get()?, required(table, "table")?);
        out.write(TableHandle::live(database.table(name.text()?)?)?);
        Ok(())
    }

    /// Opens a table, or creates it as `quintet_create_table` does. Engine and options of a table
    /// that exists stay as they are.
    ///
    /// Errors: those of `quintet_create_table`, except `QUINTET_TABLE_EXISTS` for a table.
    pub fn quintet_open_or_create_table(
        database: Handle<Database>, name: Slice, engine: Slice, options: Handle<OptionList>,
        table: Out<Handle<TableHandle>>,
    ) {
        let (database, out) = (database.get()?, required(table, "table")?);
        let options = options::of_table(engine.text()?, options)?;
        out.write(TableHandle::live(database.open_or_create_table(name.text()?, options)?)?);
        Ok(())
    }

    /// Renames a table or a directory of tables. Handles of the tables stay valid.
    ///
    /// Errors: those of a write, `QUINTET_NO_SUCH_TABLE`, `QUINTET_TABLE_EXISTS`, `QUINTET_MOUNT`.
    pub fn quintet_rename(database: Handle<Database>, from: Slice, to: Slice) {
        Ok(database.get()?.rename(from.text()?, to.text()?)?)
    }

    /// Drops a table. Its handles fail with `QUINTET_STALE_TABLE` from then on; they must still be
    /// freed.
    ///
    /// Errors: those of a write, `QUINTET_NO_SUCH_TABLE`, `QUINTET_MOUNT`.
    pub fn quintet_drop_table(database: Handle<Database>, name: Slice) {
        Ok(database.get()?.drop_table(name.text()?)?)
    }

    /// Drops a directory with all tables in it, as `quintet_drop_table` does.
    ///
    /// Errors: those of a write, `QUINTET_NO_SUCH_TABLE`, `QUINTET_MOUNT`.
    pub fn quintet_drop_tree(database: Handle<Database>, directory: Slice) {
        Ok(database.get()?.drop_tree(directory.text()?)?)
    }

    /// Stores the tables in a directory and below it as a JSON array of objects with `"name"`,
    /// `"engine"` and `"types"`. The empty directory is the whole database.
    ///
    /// Errors: those of a read, `QUINTET_NO_SUCH_TABLE`, `QUINTET_MOUNT`.
    pub fn quintet_tables_json(database: Handle<Database>, directory: Slice, json: InOut<Buffer>) {
        let tables = database.get()?.walk(directory.text()?)?;
        let tables = tables.iter().map(|table| {
            let types = table.types.as_ref().map_or("null".to_owned(), |t| quote(&t.to_string()));
            let (name, engine) = (quote(&table.name), quote(table.kind.name()));
            format!("{{\"name\":{name},\"engine\":{engine},\"types\":{types}}}")
        });
        text(json, format!("[{}]", tables.collect::<Vec<_>>().join(",")))
    }

    /// Stores the children of a directory as a JSON array of objects with `"name"` and `"kind"`:
    /// the engine of a table, `"directory"` or `"mount"`. The empty directory is the top of the
    /// database.
    ///
    /// Errors: those of a read, `QUINTET_NO_SUCH_TABLE`, `QUINTET_MOUNT`.
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

    /// Sets the options for tables that `quintet_create_default_table` creates in a directory and
    /// below it. An absent `engine` removes them. `options` may be null.
    ///
    /// Errors: those of a write, `QUINTET_UNKNOWN_ENGINE`, `QUINTET_INVALID_OPTION`,
    /// `QUINTET_MOUNT`.
    pub fn quintet_set_default_options(
        database: Handle<Database>, directory: Slice, engine: Slice, options: Handle<OptionList>,
    ) {
        let defaults = if engine.is_none() {
            None
        } else {
            Some(options::of_table(engine.text()?, options)?)
        };
        Ok(database.get()?.set_default_options(directory.text()?, defaults.as_ref())?)
    }

    /// Stores the default options of a directory, one line for each name and value, the engine
    /// first. Stores whether there are any in `found`.
    ///
    /// Errors: those of a read.
    pub fn quintet_default_options(
        database: Handle<Database>, directory: Slice, options: InOut<Buffer>, found: Out<bool>,
    ) {
        let defaults = database.get()?.default_options(directory.text()?)?;
        let found = required(found, "found")?;
        text(options, defaults.as_ref().map(describe).unwrap_or_default())?;
        found.write(defaults.is_some());
        Ok(())
    }

    /// Mounts the database in directory `target` at `path`. `subtree` is a directory of its tables,
    /// or empty for all of them.
    ///
    /// Errors: those of a write, `QUINTET_MOUNT`, `QUINTET_TABLE_EXISTS`.
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
    ///
    /// Errors: those of a write, `QUINTET_MOUNT`, `QUINTET_NO_SUCH_TABLE`.
    pub fn quintet_unmount(database: Handle<Database>, path: Slice) {
        Ok(database.get()?.unmount(path.text()?)?)
    }

    /// Opens a handle of the database behind a mount. Batches, snapshots and transactions of
    /// mounted tables need it.
    ///
    /// Errors: those of a read, `QUINTET_MOUNT`, `QUINTET_NO_SUCH_TABLE`.
    pub fn quintet_mounted(
        database: Handle<Database>, path: Slice, mounted: Out<Handle<Database>>,
    ) {
        let out = required(mounted, "mounted")?;
        out.write(Handle::new(database.get()?.mounted(path.text()?)?)?);
        Ok(())
    }

    /// Stores the mounts as a JSON array of objects with `"name"`, `"target"`, `"subtree"` and
    /// `"read_only"`.
    ///
    /// Errors: those of every function.
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
