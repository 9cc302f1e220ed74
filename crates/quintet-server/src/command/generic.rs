//! Keys of any type.

use super::call::{Call, commands};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
    store::{Body, DATABASES, DatabaseId, Head, Kind, event},
};

commands! { Group::Generic;
    "copy" -3 [WRITE DENYOOM LOCK_ALL] Keys::TWO, copy, "6.2.0",
        "Copies the value of a key to a new key.";
    "del" -2 [WRITE] Keys::ALL, del, "1.0.0", "Deletes one or more keys.";
    "exists" -2 [READ FAST] Keys::ALL, exists, "1.0.0",
        "Determines whether one or more keys exist.";
    "expire" -3 [WRITE FAST] Keys::ONE, expire, "1.0.0",
        "Sets the expiration time of a key in seconds.";
    "expireat" -3 [WRITE FAST] Keys::ONE, expireat, "1.2.0",
        "Sets the expiration time of a key to a Unix timestamp.";
    "expiretime" 2 [READ FAST] Keys::ONE, expiretime, "7.0.0",
        "Returns the expiration time of a key as a Unix timestamp.";
    "move" 3 [WRITE FAST LOCK_ALL] Keys::ONE, move_key, "1.0.0", "Moves a key to another database.";
    "object" -2 [CONTAINER] Keys::None, object_help, "2.2.3",
        "A container for object introspection commands.";
    "object|encoding" 3 [READ] Keys::SECOND, object_encoding, "2.2.3",
        "Returns the internal encoding of an object.";
    "object|freq" 3 [READ] Keys::SECOND, object_freq, "4.0.0",
        "Returns the logarithmic access frequency counter of an object.";
    "object|help" 2 [] Keys::None, object_help, "6.2.0",
        "Returns helpful text about the different subcommands.";
    "object|idletime" 3 [READ] Keys::SECOND, object_idletime, "2.2.3",
        "Returns the time since the last access to an object.";
    "object|refcount" 3 [READ] Keys::SECOND, object_refcount, "2.2.3",
        "Returns the reference count of a value of a key.";
    "persist" 2 [WRITE FAST] Keys::ONE, persist, "2.2.0",
        "Removes the expiration time of a key.";
    "pexpire" -3 [WRITE FAST] Keys::ONE, pexpire, "2.6.0",
        "Sets the expiration time of a key in milliseconds.";
    "pexpireat" -3 [WRITE FAST] Keys::ONE, pexpireat, "2.6.0",
        "Sets the expiration time of a key to a Unix milliseconds timestamp.";
    "pexpiretime" 2 [READ FAST] Keys::ONE, pexpiretime, "7.0.0",
        "Returns the expiration time of a key as a Unix milliseconds timestamp.";
    "pttl" 2 [READ FAST] Keys::ONE, pttl, "2.6.0",
        "Returns the expiration time in milliseconds of a key.";
    "rename" 3 [WRITE] Keys::TWO, rename, "1.0.0",
        "Renames a key and overwrites the destination.";
    "renamenx" 3 [WRITE FAST] Keys::TWO, renamenx, "1.0.0",
        "Renames a key only when the target key name doesn't exist.";
    "touch" -2 [READ FAST] Keys::ALL, exists, "3.2.1",
        "Returns the number of existing keys out of those specified after updating the time they \
         were last accessed.";
    "ttl" 2 [READ FAST] Keys::ONE, ttl, "1.0.0",
        "Returns the expiration time in seconds of a key.";
    "type" 2 [READ FAST] Keys::ONE, type_of, "1.0.0",
        "Determines the type of value stored at a key.";
    "unlink" -2 [WRITE FAST] Keys::ALL, del, "4.0.0", "Asynchronously deletes one or more keys.";
    "wait" 3 [] Keys::None, wait, "3.0.0",
        "Blocks until the asynchronous replication of all preceding write commands sent by the \
         connection is completed.";
}

fn del(call: &mut Call<'_, '_>) -> Done {
    let mut count = 0;
    for key in call.args.from(1).filter(|key| !key.is_empty()) {
        if call.unit.remove(call.session.database, key)? {
            call.notify(event::GENERIC, "del", key);
            count += 1;
        }
    }
    call.reply.count(count);
    Ok(())
}

fn exists(call: &mut Call<'_, '_>) -> Done {
    let mut count = 0;
    for key in call.args.from(1).filter(|key| !key.is_empty()) {
        let is_present = call.unit.exists(call.session.database, key)?;
        call.unit.note_lookup(is_present);
        count += usize::from(is_present);
    }
    call.reply.count(count);
    Ok(())
}

fn type_of(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.key());
    let name = call.unit.head(database, key)?.map_or("none", |head| head.kind().name());
    call.reply.simple(name);
    Ok(())
}

fn wait(call: &mut Call<'_, '_>) -> Done {
    call.integer(1)?;
    if call.integer(2)? < 0 {
        return Err(Fail::new("ERR timeout is negative"));
    }
    // There are no replicas.
    call.reply.integer(0);
    Ok(())
}

fn expire(call: &mut Call<'_, '_>) -> Done {
    set_expiry(call, "expire", 1000, true)
}

fn pexpire(call: &mut Call<'_, '_>) -> Done {
    set_expiry(call, "pexpire", 1, true)
}

fn expireat(call: &mut Call<'_, '_>) -> Done {
    set_expiry(call, "expireat", 1000, false)
}

fn pexpireat(call: &mut Call<'_, '_>) -> Done {
    set_expiry(call, "pexpireat", 1, false)
}

/// Conditions of the `EXPIRE` family.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
struct ExpireConditions {
    if_none: bool,
    if_some: bool,
    if_later: bool,
    if_earlier: bool,
}

fn parse_conditions(call: &Call<'_, '_>) -> Done<ExpireConditions> {
    let mut conditions = ExpireConditions::default();
    for word in call.args.from(3) {
        match word.to_ascii_lowercase().as_slice() {
            b"nx" => conditions.if_none = true,
            b"xx" => conditions.if_some = true,
            b"gt" => conditions.if_later = true,
            b"lt" => conditions.if_earlier = true,
            _ => {
                let word = String::from_utf8_lossy(word);
                return Err(Fail::with(format!("ERR Unsupported option {word}")));
            }
        }
    }
    let ExpireConditions { if_none, if_some, if_later, if_earlier } = conditions;
    if if_none && (if_some || if_later || if_earlier) {
        return Err(Fail::new(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if if_later && if_earlier {
        return Err(Fail::new("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(conditions)
}

fn set_expiry(call: &mut Call<'_, '_>, command: &str, unit: i64, is_relative: bool) -> Done {
    let (database, key) = (call.database(), call.key());
    let conditions = parse_conditions(call)?;
    let invalid = || Fail::with(format!("ERR invalid expire time in '{command}' command"));
    let number = call.integer(2)?;
    let base = if is_relative { i64::try_from(call.unit.now).unwrap_or(0) } else { 0 };
    let time = number.checked_mul(unit).and_then(|millis| millis.checked_add(base));
    let time = u64::try_from(time.ok_or_else(invalid)?.max(0)).map_err(|_| invalid())?;
    let Some(head) = call.unit.head(database, key)? else {
        call.reply.flag(false);
        return Ok(());
    };
    let old = head.expiry;
    let is_refused = conditions.if_none && old.is_some()
        || conditions.if_some && old.is_none()
        || conditions.if_later && old.is_none_or(|old| time <= old)
        || conditions.if_earlier && old.is_some_and(|old| time >= old);
    if is_refused {
        call.reply.flag(false);
        return Ok(());
    }
    if call.unit.is_past(time) {
        call.unit.remove(database, key)?;
        call.notify(event::GENERIC, "del", key);
    } else {
        call.unit.set_expiry(database, key, Some(time))?;
        call.notify(event::GENERIC, "expire", key);
    }
    call.reply.flag(true);
    Ok(())
}

fn persist(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.key());
    let expires = call.unit.head(database, key)?.is_some_and(|head| head.expiry.is_some());
    if expires {
        call.unit.set_expiry(database, key, None)?;
        call.notify(event::GENERIC, "persist", key);
    }
    call.reply.flag(expires);
    Ok(())
}

fn ttl(call: &mut Call<'_, '_>) -> Done {
    reply_expiry(call, |expiry, now| (expiry.saturating_sub(now) + 500) / 1000)
}

fn pttl(call: &mut Call<'_, '_>) -> Done {
    reply_expiry(call, u64::saturating_sub)
}

fn expiretime(call: &mut Call<'_, '_>) -> Done {
    reply_expiry(call, |expiry, _| (expiry + 500) / 1000)
}

fn pexpiretime(call: &mut Call<'_, '_>) -> Done {
    reply_expiry(call, |expiry, _| expiry)
}

fn reply_expiry(call: &mut Call<'_, '_>, shown: fn(u64, u64) -> u64) -> Done {
    let (database, key, now) = (call.database(), call.key(), call.unit.now);
    let number = match call.unit.head(database, key)? {
        None => -2,
        Some(Head { expiry: None, .. }) => -1,
        Some(Head { expiry: Some(expiry), .. }) => {
            i64::try_from(shown(*expiry, now)).unwrap_or(i64::MAX)
        }
    };
    call.reply.integer(number);
    Ok(())
}

fn rename(call: &mut Call<'_, '_>) -> Done {
    move_within(call, false)?;
    call.reply.ok();
    Ok(())
}

fn renamenx(call: &mut Call<'_, '_>) -> Done {
    let is_moved = move_within(call, true)?;
    call.reply.flag(is_moved);
    Ok(())
}

/// Renames in constant time: the elements of a collection stay where they are.
fn move_within(call: &mut Call<'_, '_>, if_absent: bool) -> Done<bool> {
    let (database, from, to) = (call.database(), call.key(), call.args.at(2));
    if !call.unit.exists(database, from)? {
        return Err(Fail::NO_SUCH_KEY);
    }
    let is_taken = call.unit.exists(database, to)?;
    if if_absent && is_taken {
        return Ok(false);
    }
    if from != to
        && let Some(taken) = call.unit.take(database, from)?
    {
        call.unit.put_taken(database, to, taken)?;
        call.notify(event::GENERIC, "rename_from", from);
        call.notify(event::GENERIC, "rename_to", to);
    }
    Ok(true)
}

/// Parses the index of a database in its namespace.
pub(super) fn parse_database(text: &[u8]) -> Done<u8> {
    let number = crate::number::parse_i64(text).ok_or(Fail::NOT_INTEGER)?;
    let index = u8::try_from(number).ok().filter(|index| *index < DATABASES);
    index.ok_or(Fail::new("ERR DB index is out of range"))
}

fn move_key(call: &mut Call<'_, '_>) -> Done {
    let (from, key) = (call.database(), call.key());
    let to = from.sibling(parse_database(call.args.at(2))?);
    if from == to {
        return Err(Fail::new("ERR source and destination objects are the same"));
    }
    if !call.unit.exists(from, key)? || call.unit.exists(to, key)? {
        call.reply.flag(false);
        return Ok(());
    }
    copy_value(call, (from, key), (to, key))?;
    call.unit.remove(from, key)?;
    call.unit.notify(event::GENERIC, "move_from", from, key);
    call.unit.notify(event::GENERIC, "move_to", to, key);
    call.reply.flag(true);
    Ok(())
}

fn copy(call: &mut Call<'_, '_>) -> Done {
    let (from, source, target) = (call.database(), call.key(), call.args.at(2));
    let (mut to, mut replaces) = (from, false);
    let mut at = 3;
    while at < call.args.len() {
        if call.args.is(at, "replace") {
            replaces = true;
        } else if call.args.is(at, "db") && at + 1 < call.args.len() {
            to = from.sibling(parse_database(call.args.at(at + 1))?);
            at += 1;
        } else {
            return Err(Fail::SYNTAX);
        }
        at += 1;
    }
    if from == to && source == target {
        return Err(Fail::new("ERR source and destination objects are the same"));
    }
    if !call.unit.exists(from, source)? || (!replaces && call.unit.exists(to, target)?) {
        call.reply.flag(false);
        return Ok(());
    }
    call.unit.remove(to, target)?;
    copy_value(call, (from, source), (to, target))?;
    call.unit.notify(event::GENERIC, "copy_to", to, target);
    call.reply.flag(true);
    Ok(())
}

/// Copies a value with its expiry. The target must not exist.
fn copy_value(
    call: &mut Call<'_, '_>,
    source: (DatabaseId, &[u8]),
    target: (DatabaseId, &[u8]),
) -> Done {
    let Some(head) = call.unit.head(source.0, source.1)? else { return Ok(()) };
    let (expiry, kind) = (head.expiry, head.kind());
    if let Body::Str(value) = &head.body {
        let value = value.clone();
        return call.unit.set_string(target.0, target.1, value, expiry);
    }
    let Some(mut from) = call.unit.open(source.0, source.1, kind)? else { return Ok(()) };
    let field_expiries = from.field_expiries()?;
    let (elements, count, extra) =
        (from.collect(crate::store::ALL)?, from.count(), from.extra().to_vec());
    let mut to = call.unit.open_or_create(target.0, target.1, kind)?;
    for (name, value) in elements {
        to.put(&name, &value)?;
    }
    for (field, expiry) in field_expiries {
        to.set_field_expiry(&field, Some(expiry))?;
    }
    to.set_extra(&extra);
    to.set_count(count);
    call.unit.set_expiry(target.0, target.1, expiry)
}

fn object_encoding(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.args.at(2));
    let Some(head) = call.unit.head(database, key)? else {
        call.reply.null();
        return Ok(());
    };
    let encoding = match &head.body {
        Body::Str(value) if crate::number::parse_i64(value).is_some() => "int",
        Body::Str(value) if value.len() <= 44 => "embstr",
        Body::Str(_) => "raw",
        Body::Elements(elements) => match (elements.kind, elements.inline.is_some()) {
            (Kind::List, true) if elements.count <= 128 => "listpack",
            (Kind::List, _) => "quicklist",
            (Kind::Set, true) => {
                let is_integer =
                    |(name, _): &(Vec<u8>, Vec<u8>)| crate::number::parse_i64(name).is_some();
                let is_integers = elements.inline.iter().flatten().all(is_integer);
                if is_integers { "intset" } else { "hashtable" }
            }
            (Kind::SortedSet, false) => "skiplist",
            (Kind::Stream, _) => "stream",
            (_, true) if head.field_expiries.is_some() => "listpackex",
            (_, true) => "listpack",
            (_, false) => "hashtable",
        },
    };
    call.reply.text(encoding);
    Ok(())
}

fn object_refcount(call: &mut Call<'_, '_>) -> Done {
    reply_of_object(call, 1)
}

fn object_idletime(call: &mut Call<'_, '_>) -> Done {
    reply_of_object(call, 0)
}

fn reply_of_object(call: &mut Call<'_, '_>, number: i64) -> Done {
    let (database, key) = (call.database(), call.args.at(2));
    if call.unit.exists(database, key)? {
        call.reply.integer(number);
    } else {
        call.reply.null();
    }
    Ok(())
}

fn object_freq(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.args.at(2));
    if !call.unit.exists(database, key)? {
        call.reply.null();
        return Ok(());
    }
    Err(Fail::new(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
         that when switching between policies at runtime LRU and LFU data will take some time to \
         adjust.",
    ))
}

fn object_help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "OBJECT",
        &[
            (
                "ENCODING <key>",
                "Return the kind of internal representation used in order to store the value \
                 associated with a <key>.",
            ),
            ("FREQ <key>", "Return the access frequency index of the <key>."),
            ("IDLETIME <key>", "Return the idle time of the <key>."),
            (
                "REFCOUNT <key>",
                "Return the number of references of the value associated with the specified <key>.",
            ),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}

/// Replies the help of a command with subcommands.
pub(super) fn reply_help(call: &mut Call<'_, '_>, name: &str, lines: &[(&str, &str)]) {
    call.reply.array(lines.len() * 2 + 1);
    call.reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for (usage, text) in lines {
        call.reply.simple(usage);
        call.reply.simple(&format!("    {text}"));
    }
}
