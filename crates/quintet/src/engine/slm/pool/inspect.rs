//! Describes the file of a pool as text, for `inspect`.

use std::sync::Arc;

use super::{
    index,
    roots::{COMPLETE, HAS_PAGES, MEMTABLES, STATE},
    slm_pool::{HAS_INDEX, HAS_MEMTABLES, MAGIC, PARTS_SHIFT},
};
use crate::{
    Result,
    io::File,
    lsm::memtable::pool_memtables::{PoolListSummary, PoolMemtables},
    pmem::Pool,
    util::format::{LineSink, hex},
};

/// Passes a description of a pool's file to `say`, line by line. Fails with `Corruption` at the
/// first part that is damaged. Works on a private copy: nothing is repaired in the file.
pub(crate) fn describe_pool(
    file: &Arc<dyn File>,
    label: &str,
    say: &mut LineSink<'_>,
) -> Result<()> {
    let (pool, head) = Pool::open_to_inspect(file, label)?;
    let pool = Arc::new(pool);
    say("pool of persistent memory of an slm table");
    say(&format!("  database id    {}", hex(&head.database_id)));
    say(&format!("  table id       {}", head.table_id));
    say(&format!("  bytes          {}", pool.bytes()));
    say(&format!("  first segment  {} bytes", head.region_bytes));
    say(&format!("  memory         {}", memory(&pool)));
    describe_slabs(&pool, say);
    let state = pool.root(STATE);
    if state == 0 {
        say("no contents: its creation was interrupted");
        return Ok(());
    }
    if state & !(0xff << PARTS_SHIFT) != MAGIC {
        return Err(pool.damage(Pool::root_at(STATE), format!("the state {state:#x}")));
    }
    let parts = state >> PARTS_SHIFT & 0xff;
    let has = |part| if parts & part == 0 { "elsewhere" } else { "here" };
    say(&format!("  memtables      {}", has(HAS_MEMTABLES)));
    say(&format!("  index          {}", has(HAS_INDEX)));
    say(&format!("  complete to    lsn {}", pool.root(COMPLETE)));
    if pool.root(HAS_PAGES) == 1 {
        say("  checkpoint     the index in pages has had one");
    }
    if parts & HAS_MEMTABLES != 0 {
        describe_memtables(&pool, say)?;
    }
    if parts & HAS_INDEX != 0 {
        index::describe(&pool, say)?;
    }
    Ok(())
}

fn memory(pool: &Pool) -> &'static str {
    match (pool.is_emulated(), pool.is_closed()) {
        (false, _) => "persistent memory",
        (true, true) => "emulated on an ordinary file, closed",
        (true, false) => "emulated on an ordinary file, not closed: lost if the system went down",
    }
}

fn describe_slabs(pool: &Pool, say: &mut LineSink<'_>) {
    let slabs = pool.slab_use();
    say(&format!("slabs: {}, of them {} free", slabs.total, slabs.free));
    for (bytes, count) in &slabs.classes {
        say(&format!("  {count} of objects of {bytes} bytes"));
    }
    say(&format!("  {} in {} larger objects", slabs.run_slabs, slabs.runs));
}

fn describe_memtables(pool: &Arc<Pool>, say: &mut LineSink<'_>) -> Result<()> {
    if pool.root(MEMTABLES) == 0 {
        say("memtables: 0");
        return Ok(());
    }
    let lists = PoolMemtables::open(pool, MEMTABLES, 0, false)?.lists()?;
    say(&format!("memtables: {}, newest first", lists.len()));
    for listed in lists {
        let list = PoolListSummary::read(pool, listed)?;
        let lsns = list
            .lsns
            .map_or_else(String::new, |(low, high)| format!(", lsn {} to {}", low.0, high.0));
        let line =
            format!("  byte {}: {} entries, {} bytes{lsns}", listed.at, list.keys, list.bytes);
        if !say(&line) {
            break;
        }
    }
    Ok(())
}
