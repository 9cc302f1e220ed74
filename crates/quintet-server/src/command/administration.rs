//! Commands of administrators that have little to do here: background saves.

use super::call::{Call, commands};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
};

commands! { Group::Server;
    "bgrewriteaof" 1 [ADMIN DANGEROUS COMMIT_FIRST] Keys::None, bgrewriteaof, "1.0.0",
        "Asynchronously rewrites the append-only file to disk.";
    "bgsave" -1 [ADMIN DANGEROUS COMMIT_FIRST] Keys::None, bgsave, "1.0.0",
        "Asynchronously saves the database(s) to disk.";
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
