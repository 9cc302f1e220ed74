//! Reads of one table: the engine's answer without its envelope, and without expired values.

use super::{registry::TableRegistry, state::TableState, value::Value};
use crate::{
    Error, Result,
    contract::{self, Engine as _, Presence, value_sink::HeadAndBuffer},
    db::encoding::envelope::{ENVELOPE_BYTES_MAX, Envelope, EnvelopeSink, NEVER},
    util::mutant::mutant,
};

impl TableRegistry {
    /// Returns the value that a reader sees for a stored value of `key`: `None` once it is expired.
    #[inline]
    pub(crate) fn visible(
        &self,
        table: &TableState,
        key: &[u8],
        stored: contract::Value,
    ) -> Result<Option<Value>> {
        let value = Value::open(stored).ok_or_else(|| self.bad_envelope(table))?;
        if value.expires_at_unix_millis().is_none() {
            return Ok(Some(value));
        }
        let now = self.host.clock.now();
        if value.is_expired(now) { self.reread_expired(table, key, now) } else { Ok(Some(value)) }
    }

    /// Reads the value of `key` again after the clock, read at `now`, showed it as expired. A
    /// writer may have replaced the value in time, between the read of the value and the read of
    /// the clock; then the key was never without a value. Only a value that is expired by a clock
    /// read before the value is gone.
    ///
    /// A write whose condition was that the value had not expired may be logged but not applied. It
    /// began in time, so its value is what the key has: the reader waits for it.
    #[cold]
    fn reread_expired(
        &self,
        table: &TableState,
        key: &[u8],
        mut now: u64,
    ) -> Result<Option<Value>> {
        mutant!(ExpiryIsNotLookedAtAgain => return Ok(None));
        let stripe = self.stripes.index(table.id, table.hash.hash(key));
        loop {
            mutant!(ExpiredReadPassesWrites: (), else self.stripes.await_write(stripe));
            let Some(stored) = table.engine.get(key)? else { return Ok(None) };
            let value = Value::open(stored).ok_or_else(|| self.bad_envelope(table))?;
            if value.is_expired(now) {
                return Ok(None);
            }
            now = self.host.clock.now();
            if !value.is_expired(now) {
                return Ok(Some(value));
            }
        }
    }

    #[cold]
    pub(crate) fn bad_envelope(&self, table: &TableState) -> Error {
        let file = format!("tables/{}", table.id);
        Error::corruption(file, 0, format!("a value of {} has no envelope", self.name_of(table)))
    }

    /// Returns the visible value of a key.
    #[inline]
    pub(crate) fn get(&self, table: &TableState, key: &[u8]) -> Result<Option<Value>> {
        match table.engine.get(key)? {
            Some(stored) => self.visible(table, key, stored),
            None => Ok(None),
        }
    }

    /// Returns whether a reader sees a value of a key. Reads the value only if the engine cannot
    /// tell from its index, and copies no more than the envelope.
    pub(crate) fn contains(&self, table: &TableState, key: &[u8]) -> Result<bool> {
        self.present_until(table, key).map(|end| end.is_some())
    }

    /// Returns until which time a reader sees a value of a key, in milliseconds since 1970; `None`
    /// if it sees none, [`NEVER`] if the value does not expire.
    pub(crate) fn present_until(&self, table: &TableState, key: &[u8]) -> Result<Option<u64>> {
        match table.engine.exists_hint(key)? {
            Presence::Absent => return Ok(None),
            Presence::Present => return Ok(Some(NEVER)),
            Presence::InValue => {}
        }
        let Some(envelope) = table.engine.get_with(key, &mut EnvelopeSink)? else {
            return Ok(None);
        };
        let envelope = envelope.ok_or_else(|| self.bad_envelope(table))?;
        let Some(end) = envelope.expires_at else { return Ok(Some(NEVER)) };
        let now = self.host.clock.now();
        if !envelope.is_expired(now) {
            return Ok(Some(end));
        }
        let value = self.reread_expired(table, key, now)?;
        Ok(value.map(|value| value.expires_at_unix_millis().unwrap_or(NEVER)))
    }

    /// Copies the visible value of a key into `out`. Returns `false` if there is none; the content
    /// of `out` is undefined then.
    #[inline]
    pub(crate) fn get_into(
        &self,
        table: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match table.engine.get_with(key, &mut HeadAndBuffer(out))? {
            None => Ok(false),
            Some(Envelope::PLAIN) => Ok(true),
            Some(flags) => self.decode_envelope(table, key, flags, out),
        }
    }

    /// Decodes an envelope of more than one byte. `flags` is its first byte; the rest is at the
    /// front of `out`, and is removed.
    #[cold]
    fn decode_envelope(
        &self,
        table: &TableState,
        key: &[u8],
        flags: u8,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let mut front = [0; ENVELOPE_BYTES_MAX];
        let bytes = std::iter::once(flags).chain(out.iter().copied());
        let used = front.iter_mut().zip(bytes).map(|(to, from)| *to = from).count();
        let front = front.get(..used).unwrap_or(&[]);
        let (envelope, start) = Envelope::decode(front).ok_or_else(|| self.bad_envelope(table))?;
        out.drain(..start - 1);
        if envelope.expires_at.is_none() {
            return Ok(true);
        }
        let now = self.host.clock.now();
        if !envelope.is_expired(now) {
            return Ok(true);
        }
        let Some(value) = self.reread_expired(table, key, now)? else { return Ok(false) };
        out.clear();
        out.extend_from_slice(&value);
        Ok(true)
    }
}
