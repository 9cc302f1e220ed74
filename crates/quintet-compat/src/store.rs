//! A database of the program: a directory in which each column family is a table.
//!
//! The table of a family is `cf/NAME`, or `cf-hex/...` with the bytes of a name that no table can
//! have, 32 bytes a component. The table `meta` holds what the originals keep beside the entries:
//! the name of a comparator that is not the default one, under `comparator/NAME`. For a family with
//! timestamps it holds their size and byte order under `timestamps/NAME`, and the timestamp below
//! which old versions may be removed under `history/NAME`. The table `prepared` has transactions
//! that were prepared and not committed.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use quintet::{
    CheckLevel, Database, Durability, EngineKind, Error, Options, PutOptions, Table, TableOptions,
};

use crate::{
    comparator::{BYTEWISE, ComparatorCalls},
    engines::{TableRequest, table_options},
    status::{Code, Status},
    timestamps::{TIMESTAMP_BYTES, TimestampOrder},
};

/// The name of the column family that every database has.
pub const DEFAULT_FAMILY: &str = "default";
/// The file without which a directory is no database of Quintet.
pub const CATALOG: &str = "catalog";
/// The file without which a directory is no database of LevelDB or RocksDB.
const CURRENT: &str = "CURRENT";
/// The table of what the originals keep beside the entries.
pub const META: &str = "meta";
/// The table of prepared transactions, by name.
pub const PREPARED: &str = "prepared";
/// Directory of the tables of families.
const FAMILIES: &str = "cf";
/// Directory of the tables of families whose names no table can have.
const HEX_FAMILIES: &str = "cf-hex";
/// Bytes of a name in a component in hexadecimal digits. A component has at most 64 characters.
const HEX_BYTES: usize = 32;
/// The originals keep a snapshot until it is released. A century is longer than a process runs.
const SNAPSHOT_AGE: Duration = Duration::from_hours(100 * 365 * 24);
/// Earlier values of snapshots, in bytes: more than a disk has.
const SNAPSHOT_BYTES: u64 = 1 << 60;

/// A column family that a program opens.
#[derive(Clone, Debug, Default)]
pub struct FamilyRequest {
    /// The name.
    pub name: String,
    /// The options of its table, if it is created.
    pub table: TableRequest,
    /// The comparator, unless it is the default one.
    pub comparator: Option<ComparatorCalls>,
}

impl FamilyRequest {
    /// Returns the byte order of timestamps. `None`: keys have none. Asks the comparator.
    pub fn timestamp_order(&self) -> Result<Option<TimestampOrder>, Status> {
        Ok(self.comparator.map(|comparator| comparator.timestamp_order()).transpose()?.flatten())
    }
}

/// Returns how a store records the timestamps of a family: their size in bytes, and the byte order
/// if it is not little-endian.
const fn form_of(order: TimestampOrder) -> &'static str {
    match order {
        TimestampOrder::Little => "8",
        TimestampOrder::Big => "8 big-endian",
    }
}

const _: () = assert!(TIMESTAMP_BYTES == 8, "`form_of` has the size");

/// What an open does with families other than the default one.
#[derive(Clone, Copy, Debug, Default)]
pub struct FamilyRules {
    /// Whether missing families are created.
    pub creates_missing: bool,
    /// Whether a family that exists and is not requested is an error.
    pub wants_all: bool,
}

/// How a program opens a database.
#[derive(Debug)]
pub struct OpenRequest {
    /// Whether a missing database is created.
    pub create_if_missing: bool,
    /// Whether an existing database is refused.
    pub error_if_exists: bool,
    /// What happens to other families than the default one.
    pub family_rules: FamilyRules,
    /// Options of the database: merge operators, the memory budget, whether it is read-only.
    pub options: Options,
    /// The column families, in the order of the result. The default one is among them.
    pub families: Vec<FamilyRequest>,
}

/// An open database.
#[derive(Clone, Debug)]
pub struct Store {
    /// The database.
    pub database: Database,
    /// Its directory, under which [`open_stores`] has it.
    path: Option<PathBuf>,
}

/// Returns the databases that are open in this process, by directory. Another handle cannot open
/// one again, but a program may ask for its column families.
fn open_stores() -> MutexGuard<'static, BTreeMap<PathBuf, Store>> {
    static OPEN: Mutex<BTreeMap<PathBuf, Store>> = Mutex::new(BTreeMap::new());
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<Database> for Store {
    fn from(database: Database) -> Self {
        Self { database, path: None }
    }
}

impl Store {
    /// Opens a database and the tables of the requested families.
    pub fn open(path: &Path, request: &OpenRequest) -> Result<(Self, Vec<Table>), Status> {
        let name = path.display();
        for family in &request.families {
            if let Some(comparator) = &family.comparator {
                let _ = comparator.check_samples()?;
            }
        }
        let missing =
            || Status::invalid(format!("{name}: does not exist (create_if_missing is false)"));
        if !path.join(CATALOG).exists() {
            if path.join(CURRENT).exists() {
                return Err(Status::invalid(format!(
                    "{name}: is a database of LevelDB or RocksDB, which Quintet does not read; \
                     `quintet import` with --leveldb or --rocksdb copies its entries"
                )));
            }
            if !request.create_if_missing {
                return Err(missing());
            }
        }
        let options = request.options.clone().create(request.create_if_missing);
        let options = options.snapshot_max_age(SNAPSHOT_AGE).snapshot_limit(SNAPSHOT_BYTES);
        let options = options.allow_missing_merge_operators(true);
        let mut store = Self::from(options.open(path).map_err(|error| opening(path, error))?);
        let exists = store.find(DEFAULT_FAMILY)?.is_some();
        let opened = if !exists && !request.create_if_missing {
            Err(missing())
        } else if exists && request.error_if_exists {
            Err(Status::invalid(format!("{name}: exists (error_if_exists is true)")))
        } else {
            store.open_families(request)
        };
        match opened {
            Ok(tables) => {
                store.path = path.canonicalize().ok();
                if let Some(path) = &store.path {
                    open_stores().insert(path.clone(), store.clone());
                }
                Ok((store, tables))
            }
            Err(status) => {
                // The first failure counts.
                let _ = store.database.close();
                Err(status)
            }
        }
    }

    /// Returns a database that this process has open, and the tables of the requested families.
    /// `None`: this process does not have it open. The one that opened it closes it.
    pub fn opened(
        path: &Path,
        request: &OpenRequest,
    ) -> Result<Option<(Self, Vec<Table>)>, Status> {
        let open = path.canonicalize().ok().and_then(|path| open_stores().get(&path).cloned());
        let Some(store) = open else { return Ok(None) };
        let tables = store.open_families(request)?;
        Ok(Some((Self::from(store.database), tables)))
    }

    fn open_families(&self, request: &OpenRequest) -> Result<Vec<Table>, Status> {
        if request.family_rules.wants_all {
            let is_requested = |name: &String| request.families.iter().any(|f| f.name == *name);
            let others: Vec<_> =
                self.families()?.into_iter().filter(|name| !is_requested(name)).collect();
            if !others.is_empty() {
                let others = others.join(", ");
                return Err(Status::invalid(format!("Column families not opened: {others}")));
            }
        }
        let tables = request.families.iter().map(|family| {
            if let Some(table) = self.find(&family.name)? {
                self.check_comparator(family)?;
                return Ok(table);
            }
            if family.name == DEFAULT_FAMILY || request.family_rules.creates_missing {
                return self.create_family(family);
            }
            Err(Status::invalid(format!("Column family not found: {}", family.name)))
        });
        tables.collect()
    }

    /// Returns the table of a family.
    pub fn find(&self, family: &str) -> Result<Option<Table>, Status> {
        found(self.database.table(&table_name(family)))
    }

    /// Creates the table of a family.
    pub fn create_family(&self, family: &FamilyRequest) -> Result<Table, Status> {
        let (mut name, mut order) = (BYTEWISE.to_owned(), None);
        if let Some(comparator) = &family.comparator {
            order = comparator.check_samples()?;
            name = comparator.name()?;
        }
        let exists = self.find(&family.name)?.is_some();
        if !exists {
            // An earlier creation may have failed after these entries.
            self.forget(&family.name)?;
        }
        if !exists && (name != BYTEWISE || order.is_some()) {
            let meta = self.meta()?;
            let mut batch = self.database.batch();
            batch.put(&meta, comparator_key(&family.name), name);
            if let Some(order) = order {
                batch.put(&meta, timestamps_key(&family.name), form_of(order));
            }
            batch.commit_with(Durability::Sync)?;
        }
        let options = table_options(&family.name, &family.table)?;
        Ok(self.database.create_table(&table_name(&family.name), options)?)
    }

    /// Drops the table of a family.
    pub fn drop_family(&self, family: &str) -> Result<(), Status> {
        self.database.drop_table(&table_name(family))?;
        self.forget(family)
    }

    /// Returns the table of what the originals keep beside the entries.
    fn meta(&self) -> Result<Table, Status> {
        let options = TableOptions::new(EngineKind::Naive);
        Ok(self.database.open_or_create_table(META, options)?)
    }

    /// Removes what is kept of a family.
    fn forget(&self, family: &str) -> Result<(), Status> {
        if let Some(meta) = found(self.database.table(META))? {
            for key in [comparator_key(family), timestamps_key(family), history_key(family)] {
                meta.delete(key)?;
            }
        }
        Ok(())
    }

    /// Returns the timestamp below which old versions of a family may be removed. `None`: none was
    /// set.
    pub fn history_low(&self, family: &str) -> Result<Option<u64>, Status> {
        let Some(meta) = found(self.database.table(META))? else { return Ok(None) };
        let low = meta.get(history_key(family))?;
        low.map(|low| TimestampOrder::Little.number(&low)).transpose()
    }

    /// Sets the timestamp below which old versions of a family may be removed.
    pub fn set_history_low(&self, family: &str, low: u64) -> Result<(), Status> {
        let options = PutOptions::new().durability(Durability::Sync);
        self.meta()?.put_with(history_key(family), TimestampOrder::Little.bytes(low), options)?;
        Ok(())
    }

    /// Closes the database.
    pub fn close(&self) -> Result<(), Status> {
        if let Some(path) = &self.path {
            open_stores().remove(path);
        }
        Ok(self.database.close()?)
    }

    /// Returns the names of the families of a database that no other process has open for writing.
    pub fn families_in(path: &Path) -> Result<Vec<String>, Status> {
        if !path.join(CATALOG).exists() {
            let message = format!("{}: there is no database", path.display());
            return Err(Status::new(Code::Io, message));
        }
        let open = path.canonicalize().ok().and_then(|path| open_stores().get(&path).cloned());
        if let Some(store) = open {
            return store.families();
        }
        let options = Options::new().read_only(true).allow_missing_merge_operators(true);
        let store = Self::from(options.open(path).map_err(|error| opening(path, error))?);
        let families = store.families();
        store.database.close()?;
        families
    }

    /// Returns the names of the families, the default one first.
    pub fn families(&self) -> Result<Vec<String>, Status> {
        let mut families = Vec::new();
        for directory in [FAMILIES, HEX_FAMILIES] {
            match self.database.walk(directory) {
                Ok(tables) => families.extend(tables.iter().filter_map(|t| family_name(&t.name))),
                Err(Error::NoSuchTable { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        families.sort_by_key(|name| (name != DEFAULT_FAMILY, name.clone()));
        Ok(families)
    }

    /// Fails unless the comparator of a family has the name of the one that it was created with.
    fn check_comparator(&self, family: &FamilyRequest) -> Result<(), Status> {
        let (kept, timestamps) = match found(self.database.table(META))? {
            Some(meta) => {
                (meta.get(comparator_key(&family.name))?, meta.get(timestamps_key(&family.name))?)
            }
            None => (None, None),
        };
        let given_form = family.timestamp_order()?.map(form_of);
        let kept = kept.map(|name| String::from_utf8_lossy(&name).into_owned());
        let kept = kept.unwrap_or_else(|| BYTEWISE.to_owned());
        let given = match &family.comparator {
            Some(comparator) => comparator.name()?,
            None => BYTEWISE.to_owned(),
        };
        if kept == given && timestamps.as_deref() == given_form.map(str::as_bytes) {
            return Ok(());
        }
        if kept == given {
            let has_both = timestamps.is_some() && given_form.is_some();
            let what = if has_both { "byte order of timestamps" } else { "timestamp size" };
            let message = format!("comparator {given}: the {what} differs from that of");
            return Err(Status::invalid(format!("{message} column family {}", family.name)));
        }
        Err(Status::invalid(format!("{kept} does not match existing comparator : {given}")))
    }

    /// Checks every file and entry of the database in a directory.
    pub fn repair(path: &Path, options: &Options) -> Result<(), Status> {
        if !path.join(CATALOG).exists() {
            let message = format!("{}: there is no database", path.display());
            return Err(Status::new(Code::Io, message));
        }
        let options = options.clone().create(false).allow_missing_merge_operators(true);
        let database = options.open(path).map_err(|error| opening(path, error))?;
        let report = database.check_with(CheckLevel::Deep)?;
        database.close()?;
        match report.findings.first() {
            None => Ok(()),
            Some(finding) => Err(Status::corruption(format!(
                "{}: {} defects, the first in {} at {}: {}; `quintet check` lists all, and \
                 `quintet export` copies what can be read",
                path.display(),
                report.findings.len(),
                finding.file,
                finding.offset,
                finding.what
            ))),
        }
    }
}

/// Returns a table, or `None` if there is none.
pub fn found(table: quintet::Result<Table>) -> Result<Option<Table>, Status> {
    match table {
        Ok(table) => Ok(Some(table)),
        Err(Error::NoSuchTable { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn opening(path: &Path, error: Error) -> Status {
    match error {
        Error::Locked { holder, .. } => {
            let lock = path.join("LOCK");
            Status::new(Code::Io, format!("lock {}: already held: open {holder}", lock.display()))
        }
        error => error.into(),
    }
}

fn comparator_key(family: &str) -> String {
    format!("comparator/{family}")
}

fn timestamps_key(family: &str) -> String {
    format!("timestamps/{family}")
}

fn history_key(family: &str) -> String {
    format!("history/{family}")
}

/// Returns the path of the table of a family.
pub fn table_name(family: &str) -> String {
    let plain = format!("{FAMILIES}/{family}");
    if !family.contains('/') && quintet::check_table_path(&plain).is_ok() {
        return plain;
    }
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string does not fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    };
    let parts: Vec<_> = family.as_bytes().chunks(HEX_BYTES).map(hex).collect();
    if parts.is_empty() {
        format!("{HEX_FAMILIES}/-")
    } else {
        format!("{HEX_FAMILIES}/{}", parts.join("/"))
    }
}

/// Returns the family of a table. `None`: the table belongs to no family.
fn family_name(table: &str) -> Option<String> {
    if let Some(name) = table.strip_prefix("cf/") {
        return (!name.contains('/')).then(|| name.to_owned());
    }
    let hex: String = table.strip_prefix("cf-hex/")?.split('/').collect();
    if hex == "-" {
        return Some(String::new());
    }
    let digit = |index| hex.get(index..index + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(digit).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_names_of_tables() {
        let long = "x".repeat(400);
        for family in ["default", "a b", "", "a/b", ".hidden", "-", "\u{e9}t\u{e9}", &long] {
            let table = table_name(family);
            quintet::check_table_path(&table).expect("a path");
            assert_eq!(family_name(&table).as_deref(), Some(family));
        }
        assert_eq!(table_name("default"), "cf/default");
        assert_eq!(table_name("a b"), "cf-hex/612062");
        assert_eq!(family_name("meta"), None);
    }
}
