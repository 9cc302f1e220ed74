//! Lines for the operator on standard error.

use std::io::Write as _;

/// Writes a line. A standard error that is closed must not end the server.
pub(crate) fn write(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
