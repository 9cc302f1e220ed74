//! A tour: import two files of real facts into two tables, write an atomic batch over both, query
//! them.
//!
//! `cargo run --release -p quintet-cli --example tour`

use std::{error::Error, ffi::OsString, path::Path};

use quintet::Database;

/// Runs the `quintet` command as a shell would, and prints it.
fn quintet(words: &[&str]) -> Result<(), Box<dyn Error>> {
    println!("\n$ quintet {}", words.join(" "));
    match quintet_cli::run(["quintet"].iter().chain(words).map(OsString::from)) {
        0 => Ok(()),
        code => Err(format!("quintet {} ended with code {code}", words.join(" ")).into()),
    }
}

/// Both entries, or after a crash neither: one batch over two tables.
fn write_batch(dir: &Path) -> quintet::Result<()> {
    let database = Database::open(dir)?;
    let (countries, zones) = (database.table("countries")?, database.table("zones")?);
    let mut batch = database.batch();
    batch.put(&countries, b"XA", br#"{"code":"XA","name":"Atlantis"}"#);
    batch.put(&zones, b"Atlantic/Atlantis", br#"{"zone":"Atlantic/Atlantis","countries":"XA"}"#);
    batch.commit()?;
    println!("\nwrote an atomic batch over both tables");
    database.close()
}

fn main() -> Result<(), Box<dyn Error>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data").canonicalize()?;
    let dir = std::env::temp_dir().join(format!("quintet-tour-{}", std::process::id()));
    let dir_name = dir.to_string_lossy();

    for (table, key) in [("countries", "code"), ("zones", "zone")] {
        let file = data.join(format!("{table}.csv"));
        let file = file.to_string_lossy();
        quintet(&["import", &dir_name, table, &file, "--key", key, "--engine", "naive"])?;
    }

    write_batch(&dir)?;
    quintet(&["get", &dir_name, "countries", "XA"])?;
    quintet(&["get", &dir_name, "zones", "Europe/Zurich"])?;
    quintet(&["scan", &dir_name, "zones", "--prefix", "Atlantic/A"])?;
    quintet(&["count", &dir_name, "zones"])?;
    quintet(&["check", &dir_name])?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
