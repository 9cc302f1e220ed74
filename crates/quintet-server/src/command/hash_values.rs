//! Commands of Redis 8.0 on values and expiries of fields at once.

use super::{
    call::{Call, commands},
    hash_expiries::{
        FIELDS_OF_OTHERS, TimeForm, parse_field_count, parse_fields, parse_time, remove_field,
    },
};
use crate::{
    failure::{Done, Fail},
    resp::Args,
    spec::{Group, Keys},
    store::{Collection, Kind, check_names, event},
};

commands! { Group::Hash;
    "hgetdel" -5 [WRITE FAST] Keys::ONE, hgetdel, "8.0.0",
        "Returns the values of one or more fields and deletes the fields.";
    "hgetex" -5 [WRITE FAST] Keys::ONE, hgetex, "8.0.0",
        "Returns the values of one or more fields and sets their expiration time.";
    "hsetex" -6 [WRITE DENYOOM FAST] Keys::ONE, hsetex, "8.0.0",
        "Sets the values and the expiration time of one or more fields.";
}

/// What happens to expiries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpiryChange {
    /// The command says nothing.
    Unsaid,
    /// They are kept.
    Keep,
    /// They are removed.
    Remove,
    /// They become this time.
    Set(u64),
}

/// What fields must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Required {
    Nothing,
    AllAbsent,
    AllPresent,
}

/// The options before the fields.
#[derive(Clone, Copy, Debug)]
struct FieldOptions {
    change: ExpiryChange,
    required: Required,
    /// Where `FIELDS` is.
    fields: usize,
}

fn form_at(args: Args<'_>, at: usize) -> Option<TimeForm> {
    let forms = [("ex", 1000, true), ("px", 1, true), ("exat", 1000, false), ("pxat", 1, false)];
    let found = forms.into_iter().find(|(name, ..)| args.is(at, name));
    found.map(|(_, unit, is_relative)| TimeForm { unit, is_relative })
}

/// Parses options up to `FIELDS`.
fn parse_options(call: &Call<'_, '_>, is_set: bool) -> Done<FieldOptions> {
    let (args, mut at) = (call.args, 2);
    let (mut change, mut required) = (ExpiryChange::Unsaid, Required::Nothing);
    while at < args.len() && !args.is(at, "fields") {
        let mut new_change = None;
        let mut new_required = None;
        if let Some(form) = form_at(args, at) {
            at += 1;
            new_change = Some(ExpiryChange::Set(parse_time(call, at, form)?));
        } else if args.is(at, "persist") && !is_set {
            new_change = Some(ExpiryChange::Remove);
        } else if args.is(at, "keepttl") && is_set {
            new_change = Some(ExpiryChange::Keep);
        } else if args.is(at, "fnx") && is_set {
            new_required = Some(Required::AllAbsent);
        } else if args.is(at, "fxx") && is_set {
            new_required = Some(Required::AllPresent);
        } else {
            let word = args.at(at);
            let word = String::from_utf8_lossy(word.get(..128).unwrap_or(word));
            return Err(Fail::with(format!("ERR unknown argument: {word}")));
        }
        if new_change.is_some() && change != ExpiryChange::Unsaid {
            return Err(Fail::with(format!(
                "ERR Only one of EX, PX, EXAT, PXAT or {} arguments can be specified",
                if is_set { "KEEPTTL" } else { "PERSIST" }
            )));
        }
        if new_required.is_some() && required != Required::Nothing {
            return Err(Fail::new("ERR Only one of FXX or FNX arguments can be specified"));
        }
        change = new_change.unwrap_or(change);
        required = new_required.unwrap_or(required);
        at += 1;
    }
    Ok(FieldOptions { change, required, fields: at })
}

/// Replies the values of fields, and changes each field that exists by `each`. Returns whether
/// there was one.
fn reply_values(
    call: &mut Call<'_, '_>,
    start: usize,
    mut each: impl FnMut(&mut Collection<'_>, &[u8]) -> Done<bool>,
) -> Done<bool> {
    let (args, key) = (call.args, call.key());
    let mut values = Vec::with_capacity(args.len() - start);
    let mut is_changed = false;
    let mut hash = call.open(key, Kind::Hash)?;
    for field in args.from(start) {
        let value = match &mut hash {
            Some(hash) => {
                let value = hash.get(field)?;
                if value.is_some() {
                    is_changed |= each(hash, field)?;
                }
                value
            }
            None => None,
        };
        values.push(value);
    }
    call.reply.array(values.len());
    for value in values {
        call.reply.optional(value.as_deref());
    }
    Ok(is_changed)
}

fn hgetdel(call: &mut Call<'_, '_>) -> Done {
    call.check_kind(call.key(), Kind::Hash)?;
    let start = parse_fields(call, 2, FIELDS_OF_OTHERS)?;
    let is_changed = reply_values(call, start, |hash, field| {
        remove_field(hash, field)?;
        Ok(true)
    })?;
    if is_changed {
        call.notify(event::HASH, "hdel", call.key());
    }
    Ok(())
}

fn hgetex(call: &mut Call<'_, '_>) -> Done {
    call.check_kind(call.key(), Kind::Hash)?;
    let options = parse_options(call, false)?;
    let start = parse_fields(call, options.fields, FIELDS_OF_OTHERS)?;
    let expiry = match options.change {
        ExpiryChange::Set(time) => Some(time),
        _ => None,
    };
    let is_past = expiry.is_some_and(|expiry| call.unit.is_past(expiry));
    let is_changed = reply_values(call, start, |hash, field| {
        if options.change == ExpiryChange::Unsaid {
            return Ok(false);
        }
        if is_past {
            remove_field(hash, field)?;
            return Ok(true);
        }
        let had_expiry = hash.field_expiry(field)?.is_some();
        hash.set_field_expiry(field, expiry)?;
        Ok(expiry.is_some() || had_expiry)
    })?;
    if is_changed {
        let name = match expiry {
            Some(_) if is_past => "hdel",
            Some(_) => "hexpire",
            None => "hpersist",
        };
        call.notify(event::HASH, name, call.key());
    }
    Ok(())
}

/// Parses `FIELDS`, the number of fields, and fields each with its value, which end the request.
fn parse_pairs(call: &Call<'_, '_>, at: usize) -> Done<usize> {
    let count = parse_field_count(call, at, Fail::new("ERR invalid number of fields"))?;
    if count.checked_mul(2) != Some(call.args.len().saturating_sub(at + 2)) {
        return Err(Fail::new("ERR wrong number of arguments"));
    }
    Ok(at + 2)
}

fn hsetex(call: &mut Call<'_, '_>) -> Done {
    let options = parse_options(call, true)?;
    let start = parse_pairs(call, options.fields)?;
    let (args, key) = (call.args, call.key());
    check_names(args.from(start).step_by(2))?;
    if options.required != Required::Nothing {
        let hash = call.open(key, Kind::Hash)?;
        for field in args.from(start).step_by(2) {
            let is_present = match &hash {
                Some(hash) => hash.contains(field)?,
                None => false,
            };
            if is_present != (options.required == Required::AllPresent) {
                call.reply.flag(false);
                return Ok(());
            }
        }
    }
    let expiry = match options.change {
        ExpiryChange::Set(time) => Some(time),
        _ => None,
    };
    let is_past = expiry.is_some_and(|expiry| call.unit.is_past(expiry));
    let mut hash = call.create(key, Kind::Hash)?;
    let mut words = args.from(start);
    while let (Some(field), Some(value)) = (words.next(), words.next()) {
        if !hash.contains(field)? {
            hash.set_count(hash.count() + 1);
        }
        hash.put(field, value)?;
        if is_past {
            remove_field(&mut hash, field)?;
        } else if options.change != ExpiryChange::Keep {
            hash.set_field_expiry(field, expiry)?;
        }
    }
    call.notify(event::HASH, "hset", key);
    if expiry.is_some() {
        call.notify(event::HASH, if is_past { "hdel" } else { "hexpire" }, key);
    }
    call.reply.flag(true);
    Ok(())
}
