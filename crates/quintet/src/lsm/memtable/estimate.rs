//! Estimates of the number of keys of a memtable in a range.

use super::Memtable;
use crate::util::codec::key_prefix;

/// Number of keys that an estimate counts one by one before it extrapolates.
const ESTIMATE_KEYS_MAX: u64 = 1024;

impl Memtable {
    /// Returns about how many keys from `start` (included) to `end` (excluded) the memtable holds,
    /// tombstones included. Counts up to [`ESTIMATE_KEYS_MAX`] keys and extrapolates beyond them.
    pub(crate) fn estimate_count(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> u64 {
        let mut node = self.seek(start.unwrap_or(&[]));
        let (mut count, mut key, mut first) = (0, Vec::new(), Vec::new());
        while let Some(one) = node {
            self.copy_key(one, &mut key);
            if end.is_some_and(|end| *key >= *end) {
                break;
            }
            if count == 0 {
                first.clone_from(&key);
            }
            count += 1;
            if count == ESTIMATE_KEYS_MAX {
                let Some(last) = self.seek_before(end) else { break };
                let mut bytes = Vec::new();
                self.copy_key(last, &mut bytes);
                return extrapolate(count, (&first, &key, &bytes)).min(self.keys());
            }
            node = self.next_key(one, &key);
        }
        count
    }
}

/// Scales `count` keys between `first` and `reached` to the interval from `first` to `last`, as if
/// the keys were evenly distributed after their common prefix.
fn extrapolate(count: u64, (first, reached, last): (&[u8], &[u8], &[u8])) -> u64 {
    let shared = first.iter().zip(last).take_while(|(one, other)| one == other).count();
    let number = |key: &[u8]| u128::from(key_prefix(key.get(shared..).unwrap_or(&[])));
    let counted = number(reached).saturating_sub(number(first)).max(1);
    let whole = number(last).saturating_sub(number(first)).max(counted);
    u64::try_from(u128::from(count) * whole / counted).unwrap_or(u64::MAX)
}
