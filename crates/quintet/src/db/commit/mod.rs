//! The commit path: from a write to the log and the tables.
//!
//! Steps of a commit:
//! 1. Validate: the database takes writes, and so does the table.
//! 2. Admit: the scheduler of checkpoints, the engines, the expiry index and the log may refuse or
//!    delay the write.
//! 3. Lock the stripes of its keys.
//! 4. Check its condition; validate what a transaction has read.
//! 5. Append its record to the log.
//! 6. Apply it to the engines and the expiry index; unlock.
//! 7. Wait for the sync, if asked.
//!
//! Invariants:
//! - Everything that can refuse or delay a write happens before the write is logged.
//! - A table's status, its types, and whether the database is open are checked again under the
//!   stripes. Closing holds all stripes, so nothing is appended after it.
//! - Every admitted operation is applied or cancelled.
//! - If the sync of a `Sync` write fails, the log has failed. The write is not acknowledged, but
//!   may be visible until the database is closed.
//!
//! Start reading at [`single`]; [`batch`] does the same for many operations, [`update`] for a
//! change that is computed from the value.

mod batch;
mod mutants;
mod retry;
mod single;
mod steps;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod transaction;
mod update;
