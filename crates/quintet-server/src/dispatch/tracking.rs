//! Reads of clients that cache (`state/tracking/`).

use crate::{
    resp::Args,
    spec::{Spec, flag},
    state::{Server, Session, TrackingMode},
};

/// Notes the keys that a command is about to read, if its client caches them. The caller holds the
/// stripes of the keys, so that no change between the read and the note is missed.
pub(super) fn remember(server: &Server, session: &Session, spec: &Spec, args: Args<'_>) {
    let Some(mode) = session.tracking else { return };
    let is_cached = match mode {
        TrackingMode::Reads => true,
        TrackingMode::OptIn => session.is_caching,
        TrackingMode::OptOut => !session.is_caching,
        TrackingMode::Broadcast => false,
    };
    if !is_cached || !spec.has(flag::READ) {
        return;
    }
    let keys = spec.keys.positions(args).into_iter().map(|position| args.at(position));
    let keys = keys.filter(|key| !key.is_empty());
    server.tracking.remember(session.client.id, session.database.namespace(), keys);
}

/// Ends the effect of `CLIENT CACHING` behind the next command, or behind `EXEC`.
pub(super) fn end_caching(session: &mut Session, spec: Option<&Spec>) {
    if session.is_caching && session.queue.is_none() {
        session.is_caching = spec.is_some_and(|spec| spec.name.starts_with("client"));
    }
}
