//! `NAMESPACE`: named sets of 16 databases.
//!
//! A user may use the namespaces that its rules name. `ADD` and `DEL` are commands of
//! administrators. None but `CURRENT` and `LIST` is a part of a transaction, because a transaction
//! has one namespace.

use super::{
    call::{Call, commands},
    generic::reply_help,
};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
    store::{DEFAULT_NAMESPACE, DatabaseId, is_namespace_name},
};

commands! { Group::Connection;
    "namespace" -2 [CONTAINER] Keys::None, help, "none",
        "A container for commands of namespaces. An extension of Quintet.";
    "namespace|current" 2 [FAST] Keys::None, current, "none",
        "Returns the name of the connection's namespace.";
    "namespace|help" 2 [] Keys::None, help, "none",
        "Returns helpful text about the different subcommands.";
    "namespace|list" 2 [] Keys::None, list, "none",
        "Returns the names of the namespaces that the user may use.";
    "namespace|use" 3 [COMMIT_FIRST NO_MULTI] Keys::None, use_namespace, "none",
        "Changes the namespace of the connection, and selects its first database.";
}

/// Rows of the group *server*.
pub(super) mod server_rows {
    use super::{Group, Keys, add, commands, del};

    commands! { Group::Server;
        "namespace|add" 3 [ADMIN COMMIT_FIRST NO_MULTI] Keys::None, add, "none",
            "Adds an empty namespace.";
        "namespace|del" 3 [WRITE ADMIN DANGEROUS LOCK_ALL NO_MULTI] Keys::None, del, "none",
            "Removes a namespace with all its keys.";
    }
}

/// The name of a namespace in argument 2. Fails within a transaction.
fn name(call: &mut Call<'_, '_>) -> Done<String> {
    if call.session.queue.is_some() {
        call.session.is_queue_bad = true;
        return Err(Fail::new(
            "ERR NAMESPACE ADD, DEL and USE are not allowed inside a transaction",
        ));
    }
    let name = call.args.at(2);
    if !is_namespace_name(name) {
        return Err(Fail::BAD_NAMESPACE);
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

fn missing(name: &str) -> Fail {
    Fail::with(format!("NONAMESPACE there is no namespace '{name}'"))
}

fn add(call: &mut Call<'_, '_>) -> Done {
    let name = name(call)?;
    call.server.store.databases.add_namespace(&name)?;
    tracing::info!(name, "a namespace was added");
    call.reply.ok();
    Ok(())
}

fn del(call: &mut Call<'_, '_>) -> Done {
    let name = name(call)?;
    if name == DEFAULT_NAMESPACE {
        return Err(Fail::new("ERR the namespace 'default' cannot be removed"));
    }
    let store = &call.server.store;
    let id = store.databases.remove_namespace(&name)?.ok_or_else(|| missing(&name))?;
    // Commands that wait run again, and fail.
    for database in DatabaseId::all_of(id) {
        store.changes.changed_all(database);
    }
    store.changes.invalidations.report_flush(id);
    tracing::info!(name, "a namespace was removed");
    call.reply.ok();
    Ok(())
}

fn use_namespace(call: &mut Call<'_, '_>) -> Done {
    let name = name(call)?;
    // Before the search, so that users do not learn the names of others.
    if !call.session.user.allows_namespace(&name) {
        return Err(Fail::with(format!(
            "NOPERM this user has no permissions to use the namespace '{name}'"
        )));
    }
    let found = call.server.store.databases.enter(&name)?;
    call.session.enter(found.ok_or_else(|| missing(&name))?);
    call.reply.ok();
    Ok(())
}

fn current(call: &mut Call<'_, '_>) -> Done {
    call.reply.text(call.session.namespace.name());
    Ok(())
}

fn list(call: &mut Call<'_, '_>) -> Done {
    let mut names = call.server.store.databases.namespace_names();
    names.retain(|name| call.session.user.allows_namespace(name));
    call.reply.array(names.len());
    for name in names {
        call.reply.text(&name);
    }
    Ok(())
}

fn help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "NAMESPACE",
        &[
            ("ADD <name>", "Add an empty namespace."),
            ("CURRENT", "Return the name of the namespace of the current connection."),
            ("DEL <name>", "Remove a namespace with all its keys."),
            ("LIST", "Return the names of the namespaces that the user may use."),
            ("USE <name>", "Change the namespace of the current connection."),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
