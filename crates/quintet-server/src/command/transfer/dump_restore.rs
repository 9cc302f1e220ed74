//! `DUMP` and `RESTORE`.

use super::{
    super::call::{Call, commands},
    build::{Building, Restoring},
    save::{SaveFailure, save, type_of},
};
use crate::{
    failure::{Done, Fail},
    rdb::{Failure, Output, Payload, VERSION_MAX, VERSION_WRITTEN, finish_payload, value_type},
    spec::{Group, Keys},
    store::event,
};

commands! { Group::Generic;
    "dump" 2 [READ] Keys::ONE, dump, "2.6.0",
        "Returns a serialized representation of the value stored at a key.";
    "restore" -4 [WRITE DENYOOM DANGEROUS] Keys::ONE, restore, "2.6.0",
        "Creates a key from the serialized representation of a value.";
}

/// Largest payload in bytes, which is the longest value of the server too.
const PAYLOAD_BYTES_MAX: usize = 512 << 20;

/// A payload that stops to grow at its limit.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn dump(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.key());
    if key.is_empty() {
        call.reply.null();
        return Ok(());
    }
    let Some(kind) = call.unit.head(database, key)?.map(type_of) else {
        call.reply.null();
        return Ok(());
    };
    let version = if kind == value_type::HASH_EXPIRY { VERSION_MAX } else { VERSION_WRITTEN };
    let mut output = Output::new(Bounded(vec![kind]));
    match save(call.unit, database, key, &mut output) {
        Ok(()) => {}
        Err(SaveFailure::Store(fail)) => return Err(fail),
        Err(SaveFailure::Io(_)) => {
            return Err(Fail::with(format!(
                "ERR the value is too large to dump; the limit is {PAYLOAD_BYTES_MAX} bytes"
            )));
        }
    }
    call.reply.bulk(&finish_payload(output.into_inner().0, version));
    Ok(())
}

/// Options of `RESTORE`. `IDLETIME` and `FREQ` are checked and have no effect: nothing is evicted.
#[derive(Clone, Copy, Debug, Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
}

fn parse_restore(call: &Call<'_, '_>) -> Done<RestoreOptions> {
    let mut options = RestoreOptions::default();
    let (mut has_idle, mut has_frequency) = (false, false);
    let mut at = 4;
    while at < call.args.len() {
        let has_value = at + 1 < call.args.len();
        if call.args.is(at, "replace") {
            options.replaces = true;
        } else if call.args.is(at, "absttl") {
            options.is_absolute = true;
        } else if call.args.is(at, "idletime") && has_value && !has_frequency {
            has_idle = true;
            at += 1;
            if call.integer(at)? < 0 {
                return Err(Fail::new("ERR Invalid IDLETIME value, must be >= 0"));
            }
        } else if call.args.is(at, "freq") && has_value && !has_idle {
            has_frequency = true;
            at += 1;
            if !(0..=255).contains(&call.integer(at)?) {
                return Err(Fail::new("ERR Invalid FREQ value, must be >= 0 and <= 255"));
            }
        } else {
            return Err(Fail::SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

fn restore(call: &mut Call<'_, '_>) -> Done {
    let options = parse_restore(call)?;
    let (database, key, now) = (call.database(), call.key(), call.unit.now);
    let is_present = call.unit.exists(database, key)?;
    if is_present && !options.replaces {
        return Err(Fail::new("BUSYKEY Target key name already exists."));
    }
    let ttl = u64::try_from(call.integer(2)?)
        .map_err(|_| Fail::new("ERR Invalid TTL value, must be >= 0"))?;
    let payload = Payload::verify(call.args.at(3))
        .ok_or(Fail::new("ERR DUMP payload version or checksum are wrong"))?;
    let expiry = match (ttl, options.is_absolute) {
        (0, _) => None,
        (ttl, true) => Some(ttl),
        (ttl, false) => Some(ttl.saturating_add(now)),
    };
    // The old value is kept until the new one is built: a malformed payload changes nothing.
    let old = call.unit.take(database, key)?;
    let building = Building::new(database, key.to_vec());
    let mut restoring = Restoring { unit: call.unit, building };
    let built = match payload.read(&mut restoring) {
        Ok(()) if !restoring.building.is_present() => Err(Failure::Content("no elements")),
        built => built,
    };
    if let Err(failure) = built {
        call.unit.remove(database, key)?;
        if let Some(old) = old {
            call.unit.put_taken(database, key, old)?;
        }
        return Err(match failure {
            Failure::Refused(fail) => fail,
            _ => Fail::new("ERR Bad data format"),
        });
    }
    if !call.unit.exists(database, key)? {
        // All fields of the hash have expired.
        if old.is_some() {
            call.notify(event::GENERIC, "del", key);
        }
    } else if expiry.is_some_and(|expiry| call.unit.is_past(expiry)) {
        call.unit.remove(database, key)?;
    } else {
        call.unit.set_expiry(database, key, expiry)?;
        call.notify(event::GENERIC, "restore", key);
    }
    call.reply.ok();
    Ok(())
}
