//! Rights of a connection's user, at each command and again at `EXEC`.
//!
//! Invariant: the user's rules of this moment are compared, also if they changed after `MULTI`.

use std::sync::atomic::Ordering;

use crate::{
    acl::{Denial, LogEntry, Reason},
    failure::Fail,
    resp::Args,
    spec::{Spec, flag},
    state::{Server, Session},
};

/// Returns why the user may not run command number `at`, if so.
pub(super) fn refusal(
    server: &Server,
    session: &mut Session,
    at: usize,
    args: Args<'_>,
) -> Option<Fail> {
    session.refresh_user(&server.acl);
    if session.is_revoked {
        return Some(Fail::new("NOAUTH The user of this connection was removed."));
    }
    let spec = server.registry.spec(at)?;
    // A command in a queue was let in by a connection that had logged in.
    if !session.is_executing && (!session.is_authenticated || spec.has(flag::NO_AUTH)) {
        return None;
    }
    if let Err(denial) = server.acl.check(&session.user, at, args) {
        return Some(refuse(server, session, spec, args, denial));
    }
    if spec.has(flag::ADMIN) && session.user.is_confined() {
        let fail = refuse(server, session, spec, args, Denial::Command);
        return Some(Fail::with(format!("{}, which concerns all namespaces", fail.text())));
    }
    namespace_refusal(session, spec)
}

/// Returns why a command may not run in the namespace of the connection, if so.
pub(super) fn namespace_refusal(session: &Session, spec: &Spec) -> Option<Fail> {
    // What leaves the namespace or the transaction. `EXEC` asks for itself.
    let is_exempt = || {
        spec.has(flag::NO_AUTH)
            || spec.name.starts_with("namespace")
            || matches!(spec.name, "discard" | "exec")
    };
    lost_namespace(session).filter(|_| !is_exempt())
}

/// Returns why nothing may run in the namespace of the connection, if so.
pub(super) fn lost_namespace(session: &Session) -> Option<Fail> {
    if !session.may_stay {
        let name = session.namespace.name();
        return Some(Fail::with(format!(
            "NOPERM this user has no permissions to use the namespace '{name}'"
        )));
    }
    session.namespace.is_dropped().then_some(Fail::NO_NAMESPACE)
}

/// Returns why the user may not run a queued command any more, if so.
pub(super) fn refusal_at_exec(
    server: &Server,
    session: &mut Session,
    at: usize,
    args: Args<'_>,
) -> Option<Fail> {
    let fail = refusal(server, session, at, args)?;
    let Some(why) = fail.text().strip_prefix("NOPERM this user").map(ToOwned::to_owned) else {
        return Some(fail);
    };
    Some(Fail::with(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
         EXEC call. This user{why}"
    )))
}

/// Logs that a user may not run a command. Returns the error.
fn refuse(server: &Server, session: &Session, spec: &Spec, args: Args<'_>, denial: Denial) -> Fail {
    let (reason, object, what) = match denial {
        Denial::Command => {
            let what = format!("run the '{}' command", spec.name);
            (Reason::Command, spec.name.as_bytes(), what)
        }
        Denial::Key(at) => {
            let what = "access one of the keys used as arguments".to_owned();
            (Reason::Key, args.at(at), what)
        }
        Denial::Channel(at) => {
            let what = "access one of the channels used as arguments".to_owned();
            (Reason::Channel, args.at(at), what)
        }
    };
    let client = session.client.describe();
    let mut entry = LogEntry::new(reason, object, &session.user.name, client);
    entry.is_in_multi = session.queue.is_some() || session.is_executing;
    server.acl.log.add(entry, server.settings.acllog_max_len.load(Ordering::Relaxed));
    Fail::with(format!("NOPERM this user has no permissions to {what}"))
}
