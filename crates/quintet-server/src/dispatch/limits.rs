//! Limits of commands and of their replies.
//!
//! A command that is beyond the limit of its time or its memory has an error as its reply. Its
//! changes were not committed and are discarded. They are in one commit with the earlier commands
//! of its pipeline, which have the same reply then. A command that only reads discards nothing.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use crate::{
    failure::Fail,
    resp::Reply,
    spec::{Spec, flag},
    state::{OutputExcess, ReplyMode, Server, Session},
    store::Unit,
};

/// Sets the limits of a command, or of the commands of a transaction, that began at `start`. What
/// a master has done must succeed here.
pub(super) fn begin(server: &Server, unit: &mut Unit<'_>, session: &Session, start: Instant) {
    if session.is_link {
        return;
    }
    let millis = server.settings.command_time_limit.load(Ordering::Relaxed);
    unit.limits.begin(start, Duration::from_millis(millis), server.settings.command_bytes_max());
}

/// Whether the failure of a command discards what its unit has changed.
pub(super) fn is_discarding(fail: &Fail, spec: &Spec) -> bool {
    match fail {
        Fail::Message(_) => false,
        Fail::Ended(_) => !spec.has(flag::READ),
        Fail::Store(_) => true,
    }
}

/// Replaces a reply beyond the limit of the client's output by an error. The connection ends
/// behind it.
pub(super) fn limit_reply(session: &mut Session, reply: &mut Reply, start: usize) {
    if !reply.take_overflow() {
        return;
    }
    reply.out.truncate(start);
    // A reply that is not sent breaks no limit.
    if session.reply_mode == ReplyMode::On {
        reply.error("ERR the reply is larger than client-output-buffer-limit allows");
        session.is_closing = true;
        session.client.note_excess(OutputExcess::Hard);
    }
}
