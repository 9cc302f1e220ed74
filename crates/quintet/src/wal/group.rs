//! Group commit: many writers share one sync.
//!
//! What: whoever needs the log durable past an LSN joins a group. One of the group leads: it syncs
//! for all and wakes them. The others park, each on a word of its own.
//! Why: a sync costs as much as hundreds of commits, and waking everybody through one condition
//! variable costs as much again as the sync.
//!
//! When a group starts its sync (the cohort rule): a writer that finds nobody else about leads at
//! once. Else the last sync's members are about to return, and the group waits for them: the one
//! whose arrival makes it complete leads. If arrivals pause for half a sync's time, whoever waits
//! longest (the *gatherer*) leads with those that have come. So a lone writer never waits, and a
//! crowd shares each sync almost whole, with one park and one wake a commit.
//!
//! Invariants: at most one leader; while there are waiters there is a leader or a gatherer; a
//! parked waiter is woken with an outcome that covers it, or to lead or gather.
//!
//! Thread rules: any thread. The state's lock is held for list operations only, never across a
//! sync or a wake. Source: PERFORMANCE.md 5.6 (the family of Aether and ELEDA); the cohort rule is
//! ours.

use std::{mem, time::Duration};

use crate::util::{
    codec::Lsn,
    sync::{Arc, AtomicU32, AtomicU64, Mutex, Ordering, Thread, lock, park_timeout, thread},
};

/// What a parked waiter's word says.
const WAITING: u32 = 0;
const DONE: u32 = 1;
const LEAD: u32 = 2;
const GATHER: u32 = 3;

/// The longest pause in arrivals that a gatherer waits out, whatever a sync takes.
const PAUSE_MAX: Duration = Duration::from_millis(1);

#[derive(Debug)]
struct Word {
    state: AtomicU32,
    thread: Thread,
    /// Whom this one wakes in turn.
    followers: Mutex<Vec<Arc<Word>>>,
}

impl Word {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU32::new(WAITING),
            thread: thread::current(),
            followers: Mutex::new(Vec::new()),
        })
    }

    fn set(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        self.thread.unpark();
    }
}

/// Tells all of `words` that they are done. Waking is most of what a commit in a crowd costs, so
/// the woken share the work: each of the first wakes a part of the rest.
fn wake(words: Vec<Arc<Word>>) {
    /// Wakes by the caller itself.
    const HEADS: usize = 8;
    let mut words = words.into_iter();
    let heads: Vec<Arc<Word>> = words.by_ref().take(HEADS).collect();
    let share = words.len().div_ceil(HEADS);
    for head in heads {
        lock(&head.followers).extend(words.by_ref().take(share));
        head.set(DONE);
    }
}

#[derive(Debug)]
struct Waiter {
    end: Lsn,
    word: Arc<Word>,
}

#[derive(Debug, Default)]
struct State {
    /// Somebody leads. Then nobody gathers.
    led: bool,
    /// Who gathers: one of the waiters, its word says so.
    gatherer: Option<Arc<Word>>,
    waiters: Vec<Waiter>,
    /// How many a full group has, the leader included.
    cohort: usize,
    /// What the last sync took.
    sync_time: Duration,
}

impl State {
    /// The caller leads from now on; a gatherer becomes a plain waiter.
    fn take_lead(&mut self) {
        self.led = true;
        if let Some(word) = self.gatherer.take() {
            // Fails only for the gatherer's own lead.
            let _ =
                word.state.compare_exchange(GATHER, WAITING, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    fn appoint_gatherer(&mut self, word: &Arc<Word>) {
        word.state.store(GATHER, Ordering::Release);
        self.gatherer = Some(Arc::clone(word));
    }
}

/// The meeting place.
#[derive(Debug)]
pub(super) struct Group {
    state: Mutex<State>,
    durable: AtomicU64,
}

/// What a leader's sync is asked to do.
pub(super) trait Sync {
    /// Makes the log durable at least to `end`; returns how far it is now.
    fn sync_to(&self, end: Lsn) -> crate::Result<Lsn>;
    /// Whether the log has failed: then nobody is to wait any more.
    fn check(&self) -> crate::Result<()>;
    /// Time that never goes back.
    fn now(&self) -> Duration;
}

impl Group {
    pub(super) fn new(durable: Lsn) -> Self {
        Self { state: Mutex::new(State::default()), durable: AtomicU64::new(durable.0) }
    }

    /// Everything below is durable.
    pub(super) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Returns when everything below `end` is durable, or with the failure that prevents it.
    pub(super) fn wait(&self, end: Lsn, log: &impl Sync) -> crate::Result<()> {
        while self.durable() < end {
            log.check()?;
            if self.join(end) {
                self.lead(end, log)?;
            }
        }
        Ok(())
    }

    /// Whether the caller is to lead. If not, a sync that covers `end` has ended, well or not.
    fn join(&self, end: Lsn) -> bool {
        let word = {
            let mut state = lock(&self.state);
            if self.durable() >= end {
                return false;
            }
            if !state.led && state.waiters.len() + 1 >= state.cohort - state.cohort / 8 {
                state.take_lead();
                return true;
            }
            let word = Word::new();
            state.waiters.push(Waiter { end, word: Arc::clone(&word) });
            if !state.led && state.gatherer.is_none() {
                state.appoint_gatherer(&word);
            }
            word
        };
        loop {
            match word.state.load(Ordering::Acquire) {
                WAITING => thread::park(),
                GATHER => {
                    if self.gather(&word) {
                        return true;
                    }
                }
                LEAD => return true,
                _ => {
                    wake(mem::take(&mut *lock(&word.followers)));
                    return false;
                }
            }
        }
    }

    /// One pause of the gatherer's. Whether it leads now, because nobody arrived meanwhile.
    fn gather(&self, word: &Arc<Word>) -> bool {
        let (seen, pause) = {
            let state = lock(&self.state);
            (state.waiters.len(), (state.sync_time / 2).min(PAUSE_MAX))
        };
        park_timeout(pause);
        let mut state = lock(&self.state);
        let gathers = word.state.load(Ordering::Acquire) == GATHER;
        if !gathers || state.waiters.len() != seen {
            return false;
        }
        state.take_lead();
        state.waiters.retain(|waiter| !Arc::ptr_eq(&waiter.word, word));
        true
    }

    fn lead(&self, end: Lsn, log: &impl Sync) -> crate::Result<()> {
        let start = log.now();
        let outcome = log.sync_to(end);
        if let Ok(durable) = &outcome {
            self.durable.fetch_max(durable.0, Ordering::AcqRel);
        }
        self.hand_over(outcome.is_err(), log.now().saturating_sub(start));
        outcome.map(drop)
    }

    /// Wakes those who are covered (all, after a failure) and leaves the rest a gatherer, or a
    /// leader where they are a full group already.
    fn hand_over(&self, failed: bool, sync_time: Duration) {
        let durable = self.durable();
        let (covered, next) = {
            let mut state = lock(&self.state);
            let (covered, rest): (Vec<_>, Vec<_>) = mem::take(&mut state.waiters)
                .into_iter()
                .partition(|waiter| failed || waiter.end <= durable);
            state.waiters = rest;
            state.sync_time = sync_time;
            state.cohort = covered.len() + 1 + state.waiters.len();
            // More than half are here already: they need not wait for the others.
            state.led = state.waiters.len() * 2 > state.cohort;
            let next = if state.led {
                let next = state.waiters.pop().map(|waiter| waiter.word);
                next.inspect(|word| word.state.store(LEAD, Ordering::Release))
            } else {
                let next = state.waiters.first().map(|waiter| Arc::clone(&waiter.word));
                next.inspect(|word| state.appoint_gatherer(word))
            };
            (covered, next)
        };
        if let Some(word) = next {
            word.thread.unpark();
        }
        wake(covered.into_iter().map(|waiter| waiter.word).collect());
    }
}
