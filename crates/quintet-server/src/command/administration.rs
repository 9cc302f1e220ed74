//! Commands of administrators that have little to do here: background saves and latency events.

use super::{
    call::{Call, commands},
    generic::reply_help,
};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
};

commands! { Group::Server;
    "bgrewriteaof" 1 [ADMIN DANGEROUS COMMIT_FIRST] Keys::None, bgrewriteaof, "1.0.0",
        "Asynchronously rewrites the append-only file to disk.";
    "bgsave" -1 [ADMIN DANGEROUS COMMIT_FIRST] Keys::None, bgsave, "1.0.0",
        "Asynchronously saves the database(s) to disk.";
    "latency" -2 [CONTAINER] Keys::None, latency_help, "2.8.13",
        "A container for latency diagnostics commands.";
    "latency|help" 2 [] Keys::None, latency_help, "2.8.13",
        "Returns helpful text about the different subcommands.";
    "latency|history" 3 [ADMIN DANGEROUS] Keys::None, latency_events, "2.8.13",
        "Returns timestamp-latency samples for an event.";
    "latency|latest" 2 [ADMIN DANGEROUS] Keys::None, latency_events, "2.8.13",
        "Returns the latest latency samples for all events.";
    "latency|reset" -2 [ADMIN DANGEROUS] Keys::None, latency_reset, "2.8.13",
        "Resets the latency data for one or more events.";
}

/// Starts a checkpoint of all tables, which prunes the log.
fn start_checkpoint(call: &Call<'_, '_>) -> Done {
    let database = call.server.store.databases.database().clone();
    std::thread::Builder::new()
        .name("quintet-bgsave".to_owned())
        // A failure stays in `INFO persistence`.
        .spawn(move || drop(database.persist()))
        .map(drop)
        .map_err(|error| Fail::with(format!("ERR cannot start a thread: {error}")))
}

fn bgsave(call: &mut Call<'_, '_>) -> Done {
    if call.args.len() > 2 || (call.args.len() == 2 && !call.args.is(1, "schedule")) {
        return Err(Fail::SYNTAX);
    }
    start_checkpoint(call)?;
    call.reply.simple("Background saving started");
    Ok(())
}

fn bgrewriteaof(call: &mut Call<'_, '_>) -> Done {
    start_checkpoint(call)?;
    call.reply.simple("Background append only file rewriting started");
    Ok(())
}

fn latency_events(call: &mut Call<'_, '_>) -> Done {
    // As in Redis with its default threshold of 0: no events are recorded.
    call.reply.array(0);
    Ok(())
}

fn latency_reset(call: &mut Call<'_, '_>) -> Done {
    call.reply.integer(0);
    Ok(())
}

fn latency_help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "LATENCY",
        &[
            ("HISTORY <event>", "Return time-latency samples for the <event> class."),
            ("LATEST", "Return the latest latency samples for all events."),
            ("RESET [<event> ...]", "Reset latency data of one or more <event> classes."),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
