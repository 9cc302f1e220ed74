//! Redis's keys and values in Quintet's tables.
//!
//! A *unit* is what commits together: one command, the commands of a transaction, or consecutive
//! commands of one pipeline. It holds the locks of its keys and the heads and elements that it has
//! changed, and becomes one atomic batch. Start reading at [`Unit`] in `unit.rs`.
//!
//! Invariants:
//! - A head or an element is read for a write, and written, under the stripe of its key.
//! - Stripes are released after the batch has been committed.
//! - Elements are reached through the version in the head only. A new collection has a new version,
//!   so the removal of a collection is the removal of its head.

mod call_limits;
mod catalogue;
mod collection;
mod database_id;
mod database_tables;
mod elements;
mod events;
mod field_expiries;
#[cfg(test)]
mod field_expiry_tests;
#[cfg(test)]
mod flush_tests;
mod head;
mod invalidations;
mod keyspace;
#[cfg(test)]
mod namespace_tests;
mod namespaces;
mod notifications;
mod pages;
mod position;
mod slot;
mod stripes;
mod tables;
mod unit;

pub(crate) use call_limits::CallLimits;
pub(crate) use collection::{ALL, Collection, NAME_BYTES_MAX, NameRange, check_names};
pub(crate) use database_id::{DATABASES, DatabaseId};
pub(crate) use database_tables::{DEAD_VERSIONS, EXPIRIES, FIELD_EXPIRIES, Tables};
pub(crate) use elements::{Kind, put_bytes, take_bytes};
pub(crate) use events::{Changes, KeyName};
pub(crate) use head::{Body, Head, split};
pub(crate) use invalidations::ChangedKeys;
pub(crate) use keyspace::{Store, now_millis};
pub(crate) use namespaces::{
    DEFAULT_NAMESPACE, NAMESPACE_BYTES_MAX, NAMESPACES_MAX, Namespace, is_namespace_name,
};
pub(crate) use notifications::{event, format_classes, parse_classes};
pub(crate) use pages::Pages;
pub(crate) use position::Position;
pub(crate) use slot::{expiry_entry, field_expiry_entry};
pub(crate) use stripes::Stripes;
pub(crate) use tables::{Databases, Engines};
pub(crate) use unit::Unit;
