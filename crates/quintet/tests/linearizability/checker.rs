//! Decides whether the operations on one key are linearizable: whether each can have taken effect
//! at one instant between its call and its return. The algorithm is that of Wing and Gong (1993),
//! with Lowe's cache of visited configurations.
//!
//! The object is a register that may be empty. Values are numbers. The recorder of a history gives
//! each write a different number.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

/// A call and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads the value; none where the key is absent.
    Get(Option<u64>),
    /// Sets the value.
    Put(u64),
    /// Makes the key absent.
    Delete,
    /// Sets the value if the key is absent, and whether it was.
    PutIfAbsent(u64, bool),
    /// Sets the value if the key is present, and whether it was.
    PutIfPresent(u64, bool),
    /// Makes the key absent, and whether it was present.
    DeleteIfPresent(bool),
    /// Makes the key absent if it has this value: the expiry of the value. No thread calls it.
    Expire(u64),
}

/// One operation of a history. Times are of one clock.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub thread: usize,
    pub called: u64,
    pub returned: u64,
    pub action: Action,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, called, returned, action } = self;
        write!(f, "thread {thread}, {called} to {returned}: {action:?}")
    }
}

impl Action {
    /// Applies the action to the register; returns whether the register permits its answer.
    fn apply(self, state: &mut Option<u64>) -> bool {
        let before = *state;
        match self {
            Self::Get(answer) => answer == before,
            Self::Put(value) => {
                *state = Some(value);
                true
            }
            Self::Delete => {
                *state = None;
                true
            }
            Self::PutIfAbsent(value, done) => {
                *state = before.or(Some(value));
                done == before.is_none()
            }
            Self::PutIfPresent(value, done) => {
                *state = before.and(Some(value));
                done == before.is_some()
            }
            Self::DeleteIfPresent(done) => {
                *state = None;
                done == before.is_some()
            }
            Self::Expire(value) => {
                *state = before.filter(|before| *before != value);
                true
            }
        }
    }
}

/// A call or a return, in a list linked in the order of time.
#[derive(Clone, Copy)]
struct Event {
    operation: usize,
    is_return: bool,
    previous: usize,
    next: usize,
}

/// The events not yet placed; number 0 is the head.
struct Events {
    list: Vec<Event>,
    /// Where each operation returns.
    returns: Vec<usize>,
}

impl Events {
    fn new(history: &[Operation]) -> Self {
        let mut order: Vec<(u64, bool, usize)> = Vec::with_capacity(history.len() * 2);
        for (number, operation) in history.iter().enumerate() {
            assert!(operation.called <= operation.returned, "{operation:?}");
            order.push((operation.called, false, number));
            order.push((operation.returned, true, number));
        }
        // At equal times calls come before returns, so that operations count as concurrent.
        order.sort_unstable();
        let end = order.len();
        let first = usize::from(end > 0);
        let head = Event { operation: 0, is_return: false, previous: end, next: first };
        let mut events = vec![head];
        let mut returns = vec![0; history.len()];
        for (index, (_, is_return, operation)) in order.into_iter().enumerate() {
            let at = index + 1;
            let next = if at == end { 0 } else { at + 1 };
            events.push(Event { operation, is_return, previous: index, next });
            if is_return {
                returns[operation] = at;
            }
        }
        Self { list: events, returns }
    }

    fn unlink(&mut self, at: usize) {
        let Event { previous, next, .. } = self.list[at];
        self.list[previous].next = next;
        self.list[next].previous = previous;
    }

    fn link(&mut self, at: usize) {
        let Event { previous, next, .. } = self.list[at];
        self.list[previous].next = at;
        self.list[next].previous = at;
    }

    /// Removes an operation that has its place in the order.
    fn lift(&mut self, call: usize) {
        self.unlink(call);
        self.unlink(self.returns[self.list[call].operation]);
    }

    /// Inserts it again.
    fn unlift(&mut self, call: usize) {
        self.link(self.returns[self.list[call].operation]);
        self.link(call);
    }
}

/// A set of operations.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Placed(Vec<u64>);

impl Placed {
    fn flip(&mut self, operation: usize) {
        self.0[operation / 64] ^= 1 << (operation % 64);
    }
}

/// Checks the operations on one key that had the value `initial` before them. The error holds the
/// operations at which every order fails.
pub fn check(history: &[Operation], initial: Option<u64>) -> Result<(), Vec<Operation>> {
    let mut events = Events::new(history);
    let mut state = initial;
    let mut placed = Placed(vec![0; history.len().div_ceil(64)]);
    let mut tried = HashSet::from([(placed.clone(), state)]);
    let mut order: Vec<(usize, Option<u64>)> = Vec::new();
    let (mut furthest, mut stuck) = (0, Vec::new());
    let mut at = events.list[0].next;
    while events.list[0].next != 0 {
        let event = events.list[at];
        if !event.is_return {
            let mut after = state;
            if history[event.operation].action.apply(&mut after) {
                placed.flip(event.operation);
                if tried.insert((placed.clone(), after)) {
                    order.push((at, state));
                    state = after;
                    events.lift(at);
                    at = events.list[0].next;
                    continue;
                }
                placed.flip(event.operation);
            }
            at = event.next;
            continue;
        }
        // An operation returns before it has a place: backtrack over the last choice.
        if order.len() >= furthest {
            furthest = order.len();
            stuck = pending(&events, history, at);
        }
        let Some((call, before)) = order.pop() else { return Err(stuck) };
        state = before;
        placed.flip(events.list[call].operation);
        events.unlift(call);
        at = events.list[call].next;
    }
    Ok(())
}

/// Returns the operations that needed a place before the return at `end`.
fn pending(events: &Events, history: &[Operation], end: usize) -> Vec<Operation> {
    let mut found = Vec::new();
    let mut at = events.list[0].next;
    while at != end && at != 0 {
        found.push(history[events.list[at].operation]);
        at = events.list[at].next;
    }
    found
}

/// Checks the histories of many keys, each by itself: single-key operations are linearizable
/// together if they are for each key (Herlihy and Wing 1990).
pub fn check_keys<K>(histories: &HashMap<K, Vec<Operation>>) -> Result<(), (&K, Vec<Operation>)> {
    for (key, history) in histories {
        check(history, None).map_err(|stuck| (key, stuck))?;
    }
    Ok(())
}

mod tests {
    use super::{
        Action::{Delete, DeleteIfPresent, Get, Put, PutIfAbsent, PutIfPresent},
        *,
    };

    /// Operations as `(called, returned, action)`.
    fn accepts(operations: &[(u64, u64, Action)]) -> bool {
        check(&history(operations), None).is_ok()
    }

    fn history(operations: &[(u64, u64, Action)]) -> Vec<Operation> {
        let operation =
            |(thread, &(called, returned, action))| Operation { thread, called, returned, action };
        operations.iter().enumerate().map(operation).collect()
    }

    #[test]
    fn operations_one_after_another() {
        assert!(accepts(&[]));
        assert!(accepts(&[(0, 1, Get(None)), (2, 3, Put(1)), (4, 5, Get(Some(1)))]));
        assert!(accepts(&[(0, 1, Put(1)), (2, 3, Delete), (4, 5, Get(None))]));
        assert!(accepts(&[
            (0, 1, PutIfAbsent(1, true)),
            (2, 3, PutIfAbsent(2, false)),
            (4, 5, PutIfPresent(3, true)),
            (6, 7, DeleteIfPresent(true)),
            (8, 9, DeleteIfPresent(false)),
            (10, 11, PutIfPresent(4, false)),
        ]));
    }

    #[test]
    fn concurrent_operations_may_have_either_order() {
        let writes = [(0, 10, Put(1)), (0, 10, Put(2))];
        for last in [1, 2] {
            let [first, second] = writes;
            assert!(accepts(&[first, second, (11, 12, Get(Some(last)))]));
        }
        // Three reads beside a write: the second may be the first to see it.
        let write = (0, 10, Put(1));
        assert!(accepts(&[write, (1, 2, Get(None)), (3, 4, Get(Some(1)))]));
        // Two operations at the same instant are concurrent.
        assert!(accepts(&[(0, 5, Put(1)), (5, 6, Get(None))]));
    }

    #[test]
    fn histories_without_a_valid_order_are_rejected() {
        // A stale read.
        assert!(!accepts(&[(0, 1, Put(1)), (2, 3, Put(2)), (4, 5, Get(Some(1)))]));
        // A lost write.
        assert!(!accepts(&[(0, 1, Put(1)), (2, 3, Get(None))]));
        // A value from nowhere, and one from the future.
        assert!(!accepts(&[(0, 1, Get(Some(7)))]));
        assert!(!accepts(&[(0, 1, Get(Some(1))), (2, 3, Put(1))]));
        // A read that goes back, both beside the write.
        let write = (0, 10, Put(1));
        assert!(!accepts(&[write, (1, 2, Get(Some(1))), (3, 4, Get(None))]));
        // A deleted value that comes back.
        assert!(!accepts(&[(0, 1, Put(1)), (2, 3, Delete), (4, 5, Get(Some(1)))]));
        // Two winners.
        assert!(!accepts(&[(0, 10, PutIfAbsent(1, true)), (0, 10, PutIfAbsent(2, true))]));
        assert!(!accepts(&[
            (0, 1, Put(1)),
            (2, 10, DeleteIfPresent(true)),
            (2, 10, DeleteIfPresent(true)),
        ]));
        // Two readers that disagree on the order of two writes.
        assert!(!accepts(&[
            (0, 10, Put(1)),
            (0, 10, Put(2)),
            (11, 20, Get(Some(1))),
            (21, 30, Get(Some(2))),
        ]));
    }

    #[test]
    fn the_operations_that_fail_are_named() {
        let operations = [(0, 1, Put(1)), (2, 3, Put(2)), (4, 5, Get(Some(1)))];
        let stuck = check(&history(&operations), None).unwrap_err();
        assert!(stuck.iter().any(|operation| operation.action == Get(Some(1))), "{stuck:?}");
    }

    /// Tries every order, without a cache.
    fn brute_force(left: &[Operation], state: Option<u64>) -> bool {
        left.is_empty()
            || left.iter().enumerate().any(|(index, operation)| {
                // All operations that returned before this call have their place.
                let first = left.iter().all(|other| other.returned >= operation.called);
                let mut rest = left.to_vec();
                rest.remove(index);
                let mut after = state;
                first && operation.action.apply(&mut after) && brute_force(&rest, after)
            })
    }

    #[test]
    fn every_verdict_agrees_with_trying_all_orders() {
        let mut random = crate::Random(5);
        let (mut accepted, mut rejected) = (0, 0);
        for _ in 0..20_000 {
            let count = 2 + random.below(5);
            let history: Vec<Operation> = (0..count)
                .map(|number| {
                    let called = random.below(12);
                    let answer = random.below(2) == 0;
                    let seen = random.below(count + 1);
                    let action = match random.below(8) {
                        0..3 => Get((seen < count).then_some(seen)),
                        3..5 => Put(number),
                        5 => Delete,
                        6 => PutIfAbsent(number, answer),
                        _ if answer => PutIfPresent(number, random.below(2) == 0),
                        _ => DeleteIfPresent(random.below(2) == 0),
                    };
                    Operation { thread: 0, called, returned: called + random.below(8), action }
                })
                .collect();
            let verdict = check(&history, None).is_ok();
            assert_eq!(verdict, brute_force(&history, None), "{history:?}");
            *(if verdict { &mut accepted } else { &mut rejected }) += 1;
        }
        assert!(accepted > 2_000 && rejected > 2_000, "{accepted} accepted, {rejected} rejected");
    }
}
