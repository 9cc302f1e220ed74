//! The start of transactions, and attempts until one commits.

use super::{
    handle::{Transaction, is_passing},
    mutants,
    options::TransactionOptions,
};
use crate::{Error, Result, db::api::database::Database, util::mutant::mutant};

impl Database {
    /// Begins a transaction, which the caller commits. It costs nothing until it reads.
    ///
    /// Prefer [`Database::transaction`], which repeats the transaction after a conflict.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let jobs = db.table("jobs")?;
    /// let mut tx = db.begin(quintet::TransactionOptions::new())?;
    /// if tx.get(&jobs, "next")?.is_none() {
    ///     tx.put(&jobs, "next", "1")?;
    /// }
    /// tx.commit()?; // `Error::Conflict` if another commit has changed "next" since
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Fails with [`Error::Closed`] and [`Error::Forked`].
    pub fn begin(&self, options: TransactionOptions) -> Result<Transaction> {
        self.session.core.tables.check_open()?;
        Ok(Transaction::new(self.session.clone(), &options, options.mode()))
    }

    /// Runs `body` as a transaction with the default options, and commits what it wrote; see
    /// [`Database::transaction_with`].
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let counters = db.table("counters")?;
    /// let count = db.transaction(|tx| {
    ///     let bytes = tx.get(&counters, "visits")?;
    ///     let count = bytes.map_or(0, |bytes| bytes.len());
    ///     tx.put(&counters, "visits", vec![b'|'; count + 1])?;
    ///     Ok(count + 1)
    /// })?;
    /// # let _ = count;
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transaction_with(TransactionOptions::new(), body)
    }

    /// Runs `body` as a transaction, and commits what it wrote. Returns the result of `body`. If
    /// `body` fails, nothing is committed.
    ///
    /// After [`Error::Conflict`], [`Error::Deadlock`] and [`Error::SnapshotExpired`] `body` runs
    /// again, up to [`TransactionOptions::retries`] times, with random pauses of at most 2 ms. So
    /// it should have no effect besides that of the transaction, and should not ignore errors of
    /// the transaction's operations. Each run reads anew.
    ///
    /// Small transactions take no snapshot in the first run: a run that cannot read all its keys as
    /// of one moment is repeated with one.
    ///
    /// Fails as [`Transaction::commit`] does.
    pub fn transaction_with<T, E: From<Error>>(
        &self,
        options: TransactionOptions,
        mut body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let core = &self.session.core;
        core.tables.check_open()?;
        let mut attempt = 0;
        let mut kept = None;
        loop {
            let mode = options.mode_of_attempt(attempt);
            let mut transaction = Transaction::new(self.session.clone(), &options, mode);
            mutant!(RetryKeepsSnapshot => mutants::keep_snapshot(&mut transaction, &mut kept));
            let outcome = body(&mut transaction);
            mutant!(RetryKeepsSnapshot => mutants::keep_snapshot(&mut transaction, &mut kept));
            let failure = match outcome {
                Ok(result) => match transaction.finish() {
                    Ok(()) => return Ok(result),
                    Err(error) if is_passing(&error) => error.into(),
                    Err(error) => return Err(error.into()),
                },
                Err(failure) if transaction.state.get_mut().failure.is_none() => {
                    return Err(failure);
                }
                Err(failure) => failure,
            };
            // Releases its locks before the pause.
            drop(transaction);
            if attempt >= options.retries {
                return Err(failure);
            }
            core.pause_before_retry(attempt);
            attempt += 1;
        }
    }
}
