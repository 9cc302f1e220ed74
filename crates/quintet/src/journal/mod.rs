//! Files of pages: their redo journal, their writes in place, and the head that they begin with.
//!
//! - [`redo`]: the redo journal, which makes the changes of a checkpoint atomic.
//! - [`write_back`]: asynchronous writes of blocks in place.
//! - [`FileHead`]: the head of a file of pages.

mod file_head;
pub(crate) mod redo;
pub(crate) mod write_back;

pub(crate) use file_head::{FileHead, HeadFields, read_all_blocks, read_blocks};
