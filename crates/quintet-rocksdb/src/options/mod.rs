//! Options of databases, column families, tables, reads and writes.

pub mod database;
mod kept;
pub mod reads;
mod styles;
pub mod writes;
