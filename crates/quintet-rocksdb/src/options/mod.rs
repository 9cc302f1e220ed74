//! Options of databases, column families, tables, reads and writes.

pub mod database;
mod kept;
mod presets;
pub mod reads;
mod styles;
pub mod writes;
