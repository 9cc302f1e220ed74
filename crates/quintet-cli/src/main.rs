//! The `quintet` command.
#![forbid(unsafe_code)]

use std::{
    io::{self, Write as _},
    panic,
    process::ExitCode,
};

fn main() -> ExitCode {
    // A panic is a bug. The user sees one line instead of a backtrace.
    panic::set_hook(Box::new(|info| {
        let text = info.to_string().replace('\n', " ");
        let _ = writeln!(io::stderr(), "quintet: internal error: {text}; please report it");
    }));
    match panic::catch_unwind(|| quintet_cli::run(std::env::args_os())) {
        Ok(code) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}
