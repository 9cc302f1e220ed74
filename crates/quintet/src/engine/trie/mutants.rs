//! Wrong code of planted bugs ([`crate::util::mutant`]) that takes more than one line.

use super::table::Trie;
use crate::Result;

impl Trie {
    /// The path after `path`: a scan that continues there misses the entries at `path`.
    pub(super) fn skip_path(&self, path: u64) -> Result<u64> {
        let load = |at| self.load_index(at);
        Ok(self.index.walk(path, &mut Vec::new(), load)?.unwrap_or(path))
    }
}
