//! The server: `INFO`, `CONFIG`, `SLOWLOG`, `SHUTDOWN` and the like.

mod info;

use std::sync::atomic::Ordering;

use zeroize::Zeroizing;

use super::{
    call::{Call, commands},
    generic::reply_help,
};
use crate::{
    acl::User,
    failure::{Done, Fail},
    glob,
    spec::{Group, Keys, REDIS_VERSION},
    state::{Refusal, Server, SettingChange},
    store::now_millis,
};

commands! { Group::Server;
    "config" -2 [CONTAINER SECRET] Keys::None, config_help, "2.0.0",
        "A container for server configuration commands.";
    "config|get" -3 [ADMIN DANGEROUS] Keys::None, config_get, "2.0.0",
        "Returns the effective values of configuration parameters.";
    "config|help" 2 [] Keys::None, config_help, "5.0.0",
        "Returns helpful text about the different subcommands.";
    "config|resetstat" 2 [ADMIN DANGEROUS] Keys::None, config_resetstat, "2.0.0",
        "Resets the server's statistics.";
    "config|set" -4 [ADMIN DANGEROUS SECRET] Keys::None, config_set, "2.0.0",
        "Sets configuration parameters in-flight.";
    "info" -1 [DANGEROUS] Keys::None, info_command, "1.0.0",
        "Returns information and statistics about the server.";
    "lastsave" 1 [FAST ADMIN DANGEROUS] Keys::None, lastsave, "1.0.0",
        "Returns the Unix timestamp of the last successful save to disk.";
    "lolwut" -1 [FAST] Keys::None, lolwut, "5.0.0", "Displays computer art and the Redis version.";
    "monitor" 1 [ADMIN DANGEROUS] Keys::None, monitor, "1.0.0",
        "Listens for all requests received by the server in real-time.";
    "save" 1 [ADMIN DANGEROUS COMMIT_FIRST] Keys::None, save, "1.0.0",
        "Synchronously saves the database(s) to disk.";
    "shutdown" -1 [ADMIN DANGEROUS NO_MULTI] Keys::None, shutdown, "1.0.0",
        "Synchronously saves the database(s) to disk and shuts down the Redis server.";
    "slowlog" -2 [CONTAINER] Keys::None, slowlog_help, "2.2.12",
        "A container for slow log commands.";
    "slowlog|get" -2 [ADMIN DANGEROUS] Keys::None, slowlog_get, "2.2.12",
        "Returns the slow log's entries.";
    "slowlog|help" 2 [] Keys::None, slowlog_help, "6.2.0",
        "Show helpful text about the different subcommands.";
    "slowlog|len" 2 [ADMIN DANGEROUS] Keys::None, slowlog_len, "2.2.12",
        "Returns the number of entries in the slow log.";
    "slowlog|reset" 2 [ADMIN DANGEROUS] Keys::None, slowlog_reset, "2.2.12",
        "Clears all entries from the slow log.";
    "time" 1 [FAST] Keys::None, time, "2.6.0", "Returns the server time.";
}

fn info_command(call: &mut Call<'_, '_>) -> Done {
    let sections: Vec<String> = call
        .args
        .from(1)
        .map(|section| String::from_utf8_lossy(section).to_ascii_lowercase())
        .collect();
    let text = info::text(call.server, call.database().namespace(), &sections);
    call.reply.verbatim(&text);
    Ok(())
}

fn time(call: &mut Call<'_, '_>) -> Done {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    call.reply.array(2);
    call.reply.text(&since.as_secs().to_string());
    call.reply.text(&since.subsec_micros().to_string());
    Ok(())
}

fn lastsave(call: &mut Call<'_, '_>) -> Done {
    // All that is committed is in the log.
    call.reply.integer(i64::try_from(now_millis() / 1000).unwrap_or(0));
    Ok(())
}

fn save(call: &mut Call<'_, '_>) -> Done {
    call.server.store.databases.database().sync()?;
    call.reply.ok();
    Ok(())
}

fn lolwut(call: &mut Call<'_, '_>) -> Done {
    let text = format!("Quintet {} speaks Redis {}\n", env!("CARGO_PKG_VERSION"), REDIS_VERSION);
    call.reply.verbatim(&text);
    Ok(())
}

fn shutdown(call: &mut Call<'_, '_>) -> Done {
    for word in call.args.from(1) {
        match word.to_ascii_lowercase().as_slice() {
            b"nosave" | b"save" | b"now" | b"force" => {}
            b"abort" => return Err(Fail::new("ERR No shutdown in progress.")),
            _ => return Err(Fail::SYNTAX),
        }
    }
    // The client sees the end of the connection, as with Redis.
    call.session.is_closing = true;
    tracing::info!(client = %call.session.client.address, "SHUTDOWN was called");
    call.server.end();
    Ok(())
}

fn monitor(call: &mut Call<'_, '_>) -> Done {
    call.server.clients.add_monitor(&call.session.client);
    call.reply.ok();
    Ok(())
}

fn config_get(call: &mut Call<'_, '_>) -> Done {
    let mut found = Vec::new();
    let settings = call.server.settings.list();
    for (name, value) in settings {
        let is_wanted = call.args.from(2).any(|pattern| {
            pattern.len() <= glob::PATTERN_BYTES_MAX
                && glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes())
        });
        if is_wanted {
            found.push((name, value));
        }
    }
    // Without room, the buffer would leave a copy of a password when it grows.
    let bytes: usize = found.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    call.reply.out.reserve(bytes + 32);
    call.session.has_secret_reply = true;
    call.reply.map(found.len());
    for (name, value) in found {
        call.reply.text(name);
        call.reply.text(&value);
    }
    Ok(())
}

/// Applies changes. Fails without any effect if they remove `requirepass`, other machines reach the
/// server, and the user `default` would need no password.
fn apply(server: &Server, changes: &[(String, SettingChange)]) -> Result<(), Refusal> {
    server.acl.with_default_user(|default| {
        let is_open = default.is_some_and(User::is_open)
            && server.settings.needs_password.load(Ordering::Relaxed);
        let is_cleared = |(_, change): &(String, SettingChange)| {
            matches!(change, SettingChange::Password(password) if password.is_empty())
        };
        if is_open && changes.iter().any(is_cleared) {
            return Err(Refusal::Value(
                "other machines reach this server, and the user 'default' would need no password; \
                 give it one with ACL SETUSER, or switch it off, first"
                    .to_owned(),
            ));
        }
        for (_, change) in changes {
            server.settings.apply(change);
        }
        Ok(())
    })
}

/// The reply for a setting that is refused.
fn refused(name: &str, refusal: Refusal) -> Fail {
    let why = match refusal {
        Refusal::Unknown => {
            return Fail::with(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            ));
        }
        Refusal::Fixed => "can't set immutable config".to_owned(),
        Refusal::Value(why) => why,
    };
    Fail::with(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

/// Changes all settings, or none if one is refused.
fn config_set(call: &mut Call<'_, '_>) -> Done {
    if !call.args.len().is_multiple_of(2) {
        return Err(Fail::new("ERR wrong number of arguments for 'config|set' command"));
    }
    let mut changes: Vec<(String, SettingChange)> = Vec::new();
    let mut words = call.args.from(2);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let value = Zeroizing::new(String::from_utf8_lossy(value).into_owned());
        let change = call.server.settings.check(&name, &value);
        let change = change.map_err(|refusal| refused(&name, refusal))?;
        if changes.iter().any(|(other, _)| *other == name) {
            return Err(refused(&name, Refusal::Value("duplicate parameter".to_owned())));
        }
        changes.push((name, change));
    }
    apply(call.server, &changes).map_err(|refusal| refused("requirepass", refusal))?;
    let mut words = call.args.from(2);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        let setting = String::from_utf8_lossy(name).to_ascii_lowercase();
        let is_secret = ["requirepass", "masterauth"].contains(&setting.as_str());
        let value = if is_secret { "(redacted)".into() } else { String::from_utf8_lossy(value) };
        let client = &call.session.client.address;
        tracing::info!(setting, value = value.as_ref(), %client, "configuration changed");
    }
    call.reply.ok();
    Ok(())
}

fn config_resetstat(call: &mut Call<'_, '_>) -> Done {
    call.server.stats.reset();
    call.reply.ok();
    Ok(())
}

fn config_help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "CONFIG",
        &[
            (
                "GET <pattern>",
                "Return parameters matching the glob-like <pattern> and their values.",
            ),
            ("SET <directive> <value>", "Set the configuration <directive> to <value>."),
            ("RESETSTAT", "Reset statistics reported by the INFO command."),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}

fn slowlog_get(call: &mut Call<'_, '_>) -> Done {
    let count = if call.args.len() > 2 { call.integer(2)? } else { 10 };
    if count < -1 || call.args.len() > 3 {
        return Err(Fail::new("ERR count should be greater than or equal to -1"));
    }
    let mut slow = call.server.stats.slow_commands();
    if let Ok(count) = usize::try_from(count) {
        slow.truncate(count);
    }
    call.reply.array(slow.len());
    for command in slow {
        call.reply.array(6);
        for number in [command.id, command.time, command.micros] {
            call.reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
        }
        call.reply.array(command.args.len());
        for argument in &command.args {
            call.reply.bulk(argument);
        }
        call.reply.text(&command.address);
        call.reply.bulk(&command.name);
    }
    Ok(())
}

fn slowlog_len(call: &mut Call<'_, '_>) -> Done {
    call.reply.count(call.server.stats.slow_commands().len());
    Ok(())
}

fn slowlog_reset(call: &mut Call<'_, '_>) -> Done {
    call.server.stats.reset_slow();
    call.reply.ok();
    Ok(())
}

fn slowlog_help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "SLOWLOG",
        &[
            (
                "GET [<count>]",
                "Return top <count> entries from the slowlog (default: 10, -1 mean all).",
            ),
            ("LEN", "Return the length of the slowlog."),
            ("RESET", "Reset the slowlog."),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
