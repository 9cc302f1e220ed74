//! Logins: `AUTH`, and the part of `HELLO` that logs in.
//!
//! The first run of a command asks for the check of its password, which hashes on another thread.
//! The second run finds the answer (`work.rs`).

use zeroize::Zeroizing;

use super::call::{Call, commands};
use crate::{
    acl::{DEFAULT_USER, LogEntry, Login, Reason},
    failure::{Done, Fail},
    spec::{Group, Keys},
    state::{Answer, Work},
};

commands! { Group::Connection;
    "auth" -2 [FAST NO_AUTH NO_MULTI SECRET] Keys::None, auth, "1.0.0",
        "Authenticates the connection.";
}

const WRONG: Fail = Fail::new("WRONGPASS invalid username-password pair or user is disabled.");

/// Most bytes of the name of a user that does not exist, in the log.
const SHOWN_BYTES_MAX: usize = 64;

/// How far a login is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The password is being checked. The command runs again.
    Waits,
    /// The connection belongs to the user.
    Succeeded,
}

fn shown(name: &[u8]) -> String {
    let shown = name.get(..SHOWN_BYTES_MAX).unwrap_or(name);
    shown.escape_ascii().to_string()
}

/// Logs a user in. Fails with `WRONGPASS` without saying whether the user exists.
pub(super) fn log_in(call: &mut Call<'_, '_>, name: &[u8], password: &[u8]) -> Done<Progress> {
    let user = std::str::from_utf8(name).ok().and_then(|name| call.server.acl.user(name));
    let user = user.filter(|user| user.is_enabled);
    let is_default = name == DEFAULT_USER.as_bytes();
    let plain = is_default.then(|| call.server.settings.password());
    let plain = plain.filter(|plain| !plain.is_empty());
    let databases = &call.server.store.databases;
    match call.session.answer.take() {
        None => {
            let nopass = user.as_ref().filter(|user| user.is_nopass && plain.is_none());
            if let Some(user) = nopass {
                call.session.log_in(&call.server.acl, user.clone(), databases)?;
                return Ok(Progress::Succeeded);
            }
            call.session.work = Some(Work::Login(Login {
                password: Zeroizing::new(password.to_vec()),
                plain,
                hashes: user.map(|user| user.hashes.clone()),
                user: shown(name),
                address: call.session.client.address.clone(),
            }));
            Ok(Progress::Waits)
        }
        Some(Answer::Right) => {
            call.session.log_in(&call.server.acl, user.ok_or(WRONG)?, databases)?;
            Ok(Progress::Succeeded)
        }
        Some(Answer::Failed(why)) => Err(Fail::with(format!("ERR {why}"))),
        Some(Answer::Wrong | Answer::Changed(_)) => {
            let object = call.args.at(0).to_ascii_lowercase();
            let client = call.session.client.describe();
            let entry = LogEntry::new(Reason::Auth, &object, &shown(name), client);
            let max = &call.server.settings.acllog_max_len;
            call.server.acl.log.add(entry, max.load(std::sync::atomic::Ordering::Relaxed));
            Err(WRONG)
        }
    }
}

fn auth(call: &mut Call<'_, '_>) -> Done {
    let (name, password) = match call.args.len() {
        2 => {
            let is_open = call.server.settings.password().is_empty()
                && call.server.acl.default_user().is_nopass;
            if is_open {
                return Err(Fail::new(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                ));
            }
            (DEFAULT_USER.as_bytes(), call.args.at(1))
        }
        3 => (call.args.at(1), call.args.at(2)),
        _ => return Err(Fail::SYNTAX),
    };
    if log_in(call, name, password)? == Progress::Succeeded {
        call.reply.ok();
    }
    Ok(())
}
