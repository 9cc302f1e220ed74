//! Latency events, as `LATENCY` shows them: what took at least `latency-monitor-threshold`
//! milliseconds, with the newest 160 samples of each event.
//!
//! Lock: `events` is held for a sample or a copy only. Without slow work it is not taken.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Samples that are kept of an event, as in Redis.
const SAMPLES_MAX: usize = 160;

/// What can be slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A command that may take long.
    Command,
    /// A command of constant or logarithmic time.
    FastCommand,
    /// A commit: the log was full or memory was short.
    Commit,
    /// The wait for a sync, with `appendfsync always`.
    Sync,
    /// A step of the removal of expired keys.
    ExpireCycle,
}

impl Event {
    /// All events.
    pub(crate) const ALL: [Self; 5] =
        [Self::Command, Self::FastCommand, Self::Commit, Self::Sync, Self::ExpireCycle];

    /// The name in `LATENCY`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::FastCommand => "fast-command",
            Self::Commit => "commit",
            Self::Sync => "sync",
            Self::ExpireCycle => "expire-cycle",
        }
    }

    /// The event of a name.
    pub(crate) fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|event| name.eq_ignore_ascii_case(event.name().as_bytes()))
    }
}

/// A slow moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slow {
    /// When it was, in seconds since 1970.
    pub(crate) second: u64,
    /// How long it took in milliseconds; the longest of its second.
    pub(crate) millis: u64,
}

/// The samples of one event, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSamples {
    /// The samples.
    pub(crate) samples: VecDeque<Slow>,
    /// The longest since the reset, in milliseconds.
    pub(crate) longest: u64,
}

/// All events.
#[derive(Debug, Default)]
pub(crate) struct LatencyMonitor {
    events: Mutex<[EventSamples; Event::ALL.len()]>,
}

impl LatencyMonitor {
    fn events(&self) -> MutexGuard<'_, [EventSamples; Event::ALL.len()]> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sample if it reaches the threshold in milliseconds, unless that is 0.
    pub(crate) fn note(
        &self,
        threshold: u64,
        event: Event,
        duration: Duration,
        second: impl FnOnce() -> u64,
    ) {
        if threshold == 0 || duration < Duration::from_millis(threshold) {
            return;
        }
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (second, mut events) = (second(), self.events());
        let Some((_, own)) = Event::ALL.iter().zip(events.iter_mut()).find(|(e, _)| **e == event)
        else {
            return;
        };
        own.longest = own.longest.max(millis);
        match own.samples.back_mut() {
            Some(last) if last.second == second => last.millis = last.millis.max(millis),
            _ => own.samples.push_back(Slow { second, millis }),
        }
        if own.samples.len() > SAMPLES_MAX {
            own.samples.pop_front();
        }
    }

    /// The events that have samples.
    pub(crate) fn all(&self) -> Vec<(Event, EventSamples)> {
        let events = self.events();
        let all = Event::ALL.into_iter().zip(events.iter().cloned());
        all.filter(|(_, own)| !own.samples.is_empty()).collect()
    }

    /// The samples of an event.
    pub(crate) fn samples(&self, event: Event) -> EventSamples {
        let found = self.all().into_iter().find(|(own, _)| *own == event);
        found.map(|(_, samples)| samples).unwrap_or_default()
    }

    /// Forgets the samples of the events that `is_wanted` names. Returns the number of events.
    pub(crate) fn reset(&self, is_wanted: impl Fn(Event) -> bool) -> usize {
        let mut count = 0;
        for (event, own) in Event::ALL.into_iter().zip(self.events().iter_mut()) {
            if is_wanted(event) && !own.samples.is_empty() {
                *own = EventSamples::default();
                count += 1;
            }
        }
        count
    }

    /// A monitor of syncs that took these milliseconds, each in its second.
    #[cfg(test)]
    pub(crate) fn of_syncs(threshold: u64, samples: &[(u64, u64)]) -> Self {
        let monitor = Self::default();
        for (second, millis) in samples {
            monitor.note(threshold, Event::Sync, Duration::from_millis(*millis), || *second);
        }
        monitor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_reach_the_threshold_and_one_stands_for_its_second() {
        assert!(LatencyMonitor::of_syncs(0, &[(1, 5000)]).all().is_empty());
        let own = LatencyMonitor::of_syncs(10, &[(1, 9), (2, 10), (3, 20), (3, 50), (3, 30)]);
        let samples = own.samples(Event::Sync);
        let expected = [Slow { second: 2, millis: 10 }, Slow { second: 3, millis: 50 }];
        assert_eq!(samples.samples, expected);
        assert_eq!(samples.longest, 50);
        assert_eq!(own.reset(|event| event == Event::Command), 0);
        assert_eq!(own.reset(|_| true), 1);
        assert!(own.all().is_empty());
        let many: Vec<_> = (0..200).map(|second| (second, 10)).collect();
        let samples = LatencyMonitor::of_syncs(10, &many).samples(Event::Sync).samples;
        assert_eq!((samples.len(), samples[0].second), (SAMPLES_MAX, 40));
    }
}
