//! The threads that serve connections.
//!
//! Each has a scheduler and a poller of its own, and a connection stays on one thread. With one
//! scheduler over all threads, each request without a pipeline costs a wake of another thread:
//! `SET` took a tenth longer.
//!
//! The other tasks of the server (listeners, HTTP, signals, replication) run elsewhere, so a slow
//! command delays other clients of its thread only.

use std::{
    io,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::watch,
};

/// Longest time that a thread waits at its end for work of connections that did not end.
const END_TIME: Duration = Duration::from_millis(100);

/// Threads that serve connections. Dropping them ends the connections that are left.
#[derive(Debug)]
pub(crate) struct ConnectionThreads {
    handles: Vec<Handle>,
    end: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl ConnectionThreads {
    /// Starts `count` threads. Fails if the system refuses one.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let mut this =
            Self { handles: Vec::new(), end: watch::Sender::new(false), threads: Vec::new() };
        for number in 0..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            this.handles.push(runtime.handle().clone());
            let mut end = this.end.subscribe();
            let serve = move || {
                let _ = runtime.block_on(end.wait_for(|is_ended| *is_ended));
                runtime.shutdown_timeout(END_TIME);
            };
            let named = thread::Builder::new().name(format!("connections-{number}"));
            this.threads.push(named.spawn(serve)?);
        }
        Ok(this)
    }

    /// Runs a connection on the thread that has the fewest.
    pub(crate) fn spawn(&self, serving: impl Future<Output = ()> + Send + 'static) {
        // Only connections run there.
        let least = self.handles.iter().min_by_key(|handle| handle.metrics().num_alive_tasks());
        if let Some(handle) = least {
            handle.spawn(serving);
        }
    }
}

impl Drop for ConnectionThreads {
    fn drop(&mut self) {
        self.end.send_replace(true);
        for thread in self.threads.drain(..) {
            // A panic of a task has been reported.
            let _ = thread.join();
        }
    }
}
