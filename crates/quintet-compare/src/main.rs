//! The command `quintet-compare`. See the documentation of the library.
#![forbid(unsafe_code)]

use std::{io, process::ExitCode};

use clap::Parser as _;
use quintet_compare::cli::{Args, run};

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args, &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.code() != 0 {
                eprintln!("quintet-compare: {failure}");
            }
            ExitCode::from(failure.code())
        }
    }
}
