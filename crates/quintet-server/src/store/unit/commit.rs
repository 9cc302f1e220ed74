//! The end of a unit: its changes become one batch, or are discarded.

use quintet::Durability;

use super::Unit;
use crate::failure::Done;

impl Unit<'_> {
    /// Commits all changes as one batch, tells who watches the keys, and releases the stripes.
    /// After an error nothing has been written, and the changes are discarded.
    pub(crate) fn commit(&mut self, durability: Durability) -> Done<usize> {
        self.end_command();
        let committed = self.write(durability);
        let keys = self.slots.iter().filter(|slot| slot.is_written()).count();
        let changes = keys + self.replacements.len();
        if committed.is_ok() {
            self.end_replacements();
            self.publish();
            self.send_events();
        }
        self.discard();
        committed.map(|()| changes)
    }

    /// Ends a unit without changes: publishes the events of commands that change nothing, and
    /// releases the stripes.
    pub(crate) fn end_unchanged(&mut self) {
        if !self.replaced.is_empty() {
            self.invalidate();
        }
        self.send_events();
        self.discard();
    }

    /// Discards all changes and releases the stripes.
    pub(crate) fn discard(&mut self) {
        if !self.slots.is_empty() {
            self.slots.clear();
            self.index.clear();
        }
        self.discard_replacements();
        self.touched.clear();
        self.events.clear();
        self.command_events = 0;
        self.guards.clear();
        self.has_changes = false;
        self.limits.end_unit();
        self.bytes = 0;
    }

    fn write(&mut self, durability: Durability) -> Done {
        if !self.is_changed() {
            return Ok(());
        }
        // A version that moved to another key is not dead.
        let kept: Vec<u64> = self
            .slots
            .iter()
            .filter(|slot| slot.is_written())
            .filter_map(|slot| Some(slot.head.as_ref()?.spilled_versions()))
            .flatten()
            .flatten()
            .collect();
        let mut batch = self.store.databases.database().batch();
        let mut encoded = std::mem::take(&mut self.scratch);
        let slots = std::mem::take(&mut self.slots);
        let written: Done = slots.iter().filter(|slot| slot.is_written()).try_for_each(|slot| {
            let created;
            let tables = if let Some(tables) = self.cached(slot.database) {
                &*tables
            } else {
                created = self.store.databases.get_or_create(slot.database)?;
                &created
            };
            slot.write(tables, &kept, &mut batch, &mut encoded);
            Ok(())
        });
        self.slots = slots;
        self.scratch = encoded;
        written?;
        self.store.databases.put_replacements(&mut batch, &self.replacements);
        if let Some(position) = &self.position {
            self.store.databases.put_position(&mut batch, position);
        }
        Ok(batch.commit_with(durability)?)
    }
}
