//! Options of databases, column families, tables, reads and writes.

mod changes;
pub mod database;
mod kept;
mod latest;
pub mod reads;
pub mod statistics;
mod styles;
pub mod writes;
