//! Which commands a pause of clients holds.
//!
//! A command is asked before it runs, and again when it has the locks of its keys: the pause began
//! under the locks of all keys.

use crate::{
    command::call::Command,
    spec::{Spec, flag},
    state::{Queued, Server, Session},
};

/// Commands that no pause holds, so that an administrator can log in and end it.
const EXEMPT: [&str; 4] = ["auth", "client|unpause", "hello", "quit"];

/// Whether a pause of writes holds a command.
fn is_write(spec: &Spec) -> bool {
    spec.has(flag::WRITE) || ["publish", "spublish"].contains(&spec.name)
}

/// Whether a pause holds a command now. For `EXEC`, `queue` has the commands of the transaction.
pub(super) fn is_held(
    server: &Server,
    session: &Session,
    spec: &Spec,
    (commands, queue): (&[Command], &[Queued]),
) -> bool {
    // Almost always there is no pause.
    if server.pause.current().is_none() {
        return false;
    }
    // An answer is that of work which the command has begun.
    if session.is_link || session.answer.is_some() || EXEMPT.contains(&spec.name) {
        return false;
    }
    let is_queued_write =
        |queued: &Queued| commands.get(queued.command).is_some_and(|c| is_write(&c.spec));
    let is_write = is_write(spec) || (spec.name == "exec" && queue.iter().any(is_queued_write));
    server.pause.holds(is_write)
}
