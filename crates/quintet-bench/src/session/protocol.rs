//! Messages between the parent and its child process: one line of JSON in each direction.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _},
    path::PathBuf,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::job::Job;
use crate::{
    failure::{Failure, Outcome},
    machine::IoCounters,
    result::{Figures, Recovery},
};

/// Request to a child process.
#[derive(Debug, Serialize, Deserialize)]
pub struct SessionRequest {
    /// Session.
    pub job: Job,
    /// Directory of the store.
    pub dir: PathBuf,
    /// Part of the session that this process runs.
    pub part: SessionPart,
}

/// Part of a session that one process runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionPart {
    /// The whole session.
    Whole,
    /// Loading and closing the store.
    Load,
    /// The steps, on the records that another process loaded.
    Steps(LoadReport),
    /// Opening the store of a killed process and checking its records.
    Recovery,
}

/// Measurement of loading.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Records per second.
    pub ops_per_second: f64,
    /// Bytes of keys and values.
    pub user_bytes: u64,
    /// Bytes and requests that reached the disk.
    pub io: IoCounters,
}

/// Measurement of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Figures of the step.
    pub figures: Figures,
    /// Operations that the step executed.
    pub operations: u64,
    /// Counters of the store, by its own names.
    pub details: BTreeMap<String, u64>,
    /// Load average at the end of the step.
    pub load_average: Option<f64>,
}

/// Reply of a child process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildReply {
    /// Measurements of the steps.
    Measured(Vec<StepReport>),
    /// Measurement of loading.
    Loaded(LoadReport),
    /// Result of the check after the kill.
    Reopened(Recovery),
    /// Failure.
    Failed {
        /// Exit code of [`Failure::code`].
        code: u8,
        /// Message.
        what: String,
    },
}

impl ChildReply {
    /// Returns the failure of a reply that is not the expected one.
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Failed { code: 2, what } => Failure::Usage(what),
            Self::Failed { code: 3, what } => Failure::Damage(what),
            Self::Failed { what, .. } => Failure::Failed(what),
            Self::Measured(_) | Self::Loaded(_) | Self::Reopened(_) => {
                Failure::Failed("the run answered with an unexpected message".to_owned())
            }
        }
    }
}

/// Reads a request of the parent from standard input.
pub(super) fn receive<T: DeserializeOwned>() -> Outcome<T> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::io("standard input", &error))?;
    serde_json::from_str(&line)
        .map_err(|error| Failure::Usage(format!("standard input: no request of a parent: {error}")))
}
