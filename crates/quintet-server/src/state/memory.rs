//! Memory of the buffers of clients: `maxmemory-clients`.
//!
//! Each client notes the bytes of each kind of its buffers, and the sum over all clients is kept
//! with them. So a task learns at the cost of one load whether all clients have too much. Only then
//! it looks at each of them.
//!
//! Invariant: the sum is that of the clients without `CLIENT NO-EVICT`. Only the task of a client
//! notes its own buffers; messages are noted under the lock of the outbox, and so is the change of
//! the protection.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    /// Requests that are read.
    Query = 0,
    /// Replies that are written.
    Reply = 1,
    /// Commands since `MULTI`, and names of watched keys and of subscriptions.
    Held = 2,
    /// Messages that wait.
    Messages = 3,
}

/// The bytes of the buffers of one client, by kind.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    bytes: [AtomicU64; 4],
    /// Whether the client is protected by `CLIENT NO-EVICT`.
    is_protected: AtomicBool,
    /// The sum over all clients that are not protected.
    all: Arc<AtomicU64>,
}

impl ClientMemory {
    /// The memory of a new client, which is a part of `all`.
    pub(crate) fn new(all: Arc<AtomicU64>) -> Self {
        Self { bytes: Default::default(), is_protected: AtomicBool::new(false), all }
    }

    /// Replaces the bytes of one kind. Returns whether there are more than before.
    pub(crate) fn note(&self, buffer: Buffer, bytes: usize) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let Some(own) = self.bytes.get(buffer as usize) else { return false };
        let earlier = own.swap(bytes, Ordering::AcqRel);
        if earlier != bytes && !self.is_protected() {
            // Wraps for a difference below zero; the sum always has what was added before.
            self.all.fetch_add(bytes.wrapping_sub(earlier), Ordering::AcqRel);
        }
        bytes > earlier
    }

    /// The bytes of one kind.
    pub(crate) fn of(&self, buffer: Buffer) -> u64 {
        self.bytes.get(buffer as usize).map_or(0, |bytes| bytes.load(Ordering::Acquire))
    }

    /// The bytes of all kinds.
    pub(crate) fn total(&self) -> u64 {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Acquire)).sum()
    }

    /// Whether the client is not ended for its memory.
    pub(crate) fn is_protected(&self) -> bool {
        self.is_protected.load(Ordering::Acquire)
    }

    /// Protects the client, or ends the protection. Nothing must be noted meanwhile.
    pub(crate) fn set_protected(&self, is_protected: bool) {
        if self.is_protected.swap(is_protected, Ordering::AcqRel) == is_protected {
            return;
        }
        if is_protected {
            self.all.fetch_sub(self.total(), Ordering::AcqRel);
        } else {
            self.all.fetch_add(self.total(), Ordering::AcqRel);
        }
    }

    /// Removes what a client that has gone had.
    pub(crate) fn clear(&self) {
        for buffer in [Buffer::Query, Buffer::Reply, Buffer::Held, Buffer::Messages] {
            self.note(buffer, 0);
        }
    }
}

/// Bytes that a watched key or a subscription takes: its name in the session and in a table of the
/// server, with what both need beside it.
pub(crate) fn name_bytes(name: &[u8]) -> usize {
    2 * (name.len() + 64)
}

/// Which of `clients`, each with its bytes, must end so that the others have at most `max` bytes:
/// the largest first. Returns their positions.
pub(crate) fn largest_above(clients: &[u64], max: u64) -> Vec<usize> {
    let mut left: u64 = clients.iter().sum();
    let mut order: Vec<(u64, usize)> =
        clients.iter().enumerate().map(|(at, bytes)| (*bytes, at)).collect();
    order.sort_unstable();
    let mut ended = Vec::new();
    while left > max
        && let Some((bytes, at)) = order.pop()
    {
        left -= bytes;
        ended.push(at);
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_has_the_clients_that_are_not_protected() {
        let all = Arc::new(AtomicU64::new(0));
        let sum = || all.load(Ordering::Acquire);
        let (first, second) = (ClientMemory::new(all.clone()), ClientMemory::new(all.clone()));
        assert!(first.note(Buffer::Query, 100));
        assert!(first.note(Buffer::Messages, 10));
        assert!(second.note(Buffer::Held, 1000));
        assert!(!first.note(Buffer::Query, 40));
        assert!(!first.note(Buffer::Query, 40));
        assert_eq!((sum(), first.total(), first.of(Buffer::Query)), (1050, 50, 40));
        first.set_protected(true);
        first.set_protected(true);
        assert!(first.note(Buffer::Reply, 7));
        assert_eq!((sum(), first.total()), (1000, 57));
        first.set_protected(false);
        assert_eq!(sum(), 1057);
        first.clear();
        second.clear();
        assert_eq!(sum(), 0);
    }

    #[test]
    fn the_largest_end_first_and_no_more_than_needed() {
        assert_eq!(largest_above(&[5, 50, 20, 7], 100), Vec::<usize>::new());
        assert_eq!(largest_above(&[5, 50, 20, 7], 32), [1]);
        assert_eq!(largest_above(&[5, 50, 20, 7], 31), [1, 2]);
        assert_eq!(largest_above(&[5], 0), [0]);
        assert_eq!(largest_above(&[], 0), Vec::<usize>::new());
    }
}
