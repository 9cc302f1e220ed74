//! The condition of a write.

use crate::{
    contract::Op,
    db::{expiry::ExpiryEntry, tables::stripes::StripeIndex},
    util::mutant::mutant,
};

/// When a write takes effect. The commit path checks it under the key's stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Without a condition.
    #[default]
    Always,
    /// If the key has no value.
    Absent,
    /// If the key has a value.
    Present,
    /// If the key's stripe, `stripe`, still has this version. For a transaction that has read no
    /// key of another stripe.
    Unchanged {
        /// The stripe of the key that is written.
        stripe: StripeIndex,
        /// An even version.
        version: u64,
    },
    /// If the clock has not reached this time, the expiry of the value that the write was computed
    /// from, in milliseconds since 1970.
    Before(u64),
    /// If the stored value has expired. For the sweep, which found the index entry of `time`. The
    /// entry is removed whether or not the condition holds.
    Expired {
        /// Milliseconds since 1970.
        time: u64,
    },
}

impl Condition {
    /// Returns the entry of the expiry index that is removed with the write, whether or not its
    /// condition holds.
    #[inline]
    pub(crate) fn removed_entry<'a>(self, table_id: u64, op: &Op<'a>) -> Option<ExpiryEntry<'a>> {
        mutant!(SweepUnlistsOutsideStripe => return None);
        match (self, *op) {
            (Self::Expired { time }, Op::Delete { key }) => {
                Some(ExpiryEntry { time, table_id, key })
            }
            _ => None,
        }
    }
}
