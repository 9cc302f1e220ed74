//! Strings.

mod lcs;

use super::call::{Call, commands};
use crate::{
    failure::{Done, Fail},
    number::{format_decimal, parse_f64, parse_i64},
    spec::{Group, Keys},
    store::event,
};

commands! { Group::String;
    "append" 3 [WRITE DENYOOM FAST] Keys::ONE, append, "2.0.0",
        "Appends a string to the value of a key. Creates the key if it doesn't exist.";
    "decr" 2 [WRITE DENYOOM FAST] Keys::ONE, decr, "1.0.0",
        "Decrements the integer value of a key by one. Uses 0 as initial value if the key \
         doesn't exist.";
    "decrby" 3 [WRITE DENYOOM FAST] Keys::ONE, decrby, "1.0.0",
        "Decrements a number from the integer value of a key. Uses 0 as initial value if the key \
         doesn't exist.";
    "get" 2 [READ FAST] Keys::ONE, get, "1.0.0", "Returns the string value of a key.";
    "getdel" 2 [WRITE FAST] Keys::ONE, getdel, "6.2.0",
        "Returns the string value of a key after deleting the key.";
    "getex" -2 [WRITE FAST] Keys::ONE, getex, "6.2.0",
        "Returns the string value of a key after setting its expiration time.";
    "getrange" 4 [READ] Keys::ONE, getrange, "2.4.0",
        "Returns a substring of the string stored at a key.";
    "getset" 3 [WRITE DENYOOM FAST] Keys::ONE, getset, "1.0.0",
        "Returns the previous string value of a key after setting it to a new value.";
    "incr" 2 [WRITE DENYOOM FAST] Keys::ONE, incr, "1.0.0",
        "Increments the integer value of a key by one. Uses 0 as initial value if the key \
         doesn't exist.";
    "incrby" 3 [WRITE DENYOOM FAST] Keys::ONE, incrby, "1.0.0",
        "Increments the integer value of a key by a number. Uses 0 as initial value if the key \
         doesn't exist.";
    "incrbyfloat" 3 [WRITE DENYOOM FAST] Keys::ONE, incrbyfloat, "2.6.0",
        "Increment the floating point value of a key by a number. Uses 0 as initial value if the \
         key doesn't exist.";
    "lcs" -3 [READ] Keys::TWO, lcs::lcs, "7.0.0", "Finds the longest common substring.";
    "mget" -2 [READ FAST] Keys::ALL, mget, "1.0.0",
        "Atomically returns the string values of one or more keys.";
    "mset" -3 [WRITE DENYOOM] Keys::PAIRS, mset, "1.0.1",
        "Atomically creates or modifies the string values of one or more keys.";
    "msetnx" -3 [WRITE DENYOOM] Keys::PAIRS, msetnx, "1.0.1",
        "Atomically modifies the string values of one or more keys only when all keys don't exist.";
    "psetex" 4 [WRITE DENYOOM] Keys::ONE, psetex, "2.6.0",
        "Sets both string value and expiration time in milliseconds of a key. The key is created \
         if it doesn't exist.";
    "set" -3 [WRITE DENYOOM] Keys::ONE, set, "1.0.0",
        "Sets the string value of a key, ignoring its type. The key is created if it doesn't \
         exist.";
    "setex" 4 [WRITE DENYOOM] Keys::ONE, setex, "2.0.0",
        "Sets the string value and expiration time of a key. Creates the key if it doesn't exist.";
    "setnx" 3 [WRITE DENYOOM FAST] Keys::ONE, setnx, "1.0.0",
        "Set the string value of a key only when the key doesn't exist.";
    "setrange" 4 [WRITE DENYOOM] Keys::ONE, setrange, "2.2.0",
        "Overwrites a part of a string value with another by an offset. Creates the key if it \
         doesn't exist.";
    "strlen" 2 [READ FAST] Keys::ONE, strlen, "2.2.0", "Returns the length of a string value.";
    "substr" 4 [READ] Keys::ONE, getrange, "1.0.0", "Returns a substring from a string value.";
}

fn get(call: &mut Call<'_, '_>) -> Done {
    let reply = &mut *call.reply;
    let is_found = call.unit.with_string(call.session.database, call.args.at(1), |value| {
        reply.optional(value);
        value.is_some()
    })?;
    call.unit.note_lookup(is_found);
    Ok(())
}

fn strlen(call: &mut Call<'_, '_>) -> Done {
    let reply = &mut *call.reply;
    call.unit.with_string(call.session.database, call.args.at(1), |value| {
        reply.count(value.map_or(0, <[u8]>::len));
    })
}

fn mget(call: &mut Call<'_, '_>) -> Done {
    call.reply.array(call.args.len() - 1);
    for key in call.args.from(1) {
        let reply = &mut *call.reply;
        let got = call.unit.with_string(call.session.database, key, |value| {
            reply.optional(value);
            value.is_some()
        });
        match got {
            Err(Fail::Message(_)) => call.reply.null(),
            other => call.unit.note_lookup(other?),
        }
    }
    Ok(())
}

fn getrange(call: &mut Call<'_, '_>) -> Done {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let reply = &mut *call.reply;
    call.unit.with_string(call.session.database, call.args.at(1), |value| {
        let value = value.unwrap_or(&[]);
        reply.bulk(range_of(value, start, end));
    })
}

/// The bytes from `start` to `end`, both from the end if negative.
fn range_of(value: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let length = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let from = if start < 0 { start.saturating_add(length).max(0) } else { start };
    let to = if end < 0 { end.saturating_add(length).max(0) } else { end.min(length - 1) };
    if from > to {
        return &[];
    }
    match (usize::try_from(from), usize::try_from(to)) {
        (Ok(from), Ok(to)) => value.get(from..(to + 1).min(value.len())).unwrap_or(&[]),
        _ => &[],
    }
}

/// What `SET` and `GETEX` do with the expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    /// Removes it.
    Clear,
    /// Keeps it.
    Keep,
    /// Sets it, in milliseconds since 1970.
    At(u64),
}

/// Parses a time of `SET`, `GETEX` and the like. `unit` is EX, PX, EXAT or PXAT.
fn parse_expiry(call: &Call<'_, '_>, unit: &[u8], index: usize, command: &str) -> Done<Expiry> {
    let number = call.integer(index)?;
    let invalid = || Fail::with(format!("ERR invalid expire time in '{command}' command"));
    if number <= 0 {
        return Err(invalid());
    }
    let is_seconds =
        unit.len() == 2 && unit.eq_ignore_ascii_case(b"ex") || unit.eq_ignore_ascii_case(b"exat");
    let millis = if is_seconds { number.checked_mul(1000).ok_or_else(invalid)? } else { number };
    let is_absolute = unit.len() == 4;
    let base = if is_absolute { 0 } else { i64::try_from(call.unit.now).unwrap_or(0) };
    let time = millis.checked_add(base).ok_or_else(invalid)?;
    Ok(Expiry::At(u64::try_from(time).map_err(|_| invalid())?))
}

fn is_time_unit(word: &[u8]) -> bool {
    [b"ex".as_slice(), b"px", b"exat", b"pxat"].iter().any(|unit| word.eq_ignore_ascii_case(unit))
}

/// Options of `SET`.
struct SetOptions {
    expiry: Expiry,
    /// `NX` is `Some(false)`, `XX` is `Some(true)`.
    must_exist: Option<bool>,
    returns_old: bool,
}

fn parse_set(call: &Call<'_, '_>) -> Done<SetOptions> {
    let mut options = SetOptions { expiry: Expiry::Clear, must_exist: None, returns_old: false };
    let mut at = 3;
    while let Some(word) = call.args.get(at) {
        if word.eq_ignore_ascii_case(b"nx") && options.must_exist != Some(true) {
            options.must_exist = Some(false);
        } else if word.eq_ignore_ascii_case(b"xx") && options.must_exist != Some(false) {
            options.must_exist = Some(true);
        } else if word.eq_ignore_ascii_case(b"get") {
            options.returns_old = true;
        } else if word.eq_ignore_ascii_case(b"keepttl") && options.expiry == Expiry::Clear {
            options.expiry = Expiry::Keep;
        } else if is_time_unit(word) && options.expiry == Expiry::Clear && at + 1 < call.args.len()
        {
            options.expiry = parse_expiry(call, word, at + 1, "set")?;
            at += 1;
        } else {
            return Err(Fail::SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

fn set(call: &mut Call<'_, '_>) -> Done {
    if call.args.len() == 3 {
        call.unit.set_string(
            call.session.database,
            call.args.at(1),
            call.args.at(2).to_vec(),
            None,
        )?;
        call.notify(event::STRING, "set", call.key());
        call.reply.ok();
        return Ok(());
    }
    let options = parse_set(call)?;
    let (database, key) = (call.database(), call.key());
    if options.returns_old {
        let reply = &mut *call.reply;
        call.unit.with_string(database, key, |value| reply.optional(value))?;
    }
    if let Some(must_exist) = options.must_exist
        && call.unit.exists(database, key)? != must_exist
    {
        if !options.returns_old {
            call.reply.null();
        }
        return Ok(());
    }
    let expiry = match options.expiry {
        Expiry::Clear => None,
        Expiry::Keep => call.unit.head(database, key)?.and_then(|head| head.expiry),
        Expiry::At(time) => Some(time),
    };
    put_string(call, key, call.args.at(2).to_vec(), expiry)?;
    if matches!(options.expiry, Expiry::At(_)) {
        end_timed(call, key, expiry)?;
    }
    if !options.returns_old {
        call.reply.ok();
    }
    Ok(())
}

/// Sets a string.
fn put_string(call: &mut Call<'_, '_>, key: &[u8], value: Vec<u8>, expiry: Option<u64>) -> Done {
    call.unit.set_string(call.session.database, key, value, expiry)?;
    call.notify(event::STRING, "set", key);
    Ok(())
}

/// Ends a command that has set a string with an expiry. A time that has passed removes the key.
fn end_timed(call: &mut Call<'_, '_>, key: &[u8], expiry: Option<u64>) -> Done {
    call.notify(event::GENERIC, "expire", key);
    if expiry.is_some_and(|expiry| call.unit.is_past(expiry)) {
        call.unit.remove(call.session.database, key)?;
        call.notify(event::EXPIRED, "expired", key);
    }
    Ok(())
}

fn setnx(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.key());
    let is_new = !call.unit.exists(database, key)?;
    if is_new {
        call.unit.set_string(database, key, call.args.at(2).to_vec(), None)?;
        call.notify(event::STRING, "set", key);
    }
    call.reply.flag(is_new);
    Ok(())
}

fn setex(call: &mut Call<'_, '_>) -> Done {
    set_with_time(call, b"ex", "setex")
}

fn psetex(call: &mut Call<'_, '_>) -> Done {
    set_with_time(call, b"px", "psetex")
}

fn set_with_time(call: &mut Call<'_, '_>, unit: &[u8], command: &str) -> Done {
    let Expiry::At(expiry) = parse_expiry(call, unit, 2, command)? else {
        return Err(Fail::SYNTAX);
    };
    put_string(call, call.key(), call.args.at(3).to_vec(), Some(expiry))?;
    end_timed(call, call.key(), Some(expiry))?;
    call.reply.ok();
    Ok(())
}

fn getset(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.key());
    let reply = &mut *call.reply;
    call.unit.with_string(database, key, |value| reply.optional(value))?;
    put_string(call, key, call.args.at(2).to_vec(), None)
}

fn getdel(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.key());
    let reply = &mut *call.reply;
    call.unit.with_string(database, key, |value| reply.optional(value))?;
    if call.unit.remove(database, key)? {
        call.notify(event::GENERIC, "del", key);
    }
    Ok(())
}

fn getex(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.key());
    let expiry = match call.args.get(2) {
        None => Expiry::Keep,
        Some(word) if word.eq_ignore_ascii_case(b"persist") && call.args.len() == 3 => {
            Expiry::Clear
        }
        Some(word) if is_time_unit(word) && call.args.len() == 4 => {
            parse_expiry(call, word, 3, "getex")?
        }
        Some(_) => return Err(Fail::SYNTAX),
    };
    let reply = &mut *call.reply;
    let is_present = call.unit.with_string(database, key, |value| {
        reply.optional(value);
        value.is_some()
    })?;
    if !is_present {
        return Ok(());
    }
    match expiry {
        Expiry::Keep => {}
        Expiry::Clear => {
            if call.unit.head(database, key)?.is_some_and(|head| head.expiry.is_some()) {
                call.unit.set_expiry(database, key, None)?;
                call.notify(event::GENERIC, "persist", key);
            }
        }
        Expiry::At(time) if call.unit.is_past(time) => {
            call.unit.remove(database, key)?;
            call.notify(event::GENERIC, "del", key);
        }
        Expiry::At(time) => {
            call.unit.set_expiry(database, key, Some(time))?;
            call.notify(event::GENERIC, "expire", key);
        }
    }
    Ok(())
}

fn append(call: &mut Call<'_, '_>) -> Done {
    let (database, key, more) = (call.database(), call.key(), call.args.at(2));
    let max = value_bytes_max(call);
    let length = if let Some(value) = call.unit.string_mut(database, key)? {
        check_length(value.len().saturating_add(more.len()), max)?;
        value.extend_from_slice(more);
        let length = value.len();
        call.grow(more.len())?;
        length
    } else {
        call.unit.set_string(database, key, more.to_vec(), None)?;
        more.len()
    };
    call.notify(event::STRING, "append", key);
    call.reply.count(length);
    Ok(())
}

/// Longest value in bytes.
pub(super) fn value_bytes_max(call: &Call<'_, '_>) -> usize {
    let max = call.server.settings.proto_max_bulk_len.load(std::sync::atomic::Ordering::Relaxed);
    usize::try_from(max).unwrap_or(usize::MAX)
}

/// Fails if a value would be too long.
pub(super) fn check_length(length: usize, max: usize) -> Done {
    if length > max {
        return Err(Fail::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    Ok(())
}

fn setrange(call: &mut Call<'_, '_>) -> Done {
    let (database, key, part) = (call.database(), call.key(), call.args.at(3));
    let offset = call.integer(2)?;
    let offset = usize::try_from(offset).map_err(|_| Fail::new("ERR offset is out of range"))?;
    let max = value_bytes_max(call);
    let is_present = call.unit.with_string(database, key, |value| value.map(<[u8]>::len))?;
    if part.is_empty() {
        call.reply.count(is_present.unwrap_or(0));
        return Ok(());
    }
    let end = offset.saturating_add(part.len());
    check_length(end, max)?;
    if is_present.is_none() {
        call.unit.set_string(database, key, Vec::new(), None)?;
    }
    let value = call.unit.string_mut(database, key)?.ok_or(Fail::NO_SUCH_KEY)?;
    if value.len() < end {
        value.resize(end, 0);
    }
    if let Some(target) = value.get_mut(offset..end) {
        target.copy_from_slice(part);
    }
    let length = value.len();
    call.notify(event::STRING, "setrange", key);
    call.reply.count(length);
    Ok(())
}

fn incr(call: &mut Call<'_, '_>) -> Done {
    add(call, 1)
}

fn decr(call: &mut Call<'_, '_>) -> Done {
    add(call, -1)
}

fn incrby(call: &mut Call<'_, '_>) -> Done {
    let by = call.integer(2)?;
    add(call, by)
}

fn decrby(call: &mut Call<'_, '_>) -> Done {
    let by = call.integer(2)?;
    let by = by.checked_neg().ok_or(Fail::new("ERR decrement would overflow"))?;
    add(call, by)
}

fn add(call: &mut Call<'_, '_>, by: i64) -> Done {
    let (database, key) = (call.database(), call.key());
    let old = call.unit.with_string(database, key, |value| match value {
        None => Some(0),
        Some(value) => parse_i64(value),
    })?;
    let old = old.ok_or(Fail::NOT_INTEGER)?;
    let new = old.checked_add(by).ok_or(Fail::new("ERR increment or decrement would overflow"))?;
    set_keeping_expiry(call, key, new.to_string().into_bytes())?;
    call.notify(event::STRING, "incrby", key);
    call.reply.integer(new);
    Ok(())
}

/// Changes a string and keeps its expiry.
pub(super) fn set_keeping_expiry(call: &mut Call<'_, '_>, key: &[u8], value: Vec<u8>) -> Done {
    let database = call.database();
    let expiry = call.unit.head(database, key)?.and_then(|head| head.expiry);
    call.unit.set_string(database, key, value, expiry)
}

fn incrbyfloat(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.key());
    let old = call.unit.with_string(database, key, |value| match value {
        None => Some(0.0),
        Some(value) => parse_f64(value),
    })?;
    let old = old.ok_or(Fail::NOT_FLOAT)?;
    let new = old + call.float(2)?;
    if !new.is_finite() {
        return Err(Fail::new("ERR increment would produce NaN or Infinity"));
    }
    let text = format_decimal(new);
    set_keeping_expiry(call, key, text.clone().into_bytes())?;
    call.notify(event::STRING, "incrbyfloat", key);
    call.reply.text(&text);
    Ok(())
}

fn mset(call: &mut Call<'_, '_>) -> Done {
    put_pairs(call)?;
    call.reply.ok();
    Ok(())
}

fn msetnx(call: &mut Call<'_, '_>) -> Done {
    check_pairs(call)?;
    for key in call.args.from(1).step_by(2) {
        if call.unit.exists(call.session.database, key)? {
            call.reply.flag(false);
            return Ok(());
        }
    }
    put_pairs(call)?;
    call.reply.flag(true);
    Ok(())
}

fn check_pairs(call: &Call<'_, '_>) -> Done {
    if call.args.len().is_multiple_of(2) {
        let name = String::from_utf8_lossy(call.args.at(0)).to_lowercase();
        return Err(Fail::with(format!("ERR wrong number of arguments for '{name}' command")));
    }
    if call.args.from(1).step_by(2).any(<[u8]>::is_empty) {
        return Err(Fail::new("ERR the empty key is not supported"));
    }
    Ok(())
}

fn put_pairs(call: &mut Call<'_, '_>) -> Done {
    check_pairs(call)?;
    let mut words = call.args.from(1);
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        put_string(call, key, value.to_vec(), None)?;
    }
    Ok(())
}
