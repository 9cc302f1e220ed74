//! The options of puts and deletes.

use std::time::{Duration, SystemTime};

use crate::{
    Error, Result,
    db::{core::condition::Condition, core::durability::Durability},
    util::types::TypeTag,
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
