//! `CLIENT PAUSE`: commands of all clients, or those that write, are held until a moment.
//!
//! A held command has not run: its connection keeps the request and runs it again when the pause
//! ends or changes. So a pause needs no memory but the requests that clients have sent.
//!
//! Invariant: the pause changes under the locks of all keys, and commands with keys look at it
//! again under theirs. So no write of another client is running when `CLIENT PAUSE` replies, and
//! none begins before the end. Commands of a master are not held.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use tokio::sync::watch;

/// The commands that a pause holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PauseMode {
    /// Commands that write, and messages to channels.
    Write,
    /// All commands.
    All,
}

impl PauseMode {
    /// The name in `INFO`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::All => "all",
        }
    }
}

/// A pause and its end.
type Until = (PauseMode, Instant);

/// The pause of clients.
#[derive(Debug)]
pub(crate) struct ClientPause {
    /// Whether there may be one. Commands read this alone while there is none.
    may_hold: AtomicBool,
    until: watch::Sender<Option<Until>>,
}

impl ClientPause {
    /// No pause.
    pub(crate) fn none() -> Self {
        Self { may_hold: AtomicBool::new(false), until: watch::Sender::new(None) }
    }

    /// Holds commands until `end`. A pause that holds more, or longer, stays so. The caller must
    /// hold the locks of all keys.
    pub(crate) fn begin(&self, mode: PauseMode, end: Instant) {
        let now = Instant::now();
        self.until.send_modify(|until| {
            let earlier = until.filter(|(_, earlier)| *earlier > now);
            *until = Some(match earlier {
                Some((earlier_mode, earlier_end)) => (mode.max(earlier_mode), end.max(earlier_end)),
                None => (mode, end),
            });
        });
        self.may_hold.store(true, Ordering::Release);
    }

    /// Ends the pause. Held commands run.
    pub(crate) fn end(&self) {
        self.may_hold.store(false, Ordering::Release);
        self.until.send_replace(None);
    }

    /// The pause, if there is one now.
    pub(crate) fn current(&self) -> Option<Until> {
        if !self.may_hold.load(Ordering::Acquire) {
            return None;
        }
        self.until.borrow().filter(|(_, end)| *end > Instant::now())
    }

    /// Whether a command is held now.
    pub(crate) fn holds(&self, is_write: bool) -> bool {
        self.current().is_some_and(|(mode, _)| is_write || mode == PauseMode::All)
    }

    /// Returns when the pause ends or changes, at once if there is none.
    pub(crate) async fn wait(&self) {
        // Subscribed before the look, so that no change is missed.
        let mut changes = self.until.subscribe();
        let Some((_, end)) = self.current() else { return };
        tokio::select! {
            // The sender lives as long as `self`.
            _ = changes.changed() => {}
            () = tokio::time::sleep_until(end.into()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pause_holds_more_and_longer_but_never_less() {
        let pause = ClientPause::none();
        assert!(!pause.holds(true));
        let (soon, late) =
            (Instant::now() + Duration::from_mins(1), Instant::now() + Duration::from_mins(2));
        pause.begin(PauseMode::Write, late);
        assert_eq!((pause.holds(true), pause.holds(false)), (true, false));
        pause.begin(PauseMode::All, soon);
        assert_eq!(pause.current(), Some((PauseMode::All, late)));
        pause.begin(PauseMode::Write, soon);
        assert_eq!(pause.current(), Some((PauseMode::All, late)));
        pause.end();
        assert_eq!(pause.current(), None);
        // One that has ended leaves nothing to a later one.
        pause.begin(PauseMode::All, Instant::now());
        assert!(!pause.holds(true));
        pause.begin(PauseMode::Write, soon);
        assert_eq!(pause.current(), Some((PauseMode::Write, soon)));
    }
}
