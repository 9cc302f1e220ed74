//! The bytes that the database itself defines: the envelope of a value and the operations of a log
//! record.

pub(crate) mod envelope;
pub(crate) mod operations;
pub(crate) mod table_begin;
