//! Commands of administrators that have little to do here: background saves, and modules.

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
    "module" -2 [CONTAINER] Keys::None, module_help, "4.0.0", "A container for module commands.";
    "module|help" 2 [] Keys::None, module_help, "5.0.0",
        "Returns helpful text about the different subcommands.";
    "module|list" 2 [ADMIN DANGEROUS] Keys::None, module_list, "4.0.0",
        "Returns all loaded modules.";
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

/// There are none, which clients ask before they use one.
fn module_list(call: &mut Call<'_, '_>) -> Done {
    call.reply.array(0);
    Ok(())
}

fn module_help(call: &mut Call<'_, '_>) -> Done {
    let rows = [("LIST", "Return a list of loaded modules."), ("HELP", "Print this help.")];
    reply_help(call, "MODULE", &rows);
    Ok(())
}
