//! A run in words.

use std::sync::Arc;

use super::runs::decode_bounds;
use crate::{
    Result,
    io::{Dir, File},
    lsm::sst::{Kind, describe},
    util::format::{LineSink, brief},
};

/// Describes a run.
pub fn run(dir: &Arc<dyn Dir>, file: &dyn File, label: &str, say: &mut LineSink<'_>) -> Result<()> {
    describe::sst((dir, file, label), (Kind::RUN, "slm run"), say, |sst, say| {
        let section = sst.footer.index;
        let bounds = decode_bounds(&sst.section(section)?);
        let (low, high) =
            bounds.ok_or_else(|| sst.damage(section.offset, "its bounds do not parse"))?;
        say(&format!("  first key    {}", brief(&low)));
        say(&format!("  last key     {}", brief(&high)));
        Ok(())
    })
}
