//! Wrong code of planted bugs ([`crate::util::mutant`]) that takes more than one line.

use crate::io::Dir;

/// `TphRemovesPiecesEarly`: removes files before the edit without them is durable.
pub(super) fn remove_files(dir: &dyn Dir, names: &[String]) {
    for name in names {
        let _ = dir.remove(name);
    }
}
