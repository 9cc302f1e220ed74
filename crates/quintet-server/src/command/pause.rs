//! `CLIENT PAUSE` and `CLIENT UNPAUSE`.

use std::time::{Duration, Instant};

use super::call::{Call, commands};
use crate::{
    failure::{Done, Fail},
    number::parse_i64,
    spec::{Group, Keys},
    state::PauseMode,
};

commands! { Group::Connection;
    "client|pause" -3 [ADMIN DANGEROUS LOCK_ALL] Keys::None, pause, "3.0.0",
        "Suspends commands processing.";
    "client|unpause" 2 [ADMIN DANGEROUS] Keys::None, unpause, "6.2.0",
        "Resumes processing commands from paused clients.";
}

const OUT_OF_RANGE: Fail = Fail::new("ERR timeout is not an integer or out of range");

/// Holds commands. The locks of all keys are held, so no command of another client is within its
/// changes.
fn pause(call: &mut Call<'_, '_>) -> Done {
    let mode = match call.args.get(3).filter(|_| call.args.len() == 4) {
        None => PauseMode::All,
        Some(word) if word.eq_ignore_ascii_case(b"all") => PauseMode::All,
        Some(word) if word.eq_ignore_ascii_case(b"write") => PauseMode::Write,
        Some(_) => return Err(Fail::new("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    if call.args.len() > 4 {
        return Err(Fail::new(
            "ERR unknown subcommand or wrong number of arguments for 'pause'. Try CLIENT HELP.",
        ));
    }
    let millis = parse_i64(call.args.at(2)).ok_or(OUT_OF_RANGE)?;
    let millis = u64::try_from(millis).map_err(|_| Fail::new("ERR timeout is negative"))?;
    let end = Instant::now().checked_add(Duration::from_millis(millis)).ok_or(OUT_OF_RANGE)?;
    call.server.pause.begin(mode, end);
    let client = &call.session.client.address;
    tracing::info!(mode = mode.name(), millis, %client, "CLIENT PAUSE holds commands");
    call.reply.ok();
    Ok(())
}

fn unpause(call: &mut Call<'_, '_>) -> Done {
    call.server.pause.end();
    tracing::info!(client = %call.session.client.address, "CLIENT UNPAUSE");
    call.reply.ok();
    Ok(())
}
