//! Functions of the backup engine.

use std::{ffi::c_int, path::PathBuf};

use quintet_compat::{
    boundary::{Text, required},
    export, export_fallible,
    status::Status,
};

use super::{Backup, BackupEngine};
use crate::{
    core::Db,
    environment::Environment,
    kept::{OptionNumbers, kept},
    objects::Env,
    options::database::DatabaseOptions,
};

/// How RocksDB names shared files: by the session and the size. Bit 31 and 2.
const NAMING: i32 = i32::MIN + 2;

/// `rocksdb_backup_engine_options_t`.
#[derive(Clone, Debug, Default)]
pub struct BackupOptions {
    directory: PathBuf,
    /// Where the backups are. `None`: where the databases are.
    environment: Option<Environment>,
    pub(crate) kept: OptionNumbers,
}

/// `rocksdb_restore_options_t`.
#[derive(Clone, Debug, Default)]
pub struct RestoreOptions {
    pub(crate) kept: OptionNumbers,
}

/// `rocksdb_backup_engine_info_t`.
#[derive(Debug)]
pub struct BackupList(Vec<Backup>);

fn directory(name: Text) -> PathBuf {
    Environment::default().path(name).unwrap_or_default()
}

fn engine(engine: Option<&BackupEngine>) -> Result<&BackupEngine, Status> {
    required(engine, "the backup engine")
}

fn backup(list: Option<&BackupList>, index: c_int) -> Option<&Backup> {
    list?.0.get(usize::try_from(index).ok()?)
}

export_fallible! {
    /// Opens a directory of backups, and makes it if it is missing.
    pub fn rocksdb_backup_engine_open(
        options: Option<&DatabaseOptions>, name: Text,
    ) -> Option<Box<BackupEngine>>, None, {
        let environment = DatabaseOptions::environment_of(options);
        let directory = Environment::default().path(name)?;
        let engine = BackupEngine::open(&directory, environment.clone(), environment, false)?;
        Ok(Some(Box::new(engine)))
    }

    /// Opens the directory of backups that the options name.
    pub fn rocksdb_backup_engine_open_opts(
        options: Option<&BackupOptions>, env: Option<&Env>,
    ) -> Option<Box<BackupEngine>>, None, {
        let options = required(options, "the backup options")?;
        let destroys_old = options.kept.get("rocksdb_backup_engine_options_set_destroy_old_data");
        let destroys_old = destroys_old.is_some_and(|value: u8| value != 0);
        let of_databases = Env::environment(env);
        let of_backups = options.environment.clone().unwrap_or_else(|| of_databases.clone());
        let directory = &options.directory;
        let engine = BackupEngine::open(directory, of_backups, of_databases, destroys_old)?;
        Ok(Some(Box::new(engine)))
    }

    /// Makes a backup of the present state. Reads and writes all entries.
    pub fn rocksdb_backup_engine_create_new_backup(
        engine_object: Option<&BackupEngine>, db: Option<&Db>,
    ) {
        engine(engine_object)?.create(&required(db, "the database")?.core)
    }

    /// Makes a backup of the present state. It has what is in memory, whatever `flush` is.
    pub fn rocksdb_backup_engine_create_new_backup_flush(
        engine_object: Option<&BackupEngine>, db: Option<&Db>, _flush: u8,
    ) {
        engine(engine_object)?.create(&required(db, "the database")?.core)
    }

    /// Removes all backups but the `count` newest.
    pub fn rocksdb_backup_engine_purge_old_backups(
        engine_object: Option<&BackupEngine>, count: u32,
    ) {
        engine(engine_object)?.purge(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Reads a whole backup. Fails if it is damaged.
    pub fn rocksdb_backup_engine_verify_backup(engine_object: Option<&BackupEngine>, id: u32) {
        engine(engine_object)?.verify(id)
    }

    /// Replaces the database in a directory by the newest backup.
    pub fn rocksdb_backup_engine_restore_db_from_latest_backup(
        engine_object: Option<&BackupEngine>, directory: Text, _log_directory: Text,
        _options: Option<&RestoreOptions>,
    ) {
        engine(engine_object)?.restore(None, directory)
    }

    /// Replaces the database in a directory by a backup.
    pub fn rocksdb_backup_engine_restore_db_from_backup(
        engine_object: Option<&BackupEngine>, directory: Text, _log_directory: Text,
        _options: Option<&RestoreOptions>, id: u32,
    ) {
        engine(engine_object)?.restore(Some(id), directory)
    }
}

export! {
    /// Returns the backups, oldest first. Null if they cannot be read.
    pub fn rocksdb_backup_engine_get_backup_info(
        engine_object: Option<&BackupEngine>,
    ) -> Option<Box<BackupList>>, None, {
        engine_object?.backups().ok().map(|backups| Box::new(BackupList(backups)))
    }

    /// Returns the number of backups.
    pub fn rocksdb_backup_engine_info_count(list: Option<&BackupList>) -> c_int, 0, {
        list.map_or(0, |list| c_int::try_from(list.0.len()).unwrap_or(c_int::MAX))
    }

    /// Returns when a backup was made, in seconds since 1970.
    pub fn rocksdb_backup_engine_info_timestamp(
        list: Option<&BackupList>, index: c_int,
    ) -> i64, 0, {
        backup(list, index).map_or(0, |backup| backup.timestamp)
    }

    /// Returns the number of a backup.
    pub fn rocksdb_backup_engine_info_backup_id(
        list: Option<&BackupList>, index: c_int,
    ) -> u32, 0, {
        backup(list, index).map_or(0, |backup| backup.id)
    }

    /// Returns the size of a backup in bytes.
    pub fn rocksdb_backup_engine_info_size(list: Option<&BackupList>, index: c_int) -> u64, 0, {
        backup(list, index).map_or(0, |backup| backup.bytes)
    }

    /// Returns the number of files of a backup.
    pub fn rocksdb_backup_engine_info_number_files(
        list: Option<&BackupList>, index: c_int,
    ) -> u32, 0, {
        backup(list, index).map_or(0, |backup| backup.files)
    }

    /// Frees a list of backups.
    pub fn rocksdb_backup_engine_info_destroy(list: Option<Box<BackupList>>) {
        drop(list);
    }

    /// Frees a backup engine.
    pub fn rocksdb_backup_engine_close(engine_object: Option<Box<BackupEngine>>) {
        drop(engine_object);
    }

    /// Makes options of a backup engine, with the directory of the backups.
    pub fn rocksdb_backup_engine_options_create(name: Text) -> Option<Box<BackupOptions>>, None, {
        let options = BackupOptions { directory: directory(name), ..BackupOptions::default() };
        Some(Box::new(options))
    }

    /// Frees options of a backup engine.
    pub fn rocksdb_backup_engine_options_destroy(options: Option<Box<BackupOptions>>) {
        drop(options);
    }

    /// Sets the directory of the backups.
    pub fn rocksdb_backup_engine_options_set_backup_dir(
        options: Option<&mut BackupOptions>, name: Text,
    ) {
        if let Some(options) = options {
            options.directory = directory(name);
        }
    }

    /// Sets the environment of the backups. Null: that of the databases.
    pub fn rocksdb_backup_engine_options_set_env(
        options: Option<&mut BackupOptions>, env: Option<&Env>,
    ) {
        if let Some(options) = options {
            options.environment = env.map(|env| env.environment.clone());
        }
    }

    /// Makes options of restoring.
    pub fn rocksdb_restore_options_create() -> Option<Box<RestoreOptions>>, None, {
        Some(Box::default())
    }

    /// Frees options of restoring.
    pub fn rocksdb_restore_options_destroy(options: Option<Box<RestoreOptions>>) {
        drop(options);
    }
}

kept! { BackupOptions {
    rocksdb_backup_engine_options_set_share_table_files(u8)
        => rocksdb_backup_engine_options_get_share_table_files -> u8 = 1;
    rocksdb_backup_engine_options_set_sync(u8)
        => rocksdb_backup_engine_options_get_sync -> u8 = 1;
    rocksdb_backup_engine_options_set_destroy_old_data(u8)
        => rocksdb_backup_engine_options_get_destroy_old_data -> u8 = 0;
    rocksdb_backup_engine_options_set_backup_log_files(u8)
        => rocksdb_backup_engine_options_get_backup_log_files -> u8 = 1;
    rocksdb_backup_engine_options_set_backup_rate_limit(u64)
        => rocksdb_backup_engine_options_get_backup_rate_limit -> u64 = 0;
    rocksdb_backup_engine_options_set_restore_rate_limit(u64)
        => rocksdb_backup_engine_options_get_restore_rate_limit -> u64 = 0;
    rocksdb_backup_engine_options_set_max_background_operations(i32)
        => rocksdb_backup_engine_options_get_max_background_operations -> i32 = 1;
    rocksdb_backup_engine_options_set_callback_trigger_interval_size(u64)
        => rocksdb_backup_engine_options_get_callback_trigger_interval_size -> u64 = 4_194_304;
    rocksdb_backup_engine_options_set_max_valid_backups_to_open(i32)
        => rocksdb_backup_engine_options_get_max_valid_backups_to_open -> i32 = 2_147_483_647;
    rocksdb_backup_engine_options_set_share_files_with_checksum_naming(i32)
        => rocksdb_backup_engine_options_get_share_files_with_checksum_naming -> i32 = NAMING;
} }

kept! { RestoreOptions {
    rocksdb_restore_options_set_keep_log_files(i32);
} }
