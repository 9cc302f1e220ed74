//! The cases of a merge into a table with two tiers (the paper's section 3.5).
//!
//! The paper's array has a slot for each hash, with the entry of the newer table (*delta*), that of
//! the older one (*base*), both or neither. The merge here visits the keys in order, and has the
//! same four cases. "Base has it" means that the base's global hash leads the key to a piece.
//!
//! | case | newest entry | what becomes of the key |
//! |---|---|---|
//! | only delta, both | a value | its entry goes to the new piece |
//! | only delta, both | deleted or expired | a deeper level may have it: a tombstone goes to the new piece |
//! | | | else, a piece that stays has an old entry: the key leads to the invalid piece |
//! | | | else the key leaves the table |
//! | only base | any | its piece stays: so does the entry |
//! | only base | any | its piece is collected: as in the cases above |
//! | neither | an old entry in a piece | the key leads to the invalid piece as long as that stays |

use crate::util::mutant::mutant;

/// Which sides of a merge have an entry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergeCase {
    /// Neither: the base leads the key to the invalid piece.
    Neither,
    OnlyDelta,
    Both,
    OnlyBase,
}

impl MergeCase {
    pub(super) fn of(in_delta: bool, in_base: bool) -> Self {
        match (in_delta, in_base) {
            (false, false) => Self::Neither,
            (true, false) => Self::OnlyDelta,
            (true, true) => Self::Both,
            (false, true) => Self::OnlyBase,
        }
    }
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    /// The newest entry goes to the new piece: a value, or a tombstone.
    ToNewPiece,
    /// The entry stays in its piece.
    Stays,
    /// The key leads to the invalid piece.
    ToInvalidPiece,
    /// The key leaves the table.
    Leaves,
}

/// What a merge knows of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergedKey {
    pub(super) case: MergeCase,
    /// The piece that the base leads the key to stays.
    pub(super) base_stays: bool,
    /// A piece that stays has an entry of the key, old or current.
    pub(super) is_held: bool,
    /// A deeper level may have the key.
    pub(super) has_deeper: bool,
}

impl MergedKey {
    /// Returns what becomes of the key. `is_live` says whether its newest entry is a value that
    /// has not expired; it is called only if that matters.
    pub(super) fn action(self, is_live: impl FnOnce() -> bool) -> KeyAction {
        let is_new = match self.case {
            MergeCase::Neither => false,
            MergeCase::OnlyBase if self.base_stays => return KeyAction::Stays,
            MergeCase::OnlyBase | MergeCase::OnlyDelta | MergeCase::Both => {
                is_live() || self.has_deeper
            }
        };
        let is_held = mutant!(TphForgetsInvalid: false, else self.is_held);
        match (is_new, is_held) {
            (true, _) => KeyAction::ToNewPiece,
            (false, true) => KeyAction::ToInvalidPiece,
            (false, false) => KeyAction::Leaves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(sides: (bool, bool), base_stays: bool, is_live: bool, is_held: bool) -> KeyAction {
        let case = MergeCase::of(sides.0, sides.1);
        let key = MergedKey { case, base_stays, is_held, has_deeper: false };
        key.action(|| is_live)
    }

    #[test]
    fn only_delta_goes_to_the_new_piece() {
        assert_eq!(MergeCase::of(true, false), MergeCase::OnlyDelta);
        assert_eq!(action((true, false), false, true, false), KeyAction::ToNewPiece);
        // A delete of a key that the table does not have.
        assert_eq!(action((true, false), false, false, false), KeyAction::Leaves);
        // The key was deleted before, and a piece still has its entry.
        assert_eq!(action((true, false), false, false, true), KeyAction::ToInvalidPiece);
    }

    #[test]
    fn of_both_the_delta_goes_to_the_new_piece() {
        assert_eq!(MergeCase::of(true, true), MergeCase::Both);
        for base_stays in [false, true] {
            assert_eq!(action((true, true), base_stays, true, base_stays), KeyAction::ToNewPiece);
        }
        assert_eq!(action((true, true), true, false, true), KeyAction::ToInvalidPiece);
        assert_eq!(action((true, true), false, false, false), KeyAction::Leaves);
    }

    #[test]
    fn only_base_stays_in_its_piece() {
        assert_eq!(MergeCase::of(false, true), MergeCase::OnlyBase);
        for is_live in [false, true] {
            assert_eq!(action((false, true), true, is_live, true), KeyAction::Stays);
        }
        // Its piece is collected.
        assert_eq!(action((false, true), false, true, false), KeyAction::ToNewPiece);
        assert_eq!(action((false, true), false, false, false), KeyAction::Leaves);
        assert_eq!(action((false, true), false, false, true), KeyAction::ToInvalidPiece);
    }

    #[test]
    fn neither_stays_invalid_while_a_piece_has_an_old_entry() {
        assert_eq!(MergeCase::of(false, false), MergeCase::Neither);
        assert_eq!(action((false, false), false, true, true), KeyAction::ToInvalidPiece);
        assert_eq!(action((false, false), false, true, false), KeyAction::Leaves);
    }

    #[test]
    fn a_tombstone_is_an_entry_while_a_deeper_level_may_have_its_key() {
        for (case, base_stays) in
            [(MergeCase::OnlyDelta, false), (MergeCase::Both, true), (MergeCase::OnlyBase, false)]
        {
            let key = MergedKey { case, base_stays, is_held: base_stays, has_deeper: true };
            assert_eq!(key.action(|| false), KeyAction::ToNewPiece);
        }
        // No deeper level has a key that leads to the invalid piece.
        let case = MergeCase::Neither;
        let key = MergedKey { case, base_stays: false, is_held: true, has_deeper: true };
        assert_eq!(key.action(|| false), KeyAction::ToInvalidPiece);
    }
}
