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

/// Whether a pause holds a command now. `EXEC` is asked with [`is_exec_held`].
pub(super) fn is_held(server: &Server, session: &Session, spec: &Spec) -> bool {
    // An answer is that of work which the command has begun.
    let may_hold = session.answer.is_none() && !EXEMPT.contains(&spec.name);
    may_hold && holds(server, session, || is_write(spec))
}

/// Whether a pause holds the execution of queued commands now.
pub(super) fn is_exec_held(
    server: &Server,
    session: &Session,
    commands: &[Command],
    queue: &[Queued],
) -> bool {
    let specs = || queue.iter().filter_map(|queued| commands.get(queued.command));
    holds(server, session, || specs().any(|command| is_write(&command.spec)))
}

fn holds(server: &Server, session: &Session, is_write: impl Fn() -> bool) -> bool {
    // Almost always there is no pause.
    server.pause.current().is_some() && !session.is_link && server.pause.holds(is_write())
}
