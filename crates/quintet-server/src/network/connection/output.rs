//! Writes the output of a connection within its limits.
//!
//! The task of a connection does not read while it writes, so a client that does not read its
//! output sends no further requests. It is ended when it takes too long, and when its output is
//! above a limit of its class. It is also ended when it is killed: a client that does not read must
//! not keep the task.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    time::{sleep_until, timeout_at},
};

use crate::state::{Client, OutputExcess, Server, Stats};

/// Time in which a client must take what is written to it.
const WRITE_TIME: Duration = Duration::from_secs(30);

/// The connection ends, for whatever reason.
#[derive(Debug)]
pub(super) struct EndOfConnection;

impl From<std::io::Error> for EndOfConnection {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

/// Writes all bytes. Messages that come meanwhile wait in the outbox of the client, and count.
pub(super) async fn write_output<S: AsyncWrite + Unpin>(
    server: &Server,
    stream: &mut S,
    mut output: &[u8],
    client: &Client,
) -> Result<(), EndOfConnection> {
    let deadline = Instant::now() + WRITE_TIME;
    let mut was_woken = false;
    while !output.is_empty() {
        let now = Instant::now();
        let (excess, soft_deadline) = client.check_output(output.len(), now);
        if let Some(excess) = excess {
            client.note_excess(excess);
            return Err(EndOfConnection);
        }
        if client.is_killed.load(Ordering::Acquire) || now >= deadline {
            return Err(EndOfConnection);
        }
        let next = soft_deadline.map_or(deadline, |soft| soft.min(deadline));
        tokio::select! {
            biased;
            written = stream.write(output) => {
                let written = written?;
                if written == 0 {
                    return Err(EndOfConnection);
                }
                output = output.get(written..).unwrap_or(&[]);
            }
            () = client.wake.notified() => {
                was_woken = true;
                server.end_largest_clients();
            }
            () = sleep_until(next.into()) => {}
        }
    }
    // A stream with TLS keeps what it has encrypted.
    let flushed = timeout_at(deadline.into(), stream.flush()).await;
    flushed.map_err(|_| EndOfConnection)??;
    // The time above the soft limit ends here, unless messages that wait are above it too.
    client.check_output(0, Instant::now());
    if was_woken {
        // The task sees the messages and the keys that have come meanwhile.
        client.wake.notify_one();
    }
    Ok(())
}

/// Counts a client that has ended because of its output, and logs it.
pub(super) fn note_end(server: &Server, client: &Client) {
    let Some(excess) = client.excess() else { return };
    Stats::add(&server.stats.output_disconnections, 1);
    if let Some(left_out) = server.stats.log_limits.ended.admit() {
        let limit = match excess {
            OutputExcess::Hard => "hard",
            OutputExcess::Soft => "soft",
        };
        tracing::warn!(
            id = client.id, client = %client.address, limit, left_out,
            "client ended: its output is above client-output-buffer-limit"
        );
    }
}
