//! Verification of a tree's files.

use super::{checkpointer::Checkpointer, meta::Meta, paged_tree::PagedTree};
use crate::{
    Error, Result,
    bptree::page_cache::PageId,
    io::AlignedBuffer,
    util::{codec::Lsn, report::Report},
};

impl PagedTree {
    /// Whether the meta page in the file says that the newest group is written back.
    fn is_written_back(&self, checkpointer: &Checkpointer) -> Result<bool> {
        let cache = self.tree.cache();
        let mut buffer = AlignedBuffer::zeroed(cache.page_bytes());
        match cache.read_page(PageId(0), &mut buffer) {
            Ok(_) => {
                let meta = Meta::decode(buffer.as_slice(), cache.label())?;
                Ok(meta.written_back > 0 && meta.written_back == checkpointer.redo.newest())
            }
            Err(error) if error.is_corruption() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Verifies the files: the journal, and then every page of the durable tree, after writing it
    /// back. If the pages in the file may be of two states, verifies the journal only: it has what
    /// they lack.
    pub(crate) fn check_files(
        &self,
        checkpointer: &mut Checkpointer,
        report: &mut Report,
    ) -> Result<()> {
        if checkpointer.complete == Lsn(0) && self.tree.cache().file().is_err() {
            return Ok(());
        }
        checkpointer.redo.check(report);
        if !self.context.read_only && checkpointer.written_back != checkpointer.redo.newest() {
            let complete = checkpointer.complete();
            match self.write_back_all(checkpointer, complete) {
                Err(Error::Corruption { file, offset, what }) => report.add(file, offset, what),
                outcome => outcome?,
            }
        }
        if checkpointer.in_doubt && !self.is_written_back(checkpointer)? {
            return Ok(());
        }
        self.tree.check(report)
    }
}
