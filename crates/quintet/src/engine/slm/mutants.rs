//! Wrong code of planted bugs. See [`crate::util::mutant`].

use super::index_key::Coding;
use crate::lsm::sst::SstOwner;

/// `SlmForgetsKeyCode`: the coding that a list without the key code has.
pub(super) fn without_code(coding: Coding) -> Coding {
    if coding == Coding::Open { coding } else { Coding::Plain }
}

/// `SlmRemovesRunsEarly`: removes the files of dead runs before the checkpoint is durable.
pub(super) fn remove_runs(owner: &SstOwner, numbers: &[u32]) {
    for number in numbers {
        let _ = owner.dir.remove(&owner.kind.name_of(u64::from(*number)));
    }
}
