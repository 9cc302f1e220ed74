//! `DUMP` and `RESTORE`, and what imports, exports and replication share with them: values of the
//! store from and to Redis's dump format.

mod build;
mod dump_restore;
mod save;

pub(crate) use build::Building;
pub(super) use dump_restore::COMMANDS;
pub(crate) use save::{SaveFailure, save, type_of};
