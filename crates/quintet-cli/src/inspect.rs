//! `inspect`: prints one file of a database in readable form.
//!
//! The modules of the library that own the layouts decode the file; this module prints their
//! lines.

use std::{io::Write, ops::ControlFlow, path::Path};

use crate::failure::{Failure, Outcome};

/// Prints `file`. Damage is printed at its place in the file; the command then ends with exit
/// code 3.
pub fn inspect(file: &Path, out: &mut dyn Write) -> Outcome {
    if !file.is_file() {
        let what = if file.exists() { "is not a file" } else { "does not exist" };
        return Err(Failure::Failed(format!("{} {what}", file.display())));
    }
    let mut printed = Ok(());
    let outcome = quintet::inspect::file(file, &mut |line| {
        printed = writeln!(out, "{line}");
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    printed?;
    Ok(outcome?)
}
