//! Growth: one group at a time gets another line. The head of [`super`] has the scheme.

use super::{
    shape::IndexShape,
    slot::{LINE_SLOTS, LOCK_BITS, NODE_SLOTS},
    slot_table::{CENTIBYTES_PER_KEY, HUGE_ABOVE_BYTES, SlotTable},
};
use crate::util::sync::Ordering;

impl SlotTable {
    /// Grows the table by at most `steps` groups, if it has the keys for it. Call it after an
    /// insert, without a group locked. Two steps an insert keep up.
    pub fn grow(&self, steps: u32) {
        if !self.wants_growth() {
            return;
        }
        // Another thread is resizing the table: it does the work.
        let Ok(mut huge) = self.growth.try_lock() else { return };
        for _ in 0..steps {
            let shape = IndexShape(self.shape.load(Ordering::Relaxed));
            let (group, pair) = shape.next_growth();
            if !self.wants_growth() || pair >= self.pairs_max || !shape.can_grow() {
                break;
            }
            let mut writer = self.lock(group << (6 - LOCK_BITS));
            let entries = writer.drain_lines(shape.lines_of(group), shape.known_in(group));
            let shape = shape.grown();
            self.shape.store(shape.0, Ordering::Release);
            for (word, placing) in entries {
                let (array, pair, _) = shape.line(placing);
                self.add(self.line_at(array, pair), word);
            }
        }
        if !*huge && self.bytes() > HUGE_ABOVE_BYTES {
            *huge = true;
            self.advise_huge();
        }
    }

    pub(super) fn advise_huge(&self) {
        for lines in &self.lines {
            lines.advise_huge(0..self.pairs_max * LINE_SLOTS * 8);
        }
        self.nodes.advise_huge(0..self.nodes_max * NODE_SLOTS * 8);
    }

    fn wants_growth(&self) -> bool {
        (self.bytes() + LINE_SLOTS * 8) * 100 <= self.len() * CENTIBYTES_PER_KEY
    }
}
