//! The parts of a transaction below the commit path: what it has written and what it has read.
//!
//! A transaction is optimistic. It keeps its writes in memory ([`WriteSet`]) and notes what it
//! reads. At commit the stripes of all keys that were read and written are locked.
//! Then every read is validated: no commit has changed it since. Then one log record is written,
//! as for a batch. So the transaction takes effect at the moment of its commit, as if it ran alone.
//!
//! Reads have two modes ([`TransactionReads`]):
//! - With *versions*: each read notes the version of its key's stripe. The versions are compared at
//!   each further read, so all reads are of one moment. It costs no snapshot, and serves small
//!   transactions. Writes of other keys of a stripe may invalidate it without need.
//! - With a *snapshot*: reads are of the moment of the first read, whatever is committed meanwhile.
//!
//! Invariants:
//! - Validation holds the stripes of the reads too. With those of the writes alone, two
//!   transactions that each write what the other reads could both be validated before either is
//!   applied (write skew).
//! - All reads that were returned to the caller are of one moment, also if the commit fails later.
//!
//! Start reading at [`TransactionReads`].

mod reads;
mod write_index;
mod write_set;

pub(crate) use self::{
    reads::{ReadMode, TransactionReads},
    write_index::OwnValue,
    write_set::WriteSet,
};
