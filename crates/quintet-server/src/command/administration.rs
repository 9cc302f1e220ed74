//! Commands of administrators that have little to do here: background saves, and the one user.

use super::{
    call::{Call, commands},
    generic::reply_help,
};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
};

commands! { Group::Server;
    "acl" -2 [CONTAINER] Keys::None, acl_help, "6.0.0",
        "A container for Access List Control commands.";
    "acl|cat" -2 [] Keys::None, acl_cat, "6.0.0",
        "Lists the ACL categories, or the commands inside a category.";
    "acl|help" 2 [] Keys::None, acl_help, "6.0.0",
        "Returns helpful text about the different subcommands.";
    "acl|users" 2 [ADMIN DANGEROUS] Keys::None, acl_users, "6.0.0", "Lists all ACL users.";
    "acl|whoami" 2 [] Keys::None, acl_whoami, "6.0.0",
        "Returns the authenticated username of the current connection.";
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

fn acl_whoami(call: &mut Call<'_, '_>) -> Done {
    call.reply.text("default");
    Ok(())
}

fn acl_users(call: &mut Call<'_, '_>) -> Done {
    call.reply.array(1);
    call.reply.text("default");
    Ok(())
}

fn acl_cat(call: &mut Call<'_, '_>) -> Done {
    let specs = call.server.registry.specs().iter();
    let names: std::collections::BTreeSet<&str> = match call.args.get(2) {
        None => specs.flat_map(crate::spec::Spec::categories).collect(),
        Some(category) => specs
            .filter(|spec| {
                let categories = spec.categories();
                categories.iter().any(|name| category.eq_ignore_ascii_case(name.as_bytes()))
            })
            .map(|spec| spec.name)
            .collect(),
    };
    if names.is_empty() {
        let category = String::from_utf8_lossy(call.args.at(2));
        return Err(Fail::with(format!("ERR Unknown category '{category}'")));
    }
    call.reply.array(names.len());
    for name in names {
        call.reply.text(name);
    }
    Ok(())
}

fn acl_help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "ACL",
        &[
            ("CAT [<category>]", "List all commands that belong to <category>, or all categories."),
            ("USERS", "List all the registered usernames."),
            ("WHOAMI", "Return the current connection username."),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
