//! Replication: the server follows a Redis server (`REPLICAOF`), so that data moves here while
//! clients still write there.
//!
//! A task connects, asks for the commands since its position, and applies those that arrive
//! ([`apply`]). If the master cannot continue from there, it sends a dump ([`full_sync`]). The dump
//! is received whole and checked before the old keys are removed. After a failure the task connects
//! again, each time later.
//!
//! Invariants:
//! - Each commit of replicated commands has the position behind them in the same batch. So a
//!   restart continues where the data is. No command takes effect twice.
//! - `MULTI` and `EXEC` with the commands between them are one commit.
//! - No command of a former master is applied once `REPLICAOF` has replied.

mod apply;
mod full_sync;
mod link;

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    dispatch::Dispatcher,
    state::{AppendFsync, LinkState, Master, Server},
};
use apply::Applier;
use link::{Link, LinkFailure, Linked, SILENCE_TIME, SyncReply};

/// First pause before another try, which doubles up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Time between two acknowledgements, as in Redis.
const ACKNOWLEDGE_TIME: Duration = Duration::from_secs(1);

/// Follows the master of `REPLICAOF` until the server ends.
pub(crate) async fn run(server: Arc<Server>, dispatcher: Arc<Dispatcher>) {
    let mut target = server.replication.target.subscribe();
    let mut ending = server.ending.subscribe();
    loop {
        let (epoch, master) = target.borrow_and_update().clone();
        let Some(master) = master else {
            tokio::select! {
                _ = target.changed() => continue,
                _ = ending.wait_for(|is_ending| *is_ending) => break,
            }
        };
        tokio::select! {
            never = follow(&server, &dispatcher, &master, epoch) => match never {},
            _ = target.changed() => {}
            _ = ending.wait_for(|is_ending| *is_ending) => break,
        }
    }
    // A load sees that the server ends. The database must not be closed before.
    let own = server.clone();
    let _ = tokio::task::spawn_blocking(move || drop(own.replication.lock_load())).await;
}

/// Connects again and again. Waits for ever after a failure that stays.
async fn follow(
    server: &Arc<Server>,
    dispatcher: &Arc<Dispatcher>,
    master: &Master,
    epoch: u64,
) -> Infallible {
    let mut pause = PAUSE_MIN;
    loop {
        let Err(failure) = link(server, dispatcher, master, epoch).await;
        server.replication.note(|status| {
            if status.state == LinkState::Connected {
                pause = PAUSE_MIN;
            }
            status.state = if failure.is_final { LinkState::Stopped } else { LinkState::Connect };
            status.error = Some(failure.text);
            status.down.get_or_insert_with(Instant::now);
        });
        if failure.is_final {
            return std::future::pending().await;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Connects once, and applies commands until the link fails.
async fn link(
    server: &Arc<Server>,
    dispatcher: &Arc<Dispatcher>,
    master: &Master,
    epoch: u64,
) -> Linked<Infallible> {
    let replication = &server.replication;
    replication.note(|status| status.state = LinkState::Connecting);
    let mut link = Link::connect(master).await?;
    link.introduce(server).await?;
    let known = replication.status().position;
    let position = match (link.synchronize(known.as_ref()).await?, known) {
        (SyncReply::Full(position), _) => {
            replication.note(|status| status.state = LinkState::Sync);
            full_sync::synchronize(server, &mut link, epoch, &position).await?;
            position
        }
        (SyncReply::Continue(id), Some(mut position)) => {
            position.id = id.unwrap_or(position.id);
            replication.note(|status| status.partial_syncs += 1);
            position
        }
        (SyncReply::Continue(_), None) => {
            return Err(LinkFailure::passing(format!("{master} continues what has not begun")));
        }
    };
    replication.note(|status| {
        status.state = LinkState::Connected;
        status.error = None;
        status.down = None;
        status.heard = Some(Instant::now());
    });
    let mut applier = Applier::new(server, dispatcher, master.to_string(), (epoch, position));
    link.acknowledge(applier.committed.offset).await?;
    apply(server, &mut link, &mut applier).await
}

async fn apply(server: &Arc<Server>, link: &mut Link, applier: &mut Applier) -> Linked<Infallible> {
    let mut tick = tokio::time::interval(ACKNOWLEDGE_TIME);
    let mut heard = Instant::now();
    loop {
        let step = applier.step(&link.buffer)?;
        link.buffer.drain(..step.used);
        if step.has_committed && server.settings.appendfsync() == AppendFsync::Always {
            server.syncer.sync().await.map_err(LinkFailure::lasting)?;
        }
        if step.must_acknowledge {
            link.acknowledge(applier.committed.offset).await?;
        }
        tokio::select! {
            read = link.read() => {
                read?;
                heard = Instant::now();
            }
            _ = tick.tick() => {
                if heard.elapsed() > SILENCE_TIME {
                    return Err(LinkFailure::passing("the master is silent"));
                }
                link.acknowledge(applier.committed.offset).await?;
            }
        }
    }
}
