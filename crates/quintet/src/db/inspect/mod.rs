//! Decoders of a database's files, for tools and fuzzing. They return the content, or where it is
//! damaged.
//!
//! Nothing here needs an open database or writes anything.

mod describe;

pub use self::describe::{Sink, catalog, file, record_body, stored_value};
