//! The arbiter of the memory budget: it chooses which table releases memory to another.
//!
//! Problem: the tables of a database share one budget. Memory that a table took once would stay
//! with it although another table needs it more.
//! How: each member reports how much memory it could release and a count of its *uses*, which grows
//! with disk reads and writes. The member with the most releasable memory for each recent use
//! releases memory. So an idle table releases first, and among tables in use the memory for each
//! use becomes equal. A disk read counts as [`USES_OF_A_READ`] uses, because a larger share saves
//! disk reads, and few writes become faster by it.
//!
//! Uses are counted again at each request, which counts as a disk read itself. After
//! [`PERIOD_USES`] uses older ones count half.
//!
//! Invariant: a member never releases memory below the floor of its table, which it leaves out of
//! [`Reclaimable::reclaimable_bytes`].
//!
//! Threads: the caller has the arbiter locked. No member is called with a lock of another held,
//! except that of the arbiter: members take no lock that is held while memory is reserved.

use std::sync::{Arc, Weak};

use super::reclaimable::{Reclaimable, USES_OF_A_READ};
use crate::util::{codec::to_u64, mutant::mutant};

/// Uses after which older ones count half.
const PERIOD_USES: u64 = 1 << 14;
/// Another table releases memory only if it has more than this percentage of what the requesting
/// table has for each use. A smaller difference would move memory to and fro.
const DIFFERENCE_PER_CENT: u128 = 150;

/// Which memory is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryKind {
    /// All that a member could release, some of it only after a checkpoint.
    Any,
    /// What it can release at once.
    Written,
}

/// A member and its recent uses.
#[derive(Debug)]
struct Member {
    memory: Weak<dyn Reclaimable>,
    uses_seen: u64,
    recent_uses: u64,
}

/// Releasable memory and recent uses of a member.
#[derive(Clone, Copy, Debug)]
struct Share {
    bytes: u64,
    uses: u64,
}

impl Share {
    /// Returns whether this share has more than `per_cent` of the bytes for each use of `other`.
    fn exceeds(self, other: Self, per_cent: u128) -> bool {
        let ours = u128::from(self.bytes) * (u128::from(other.uses) + 1) * 100;
        let theirs = u128::from(other.bytes) * (u128::from(self.uses) + 1) * per_cent;
        ours > theirs
    }
}

/// The members of a budget. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Arbiter {
    members: Vec<Member>,
    /// Uses since older ones were last halved.
    period_uses: u64,
}

impl Arbiter {
    /// Adds a member. Removes those that were dropped. Returns the number of members.
    pub(super) fn add(&mut self, memory: Weak<dyn Reclaimable>) -> u64 {
        self.members.retain(|member| member.memory.strong_count() > 0);
        let uses_seen = memory.upgrade().map_or(0, |memory| memory.uses_total());
        self.members.push(Member { memory, uses_seen, recent_uses: 0 });
        to_u64(self.members.len())
    }

    /// Returns the member that releases memory for a table, and how much it could release. `None`:
    /// no member has memory to release, or `requester` has the most itself. Of several members of
    /// the requesting table the one with the least counts. Without a requester every member is a
    /// candidate.
    pub(super) fn choose(
        &mut self,
        requester: Option<u64>,
        kind: MemoryKind,
    ) -> Option<Arc<dyn Reclaimable>> {
        self.count_uses();
        self.period_uses = self.period_uses.saturating_add(USES_OF_A_READ);
        let mut own: Option<Share> = None;
        let mut most: Option<(Share, Arc<dyn Reclaimable>)> = None;
        for member in &self.members {
            let Some(memory) = member.memory.upgrade() else { continue };
            let unwritten = match kind {
                MemoryKind::Any => memory.unwritten_bytes(),
                MemoryKind::Written => 0,
            };
            let bytes = memory.reclaimable_bytes() + unwritten;
            let uses = mutant!(ArbiterIgnoresUses: 0, else member.recent_uses);
            let share = Share { bytes, uses };
            if requester == Some(memory.table_id()) {
                own = own.filter(|own| share.exceeds(*own, 100)).or(Some(share));
            } else if share.bytes > 0
                && most.as_ref().is_none_or(|(most, _)| share.exceeds(*most, 100))
            {
                most = Some((share, memory));
            }
        }
        let (share, memory) = most?;
        own.is_none_or(|own| share.exceeds(own, DIFFERENCE_PER_CENT)).then_some(memory)
    }

    /// Returns whether a member has memory that it can release after a checkpoint.
    pub(super) fn has_unwritten(&self) -> bool {
        let memory = |member: &Member| member.memory.upgrade();
        self.members.iter().filter_map(memory).any(|memory| memory.unwritten_bytes() > 0)
    }

    /// Returns how many bytes of a table others can take, some of them after a checkpoint.
    pub(super) fn reclaimable_bytes(&self, table: u64) -> u64 {
        let memory = |member: &Member| member.memory.upgrade();
        let members = self.members.iter().filter_map(memory).filter(|one| one.table_id() == table);
        members.map(|memory| memory.reclaimable_bytes() + memory.unwritten_bytes()).sum()
    }

    /// Adds the uses since the last count to the recent ones.
    fn count_uses(&mut self) {
        for member in &mut self.members {
            let Some(memory) = member.memory.upgrade() else { continue };
            let total = memory.uses_total();
            let uses = total.saturating_sub(member.uses_seen);
            member.uses_seen = total;
            member.recent_uses = member.recent_uses.saturating_add(uses);
            self.period_uses = self.period_uses.saturating_add(uses);
        }
        if self.period_uses >= PERIOD_USES {
            self.period_uses = 0;
            self.members.iter_mut().for_each(|member| member.recent_uses /= 2);
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::{
        mutant::{self, Bug},
        sync::{AtomicU64, Ordering},
    };

    #[derive(Debug)]
    struct Table {
        id: u64,
        bytes: AtomicU64,
        uses: AtomicU64,
    }

    impl Reclaimable for Table {
        fn table_id(&self) -> u64 {
            self.id
        }

        fn reclaimable_bytes(&self) -> u64 {
            self.bytes.load(Ordering::Relaxed)
        }

        fn uses_total(&self) -> u64 {
            self.uses.load(Ordering::Relaxed)
        }

        fn reclaim(&self, bytes: u64) -> u64 {
            bytes
        }
    }

    fn tables(arbiter: &mut Arbiter, bytes: [u64; 3]) -> [Arc<Table>; 3] {
        let mut id = 0;
        bytes.map(|bytes| {
            id += 1;
            let table =
                Arc::new(Table { id, bytes: AtomicU64::new(bytes), uses: AtomicU64::new(0) });
            let member: Weak<dyn Reclaimable> = Arc::downgrade(&table) as Weak<dyn Reclaimable>;
            arbiter.add(member);
            table
        })
    }

    fn chosen(arbiter: &mut Arbiter, requester: u64) -> Option<u64> {
        arbiter.choose(Some(requester), MemoryKind::Any).map(|table| table.table_id())
    }

    fn idle_tables_release_first() {
        let mut arbiter = Arbiter::default();
        let [_, second, third] = tables(&mut arbiter, [0, 50, 60]);
        assert_eq!(chosen(&mut arbiter, 1), Some(3), "the largest of two idle tables");
        third.uses.store(100, Ordering::Relaxed);
        assert_eq!(chosen(&mut arbiter, 1), Some(2), "the idle table");
        second.uses.store(100, Ordering::Relaxed);
        assert_eq!(chosen(&mut arbiter, 1), Some(3), "both are used");
    }

    #[test]
    fn the_table_with_the_most_memory_for_each_use_releases_it() {
        idle_tables_release_first();
        mutant::finds(Bug::ArbiterIgnoresUses, idle_tables_release_first);
    }

    #[test]
    fn a_table_that_has_as_much_itself_gets_nothing_from_others() {
        let mut arbiter = Arbiter::default();
        let [first, _second, _third] = tables(&mut arbiter, [50, 60, 0]);
        assert_eq!(chosen(&mut arbiter, 1), None, "the difference is small");
        first.uses.store(100, Ordering::Relaxed);
        assert_eq!(chosen(&mut arbiter, 1), Some(2));
        assert_eq!(chosen(&mut arbiter, 2), None, "nothing from a table in use");
        assert_eq!(arbiter.choose(None, MemoryKind::Any).map(|table| table.table_id()), Some(2));
    }

    #[test]
    fn past_uses_are_forgotten() {
        let mut arbiter = Arbiter::default();
        let [_, second, third] = tables(&mut arbiter, [0, 50, 50]);
        second.uses.store(PERIOD_USES, Ordering::Relaxed);
        assert_eq!(chosen(&mut arbiter, 1), Some(3));
        for period in 1..20 {
            third.uses.store(period * PERIOD_USES, Ordering::Relaxed);
            chosen(&mut arbiter, 1);
        }
        assert_eq!(chosen(&mut arbiter, 1), Some(2));
    }

    #[test]
    fn dropped_members_are_not_asked() {
        let mut arbiter = Arbiter::default();
        let [first, second, third] = tables(&mut arbiter, [50, 50, 0]);
        drop(first);
        assert_eq!(chosen(&mut arbiter, 3), Some(2));
        drop(second);
        assert_eq!(chosen(&mut arbiter, 3), None);
        assert_eq!(third.table_id(), 3);
    }
}
