//! `quintet serve`: runs the server until a signal ends it.

use std::io::Write as _;

use quintet_server::{Config, ServeArgs};

use crate::{
    context::Context,
    failure::{Failure, Outcome},
};

/// Serves a directory. Prints the addresses when clients can connect.
pub(crate) fn serve(context: &mut Context<'_>, command: &ServeArgs) -> Outcome {
    let failed = |failure: quintet_server::StartFailure| Failure::Failed(failure.to_string());
    let config = Config::load(command, context.memory_budget).map_err(failed)?;
    quintet_server::start_logging(config.log_level, config.log_format);
    quintet_server::serve(&command.dir, &config, |addresses| {
        // Standard output may be closed; the server runs without it.
        let out = &mut context.out;
        let _ = writeln!(out, "ready to accept connections on {}", addresses.join(", "));
        let _ = out.flush();
    })
    .map_err(failed)
}
