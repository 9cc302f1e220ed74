//! The options of puts, deletes and updates.

use std::time::{Duration, SystemTime};

use crate::{
    Error, Result,
    db::{
        core::condition::Condition, core::durability::Durability, encoding::envelope::Envelope,
        tables::value::Value,
    },
    util::{mutant::mutant, types::TypeTag},
};

/// Options of one put.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions {
    lifetime: Lifetime,
    pub(crate) condition: Condition,
    pub(crate) durability: Option<Durability>,
    pub(crate) type_tag: Option<TypeTag>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Lifetime {
    #[default]
    Endless,
    For(Duration),
    Until(SystemTime),
}

impl PutOptions {
    /// Returns the options of a plain put.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the value expire after `ttl`, counted from the call. Less than 1 ms fails with
    /// [`Error::Limit`].
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lifetime = Lifetime::For(ttl);
        self
    }

    /// Makes the value expire at `time`. A time that is not in the future fails with
    /// [`Error::Limit`].
    #[must_use]
    pub fn expires_at(mut self, time: SystemTime) -> Self {
        self.lifetime = Lifetime::Until(time);
        self
    }

    /// Puts only if the key has no value; otherwise the put returns `false`. Replaces an earlier
    /// [`PutOptions::if_present`]. Costs a lookup.
    #[must_use]
    pub fn if_absent(mut self) -> Self {
        self.condition = Condition::Absent;
        self
    }

    /// Puts only if the key has a value; otherwise the put returns `false`. Replaces an earlier
    /// [`PutOptions::if_absent`]. Costs a lookup.
    #[must_use]
    pub fn if_present(mut self) -> Self {
        self.condition = Condition::Present;
        self
    }

    /// Overrides the database's durability for this write.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Stores a tag with the value. [`Value::type_tag`](crate::db::Value::type_tag) returns it.
    #[must_use]
    pub fn type_tag(mut self, tag: TypeTag) -> Self {
        self.type_tag = Some(tag);
        self
    }

    /// Returns the absolute expiry in milliseconds since 1970, for a clock that returns `now`.
    /// Fails with [`Error::Limit`] if it is not in the future.
    pub(crate) fn expiry(&self, now: impl FnOnce() -> u64) -> Result<Option<u64>> {
        let refuse = |what: &str| Err(Error::Limit { what: what.to_owned() });
        match self.lifetime {
            Lifetime::Endless => Ok(None),
            Lifetime::For(ttl) => match u64::try_from(ttl.as_millis()) {
                Ok(0) => refuse("a ttl must be at least 1 ms; to remove a key, delete it"),
                Ok(millis) => Ok(Some(now().saturating_add(millis))),
                Err(_) => Ok(Some(u64::MAX)),
            },
            Lifetime::Until(time) => {
                let millis = time
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
                if millis <= now() {
                    return refuse("the expiry is in the past; to remove a key, delete it");
                }
                Ok(Some(millis))
            }
        }
    }
}

/// Options of one delete.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeleteOptions {
    pub(crate) condition: Condition,
    pub(crate) durability: Option<Durability>,
}

impl DeleteOptions {
    /// Returns the options of a plain delete.
    pub fn new() -> Self {
        Self::default()
    }

    /// Deletes only if the key has a value. The delete returns whether it had one, and logs nothing
    /// if it had none.
    #[must_use]
    pub fn if_present(mut self) -> Self {
        self.condition = Condition::Present;
        self
    }

    /// Overrides the database's durability for this write.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }
}

/// Options of one atomic update: of [`Table::update_with`](crate::db::Table::update_with) and the
/// like. By default a value that replaces another keeps its expiry and its type tag, and a new one
/// has neither.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpdateOptions {
    /// Lifetime and type tag of the new value, where they are not kept.
    new: PutOptions,
    sets_lifetime: bool,
}

/// The expiry and the type tag of the values that an update writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnvelopeRule {
    /// Whether a replaced value's expiry is kept; otherwise `expires_at` is the new one.
    keeps_expiry: bool,
    expires_at: Option<u64>,
    /// `None`: keeps the type tag.
    type_tag: Option<TypeTag>,
}

impl UpdateOptions {
    /// Returns the options of a plain update.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the new value expire after `ttl`, counted from the call. Less than 1 ms fails with
    /// [`Error::Limit`].
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        (self.new, self.sets_lifetime) = (self.new.ttl(ttl), true);
        self
    }

    /// Makes the new value expire at `time`. A time that is not in the future fails with
    /// [`Error::Limit`].
    #[must_use]
    pub fn expires_at(mut self, time: SystemTime) -> Self {
        (self.new, self.sets_lifetime) = (self.new.expires_at(time), true);
        self
    }

    /// Makes the new value never expire, whatever the expiry of the value that it replaces.
    #[must_use]
    pub fn without_expiry(mut self) -> Self {
        (self.new.lifetime, self.sets_lifetime) = (Lifetime::Endless, true);
        self
    }

    /// Stores a tag with the new value instead of that of the value that it replaces.
    #[must_use]
    pub fn type_tag(mut self, tag: TypeTag) -> Self {
        self.new = self.new.type_tag(tag);
        self
    }

    /// Overrides the database's durability for this write.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.new = self.new.durability(durability);
        self
    }

    pub(crate) fn durability_or(&self, default: Durability) -> Durability {
        self.new.durability.unwrap_or(default)
    }

    /// Returns what the options mean for a clock that returns `now`. Fails with [`Error::Limit`] if
    /// the expiry is not in the future.
    pub(crate) fn envelope_rule(&self, now: impl FnOnce() -> u64) -> Result<EnvelopeRule> {
        let expires_at = self.new.expiry(now)?;
        let keeps_expiry = !self.sets_lifetime;
        Ok(EnvelopeRule { keeps_expiry, expires_at, type_tag: self.new.type_tag })
    }
}

impl EnvelopeRule {
    /// Returns the envelope of a value that replaces `old`.
    pub(crate) fn envelope(&self, old: Option<&Value>) -> Envelope {
        let kept = old.map(Value::envelope).unwrap_or_default();
        let kept = mutant!(UpdateForgetsExpiry: Envelope { expires_at: None, ..kept }, else kept);
        Envelope {
            expires_at: if self.keeps_expiry { kept.expires_at } else { self.expires_at },
            type_tag: self.type_tag.or(kept.type_tag),
        }
    }
}
