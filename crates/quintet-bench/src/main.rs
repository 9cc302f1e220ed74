//! The command `quintet-bench`: `quintet bench` without the rest of the `quintet` command.
#![forbid(unsafe_code)]

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser;

/// Measures the engines of Quintet and reference stores under standard workloads.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    bench: quintet_bench::cli::Args,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match quintet_bench::cli::run(&arguments.bench, &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                // Standard error may be closed, and there is no other output for this text.
                let _ = writeln!(io::stderr(), "quintet-bench: {text}");
            }
            ExitCode::from(failure.code())
        }
    }
}
