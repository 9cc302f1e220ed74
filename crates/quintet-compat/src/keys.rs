//! The keys of a table for those of the program. The originals allow an empty key, Quintet does
//! not.
//!
//! A key of zero bytes only gets one more of them, so the empty key is stored as one zero. Other
//! keys are stored as they are. The mapping is injective and keeps the order: a run of zeros
//! precedes everything that begins with it, before and after.

use std::borrow::Cow;

/// Returns the stored form of a key.
pub fn stored(key: &[u8]) -> Cow<'_, [u8]> {
    if key.iter().all(|byte| *byte == 0) {
        Cow::Owned(vec![0; key.len() + 1])
    } else {
        Cow::Borrowed(key)
    }
}

/// Returns the key of a stored form.
pub fn key(stored: &[u8]) -> &[u8] {
    if stored.iter().all(|byte| *byte == 0) { stored.get(1..).unwrap_or_default() } else { stored }
}

/// Returns the stored form of the least key above `key`.
pub fn stored_after(key: &[u8]) -> Vec<u8> {
    let mut after = stored(key).into_owned();
    after.push(0);
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_keys_have_the_order_of_keys() {
        let mut keys = vec![vec![]];
        for length in 1..5 {
            for number in 0..3_usize.pow(length) {
                let digit = |place| u8::try_from(number / 3_usize.pow(place) % 3).expect("small");
                keys.push((0..length).map(digit).collect::<Vec<u8>>());
            }
        }
        keys.sort();
        for pair in keys.windows(2) {
            assert!(stored(&pair[0]) < stored(&pair[1]), "{pair:?}");
            assert!(stored_after(&pair[0]) <= stored(&pair[1]).into_owned(), "{pair:?}");
        }
        for original in &keys {
            assert_eq!(key(&stored(original)), original);
            assert!(!stored(original).is_empty());
        }
    }
}
