//! Descriptions of run files for `inspect`.

use std::sync::Arc;

use super::runs::decode_bounds;
use crate::{
    Result,
    io::{Dir, File},
    lsm::sst::{Kind, describe},
    util::format::{LineSink, brief},
};

/// Passes a description of a run's file to `say`, line by line. Fails with `Corruption` if the file
/// is damaged.
pub fn run(dir: &Arc<dyn Dir>, file: &dyn File, label: &str, say: &mut LineSink<'_>) -> Result<()> {
    describe::sst((dir, file, label), (Kind::RUN, "slm run"), say, |sst, say| {
        let section = sst.footer.index;
        let bounds = decode_bounds(&sst.section(section)?);
        let (low, high) =
            bounds.ok_or_else(|| sst.damage(section.offset, "the key bounds cannot be decoded"))?;
        say(&format!("  first key    {}", brief(&low)));
        say(&format!("  last key     {}", brief(&high)));
        Ok(())
    })
}
