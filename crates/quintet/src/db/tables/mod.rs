//! The open tables.

pub(crate) mod value;
