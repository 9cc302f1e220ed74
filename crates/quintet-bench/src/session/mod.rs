//! Sessions: one store, one process, one load, and the workloads that run on the loaded records.
//!
//! A [`Job`] describes a session. [`plan`] makes jobs from requests. [`Launcher`] runs a job in a
//! child process and returns one [`StepReport`] for each step. The child process is this executable
//! with the same command line; the environment variable [`launch::ROLE`] selects the child's side,
//! [`serve_if_child`], and standard input carries the [`protocol::SessionRequest`].
//!
//! Each session has its own process for three reasons. Fragmented memory and warm caches of one
//! store do not affect the next store. Peak memory is that of one store. The parent can kill the
//! store without warning to measure recovery.

mod child;
pub mod job;
pub mod launch;
pub mod plan;
pub mod protocol;
pub mod scratch;

use std::{env, io::Write, path::PathBuf};

use crate::{
    failure::{Failure, Outcome},
    store::Stores,
};
use launch::{ROLE, Role};

pub use self::{
    job::{Job, Step},
    launch::Launcher,
    protocol::StepReport,
};

/// Serves the parent's request if this process is a child; returns `None` if it is not.
pub fn serve_if_child(stores: &dyn Stores, out: &mut dyn Write) -> Option<Outcome> {
    let role = env::var(ROLE).ok()?;
    Some(match Role::parse(&role) {
        Some(Role::Session) => child::serve(stores, out),
        Some(Role::Remover) => {
            protocol::receive().and_then(|dir: PathBuf| scratch::remove_at_end(&dir))
        }
        None => Err(Failure::Usage(format!("{ROLE}: unknown role {role:?}"))),
    })
}
