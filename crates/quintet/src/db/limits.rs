//! The limits of table paths. Below the catalog, which checks them.

/// Maximum size of a component of a table's path, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum number of components of a table's path.
pub const NAME_DEPTH_MAX: usize = 32;
