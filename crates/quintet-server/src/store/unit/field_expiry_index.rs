//! Index of the expiries of fields: the second collection of a hash, by field and by time.
//!
//! | name | value |
//! |---|---|
//! | `f`, field | expiry in milliseconds since 1970 (8 bytes, little-endian) |
//! | `t`, expiry (8 bytes, big-endian), field | empty |
//!
//! Invariants:
//! - Each field with an expiry is in the hash, and is under both names.
//! - A unit removes the fields that have expired when it loads the head. So no command sees them,
//!   and the number of elements does not count them. The removal is written if the unit changes
//!   the key; otherwise the background removes the fields.
//! - A unit for the commands of a master removes none: the master decides when they end.

use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use super::super::{
    collection::{Collection, NameRange},
    database_tables::Tables,
    elements::Pending,
    field_expiries::FieldExpiries,
    head::{Body, Head},
};
use crate::failure::Done;

const BY_FIELD: u8 = b'f';
const BY_TIME: u8 = b't';

fn by_field(field: &[u8]) -> Vec<u8> {
    [&[BY_FIELD], field].concat()
}

fn by_time(expiry: u64, field: &[u8]) -> Vec<u8> {
    [[BY_TIME].as_slice(), &expiry.to_be_bytes(), field].concat()
}

fn split_time(name: &[u8]) -> Option<(u64, &[u8])> {
    let (time, field) = name.get(1..)?.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*time), field))
}

fn time_of(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

const FIELDS: NameRange<'static> = (Bound::Included(&[BY_FIELD]), Bound::Excluded(&[BY_FIELD + 1]));
const TIMES: NameRange<'static> = (Bound::Included(&[BY_TIME]), Bound::Excluded(&[BY_TIME + 1]));

impl FieldExpiries {
    fn collection(&mut self, table: Option<&Arc<Tables>>) -> Collection<'_> {
        let Self { elements, pending, is_changed, .. } = self;
        Collection {
            elements,
            pending,
            is_changed,
            table: table.cloned(),
            limits: None,
            field_expiries: None,
        }
    }

    /// Sets or removes the expiry of a field. Returns whether that changes anything.
    fn set(
        &mut self,
        table: Option<&Arc<Tables>>,
        field: &[u8],
        expiry: Option<u64>,
    ) -> Done<bool> {
        let mut own = self.collection(table);
        let old = own.get(&by_field(field))?.map(|value| time_of(&value));
        if old == expiry {
            return Ok(false);
        }
        match expiry {
            Some(new) => {
                own.put(&by_time(new, field), &[])?;
                own.put(&by_field(field), &new.to_le_bytes())?;
            }
            None => own.remove(&by_field(field)),
        }
        if let Some(old) = old {
            own.remove(&by_time(old, field));
        }
        let count = own.count() + usize::from(expiry.is_some()) - usize::from(old.is_some());
        own.set_count(count);
        match expiry {
            Some(new) if new <= self.first => self.first = new,
            _ if old == Some(self.first) => self.find_first(table)?,
            _ => {}
        }
        Ok(true)
    }

    fn find_first(&mut self, table: Option<&Arc<Tables>>) -> Done {
        self.first = self.edge(table, false)?.unwrap_or(u64::MAX);
        Ok(())
    }

    /// The earliest or the latest expiry.
    fn edge(&mut self, table: Option<&Arc<Tables>>, is_last: bool) -> Done<Option<u64>> {
        let mut found = None;
        self.collection(table).visit(TIMES, is_last, |name, _| {
            found = split_time(name).map(|(time, _)| time);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// At most `limit` fields that have expired, the earliest first, each with its expiry.
    fn expired(
        &mut self,
        table: Option<&Arc<Tables>>,
        now: u64,
        limit: usize,
    ) -> Done<Vec<(u64, Vec<u8>)>> {
        let end = by_time(now.saturating_add(1), &[]);
        let range = (Bound::Included([BY_TIME].as_slice()), Bound::Excluded(end.as_slice()));
        let mut found = Vec::new();
        self.collection(table).visit(range, false, |name, _| {
            if found.len() >= limit {
                return ControlFlow::Break(());
            }
            found.extend(split_time(name).map(|(time, field)| (time, field.to_vec())));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

impl Collection<'_> {
    /// When a field of a hash expires, in milliseconds since 1970.
    pub(crate) fn field_expiry(&mut self, field: &[u8]) -> Done<Option<u64>> {
        let Some(own) = &mut self.field_expiries else { return Ok(None) };
        let Some(expiries) = own.slot.as_deref_mut() else { return Ok(None) };
        let value = expiries.collection(self.table.as_ref()).get(&by_field(field))?;
        Ok(value.map(|value| time_of(&value)))
    }

    /// Sets or removes the expiry of a field, which the hash must have, unless `expiry` is `None`.
    /// The caller must not set one that is past.
    pub(crate) fn set_field_expiry(&mut self, field: &[u8], expiry: Option<u64>) -> Done {
        let Some(own) = &mut self.field_expiries else { return Ok(()) };
        if own.slot.is_none() && expiry.is_none() {
            return Ok(());
        }
        let databases = own.databases;
        let new = || Box::new(FieldExpiries::new(databases.next_version()));
        let expiries = own.slot.get_or_insert_with(new);
        let set = expiries.set(self.table.as_ref(), field, expiry);
        if expiries.elements.count == 0 {
            *own.slot = None;
        }
        *self.is_changed |= set?;
        Ok(())
    }

    /// The fields that expire, sorted, each with its expiry.
    pub(crate) fn field_expiries(&mut self) -> Done<Vec<(Vec<u8>, u64)>> {
        let mut found = Vec::new();
        let own = self.field_expiries.as_mut().and_then(|own| own.slot.as_deref_mut());
        let Some(expiries) = own else { return Ok(found) };
        expiries.collection(self.table.as_ref()).visit(FIELDS, false, |name, value| {
            found.push((name.get(1..).unwrap_or(&[]).to_vec(), time_of(value)));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// The earliest expiry of a field, if one expires.
    pub(crate) fn first_field_expiry(&self) -> Option<u64> {
        Some(self.field_expiries.as_ref()?.slot.as_deref()?.first)
    }

    /// Calls `each` with all fields, values and expiries until it returns `Break`.
    pub(crate) fn visit_with_expiries(
        &mut self,
        mut each: impl FnMut(&[u8], &[u8], Option<u64>) -> ControlFlow<()>,
    ) -> Done {
        let table = self.table.clone();
        let expiries = self.field_expiries.as_mut().and_then(|own| own.slot.as_deref_mut());
        let expiries = expiries.map(|expiries| expiries.collection(table.as_ref()));
        let (elements, pending) = (&mut *self.elements, &mut *self.pending);
        let is_changed = &mut *self.is_changed;
        let fields =
            Collection { elements, pending, is_changed, table, limits: None, field_expiries: None };
        let mut failure = Ok(());
        fields.visit(super::super::ALL, false, |field, value| {
            let expiry = match &expiries {
                Some(expiries) => expiries.get(&by_field(field)),
                None => Ok(None),
            };
            match expiry {
                Ok(expiry) => each(field, value, expiry.map(|value| time_of(&value))),
                Err(fail) => {
                    failure = Err(fail);
                    ControlFlow::Break(())
                }
            }
        })?;
        failure
    }
}

/// Removes at most `limit` fields that have expired from a head that was loaded. Returns their
/// number. If no fields are left, the head has no elements and the caller removes it.
///
/// Cost: one step for each field, and constant if all fields have expired.
pub(super) fn remove_expired_fields(
    head: &mut Head,
    pending: &mut Pending,
    table: Option<&Arc<Tables>>,
    (now, limit): (u64, usize),
) -> Done<usize> {
    let Head { body: Body::Elements(elements), field_expiries, .. } = head else { return Ok(0) };
    let Some(expiries) = field_expiries.as_deref_mut() else { return Ok(0) };
    if expiries.elements.count == elements.count
        && expiries.edge(table, true)?.is_none_or(|last| last <= now)
    {
        let count = std::mem::take(&mut elements.count);
        return Ok(usize::try_from(count).unwrap_or(usize::MAX));
    }
    let expired = expiries.expired(table, now, limit)?;
    let (mut is_changed, table) = (false, table.cloned());
    let (is_changed, own_table) = (&mut is_changed, table.clone());
    let mut fields = Collection {
        elements,
        pending,
        is_changed,
        table: own_table,
        limits: None,
        field_expiries: None,
    };
    let mut own = expiries.collection(table.as_ref());
    for (time, field) in &expired {
        fields.remove(field);
        own.remove(&by_field(field));
        own.remove(&by_time(*time, field));
    }
    fields.set_count(fields.count().saturating_sub(expired.len()));
    own.set_count(own.count().saturating_sub(expired.len()));
    if expiries.elements.count == 0 {
        *field_expiries = None;
    } else {
        expiries.find_first(table.as_ref())?;
    }
    Ok(expired.len())
}
