//! Sessions: one store, one process, one load, and the workloads that run on the loaded records.
//!
//! A [`Job`] describes a session. [`plan`] makes jobs from requests. [`Launcher`] runs a job in a
//! child process and returns one [`StepReport`] for each step. The child process is this executable
//! with the same command line; the environment variable [`launch::ROLE`] selects the child's side,
//! [`child::serve_if_child`], and standard input carries the [`protocol::SessionRequest`].
//!
//! Each session has its own process for three reasons. Fragmented memory and warm caches of one
//! store do not affect the next store. Peak memory is that of one store. The parent can kill the
//! store without warning to measure recovery.

pub mod child;
pub mod job;
pub mod launch;
pub mod plan;
pub mod protocol;
pub mod recovery;
pub mod scratch;

pub use self::{
    job::{Job, Step},
    launch::Launcher,
    protocol::StepReport,
};
