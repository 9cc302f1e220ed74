//! Runs work beside the threads of connections: hashing passwords, reading and writing the file of
//! users.
//!
//! A command asks for work and returns without a reply. Its connection waits for the answer and
//! runs the command again, which finds the answer in its session. Other connections go on. At most
//! `WORK_MAX` pieces of work run at once, because each hash takes 19 MiB and a processor. A piece
//! that has waited for [`WAIT_TIME`] is refused.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::{sleep_until, timeout};

use crate::state::{Answer, Server, Work};

/// Longest time that a piece waits for its start.
const WAIT_TIME: Duration = Duration::from_secs(30);

/// Runs a piece of work for a client at `ip`. Returns within [`WAIT_TIME`], the pause of the
/// address and the time of the work.
pub(crate) async fn run_work(server: &Arc<Server>, ip: Option<IpAddr>, work: Work) -> Answer {
    let mut has_turn = !matches!(work, Work::Login(_));
    let permit = loop {
        let Ok(permit) = timeout(WAIT_TIME, server.permits.clone().acquire_owned()).await else {
            return Answer::Failed("the server checks many passwords; try again".to_owned());
        };
        let Ok(permit) = permit else { return Answer::Failed("the server ends".to_owned()) };
        if has_turn {
            break permit;
        }
        // Under the permit, so that few logins pass before their failures are counted.
        let now = Instant::now();
        match server.backoff.turn(ip, now) {
            Some(moment) if moment <= now => break permit,
            Some(moment) => {
                drop(permit);
                sleep_until(moment.into()).await;
                has_turn = true;
            }
            None => {
                return Answer::Failed(
                    "many logins of this address have failed; try again in 30 seconds".to_owned(),
                );
            }
        }
    };
    let server = server.clone();
    let answered = tokio::task::spawn_blocking(move || {
        // Held until the work ends, also if the client goes before.
        let _permit = permit;
        match work {
            Work::Login(login) if login.is_right() => Answer::Right,
            Work::Login(login) => {
                let count = server.backoff.failed(ip, Instant::now());
                server.stats.note_failed_login(&login.user, &login.address, count);
                Answer::Wrong
            }
            Work::Change(change) => {
                let changed = change(&server.acl, &|| server.settings.may_be_open());
                // Also if the client of the change has gone.
                server.clients.wake_all();
                changed.map_or_else(Answer::Failed, Answer::Changed)
            }
        }
    });
    answered.await.unwrap_or_else(|error| Answer::Failed(format!("the work failed: {error}")))
}
