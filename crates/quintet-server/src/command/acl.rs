//! `ACL`: users and what they may do.
//!
//! Commands that change users hash passwords or wait for others that do. So they run beside the
//! threads of connections (`network/connection/work.rs`), and not within `MULTI`.

use std::fmt::Write as _;

use super::{
    call::{Call, commands},
    generic::reply_help,
};
use crate::{
    acl::{Acl, DEFAULT_USER, Denial, MayBeOpen, Permissions, Rule, User, fill_random},
    failure::{Done, Fail},
    number::{parse_i64, parse_u64},
    resp::Reply,
    spec::{Group, Keys, Selection, Spec},
    state::{Answer, Work},
};

commands! { Group::Server;
    "acl" -2 [CONTAINER SECRET] Keys::None, help, "6.0.0",
        "A container for Access List Control commands.";
    "acl|cat" -2 [] Keys::None, cat, "6.0.0",
        "Lists the ACL categories, or the commands inside a category.";
    "acl|deluser" -3 [ADMIN DANGEROUS NO_MULTI] Keys::None, deluser, "6.0.0",
        "Deletes ACL users, and terminates their connections.";
    "acl|dryrun" -4 [ADMIN DANGEROUS] Keys::None, dryrun, "7.0.0",
        "Simulates the execution of a command by a user, without executing the command.";
    "acl|genpass" -2 [] Keys::None, genpass, "6.0.0",
        "Generates a pseudorandom, secure password that can be used to identify ACL users.";
    "acl|getuser" 3 [ADMIN DANGEROUS] Keys::None, getuser, "6.0.0",
        "Lists the ACL rules of a user.";
    "acl|help" 2 [] Keys::None, help, "6.0.0",
        "Returns helpful text about the different subcommands.";
    "acl|list" 2 [ADMIN DANGEROUS] Keys::None, list, "6.0.0",
        "Dumps the effective rules in ACL file format.";
    "acl|load" 2 [ADMIN DANGEROUS NO_MULTI] Keys::None, load, "6.0.0",
        "Reloads the rules from the configured ACL file.";
    "acl|log" -2 [ADMIN DANGEROUS] Keys::None, log, "6.0.0",
        "Lists recent security events generated due to ACL rules.";
    "acl|save" 2 [ADMIN DANGEROUS NO_MULTI] Keys::None, save, "6.0.0",
        "Saves the effective ACL rules in the configured ACL file.";
    "acl|setuser" -3 [ADMIN DANGEROUS NO_MULTI SECRET] Keys::None, setuser, "6.0.0",
        "Creates and modifies an ACL user and its rules.";
    "acl|users" 2 [ADMIN DANGEROUS] Keys::None, users, "6.0.0", "Lists all ACL users.";
    "acl|whoami" 2 [] Keys::None, whoami, "6.0.0",
        "Returns the authenticated username of the current connection.";
}

/// Entries of `ACL LOG` without a count.
const LOG_COUNT: usize = 10;
/// Most bits of `ACL GENPASS`, and their number without an argument.
const BITS_MAX: u64 = 4096;
const BITS: u64 = 256;

/// Starts a change at the first run of the command, and returns its result at the second.
fn change(
    call: &mut Call<'_, '_>,
    make: impl FnOnce(&Acl, MayBeOpen<'_>) -> Result<usize, String> + Send + 'static,
) -> Done<Option<usize>> {
    if call.session.queue.is_some() {
        call.session.is_queue_bad = true;
        return Err(Fail::new("ERR Command not allowed inside a transaction"));
    }
    match call.session.answer.take() {
        Some(Answer::Changed(count)) => Ok(Some(count)),
        Some(Answer::Failed(why)) => Err(Fail::with(format!("ERR {why}"))),
        _ => {
            call.session.work = Some(Work::Change(Box::new(make)));
            Ok(None)
        }
    }
}

fn reply_ok(call: &mut Call<'_, '_>, changed: Option<usize>) {
    if changed.is_some() {
        call.reply.ok();
    }
}

/// The flags of a user. `default` without a password of its own may need `requirepass`.
fn shown_flags(call: &Call<'_, '_>, user: &User) -> Vec<&'static str> {
    let needs_other = user.name == DEFAULT_USER && !call.server.settings.password().is_empty();
    let mut flags = user.flags();
    flags.retain(|flag| *flag != "nopass" || !needs_other);
    flags
}

/// An argument as text. Users are in a TOML file, which has no other bytes.
fn text(argument: &[u8]) -> Done<String> {
    String::from_utf8(argument.to_vec())
        .map_err(|_| Fail::new("ERR names and rules of users must be UTF-8"))
}

fn setuser(call: &mut Call<'_, '_>) -> Done {
    let name = text(call.args.at(2))?;
    let rules = call.args.from(3).map(|rule| text(rule).map(Rule::new));
    let rules = rules.collect::<Done<Vec<Rule>>>()?;
    let changed = change(call, move |acl, may| acl.set_user(&name, &rules, may).map(|()| 1))?;
    reply_ok(call, changed);
    Ok(())
}

fn deluser(call: &mut Call<'_, '_>) -> Done {
    let names = call.args.from(2).map(text).collect::<Done<Vec<String>>>()?;
    if let Some(removed) = change(call, move |acl, may| acl.delete_users(&names, may))? {
        call.reply.count(removed);
    }
    Ok(())
}

fn load(call: &mut Call<'_, '_>) -> Done {
    let changed = change(call, |acl, may| acl.load(may).map(|()| 1))?;
    reply_ok(call, changed);
    Ok(())
}

fn save(call: &mut Call<'_, '_>) -> Done {
    let changed = change(call, |acl, _| acl.save().map(|()| 1))?;
    reply_ok(call, changed);
    Ok(())
}

fn whoami(call: &mut Call<'_, '_>) -> Done {
    call.reply.text(&call.session.user.name);
    Ok(())
}

fn users(call: &mut Call<'_, '_>) -> Done {
    let users = call.server.acl.all();
    call.reply.array(users.len());
    for user in users {
        call.reply.text(&user.name);
    }
    Ok(())
}

fn list(call: &mut Call<'_, '_>) -> Done {
    let users = call.server.acl.all();
    call.reply.array(users.len());
    for user in users {
        let flags = shown_flags(call, &user).join(" ");
        call.reply.text(&format!(
            "user {} {flags} {}",
            user.name,
            user.rules_without_flags().join(" ")
        ));
    }
    Ok(())
}

fn find(call: &Call<'_, '_>, name: &[u8]) -> Option<std::sync::Arc<User>> {
    std::str::from_utf8(name).ok().and_then(|name| call.server.acl.user(name))
}

fn describe_permissions(reply: &mut Reply, permissions: &Permissions) {
    for (name, rules) in [
        ("commands", permissions.command_rules().join(" ")),
        ("keys", permissions.key_rules().join(" ")),
        ("channels", permissions.channel_rules().join(" ")),
    ] {
        reply.text(name);
        reply.text(&rules);
    }
}

fn getuser(call: &mut Call<'_, '_>) -> Done {
    let Some(user) = find(call, call.args.at(2)) else {
        call.reply.null();
        return Ok(());
    };
    let flags = shown_flags(call, &user);
    let reply = &mut *call.reply;
    reply.map(if user.namespaces.is_empty() { 6 } else { 7 });
    reply.text("flags");
    reply.set(flags.len());
    for flag in flags {
        reply.text(flag);
    }
    reply.text("passwords");
    reply.array(user.hashes.len());
    for hash in &user.hashes {
        reply.text(hash);
    }
    describe_permissions(reply, &user.root);
    reply.text("selectors");
    reply.array(user.selectors.len());
    for selector in &user.selectors {
        reply.map(3);
        describe_permissions(reply, selector);
    }
    if !user.namespaces.is_empty() {
        reply.text("namespaces");
        reply.array(user.namespaces.len());
        for name in &user.namespaces {
            reply.text(name);
        }
    }
    Ok(())
}

fn dryrun(call: &mut Call<'_, '_>) -> Done {
    let Some(user) = find(call, call.args.at(2)) else {
        let name = String::from_utf8_lossy(call.args.at(2));
        return Err(Fail::with(format!("ERR User '{name}' not found")));
    };
    let (buffer, ranges) = call.args.owned_from(3);
    let args = crate::resp::Args::new(&buffer, &ranges);
    let registry = &call.server.registry;
    let row = match registry.select(args) {
        Selection::Command(row) => Some(row),
        _ => None,
    };
    let Some((row, spec)) = row.and_then(|row| Some((row, registry.spec(row)?))) else {
        let name = String::from_utf8_lossy(args.at(0));
        return Err(Fail::with(format!("ERR Command '{name}' not found")));
    };
    if !spec.accepts(args.len()) {
        let name = spec.name;
        return Err(Fail::with(format!("ERR wrong number of arguments for '{name}' command")));
    }
    let shown = |position| String::from_utf8_lossy(args.at(position)).into_owned();
    let denied = match call.server.acl.check(&user, row, args) {
        Ok(()) if user.is_confined() && spec.has(crate::spec::flag::ADMIN) => {
            format!("run the '{}' command in namespaces of its own", spec.name)
        }
        Ok(()) => {
            call.reply.ok();
            return Ok(());
        }
        Err(Denial::Command) => format!("run the '{}' command", spec.name),
        Err(Denial::Key(at)) => format!("access the '{}' key", shown(at)),
        Err(Denial::Channel(at)) => format!("access the '{}' channel", shown(at)),
    };
    call.reply.text(&format!("This user has no permissions to {denied}"));
    Ok(())
}

fn cat(call: &mut Call<'_, '_>) -> Done {
    let specs = call.server.registry.specs().iter();
    let names: std::collections::BTreeSet<&str> = match call.args.get(2) {
        None => specs.flat_map(Spec::categories).collect(),
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

fn genpass(call: &mut Call<'_, '_>) -> Done {
    let bits = match call.args.get(2) {
        None => Some(BITS),
        Some(bits) => parse_u64(bits).filter(|bits| (1..=BITS_MAX).contains(bits)),
    };
    let bits = bits.filter(|_| call.args.len() <= 3).ok_or(Fail::new(
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive \
         number up to 4096",
    ))?;
    let digits = usize::try_from(bits.div_ceil(4)).unwrap_or(0);
    let mut random = vec![0; digits.div_ceil(2)];
    fill_random(&mut random).map_err(|why| Fail::with(format!("ERR {why}")))?;
    let mut text = String::new();
    for byte in random {
        // A write to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.truncate(digits);
    call.reply.text(&text);
    Ok(())
}

fn log(call: &mut Call<'_, '_>) -> Done {
    if call.args.is(2, "reset") && call.args.len() == 3 {
        call.server.acl.log.reset();
        call.reply.ok();
        return Ok(());
    }
    let count = match call.args.get(2) {
        None => LOG_COUNT,
        Some(count) => usize::try_from(parse_i64(count).ok_or(Fail::NOT_INTEGER)?).unwrap_or(0),
    };
    let entries = call.server.acl.log.newest(count);
    let reply = &mut *call.reply;
    reply.array(entries.len());
    for entry in entries {
        reply.map(7);
        reply.text("count");
        reply.integer(i64::try_from(entry.count).unwrap_or(i64::MAX));
        for (name, value) in [
            ("reason", entry.reason.name()),
            ("context", if entry.is_in_multi { "multi" } else { "toplevel" }),
        ] {
            reply.text(name);
            reply.text(value);
        }
        reply.text("object");
        reply.bulk(&entry.object);
        reply.text("username");
        reply.text(&entry.user);
        reply.text("age-seconds");
        reply.double(entry.time.elapsed().as_secs_f64());
        reply.text("client-info");
        reply.text(&entry.client);
    }
    Ok(())
}

fn help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "ACL",
        &[
            ("CAT [<category>]", "List all commands that belong to <category>, or all categories."),
            ("DELUSER <username> [<username> ...]", "Delete a list of users."),
            (
                "DRYRUN <username> <command> [<arg> ...]",
                "Returns whether the user can execute the given command without executing it.",
            ),
            ("GETUSER <username>", "Get the user's details."),
            ("GENPASS [<bits>]", "Generate a secure password of <bits> bits (default: 256)."),
            ("LIST", "Show users details in config file format."),
            ("LOAD", "Reload users from the ACL file."),
            ("LOG [<count> | RESET]", "Show the ACL log entries."),
            ("SAVE", "Save the current users to the ACL file."),
            (
                "SETUSER <username> <attribute> [<attribute> ...]",
                "Create or modify a user with the specified attributes.",
            ),
            ("USERS", "List all the registered usernames."),
            ("WHOAMI", "Return the current connection username."),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
