//! `MONITOR`: clients that receive every command.

use std::{fmt::Write as _, sync::atomic::Ordering};

use crate::{
    resp::Args,
    state::{Server, Session},
    store::now_millis,
};

/// Sends a command to the clients that have asked for all.
pub(super) fn monitor(server: &Server, session: &Session, args: Args<'_>) {
    let is_secret = ["auth", "hello", "config", "acl"].iter().any(|name| args.is(0, name));
    let now = now_millis();
    let mut line = format!(
        "{}.{:03}000 [{} {}]",
        now / 1000,
        now % 1000,
        session.database.index(),
        session.client.address
    );
    for word in args.from(0).take(if is_secret { 1 } else { usize::MAX }) {
        // A write to a string cannot fail.
        let _ = write!(line, " \"{}\"", word.escape_ascii());
    }
    for client in server.clients.all() {
        if client.is_monitor.load(Ordering::Acquire) {
            client.push(|reply| reply.simple(&line));
        }
    }
}
