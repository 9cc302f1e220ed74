//! `inspect`: one file of a database in words.
//!
//! The layouts belong to the library's modules, and so does the decoding; this prints what they
//! say.

use std::{io::Write, ops::ControlFlow, path::Path};

use crate::failure::{Failure, Outcome};

/// Prints `file`. Damage is printed where it is met and makes the command end with exit code 3.
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
