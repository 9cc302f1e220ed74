//! A collection: an ordered map of names to values, in the head or in the ordered table.
//!
//! All types but strings are such maps. The types choose the names: fields of a hash, members of a
//! set, indexes of a list, scores with members of a sorted set. A collection begins in its head.
//! When it is too large it moves to the ordered table and stays there until it is removed.

use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use quintet::Table;

use super::{
    call_limits::CallLimits,
    database_tables::Tables,
    elements::{Elements, Inline, Kind, Pending},
    field_expiries::FieldExpiries,
    head::{Body, Head},
    slot::Slot,
    tables::Databases,
};
use crate::failure::{Done, Fail};

/// Most elements in a head.
const INLINE_COUNT_MAX: usize = 128;
/// Most bytes of elements in a head. Each write of the collection writes all of them.
const INLINE_BYTES_MAX: usize = 2048;
/// Longest field or member in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 65_000;
/// Longest name of an element in bytes. Types add at most 9 bytes to a field or member, and a key
/// of a table has at most 65,535 bytes with the 8 of the version.
const ELEMENT_BYTES_MAX: usize = 65_500;

/// Fails for a field or a member that is too long. A command checks all its names before its first
/// change, since it must not change a part.
pub(crate) fn check_names<'n>(names: impl IntoIterator<Item = &'n [u8]>) -> Done {
    match names.into_iter().find(|name| name.len() > NAME_BYTES_MAX) {
        None => Ok(()),
        Some(name) => Err(Fail::with(format!(
            "ERR an element of {} bytes is too long; the limit is {NAME_BYTES_MAX}",
            name.len()
        ))),
    }
}

/// A collection that a unit has loaded.
#[derive(Debug)]
pub(crate) struct Collection<'u> {
    pub(super) elements: &'u mut Elements,
    pub(super) pending: &'u mut Pending,
    pub(super) is_changed: &'u mut bool,
    pub(super) table: Option<Arc<Tables>>,
    /// The limits of the command; none for the background.
    pub(super) limits: Option<&'u CallLimits>,
    /// Only of a hash.
    pub(super) field_expiries: Option<ExpiriesOfHash<'u>>,
}

/// Where an open hash keeps its expiries, and the source of versions for them.
#[derive(Debug)]
pub(super) struct ExpiriesOfHash<'u> {
    pub(super) slot: &'u mut Option<Box<FieldExpiries>>,
    pub(super) databases: &'u Databases,
}

/// A range of names.
pub(crate) type NameRange<'r> = (Bound<&'r [u8]>, Bound<&'r [u8]>);

/// All names.
pub(crate) const ALL: NameRange<'static> = (Bound::Unbounded, Bound::Unbounded);

impl<'u> Collection<'u> {
    /// The collection of a slot, or `None` if it is a string.
    pub(super) fn new(
        slot: &'u mut Slot,
        table: Option<Arc<Tables>>,
        (databases, limits): (&'u Databases, &'u CallLimits),
    ) -> Option<Self> {
        let Slot { head, pending, is_changed, .. } = slot;
        let Head { body: Body::Elements(elements), field_expiries, .. } = head.as_mut()? else {
            return None;
        };
        let is_hash = elements.kind == Kind::Hash;
        let field_expiries = is_hash.then_some(ExpiriesOfHash { slot: field_expiries, databases });
        let limits = Some(limits);
        Some(Self { elements, pending, is_changed, table, limits, field_expiries })
    }

    /// Number of elements as the client counts them.
    pub(crate) fn count(&self) -> usize {
        usize::try_from(self.elements.count).unwrap_or(usize::MAX)
    }

    /// Sets the number of elements. Zero removes the key at the end of the command.
    pub(crate) fn set_count(&mut self, count: usize) {
        self.elements.count = u64::try_from(count).unwrap_or(u64::MAX);
        *self.is_changed = true;
    }

    /// Whether the elements are in the head.
    pub(crate) fn is_inline(&self) -> bool {
        self.elements.inline.is_some()
    }

    /// State of the type.
    pub(crate) fn extra(&self) -> &[u8] {
        &self.elements.extra
    }

    /// Replaces the state of the type.
    pub(crate) fn set_extra(&mut self, extra: &[u8]) {
        self.elements.extra.clear();
        self.elements.extra.extend_from_slice(extra);
        *self.is_changed = true;
    }

    /// The value of a name. Fails if the command has no memory for it.
    pub(crate) fn get(&self, name: &[u8]) -> Done<Option<Vec<u8>>> {
        if let Some(inline) = &self.elements.inline {
            let found = position(inline, name).ok().and_then(|at| inline.get(at));
            return Ok(found.map(|(_, value)| value.clone()));
        }
        let found = if let Some(value) = self.pending.get(name) {
            value.clone()
        } else {
            let Some(table) = self.table() else { return Ok(None) };
            let mut value = Vec::new();
            table.get_into(self.stored_name(name), &mut value)?.then_some(value)
        };
        if self.hold(found.as_ref().map_or(0, Vec::len)).is_break() {
            self.limits.map_or(Ok(()), CallLimits::check)?;
        }
        Ok(found)
    }

    /// Whether a name has a value.
    pub(crate) fn contains(&self, name: &[u8]) -> Done<bool> {
        if self.elements.inline.is_some() || self.pending.contains_key(name) {
            return Ok(self.get(name)?.is_some());
        }
        let Some(table) = self.table() else { return Ok(false) };
        Ok(table.contains(self.stored_name(name))?)
    }

    /// Sets the value of a name. The number of elements stays the caller's business.
    pub(crate) fn put(&mut self, name: &[u8], value: &[u8]) -> Done {
        if name.len() > ELEMENT_BYTES_MAX {
            return Err(Fail::with(format!(
                "ERR an element of {} bytes is too long; the limit is {ELEMENT_BYTES_MAX}",
                name.len()
            )));
        }
        *self.is_changed = true;
        let Some(inline) = &mut self.elements.inline else {
            if self.keep(name.len() + value.len()).is_break() {
                self.limits.map_or(Ok(()), CallLimits::check)?;
            }
            self.pending.insert(name.to_vec(), Some(value.to_vec()));
            return Ok(());
        };
        match position(inline, name) {
            Ok(at) => {
                if let Some(element) = inline.get_mut(at) {
                    element.1 = value.to_vec();
                }
            }
            Err(at) => inline.insert(at, (name.to_vec(), value.to_vec())),
        }
        let bytes = |inline: &Inline| -> usize {
            inline.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
        };
        if inline.len() > INLINE_COUNT_MAX || bytes(inline) > INLINE_BYTES_MAX {
            let moved = std::mem::take(inline);
            self.pending.extend(moved.into_iter().map(|(name, value)| (name, Some(value))));
            self.elements.inline = None;
        }
        Ok(())
    }

    /// Removes a name. The number of elements stays the caller's business. Beyond a limit of the
    /// command it does nothing, since the command has no effect then.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        *self.is_changed = true;
        if let Some(inline) = &mut self.elements.inline {
            if let Ok(at) = position(inline, name) {
                inline.remove(at);
            }
        } else if self.keep(name.len()).is_continue() {
            self.pending.insert(name.to_vec(), None);
        }
    }

    /// Counts bytes of a change. `Break` beyond a limit.
    fn keep(&self, bytes: usize) -> ControlFlow<()> {
        self.limits.map_or(ControlFlow::Continue(()), |limits| limits.load(bytes))
    }

    /// Counts bytes that the command copies for an element. `Break` beyond its limit; then the
    /// visit under way fails, or the command fails at its end.
    pub(crate) fn hold(&self, bytes: usize) -> ControlFlow<()> {
        self.limits.map_or(ControlFlow::Continue(()), |limits| limits.hold(bytes))
    }

    /// Looks at the time of the command. `Break` beyond its limit.
    pub(crate) fn look(&self) -> ControlFlow<()> {
        self.limits.map_or(ControlFlow::Continue(()), CallLimits::look)
    }

    /// Calls `each` with the elements of a range in the order of names, or from the end, until it
    /// returns `Break`. Fails if the command is beyond a limit.
    pub(crate) fn visit(
        &self,
        range: NameRange<'_>,
        is_reverse: bool,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Done {
        let each = |name: &[u8], value: &[u8]| {
            self.limits.map_or(ControlFlow::Continue(()), CallLimits::step)?;
            each(name, value)
        };
        self.visit_all(range, is_reverse, each)?;
        self.limits.map_or(Ok(()), CallLimits::check)
    }

    fn visit_all(
        &self,
        range: NameRange<'_>,
        is_reverse: bool,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Done {
        if let Some(inline) = &self.elements.inline {
            visit_inline(inline, range, is_reverse, each);
            return Ok(());
        }
        let Some(pending) = pending_range(self.pending, range) else { return Ok(()) };
        let mut pending = MergedPending { entries: pending, is_reverse };
        let mut is_over = false;
        if let Some(table) = self.table() {
            let mut merged = |name: &[u8], value: &[u8]| {
                let flow = pending.before(name, &mut each);
                let flow = match flow {
                    ControlFlow::Continue(true) => ControlFlow::Continue(()),
                    ControlFlow::Continue(false) => each(name, value),
                    ControlFlow::Break(()) => ControlFlow::Break(()),
                };
                is_over = flow.is_break();
                flow
            };
            let bounds = self.stored_range(range);
            if is_reverse {
                for entry in table.range(bounds)?.rev() {
                    let (name, value) = entry?;
                    if merged(name.get(8..).unwrap_or(&[]), &value).is_break() {
                        break;
                    }
                }
            } else {
                table.visit(bounds, |name, value| merged(name.get(8..).unwrap_or(&[]), value))?;
            }
        }
        if !is_over {
            pending.rest(&mut each);
        }
        Ok(())
    }

    /// The elements of a range. Fails if they take more memory than a command may have.
    pub(crate) fn collect(&self, range: NameRange<'_>) -> Done<Inline> {
        let mut found = Vec::new();
        self.visit(range, false, |name, value| {
            found.push((name.to_vec(), value.to_vec()));
            self.hold(name.len() + value.len())
        })?;
        Ok(found)
    }

    fn table(&self) -> Option<&Table> {
        self.table.as_ref().map(|tables| &tables.elements)
    }

    fn stored_name(&self, name: &[u8]) -> Vec<u8> {
        [self.elements.version.to_be_bytes().as_slice(), name].concat()
    }

    fn stored_range(&self, (from, to): NameRange<'_>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let start = match from {
            Bound::Included(name) => Bound::Included(self.stored_name(name)),
            Bound::Excluded(name) => Bound::Excluded(self.stored_name(name)),
            Bound::Unbounded => Bound::Included(self.stored_name(&[])),
        };
        let end = match to {
            Bound::Included(name) => Bound::Included(self.stored_name(name)),
            Bound::Excluded(name) => Bound::Excluded(self.stored_name(name)),
            Bound::Unbounded => Bound::Excluded((self.elements.version + 1).to_be_bytes().to_vec()),
        };
        (start, end)
    }
}

/// Where a name is, or belongs.
fn position(inline: &Inline, name: &[u8]) -> Result<usize, usize> {
    inline.binary_search_by(|(other, _)| other.as_slice().cmp(name))
}

fn visit_inline(
    inline: &Inline,
    range: NameRange<'_>,
    is_reverse: bool,
    mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) {
    let start = match range.0 {
        Bound::Included(name) => inline.partition_point(|(other, _)| other.as_slice() < name),
        Bound::Excluded(name) => inline.partition_point(|(other, _)| other.as_slice() <= name),
        Bound::Unbounded => 0,
    };
    let rest = inline.get(start..).unwrap_or(&[]);
    let end = rest.partition_point(|(name, _)| match range.1 {
        Bound::Included(last) => name.as_slice() <= last,
        Bound::Excluded(end) => name.as_slice() < end,
        Bound::Unbounded => true,
    });
    let found = rest.get(..end).unwrap_or(&[]);
    let mut visit = |(name, value): &(Vec<u8>, Vec<u8>)| each(name, value).is_break();
    if is_reverse {
        found.iter().rev().any(&mut visit);
    } else {
        found.iter().any(&mut visit);
    }
}

type PendingRange<'p> = std::collections::btree_map::Range<'p, Vec<u8>, Option<Vec<u8>>>;

/// The changed elements of a range, or `None` if the range is empty.
fn pending_range<'p>(pending: &'p Pending, range: NameRange<'_>) -> Option<PendingRange<'p>> {
    let is_empty = match range {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Excluded(to) | Bound::Included(to),
        ) => from >= to,
        _ => false,
    };
    (!is_empty).then(|| pending.range::<[u8], _>(range))
}

/// Changed elements that are merged with those of the table.
struct MergedPending<'p> {
    entries: PendingRange<'p>,
    is_reverse: bool,
}

impl<'p> MergedPending<'p> {
    fn peek(&self) -> Option<(&'p Vec<u8>, &'p Option<Vec<u8>>)> {
        let mut entries = self.entries.clone();
        if self.is_reverse { entries.next_back() } else { entries.next() }
    }

    fn step(&mut self) {
        if self.is_reverse {
            self.entries.next_back()
        } else {
            self.entries.next()
        };
    }

    /// Calls `each` with the changed elements before `name`. Returns whether `name` itself was
    /// changed, and visited if it still has a value.
    fn before(
        &mut self,
        name: &[u8],
        each: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<(), bool> {
        while let Some((other, value)) = self.peek() {
            let order = other.as_slice().cmp(name);
            let order = if self.is_reverse { order.reverse() } else { order };
            if order.is_gt() {
                break;
            }
            self.step();
            if let Some(value) = value {
                each(other, value)?;
            }
            if order.is_eq() {
                return ControlFlow::Continue(true);
            }
        }
        ControlFlow::Continue(false)
    }

    /// Calls `each` with the changed elements that are left.
    fn rest(&mut self, each: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) {
        while let Some((name, value)) = self.peek() {
            self.step();
            if let Some(value) = value
                && each(name, value).is_break()
            {
                break;
            }
        }
    }
}
