//! Files of a table as text, for `quintet inspect`. It writes nothing and takes no lock.
//!
//! The modules that own the formats decode and verify the bytes.

mod data;
mod manifest;

pub use self::{data::describe as data, manifest::describe as manifest};
