//! Connections: `HELLO`, `AUTH`, `CLIENT` and the like.

use std::sync::atomic::Ordering;

use super::{
    call::{Call, commands},
    generic::{parse_database, reply_help},
    login::{Progress, log_in},
    tracking::end_tracking,
    transactions::end_watch,
};
use crate::{
    failure::{Done, Fail},
    resp::Protocol,
    spec::{Group, Keys, REDIS_VERSION},
    state::{AppendFsync, Client, ReplyMode},
};

commands! { Group::Connection;
    "client" -2 [CONTAINER] Keys::None, help, "2.4.0", "A container for client connection \
     commands.";
    "client|durability" 3 [COMMIT_FIRST] Keys::None, durability, "none",
        "Sets when writes of the connection are on disk. An extension of Quintet.";
    "client|getname" 2 [] Keys::None, getname, "2.6.9", "Returns the name of the connection.";
    "client|help" 2 [] Keys::None, help, "5.0.0",
        "Returns helpful text about the different subcommands.";
    "client|id" 2 [] Keys::None, id, "5.0.0",
        "Returns the unique client ID of the connection.";
    "client|info" 2 [] Keys::None, info, "6.2.0", "Returns information about the connection.";
    "client|kill" -3 [ADMIN DANGEROUS] Keys::None, kill, "2.4.0", "Terminates open connections.";
    "client|list" -2 [ADMIN DANGEROUS] Keys::None, list, "2.4.0", "Lists open connections.";
    "client|no-evict" 3 [ADMIN] Keys::None, no_evict, "7.0.0",
        "Sets the client eviction mode of the connection.";
    "client|reply" 3 [] Keys::None, reply_mode, "3.2.0",
        "Instructs the server whether to reply to commands.";
    "client|setname" 3 [] Keys::None, setname, "2.6.9", "Sets the connection name.";
    "client|setinfo" 4 [] Keys::None, setinfo, "7.2.0", "Sets information specific to the client \
     or connection.";
    "client|unblock" -3 [ADMIN DANGEROUS] Keys::None, unblock, "5.0.0",
        "Unblocks a client blocked by a blocking command from a different connection.";
    "echo" 2 [FAST] Keys::None, echo, "1.0.0", "Returns the given string.";
    "hello" -1 [FAST NO_AUTH NO_MULTI SECRET] Keys::None, hello, "6.0.0",
        "Handshakes with the Redis server.";
    "ping" -1 [FAST SUBSCRIBED] Keys::None, ping, "1.0.0",
        "Returns the server's liveliness response.";
    "quit" -1 [FAST SUBSCRIBED NO_AUTH NO_MULTI] Keys::None, quit, "1.0.0", "Closes the \
     connection.";
    "reset" 1 [FAST SUBSCRIBED NO_AUTH NO_MULTI] Keys::None, reset, "6.2.0", "Resets the \
     connection.";
    "select" 2 [FAST COMMIT_FIRST] Keys::None, select, "1.0.0", "Changes the selected database.";
}

fn ping(call: &mut Call<'_, '_>) -> Done {
    if call.args.len() > 2 {
        return Err(Fail::new("ERR wrong number of arguments for 'ping' command"));
    }
    if call.session.subscription_count() > 0 && !call.reply.is_resp3() {
        call.reply.array(2);
        call.reply.text("pong");
        call.reply.bulk(call.args.at(1));
        return Ok(());
    }
    match call.args.get(1) {
        Some(message) => call.reply.bulk(message),
        None => call.reply.simple("PONG"),
    }
    Ok(())
}

fn echo(call: &mut Call<'_, '_>) -> Done {
    call.reply.bulk(call.args.at(1));
    Ok(())
}

fn quit(call: &mut Call<'_, '_>) -> Done {
    call.session.is_closing = true;
    call.reply.ok();
    Ok(())
}

fn select(call: &mut Call<'_, '_>) -> Done {
    let index = parse_database(call.args.at(1)).map_err(|fail| match fail {
        Fail::Message(text) if text.contains("not an integer") => {
            Fail::new("ERR value is not an integer or out of range")
        }
        other => other,
    })?;
    call.session.select(index);
    call.reply.ok();
    Ok(())
}

fn reset(call: &mut Call<'_, '_>) -> Done {
    call.session.client.set_protected(false);
    call.session.queue = None;
    call.session.reply_mode = ReplyMode::On;
    call.session.owes_sync |= call.appendfsync() == AppendFsync::Always;
    call.session.durability = None;
    end_tracking(call.session, call.server);
    end_watch(call.session, &call.server.store.changes);
    super::pubsub::end_subscriptions(call.session, call.server);
    let has_password = !call.server.settings.password().is_empty();
    call.session.reset_user(&call.server.acl, has_password);
    let entered = call.session.enter_first(&call.server.store.databases);
    call.session.select(0);
    set_protocol(call, Protocol::Resp2);
    call.session.client.info().name.clear();
    entered?;
    call.reply.simple("RESET");
    Ok(())
}

fn set_protocol(call: &mut Call<'_, '_>, protocol: Protocol) {
    call.reply.protocol = protocol;
    call.session.client.set_protocol(protocol);
    call.session.client.info().protocol = if protocol == Protocol::Resp3 { 3 } else { 2 };
}

fn hello(call: &mut Call<'_, '_>) -> Done {
    let mut protocol = call.reply.protocol;
    if call.args.len() > 1 {
        protocol = match crate::number::parse_i64(call.args.at(1)) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(Fail::new("NOPROTO unsupported protocol version")),
            None => {
                return Err(Fail::new("ERR Protocol version is not an integer or out of range"));
            }
        };
    }
    let mut name = None;
    let mut login = None;
    let mut at = 2;
    while at < call.args.len() {
        if call.args.is(at, "auth") && at + 2 < call.args.len() {
            login = Some((call.args.at(at + 1), call.args.at(at + 2)));
            at += 3;
        } else if call.args.is(at, "setname") && at + 1 < call.args.len() {
            name = Some(call.args.at(at + 1));
            at += 2;
        } else {
            let word = String::from_utf8_lossy(call.args.at(at));
            return Err(Fail::with(format!("ERR Syntax error in HELLO option '{word}'")));
        }
    }
    if let Some((user, password)) = login
        && log_in(call, user, password)? == Progress::Waits
    {
        return Ok(());
    }
    if !call.session.is_authenticated {
        return Err(Fail::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        rename(&call.session.client, name)?;
    }
    set_protocol(call, protocol);
    let id = i64::try_from(call.session.client.id).unwrap_or(0);
    let reply = &mut *call.reply;
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.text(name);
        reply.text(value);
    }
    reply.text("proto");
    reply.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
    reply.text("id");
    reply.integer(id);
    let role = if call.server.replication.is_replica() { "replica" } else { "master" };
    for (name, value) in [("mode", "standalone"), ("role", role)] {
        reply.text(name);
        reply.text(value);
    }
    reply.text("modules");
    reply.array(0);
    Ok(())
}

fn rename(client: &Client, name: &[u8]) -> Done {
    if name.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        return Err(Fail::new(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ));
    }
    client.info().name = name.to_vec();
    Ok(())
}

fn setname(call: &mut Call<'_, '_>) -> Done {
    rename(&call.session.client, call.args.at(2))?;
    call.reply.ok();
    Ok(())
}

fn setinfo(call: &mut Call<'_, '_>) -> Done {
    let value = call.args.at(3);
    if value.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        return Err(Fail::new(
            "ERR lib-name and lib-ver cannot contain spaces, newlines or special characters.",
        ));
    }
    let mut info = call.session.client.info();
    if call.args.is(2, "lib-name") {
        info.library = value.to_vec();
    } else if call.args.is(2, "lib-ver") {
        info.library_version = value.to_vec();
    } else {
        let option = String::from_utf8_lossy(call.args.at(2));
        return Err(Fail::with(format!("ERR Unrecognized option '{option}'")));
    }
    call.reply.ok();
    Ok(())
}

fn getname(call: &mut Call<'_, '_>) -> Done {
    let name = call.session.client.info().name.clone();
    call.reply.optional((!name.is_empty()).then_some(name.as_slice()));
    Ok(())
}

fn id(call: &mut Call<'_, '_>) -> Done {
    call.reply.integer(i64::try_from(call.session.client.id).unwrap_or(0));
    Ok(())
}

fn info(call: &mut Call<'_, '_>) -> Done {
    let line = call.session.client.describe() + "\n";
    call.reply.verbatim(&line);
    Ok(())
}

fn parse_id(text: &[u8]) -> Done<u64> {
    let id = crate::number::parse_u64(text).filter(|id| *id > 0);
    id.ok_or(Fail::new("ERR Invalid client ID"))
}

/// Whether a client is of a type that `CLIENT LIST TYPE` names.
fn is_of_type(client: &Client, name: &[u8]) -> Done<bool> {
    let is_subscriber = !client.info().subscriptions.is_none();
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(!is_subscriber),
        b"pubsub" => Ok(is_subscriber),
        b"master" | b"replica" | b"slave" => Ok(false),
        _ => {
            let name = String::from_utf8_lossy(name);
            Err(Fail::with(format!("ERR Unknown client type '{name}'")))
        }
    }
}

fn list(call: &mut Call<'_, '_>) -> Done {
    let mut clients = call.server.clients.all();
    if call.args.is(2, "type") && call.args.len() == 4 {
        let mut kept = Vec::new();
        for client in clients {
            if is_of_type(&client, call.args.at(3))? {
                kept.push(client);
            }
        }
        clients = kept;
    } else if call.args.is(2, "id") && call.args.len() > 3 {
        let ids = call.args.from(3).map(parse_id).collect::<Done<Vec<u64>>>()?;
        clients.retain(|client| ids.contains(&client.id));
    } else if call.args.len() > 2 {
        return Err(Fail::SYNTAX);
    }
    let text: String = clients.iter().map(|client| client.describe() + "\n").collect();
    call.reply.verbatim(&text);
    Ok(())
}

fn kill(call: &mut Call<'_, '_>) -> Done {
    if call.args.len() == 3 {
        let clients = call.server.clients.all();
        let address = String::from_utf8_lossy(call.args.at(2));
        let client = clients.iter().find(|client| client.address == address);
        end_client(call, client.ok_or(Fail::new("ERR No such client"))?);
        call.reply.ok();
        return Ok(());
    }
    let mut clients = call.server.clients.all();
    let mut skips_own = true;
    let mut at = 2;
    while at < call.args.len() {
        if at + 1 >= call.args.len() {
            return Err(Fail::SYNTAX);
        }
        let value = call.args.at(at + 1);
        if call.args.is(at, "id") {
            let id = parse_id(value)?;
            clients.retain(|client| client.id == id);
        } else if call.args.is(at, "addr") {
            clients.retain(|client| client.address.as_bytes() == value);
        } else if call.args.is(at, "laddr") {
            clients.retain(|client| client.local_address.as_bytes() == value);
        } else if call.args.is(at, "type") {
            let mut kept = Vec::new();
            for client in clients {
                if is_of_type(&client, value)? {
                    kept.push(client);
                }
            }
            clients = kept;
        } else if call.args.is(at, "user") {
            clients.retain(|client| client.info().user.as_bytes() == value);
        } else if call.args.is(at, "skipme") {
            skips_own = match value.to_ascii_lowercase().as_slice() {
                b"yes" => true,
                b"no" => false,
                _ => return Err(Fail::SYNTAX),
            };
        } else {
            return Err(Fail::SYNTAX);
        }
        at += 2;
    }
    let own = call.session.client.id;
    clients.retain(|client| !skips_own || client.id != own);
    call.reply.count(clients.len());
    for client in &clients {
        end_client(call, client);
    }
    Ok(())
}

/// Ends a client; the own one after its reply.
fn end_client(call: &mut Call<'_, '_>, client: &Client) {
    if client.id == call.session.client.id {
        call.session.is_closing = true;
    } else {
        client.kill();
    }
}

fn unblock(call: &mut Call<'_, '_>) -> Done {
    let id = crate::number::parse_u64(call.args.at(2)).ok_or(Fail::NOT_INTEGER)?;
    let how = match call.args.get(3) {
        None => 1,
        Some(word) if word.eq_ignore_ascii_case(b"timeout") => 1,
        Some(word) if word.eq_ignore_ascii_case(b"error") => 2,
        Some(_) => {
            return Err(Fail::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let clients = call.server.clients.all();
    let client = clients.iter().find(|client| client.id == id && client.info().is_blocked);
    if let Some(client) = client {
        client.unblock.store(how, Ordering::Release);
        client.wake.notify_one();
    }
    call.reply.flag(client.is_some());
    Ok(())
}

/// Sets when writes of this connection are on disk, whatever `appendfsync` says.
fn durability(call: &mut Call<'_, '_>) -> Done {
    let chosen = if call.args.is(2, "default") {
        None
    } else {
        let text = String::from_utf8_lossy(call.args.at(2));
        let parsed = text.parse();
        Some(parsed.map_err(|_| {
            Fail::new("ERR CLIENT DURABILITY must be always, everysec, no or default")
        })?)
    };
    // Replies of earlier commands of the pipeline keep their promise.
    call.session.owes_sync |= call.appendfsync() == AppendFsync::Always;
    call.session.durability = chosen;
    call.reply.ok();
    Ok(())
}

fn no_evict(call: &mut Call<'_, '_>) -> Done {
    if !call.args.is(2, "on") && !call.args.is(2, "off") {
        return Err(Fail::SYNTAX);
    }
    call.session.client.set_protected(call.args.is(2, "on"));
    call.reply.ok();
    Ok(())
}

fn reply_mode(call: &mut Call<'_, '_>) -> Done {
    call.session.reply_mode = if call.args.is(2, "on") {
        call.reply.ok();
        ReplyMode::On
    } else if call.args.is(2, "off") {
        ReplyMode::Off
    } else if call.args.is(2, "skip") {
        ReplyMode::Skipping
    } else {
        return Err(Fail::SYNTAX);
    };
    Ok(())
}

fn help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "CLIENT",
        &[
            (
                "DURABILITY (ALWAYS|EVERYSEC|NO|DEFAULT)",
                "Set when writes of the current connection are on disk.",
            ),
            (
                "CACHING (YES|NO)",
                "Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
            ),
            ("GETREDIR", "Return the client ID we are redirecting to when tracking is enabled."),
            ("GETNAME", "Return the name of the current connection."),
            ("ID", "Return the ID of the current connection."),
            ("INFO", "Return information about the current client connection."),
            ("KILL <ip:port> | <option> <value> ...", "Kill connections."),
            ("LIST [options ...]", "Return information about client connections."),
            ("NO-EVICT (ON|OFF)", "Protect the current client from being ended for its memory."),
            (
                "PAUSE <timeout> [WRITE|ALL]",
                "Suspend all, or just write, clients for <timeout> milliseconds.",
            ),
            ("REPLY (ON|OFF|SKIP)", "Control the replies sent to the current connection."),
            ("SETINFO <option> <value>", "Set the name or version of the client's library."),
            ("SETNAME <name>", "Assign the name <name> to the current connection."),
            (
                "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
                "Control server assisted client side caching.",
            ),
            ("TRACKINGINFO", "Report tracking status for the current connection."),
            ("UNBLOCK <clientid> [TIMEOUT|ERROR]", "Unblock the specified blocked client."),
            ("UNPAUSE", "Stop the current client pause, resuming traffic."),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
