//! Estimates of the number of keys in a range.

use super::{FairTree, Goal, LEFT, ROOT, Result, pointer_at};
use crate::{pmem::target, util::codec::low_u64};

/// The width of the whole tree in a position.
const WHOLE: u64 = 1 << 62;

impl FairTree {
    /// Returns about how many of `total` keys are from `start` (included) to `end` (excluded), as
    /// if all nodes of a level had equally many keys below them.
    pub(crate) fn estimate(
        &self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        total: u64,
    ) -> Result<u64> {
        self.undisturbed(|| {
            let first = start.map_or(Ok(0), |key| self.position(key))?;
            let last = end.map_or(Ok(WHOLE), |key| self.position(key))?;
            let share = u128::from(last.saturating_sub(first)) * u128::from(total);
            Ok(low_u64(share.div_ceil(u128::from(WHOLE))))
        })
    }

    /// Returns the position of a key: 0 before the first one, [`WHOLE`] behind the last.
    fn position(&self, key: &[u8]) -> Result<u64> {
        let goal = Goal::At(key);
        let (mut first, mut width, mut steps) = (0, WHOLE, 0);
        let mut node = self.follow(self.at + ROOT)?;
        loop {
            node = self.move_right(node, goal, &mut steps)?;
            let head = self.head(node)?;
            if head.level == 0 {
                let (place, count) = self.rank_in(node, key)?;
                return Ok(first + width / count.max(1) * place.min(count));
            }
            let child = self.child_for(node, head.skip, goal)?;
            let count = self.end_of(node) + 1;
            let is_child = |slot: &u64| target(self.pool.load(pointer_at(node, *slot))) == child;
            let place = if target(self.pool.load(node + LEFT)) == child {
                0
            } else {
                (0..count).find(is_child).map_or(0, |slot| slot + 1)
            };
            width /= count;
            first += width * place;
            node = child;
            self.count_step(node, &mut steps)?;
        }
    }
}
