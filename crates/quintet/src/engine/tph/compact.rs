//! Which tables are merged, and when.
//!
//! | what | when | where to |
//! |---|---|---|
//! | all of level 0 | it has `level0_tables` | level 1 |
//! | a table of a level of key ranges | the level is larger than its share: `level_bytes`, times `fanout` for each level above | the next level |
//! | a table of hash ranges | it is larger than two full ones | its `fanout` children |
//! | SSTs of a table | dead entries are a quarter of it, and nothing else is to be done | a new SST |
//!
//! What has outgrown its share by most goes first. Were it always level 0, then level 1 would have
//! all of a long load, and each merge would make the indexes of all of it anew.
//! The deepest level may have [`DEEPEST_TIMES`] its share before another begins below it: a level
//! with little in it costs as much to merge into and to ask as one with much.
//!
//! Beside that, each merge into a table of `max_pieces` collects garbage: the smaller half of the
//! SSTs, and those that are mostly dead. A table of key ranges that is half as large again
//! as a full one is rewritten whole by its next merge, and cut.
//!
//! Why the smaller half and not the oldest SSTs: the oldest is the largest, and rewriting it at
//! each turn would write the table again and again; it goes when a quarter of it is dead.

use std::sync::Arc;

use super::{
    Inner, SuperVersion, Version,
    cursor::{Filter, MergeCursor, Source},
    flush::set_level,
    manifest::LEVELS_MAX,
    merge::{Base, Cut, Plan},
    options::Mode,
    publish::Fresh,
    table::{Part, Route, SstUse, Table},
};
use crate::{
    Result,
    lsm::cursor::merge::{Direction, ScanStart},
    util::{
        codec::to_u64,
        sync::{Mutex, lock},
    },
};

/// The deepest level of key ranges may have so many times its share.
const DEEPEST_TIMES: u64 = 4;
/// Dead entries of a table that are worth collecting, in per cent of its bytes.
const DEAD_PER_CENT: u64 = 25;
/// An SST that is dead to this part is collected with the others.
const DEAD_PIECE_PER_CENT: u64 = 50;

/// News for a level, from a start on.
type Delta<'a> = dyn Fn(&ScanStart) -> Vec<Source> + Sync + 'a;

/// What became of merging into one table: none as long as it is not done, no tables where it was
/// left alone.
type Outcome = Option<Result<Option<Vec<Table>>>>;

/// What is to be done.
#[derive(Clone, Debug)]
enum Job {
    Level0,
    /// A table of a level (0 is level 1) goes down.
    Down(usize, Arc<Table>),
    /// Dead entries of a table are collected.
    Collect(usize, Arc<Table>),
}

fn dead_bytes(table: &Table) -> u64 {
    table.payload_bytes().saturating_sub(table.live_bytes())
}

fn is_mostly_dead(one: &SstUse) -> bool {
    let all = one.sst.footer.payload_bytes;
    one.live_bytes * 100 < all * (100 - DEAD_PIECE_PER_CENT)
}

/// A table with much that is dead.
fn wasteful(version: &Version) -> Option<Job> {
    let is_wasteful =
        |table: &&Arc<Table>| dead_bytes(table) * 100 > table.payload_bytes() * DEAD_PER_CENT;
    version.levels.iter().enumerate().find_map(|(place, level)| {
        let table = level.iter().find(is_wasteful)?;
        Some(Job::Collect(place, Arc::clone(table)))
    })
}

fn without(tables: &[Arc<Table>], gone: &[Arc<Table>]) -> Vec<Arc<Table>> {
    let stays = |one: &&Arc<Table>| !gone.iter().any(|other| Arc::ptr_eq(one, other));
    tables.iter().filter(stays).cloned().collect()
}

impl Inner {
    fn pick(&self, version: &Version) -> Option<Job> {
        let level0 = to_u64(version.level0.len()) * 100 / to_u64(self.settings.level0_tables);
        let down = self.outgrown(version).max_by_key(|(excess, ..)| *excess);
        match down {
            Some((excess, place, table)) if excess > level0.max(100) => {
                Some(Job::Down(place, Arc::clone(table)))
            }
            _ if level0 >= 100 => Some(Job::Level0),
            _ => wasteful(version),
        }
    }

    /// For each level: how much it has of its share, in per cent, its place, and the table that
    /// would go down.
    fn outgrown<'a>(
        &'a self,
        version: &'a Version,
    ) -> impl Iterator<Item = (u64, usize, &'a Arc<Table>)> {
        let settings = &self.settings;
        version.levels.iter().enumerate().filter_map(move |(place, level)| {
            let has_next = !settings.is_flat() && to_u64(place) + 2 < LEVELS_MAX;
            let table = level.iter().max_by_key(|table| table.fullness(settings))?;
            let (size, share) = if settings.mode == Mode::HashRange {
                (table.fullness(settings), 200)
            } else {
                let power = settings.fanout.saturating_pow(u32::try_from(place).unwrap_or(32));
                let is_deepest = place + 1 == version.levels.len();
                let times = if is_deepest && place > 0 { DEEPEST_TIMES } else { 1 };
                let share = settings.level_bytes.saturating_mul(power).saturating_mul(times);
                (level.iter().map(|table| table.live_bytes()).sum(), share)
            };
            let excess = size.saturating_mul(100) / share.max(1);
            has_next.then_some((excess, place, table))
        })
    }

    pub(super) fn wants_compaction(&self, version: &Version) -> bool {
        self.pick(version).is_some()
    }

    /// Does one job; whether there was one.
    pub(super) fn compact_step(&self) -> Result<bool> {
        let _compacting = lock(&self.compacting);
        let version = Arc::clone(&self.front.view.load().version);
        let Some(job) = self.pick(&version) else { return Ok(false) };
        self.run(&version, &job)?;
        self.context.host.wake();
        Ok(true)
    }

    /// Everything into the deepest level, without anything dead or expired.
    pub(super) fn compact_all(&self) -> Result<()> {
        let last = Arc::clone(&self.front.view.load().active);
        self.front.rotate_any(self)?;
        let waits = |view: &SuperVersion| view.frozen.iter().any(|one| Arc::ptr_eq(one, &last));
        while waits(&self.front.view.load()) {
            self.flush_backlog()?;
        }
        let _compacting = lock(&self.compacting);
        let version = Arc::clone(&self.front.view.load().version);
        if !version.level0.is_empty() {
            self.run(&version, &Job::Level0)?;
        }
        let mut place = 0;
        loop {
            let version = Arc::clone(&self.front.view.load().version);
            let Some(level) = version.levels.get(place) else { return Ok(()) };
            let is_last = place + 1 == version.levels.len();
            for table in level.iter().filter(|table| !table.uses.is_empty()) {
                let version = Arc::clone(&self.front.view.load().version);
                let table = Arc::clone(table);
                if is_last {
                    self.rewrite(&version, place, &table, &vec![true; table.uses.len()])?;
                } else {
                    self.run(&version, &Job::Down(place, table))?;
                }
            }
            place += 1;
        }
    }

    fn run(&self, version: &Version, job: &Job) -> Result<()> {
        match job {
            Job::Level0 => {
                let fresh = Fresh::new(self);
                let merged = version.level0.clone();
                let ahead = self.ahead(merged.iter().map(|table| table.uses.len()).sum());
                let delta = |start: &ScanStart| {
                    merged.iter().flat_map(|table| table.cursors(start, ahead)).collect()
                };
                let level = self.merge_into(version, 0, &delta, &fresh)?;
                self.publish(&fresh, None, &[], |version| {
                    let mut version = version.clone();
                    version.level0 = without(&version.level0, &merged);
                    set_level(&mut version, 0, level);
                    version
                })?;
                self.note_merge(merged.iter().map(|table| table.payload_bytes()).sum());
            }
            Job::Down(place, table) => {
                let fresh = Fresh::new(self);
                let ahead = self.ahead(table.uses.len());
                let delta = |start: &ScanStart| table.cursors(start, ahead);
                let level = self.merge_into(version, place + 1, &delta, &fresh)?;
                self.publish(&fresh, None, &[], |version| {
                    let mut version = version.clone();
                    let empty = Table { low: table.low.clone(), ..Table::default() };
                    let above = version.levels.get(*place).map_or(&[][..], Vec::as_slice);
                    let above = self.exchange(above, table, vec![empty]);
                    set_level(&mut version, *place, above);
                    set_level(&mut version, place + 1, level);
                    version
                })?;
            }
            Job::Collect(place, table) => {
                let wasteful = |one: &SstUse| {
                    one.live_bytes * 100 < one.sst.footer.payload_bytes * (100 - DEAD_PER_CENT / 2)
                };
                let rewrite: Vec<bool> = table.uses.iter().map(wasteful).collect();
                self.rewrite(version, *place, table, &rewrite)?;
            }
        }
        Ok(())
    }

    /// Rewrites SSTs of a table.
    fn rewrite(
        &self,
        version: &Version,
        place: usize,
        table: &Arc<Table>,
        rewrite: &[bool],
    ) -> Result<()> {
        let fresh = Fresh::new(self);
        let all = rewrite.iter().all(|one| *one);
        let plan = Plan {
            rewrite: rewrite.to_vec(),
            deeper: has_deeper(version, place),
            cut: if all { self.cut(table) } else { None },
            is_flush: false,
        };
        let base = Base::from(&**table);
        let tables = self.merge_table(&base, Vec::new(), &plan, &fresh)?;
        self.publish(&fresh, None, &[], |version| {
            let mut version = version.clone();
            let level = version.levels.get(place).map_or(&[][..], Vec::as_slice);
            let level = self.exchange(level, table, tables);
            set_level(&mut version, place, level);
            version
        })?;
        Ok(())
    }

    /// A level with others in a table's place. Of key ranges, those without anything are left to
    /// the table before them; a level of empty tables is none.
    fn exchange(
        &self,
        level: &[Arc<Table>],
        gone: &Arc<Table>,
        new: Vec<Table>,
    ) -> Vec<Arc<Table>> {
        let mut new = Some(new);
        let tables = level.iter().flat_map(|one| {
            if Arc::ptr_eq(one, gone) {
                new.take().unwrap_or_default().into_iter().map(Arc::new).collect()
            } else {
                vec![Arc::clone(one)]
            }
        });
        self.tidy(tables.collect())
    }

    fn tidy(&self, mut tables: Vec<Arc<Table>>) -> Vec<Arc<Table>> {
        if tables.iter().all(|table| table.uses.is_empty()) {
            return Vec::new();
        }
        if matches!(self.route, Route::Key) {
            tables.retain(|table| table.low.is_empty() || !table.uses.is_empty());
        }
        tables
    }

    /// The tables of a level before anything is merged into them.
    fn level(&self, version: &Version, place: usize) -> Vec<Arc<Table>> {
        match version.levels.get(place) {
            Some(tables) if !tables.is_empty() => return tables.clone(),
            _ => {}
        }
        let count = match self.route {
            Route::Key => 1,
            Route::Hash(_) => {
                let power = u32::try_from(place + 1).unwrap_or(u32::MAX);
                self.settings.fanout.saturating_pow(power).min(1 << 20)
            }
        };
        let table = |number: u64| {
            let low = crate::util::codec::low_u32((number << 32).div_ceil(count)).to_be_bytes();
            let low = if number == 0 { Vec::new() } else { low.to_vec() };
            Arc::new(Table { low, ..Table::default() })
        };
        (0..count).map(table).collect()
    }

    /// Merges news into the tables of a level (0 is level 1), those that they concern, side by
    /// side; the level's tables then.
    pub(super) fn merge_into(
        &self,
        version: &Version,
        place: usize,
        delta: &Delta<'_>,
        fresh: &Fresh<'_>,
    ) -> Result<Vec<Arc<Table>>> {
        let level = self.level(version, place);
        let deeper = has_deeper(version, place);
        let done: Vec<Mutex<Outcome>> = level.iter().map(|_| Mutex::new(None)).collect();
        self.context.env.parallel(level.len(), &|number| {
            let outcome = self.merge_part(&level, number, deeper, delta, fresh);
            if let Some(slot) = done.get(number) {
                *lock(slot) = Some(outcome);
            }
        });
        let mut tables = Vec::new();
        for (table, slot) in level.iter().zip(done) {
            let outcome = lock(&slot).take();
            match outcome.transpose()?.flatten() {
                None => tables.push(Arc::clone(table)),
                Some(new) => tables.extend(new.into_iter().map(Arc::new)),
            }
        }
        Ok(self.tidy(tables))
    }

    /// Merges what belongs to one table; `None` where nothing does.
    fn merge_part(
        &self,
        level: &[Arc<Table>],
        number: usize,
        deeper: bool,
        delta: &Delta<'_>,
        fresh: &Fresh<'_>,
    ) -> Result<Option<Vec<Table>>> {
        let Some(table) = level.get(number) else { return Ok(None) };
        let next = level.get(number + 1);
        let high = next.map(|table| table.low.clone()).unwrap_or_default();
        let places = table.low.clone()..high;
        let part = Part { route: self.route, places, is_last: next.is_none() };
        let flow = self.queues.flow(&*self.context.env)?;
        let start = ScanStart::up(part.first_key()).with(&flow);
        let inner = MergeCursor::new(delta(&start), Direction::Up);
        let filter = Source::Filter(Box::new(Filter { inner, part }));
        let mut probe = MergeCursor::new(vec![filter], Direction::Up);
        probe.load_first()?;
        if probe.key().is_none() {
            return Ok(None);
        }
        let plan = self.plan(table, deeper);
        let tables = self.merge_table(&Base::from(&**table), probe.sources, &plan, fresh)?;
        Ok(Some(tables))
    }

    /// What a merge into a table does with its SSTs.
    fn plan(&self, table: &Table, deeper: bool) -> Plan {
        let settings = &self.settings;
        let count = table.uses.len();
        let mut rewrite = vec![false; count];
        let is_large = matches!(self.route, Route::Key) && table.fullness(settings) > 150;
        if is_large {
            rewrite.fill(true);
        } else if count >= settings.max_pieces {
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by_key(|place| table.uses.get(*place).map_or(0, |one| one.live_bytes));
            let smaller = settings.max_pieces.div_ceil(2).max(count + 1 - settings.max_pieces);
            for place in order.into_iter().take(smaller) {
                if let Some(slot) = rewrite.get_mut(place) {
                    *slot = true;
                }
            }
            let oldest = table.uses.last().is_some_and(|one| {
                let all = one.sst.footer.payload_bytes;
                one.live_bytes * 100 < all * (100 - DEAD_PER_CENT)
            });
            for (place, slot) in rewrite.iter_mut().enumerate() {
                *slot |= table.uses.get(place).is_some_and(is_mostly_dead);
                *slot |= oldest && place + 1 == count;
            }
        }
        let cut = if rewrite.iter().all(|one| *one) { self.cut(table) } else { None };
        Plan { rewrite, deeper, cut, is_flush: false }
    }

    /// Where a table of which all is rewritten is cut, if its kind is.
    fn cut(&self, table: &Table) -> Option<Cut> {
        matches!(self.route, Route::Key).then(|| Cut::evenly(table, &self.settings))
    }
}

/// Whether a level below has anything.
fn has_deeper(version: &Version, place: usize) -> bool {
    version.levels.iter().skip(place + 1).flatten().any(|table| !table.uses.is_empty())
}
