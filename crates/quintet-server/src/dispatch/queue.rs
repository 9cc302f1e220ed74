//! Commands that `MULTI` queues, within limits of their number and of their bytes.
//!
//! A command beyond a limit is an error, and `EXEC` then discards the transaction.

use crate::{
    resp::{Args, Reply},
    spec::flag,
    state::{Queued, Server, Session},
};

/// Most commands of a transaction.
const QUEUE_MAX: usize = 65_536;

/// Queues a command of a transaction, at a position of the table.
pub(super) fn queue(
    server: &Server,
    session: &mut Session,
    reply: &mut Reply,
    command: usize,
    args: Args<'_>,
) {
    let Some(queue) = &mut session.queue else { return };
    if session.is_queue_bad {
        // `EXEC` discards all, so there is no use in keeping more.
        reply.simple("QUEUED");
        return;
    }
    if queue.len() >= QUEUE_MAX {
        session.is_queue_bad = true;
        reply.error("ERR too many commands in a transaction; the limit is 65536");
        return;
    }
    let range = size_of::<(usize, usize)>();
    let bytes = size_of::<Queued>() + args.from(0).map(|arg| arg.len() + range).sum::<usize>();
    let max = server.settings.query_bytes_max();
    // The link to a master applies what the master has accepted.
    if session.queued_bytes.saturating_add(bytes) > max && !session.is_link {
        session.is_queue_bad = true;
        // None of them runs any more.
        queue.clear();
        queue.shrink_to_fit();
        session.queued_bytes = 0;
        reply.error(&format!(
            "ERR the commands since MULTI have more bytes than client-query-buffer-limit, {max}"
        ));
        return;
    }
    let (buffer, ranges) = args.owned_from(0);
    let is_secret = server.registry.spec(command).is_some_and(|spec| spec.has(flag::SECRET));
    queue.push(Queued { command, buffer, ranges, is_secret });
    session.queued_bytes += bytes;
    reply.simple("QUEUED");
}
