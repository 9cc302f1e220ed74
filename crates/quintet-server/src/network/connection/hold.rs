//! A request that `CLIENT PAUSE` holds.
//!
//! The connection keeps the request in its buffer and runs it when the pause ends or changes. It
//! reads at most [`AHEAD_BYTES_MAX`] ahead, and sends messages meanwhile.

use std::{pin::pin, sync::atomic::Ordering, time::Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use super::{AHEAD_BYTES_MAX, Connection, EndOfConnection};

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Waits until the pause that holds the request ends or changes. The request runs again then.
    pub(super) async fn hold(&mut self) -> Result<(), EndOfConnection> {
        self.session.is_held = false;
        self.session.client.info().is_held = true;
        let held = self.wait_for_pause().await;
        self.session.client.info().is_held = false;
        self.active = Instant::now();
        // The request is parsed again, from its beginning.
        self.parser.reset();
        held
    }

    async fn wait_for_pause(&mut self) -> Result<(), EndOfConnection> {
        let (wake, server) = (self.session.client.wake.clone(), self.server.clone());
        let mut ended = pin!(server.pause.wait());
        loop {
            let may_read = self.buffer.len() - self.start < AHEAD_BYTES_MAX;
            tokio::select! {
                biased;
                () = &mut ended => return Ok(()),
                _ = self.ending.changed() => return Err(EndOfConnection),
                () = wake.notified() => self.sync_and_write(false).await?,
                count = self.stream.read_buf(&mut self.buffer), if may_read => {
                    if count? == 0 {
                        return Err(EndOfConnection);
                    }
                    self.note_memory();
                    if self.session.client.is_killed.load(Ordering::Acquire) {
                        return Err(EndOfConnection);
                    }
                }
            }
        }
    }
}
