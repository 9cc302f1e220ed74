//! What a write does besides storing bytes: conditions, expiry, type, durability.

use std::time::{Duration, SystemTime};

use quintet::{DeleteOptions, Durability, PutOptions, TypeTag, UpdateOptions};

use crate::{
    boundary::{In, Slice},
    failure::Failure,
};

/// How a write is done. `{0}` and a null pointer are the defaults. A write that does not have a
/// field which is set fails with `QUINTET_UNSUPPORTED`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Milliseconds until the value expires. 0: not set.
    pub ttl_ms: u64,
    /// When the value expires, in milliseconds since 1970. 0: not set.
    pub expires_at_ms: u64,
    /// The type of the value, such as `"u64"`. Absent: none.
    pub type_tag: Slice,
    /// Not 0: writes only if the key is absent.
    pub if_absent: u8,
    /// Not 0: writes only if the key is present.
    pub if_present: u8,
    /// Not 0: an update removes the expiry of the value. Otherwise it keeps it.
    pub without_expiry: u8,
    /// 0: as the database; 1: buffered; 2: sync.
    pub durability: u8,
}

impl WriteOptions {
    fn durability(&self) -> Result<Option<Durability>, Failure> {
        match self.durability {
            0 => Ok(None),
            1 => Ok(Some(Durability::Buffered)),
            2 => Ok(Some(Durability::Sync)),
            _ => Err(unsupported("durability")),
        }
    }

    fn expiry(&self) -> Result<Option<SystemTime>, Failure> {
        let since = Duration::from_millis(self.expires_at_ms);
        let time = SystemTime::UNIX_EPOCH.checked_add(since);
        if self.expires_at_ms == 0 {
            Ok(None)
        } else {
            Ok(Some(time.ok_or_else(|| unsupported("expires_at_ms"))?))
        }
    }

    fn type_tag(&self) -> Result<Option<TypeTag>, Failure> {
        if self.type_tag.is_none() {
            return Ok(None);
        }
        Ok(Some(self.type_tag.text()?.parse()?))
    }
}

fn unsupported(field: &str) -> Failure {
    let message = format!("field {field} of the write options does not apply to this write");
    Failure::new(crate::failure::Code::Unsupported, message)
}

fn refuse(is_set: bool, field: &str) -> Result<(), Failure> {
    if is_set { Err(unsupported(field)) } else { Ok(()) }
}

/// Returns the options of a put.
pub fn put(options: In<'_, WriteOptions>) -> Result<PutOptions, Failure> {
    let mut put = PutOptions::new();
    let Some(options) = options else { return Ok(put) };
    refuse(options.without_expiry != 0, "without_expiry")?;
    if options.ttl_ms > 0 {
        put = put.ttl(Duration::from_millis(options.ttl_ms));
    }
    if let Some(time) = options.expiry()? {
        put = put.expires_at(time);
    }
    if let Some(tag) = options.type_tag()? {
        put = put.type_tag(tag);
    }
    if options.if_absent != 0 {
        put = put.if_absent();
    }
    if options.if_present != 0 {
        put = put.if_present();
    }
    if let Some(durability) = options.durability()? {
        put = put.durability(durability);
    }
    Ok(put)
}

/// Returns the options of a delete.
pub fn delete(options: In<'_, WriteOptions>) -> Result<DeleteOptions, Failure> {
    let mut delete = DeleteOptions::new();
    let Some(options) = options else { return Ok(delete) };
    refuse(options.ttl_ms > 0, "ttl_ms")?;
    refuse(options.expires_at_ms > 0, "expires_at_ms")?;
    refuse(!options.type_tag.is_none(), "type_tag")?;
    refuse(options.if_absent != 0, "if_absent")?;
    refuse(options.without_expiry != 0, "without_expiry")?;
    if options.if_present != 0 {
        delete = delete.if_present();
    }
    if let Some(durability) = options.durability()? {
        delete = delete.durability(durability);
    }
    Ok(delete)
}

/// Returns the options of an update.
pub fn update(options: In<'_, WriteOptions>) -> Result<UpdateOptions, Failure> {
    let mut update = UpdateOptions::new();
    let Some(options) = options else { return Ok(update) };
    refuse(options.if_absent != 0, "if_absent")?;
    refuse(options.if_present != 0, "if_present")?;
    if options.ttl_ms > 0 {
        update = update.ttl(Duration::from_millis(options.ttl_ms));
    }
    if let Some(time) = options.expiry()? {
        update = update.expires_at(time);
    }
    if options.without_expiry != 0 {
        update = update.without_expiry();
    }
    if let Some(tag) = options.type_tag()? {
        update = update.type_tag(tag);
    }
    if let Some(durability) = options.durability()? {
        update = update.durability(durability);
    }
    Ok(update)
}
