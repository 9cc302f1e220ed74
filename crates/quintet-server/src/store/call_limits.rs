//! Limits of one command: its time, and the memory that it collects before it replies.
//!
//! A client chooses how much a command visits: a key may have a billion elements. A command counts
//! the elements that it visits and the bytes that it copies. Beyond a limit the visit ends, and the
//! dispatcher replaces the reply by an error and discards the changes. So a limit never stops a
//! commit, and a command beyond it has no effect.
//!
//! Bytes are those that the running command collects, and those of the values that its unit has
//! loaded or changed. The command's are freed at its end, the unit's at its commit.
//!
//! Commands of a master, the sweep and imports have no limits: they must not fail.

use std::{
    cell::Cell,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use crate::failure::{Done, Fail};

/// Elements between two looks at the clock. A look takes as long as some elements.
const STEPS: u32 = 256;

/// Bytes of memory that a copied element takes beside its own.
pub(crate) const ELEMENT_BYTES: usize = 64;

/// The limit that a command is beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    Time,
    Bytes,
}

/// The limits of the running command, and what it has used of them.
#[derive(Debug)]
pub(crate) struct CallLimits {
    deadline: Option<Instant>,
    time: Duration,
    bytes_max: usize,
    /// Bytes of the running command.
    bytes: Cell<usize>,
    /// Bytes of values that the unit has loaded or changed.
    loaded: Cell<usize>,
    steps: Cell<u32>,
    excess: Cell<Option<Excess>>,
}

impl CallLimits {
    /// No limits.
    pub(crate) fn none() -> Self {
        Self {
            deadline: None,
            time: Duration::ZERO,
            bytes_max: usize::MAX,
            bytes: Cell::new(0),
            loaded: Cell::new(0),
            steps: Cell::new(0),
            excess: Cell::new(None),
        }
    }

    /// Limits a command, or the commands of a transaction, that began at `start`. A `time` of zero
    /// is no limit.
    pub(crate) fn begin(&mut self, start: Instant, time: Duration, bytes_max: usize) {
        self.time = time;
        self.deadline = if time.is_zero() { None } else { start.checked_add(time) };
        self.bytes_max = bytes_max;
        self.steps.set(0);
        self.bytes.set(0);
        self.excess.set(None);
    }

    /// Ends a command, whose bytes are free. An excess is the command's alone: what runs between
    /// commands must not fail for it.
    pub(super) fn end_command(&self) {
        self.bytes.set(0);
        self.excess.set(None);
    }

    /// Ends a unit, whose values are free.
    pub(super) fn end_unit(&self) {
        self.loaded.set(0);
        self.bytes.set(0);
    }

    /// Counts an element that is visited. `Break` beyond a limit, also one that was passed before.
    pub(crate) fn step(&self) -> ControlFlow<()> {
        let steps = self.steps.get() + 1;
        if steps < STEPS && self.excess.get().is_none() {
            self.steps.set(steps);
            return ControlFlow::Continue(());
        }
        self.look()
    }

    /// Looks at the clock, before or behind a part of a command that takes longer than a visit.
    pub(crate) fn look(&self) -> ControlFlow<()> {
        self.steps.set(0);
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.excess.set(self.excess.get().or(Some(Excess::Time)));
        }
        self.flow()
    }

    /// Counts bytes that the command copies for an element. `Break` beyond a limit.
    pub(crate) fn hold(&self, bytes: usize) -> ControlFlow<()> {
        self.bytes.set(self.bytes.get().saturating_add(bytes).saturating_add(ELEMENT_BYTES));
        self.check_bytes()
    }

    /// Counts bytes of a value that the unit keeps until its commit. `Break` beyond a limit.
    pub(crate) fn load(&self, bytes: usize) -> ControlFlow<()> {
        self.loaded.set(self.loaded.get().saturating_add(bytes).saturating_add(ELEMENT_BYTES));
        self.check_bytes()
    }

    /// Bytes of values that the unit keeps.
    pub(super) fn loaded(&self) -> usize {
        self.loaded.get()
    }

    fn check_bytes(&self) -> ControlFlow<()> {
        if self.bytes.get().saturating_add(self.loaded.get()) > self.bytes_max {
            self.excess.set(self.excess.get().or(Some(Excess::Bytes)));
        }
        self.flow()
    }

    fn flow(&self) -> ControlFlow<()> {
        if self.excess.get().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Fails if the command is beyond a limit.
    pub(crate) fn check(&self) -> Done {
        let text = match self.excess.get() {
            None => return Ok(()),
            Some(Excess::Time) => format!(
                "ERR a command took longer than command-time-limit, {} ms, and had no effect",
                self.time.as_millis()
            ),
            Some(Excess::Bytes) => format!(
                "ERR a command needs more memory than command-memory-limit, {} bytes, and had no \
                 effect; ask for a smaller part",
                self.bytes_max
            ),
        };
        Err(Fail::Ended(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(limits: &CallLimits) -> String {
        limits.check().unwrap_err().text()
    }

    #[test]
    fn a_deadline_that_has_passed_ends_a_visit_at_the_next_look() {
        let mut limits = CallLimits::none();
        assert!((0..10 * STEPS).all(|_| limits.step().is_continue()));
        let start = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        limits.begin(start, Duration::from_millis(5), usize::MAX);
        let steps = (0..10 * STEPS).take_while(|_| limits.step().is_continue()).count();
        assert_eq!(steps, usize::try_from(STEPS).unwrap() - 1);
        assert!(limits.step().is_break(), "it stays beyond");
        assert!(text(&limits).contains("command-time-limit, 5 ms"), "{}", text(&limits));
        limits.begin(start, Duration::ZERO, usize::MAX);
        assert!(limits.look().is_continue(), "zero is no limit");
        limits.check().unwrap();
    }

    #[test]
    fn bytes_of_a_command_and_of_its_unit_count_together_until_they_are_free() {
        let mut limits = CallLimits::none();
        limits.begin(Instant::now(), Duration::ZERO, 1000);
        assert!(limits.hold(300).is_continue());
        assert!(limits.load(300).is_continue());
        limits.end_command();
        assert!(limits.hold(300).is_continue());
        assert!(limits.hold(300).is_break());
        assert!(text(&limits).contains("command-memory-limit, 1000 bytes"), "{}", text(&limits));
        assert!(limits.step().is_break(), "a visit ends too");
        limits.end_command();
        limits.end_unit();
        assert!(limits.load(300).is_continue(), "the excess has ended with its command");
        limits.begin(Instant::now(), Duration::ZERO, 1000);
        assert!(limits.hold(500).is_continue());
        assert!(limits.hold(usize::MAX).is_break());
    }
}
