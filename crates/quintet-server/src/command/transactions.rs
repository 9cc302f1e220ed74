//! Transactions. The dispatcher runs `EXEC`.

use std::sync::atomic::Ordering;

use super::call::{Call, commands};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
    state::{Session, name_bytes},
    store::Changes,
};

commands! { Group::Transactions;
    "discard" 1 [FAST NO_MULTI] Keys::None, discard, "2.0.0", "Discards a transaction.";
    "exec" 1 [NO_MULTI] Keys::None, exec_without_multi, "1.2.0",
        "Executes all commands in a transaction.";
    "multi" 1 [FAST NO_MULTI] Keys::None, multi, "1.2.0", "Starts a transaction.";
    "unwatch" 1 [FAST] Keys::None, unwatch, "2.2.0",
        "Forgets about watched keys of a transaction.";
    "watch" -2 [FAST NO_MULTI COMMIT_FIRST] Keys::ALL, watch, "2.2.0",
        "Monitors changes to keys to determine the execution of a transaction.";
}

fn multi(call: &mut Call<'_, '_>) -> Done {
    if call.session.queue.is_some() {
        return Err(Fail::new("ERR MULTI calls can not be nested"));
    }
    call.session.queue = Some(Vec::new());
    call.session.queued_bytes = 0;
    call.session.is_queue_bad = false;
    call.reply.ok();
    Ok(())
}

fn exec_without_multi(_: &mut Call<'_, '_>) -> Done {
    Err(Fail::new("ERR EXEC without MULTI"))
}

fn discard(call: &mut Call<'_, '_>) -> Done {
    if call.session.queue.take().is_none() {
        return Err(Fail::new("ERR DISCARD without MULTI"));
    }
    end_watch(call.session, &call.server.store.changes);
    call.reply.ok();
    Ok(())
}

fn watch(call: &mut Call<'_, '_>) -> Done {
    if call.session.queue.is_some() {
        return Err(Fail::new("ERR WATCH inside MULTI is not allowed"));
    }
    for key in call.args.from(1) {
        let name = (call.session.database, key.to_vec());
        if call.session.watched.iter().any(|(watched, _)| *watched == name) {
            continue;
        }
        let is_present = !key.is_empty() && call.unit.exists(name.0, key)?;
        call.server.store.changes.watch(name.clone(), &call.session.is_watch_broken);
        call.session.name_bytes.0 += name_bytes(key);
        call.session.watched.push((name, is_present));
    }
    call.reply.ok();
    Ok(())
}

fn unwatch(call: &mut Call<'_, '_>) -> Done {
    end_watch(call.session, &call.server.store.changes);
    call.reply.ok();
    Ok(())
}

/// Ends the watch of all keys of a connection.
pub(crate) fn end_watch(session: &mut Session, changes: &Changes) {
    if !session.watched.is_empty() {
        let names: Vec<_> = session.watched.drain(..).map(|(name, _)| name).collect();
        changes.unwatch(&names, &session.is_watch_broken);
        session.name_bytes.0 = 0;
    }
    session.is_watch_broken.store(false, Ordering::Release);
}
