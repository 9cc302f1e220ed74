//! `COMMAND`: what the server knows of its commands.

mod key_flags;

use key_flags::flags_of;

use super::{
    call::{Call, commands},
    generic::reply_help,
};
use crate::{
    failure::{Done, Fail},
    glob,
    resp::{Args, Reply},
    spec::{Group, Keys, Registry, Selection, Spec, flag},
};

commands! { Group::Server;
    "command" -1 [CONTAINER] Keys::None, all, "2.8.13",
        "Returns detailed information about all commands.";
    "command|count" 2 [] Keys::None, count, "2.8.13", "Returns a count of commands.";
    "command|docs" -2 [] Keys::None, docs, "7.0.0",
        "Returns documentary information about one, multiple or all commands.";
    "command|getkeys" -4 [] Keys::None, getkeys, "2.8.13",
        "Extracts the key names from an arbitrary command.";
    "command|getkeysandflags" -4 [] Keys::None, getkeysandflags, "7.0.0",
        "Extracts the key names and access flags for an arbitrary command.";
    "command|help" 2 [] Keys::None, help, "5.0.0",
        "Returns helpful text about the different subcommands.";
    "command|info" -2 [] Keys::None, info, "2.8.13",
        "Returns information about one, multiple or all commands.";
    "command|list" -2 [] Keys::None, list, "7.0.0", "Returns a list of command names.";
}

/// The commands that are no subcommands.
fn top_level(registry: &Registry) -> impl Iterator<Item = &Spec> + Clone {
    registry.specs().iter().filter(|spec| !spec.name.contains('|'))
}

fn subcommands<'r>(
    registry: &'r Registry,
    name: &'r str,
) -> impl Iterator<Item = &'r Spec> + Clone {
    registry
        .specs()
        .iter()
        .filter(move |spec| spec.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('|')))
}

fn describe(reply: &mut Reply, registry: &Registry, spec: &Spec) {
    let (first, last, step) = spec.keys.triple();
    reply.array(10);
    reply.text(spec.name);
    reply.integer(i64::from(spec.arity));
    let flags: Vec<&str> =
        flag::NAMES.iter().filter(|(bit, _)| spec.has(*bit)).map(|(_, name)| *name).collect();
    reply.set(flags.len());
    for name in flags {
        reply.simple(name);
    }
    for number in [first, last, step] {
        reply.integer(number);
    }
    let categories = spec.categories();
    reply.set(categories.len());
    for name in categories {
        reply.simple(&format!("@{name}"));
    }
    reply.array(0);
    reply.array(0);
    reply.array(subcommands(registry, spec.name).count());
    for subcommand in subcommands(registry, spec.name) {
        describe(reply, registry, subcommand);
    }
}

fn all(call: &mut Call<'_, '_>) -> Done {
    let registry = &call.server.registry;
    call.reply.array(top_level(registry).count());
    for spec in top_level(registry) {
        describe(call.reply, registry, spec);
    }
    Ok(())
}

fn count(call: &mut Call<'_, '_>) -> Done {
    call.reply.count(top_level(&call.server.registry).count());
    Ok(())
}

/// The row that a name such as `get` or `client|id` names.
fn by_name<'r>(registry: &'r Registry, name: &[u8]) -> Option<&'r Spec> {
    registry.find(&name.to_ascii_lowercase()).and_then(|at| registry.spec(at))
}

fn info(call: &mut Call<'_, '_>) -> Done {
    if call.args.len() == 2 {
        return all(call);
    }
    call.reply.array(call.args.len() - 2);
    for name in call.args.from(2) {
        match by_name(&call.server.registry, name) {
            Some(spec) => describe(call.reply, &call.server.registry, spec),
            None => call.reply.null_array(),
        }
    }
    Ok(())
}

fn document(reply: &mut Reply, registry: &Registry, spec: &Spec) {
    let has_subcommands = subcommands(registry, spec.name).next().is_some();
    reply.text(spec.name);
    reply.map(3 + usize::from(has_subcommands));
    for (name, value) in
        [("summary", spec.summary), ("since", spec.since), ("group", spec.group.name())]
    {
        reply.text(name);
        reply.text(value);
    }
    if has_subcommands {
        reply.text("subcommands");
        reply.map(subcommands(registry, spec.name).count());
        for subcommand in subcommands(registry, spec.name) {
            document(reply, registry, subcommand);
        }
    }
}

fn docs(call: &mut Call<'_, '_>) -> Done {
    let registry = &call.server.registry;
    let specs: Vec<&Spec> = if call.args.len() == 2 {
        top_level(registry).collect()
    } else {
        call.args.from(2).filter_map(|name| by_name(registry, name)).collect()
    };
    call.reply.map(specs.len());
    for spec in specs {
        document(call.reply, registry, spec);
    }
    Ok(())
}

fn list(call: &mut Call<'_, '_>) -> Done {
    let registry = &call.server.registry;
    let value = call.args.at(4);
    let names: Vec<&str> = if call.args.len() == 2 {
        top_level(registry).map(|spec| spec.name).collect()
    } else if call.args.len() != 5 || !call.args.is(2, "filterby") {
        return Err(Fail::SYNTAX);
    } else if call.args.is(3, "pattern") {
        super::scan::check_pattern(value)?;
        let is_match = |spec: &&Spec| glob::matches(value, spec.name.as_bytes());
        registry.specs().iter().filter(is_match).map(|spec| spec.name).collect()
    } else if call.args.is(3, "aclcat") {
        let is_in = |spec: &&Spec| {
            spec.categories().iter().any(|name| value.eq_ignore_ascii_case(name.as_bytes()))
        };
        registry.specs().iter().filter(is_in).map(|spec| spec.name).collect()
    } else if call.args.is(3, "module") {
        Vec::new()
    } else {
        return Err(Fail::SYNTAX);
    };
    call.reply.array(names.len());
    for name in names {
        call.reply.text(name);
    }
    Ok(())
}

/// Replies the keys of the request behind the subcommand, each as `reply_key` does.
fn reply_keys(
    call: &mut Call<'_, '_>,
    reply_key: impl Fn(&mut Reply, &Spec, usize, Args<'_>, usize),
) -> Done {
    let (buffer, ranges) = call.args.owned_from(2);
    let args = Args::new(&buffer, &ranges);
    let registry = &call.server.registry;
    let Selection::Command(at) = registry.select(args) else {
        return Err(Fail::new("ERR Invalid command specified"));
    };
    let spec = registry.spec(at).ok_or(Fail::NO_SUCH_KEY)?;
    if !spec.accepts(args.len()) {
        return Err(Fail::new("ERR Invalid number of arguments specified for command"));
    }
    if spec.keys == Keys::None {
        return Err(Fail::new("ERR The command has no key arguments"));
    }
    if let Keys::Counted { count, .. } = spec.keys {
        let keys = crate::number::parse_u64(args.at(count)).and_then(|n| usize::try_from(n).ok());
        if !keys.is_some_and(|keys| (1..args.len().saturating_sub(count)).contains(&keys)) {
            return Err(Fail::new("ERR Invalid arguments specified for command"));
        }
    }
    let positions = spec.keys.positions(args);
    if positions.is_empty() {
        return Err(Fail::new("ERR Invalid arguments specified for command"));
    }
    call.reply.array(positions.len());
    for (index, position) in positions.into_iter().enumerate() {
        reply_key(call.reply, spec, index, args, position);
    }
    Ok(())
}

fn getkeys(call: &mut Call<'_, '_>) -> Done {
    reply_keys(call, |reply, _, _, args, position| reply.bulk(args.at(position)))
}

fn getkeysandflags(call: &mut Call<'_, '_>) -> Done {
    reply_keys(call, |reply, spec, index, args, position| {
        let flags = flags_of(spec, index, args);
        reply.array(2);
        reply.bulk(args.at(position));
        reply.set(flags.len());
        for flag in flags {
            reply.simple(flag);
        }
    })
}

fn help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "COMMAND",
        &[
            ("(no subcommand)", "Return details about all Redis commands."),
            ("COUNT", "Return the total number of commands in this Redis server."),
            ("LIST", "Return a list of all commands in this Redis server."),
            ("INFO [<command-name> ...]", "Return details about multiple Redis commands."),
            (
                "DOCS [<command-name> ...]",
                "Return documentation details about multiple Redis commands.",
            ),
            ("GETKEYS <full-command>", "Return the keys from a full Redis command."),
            (
                "GETKEYSANDFLAGS <full-command>",
                "Return the keys and the access flags from a full Redis command.",
            ),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
