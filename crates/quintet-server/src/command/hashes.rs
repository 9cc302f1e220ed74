//! Hashes: an element for each field.

use std::ops::ControlFlow;

use super::{
    call::{Call, commands},
    members::{self, Form},
};
use crate::{
    failure::{Done, Fail},
    number::{format_decimal, parse_f64, parse_i64},
    spec::{Group, Keys},
    store::{ALL, Kind, check_names, event},
};

commands! { Group::Hash;
    "hdel" -3 [WRITE FAST] Keys::ONE, hdel, "2.0.0",
        "Deletes one or more fields and their values from a hash. Deletes the hash if no fields \
         remain.";
    "hexists" 3 [READ FAST] Keys::ONE, hexists, "2.0.0", "Determines whether a field exists in a \
     hash.";
    "hget" 3 [READ FAST] Keys::ONE, hget, "2.0.0", "Returns the value of a field in a hash.";
    "hgetall" 2 [READ] Keys::ONE, hgetall, "2.0.0", "Returns all fields and values in a hash.";
    "hincrby" 4 [WRITE DENYOOM FAST] Keys::ONE, hincrby, "2.0.0",
        "Increments the integer value of a field in a hash by a number. Uses 0 as initial value \
         if the field doesn't exist.";
    "hincrbyfloat" 4 [WRITE DENYOOM FAST] Keys::ONE, hincrbyfloat, "2.6.0",
        "Increments the floating point value of a field by a number. Uses 0 as initial value if \
         the field doesn't exist.";
    "hkeys" 2 [READ] Keys::ONE, hkeys, "2.0.0", "Returns all fields in a hash.";
    "hlen" 2 [READ FAST] Keys::ONE, hlen, "2.0.0", "Returns the number of fields in a hash.";
    "hmget" -3 [READ FAST] Keys::ONE, hmget, "2.0.0", "Returns the values of all fields in a hash.";
    "hmset" -4 [WRITE DENYOOM FAST] Keys::ONE, hmset, "2.0.0", "Sets the values of multiple \
     fields.";
    "hrandfield" -2 [READ] Keys::ONE, hrandfield, "6.2.0",
        "Returns one or more random fields from a hash.";
    "hscan" -3 [READ] Keys::ONE, hscan, "2.8.0", "Iterates over fields and values of a hash.";
    "hset" -4 [WRITE DENYOOM FAST] Keys::ONE, hset, "2.0.0",
        "Creates or modifies the value of a field in a hash.";
    "hsetnx" 4 [WRITE DENYOOM FAST] Keys::ONE, hsetnx, "2.0.0",
        "Sets the value of a field in a hash only when the field doesn't exist.";
    "hstrlen" 3 [READ FAST] Keys::ONE, hstrlen, "3.2.0", "Returns the length of the value of a \
     field.";
    "hvals" 2 [READ] Keys::ONE, hvals, "2.0.0", "Returns all values in a hash.";
}

fn field(call: &mut Call<'_, '_>, name: &[u8]) -> Done<Option<Vec<u8>>> {
    match call.open(call.key(), Kind::Hash)? {
        Some(hash) => hash.get(name),
        None => Ok(None),
    }
}

fn hget(call: &mut Call<'_, '_>) -> Done {
    let value = field(call, call.args.at(2))?;
    call.unit.note_lookup(value.is_some());
    call.reply.optional(value.as_deref());
    Ok(())
}

fn hmget(call: &mut Call<'_, '_>) -> Done {
    let (args, key) = (call.args, call.key());
    let hash = call.open(key, Kind::Hash)?;
    let mut values = Vec::with_capacity(args.len() - 2);
    for name in args.from(2) {
        values.push(match &hash {
            Some(hash) => hash.get(name)?,
            None => None,
        });
    }
    call.reply.array(values.len());
    for value in values {
        call.reply.optional(value.as_deref());
    }
    Ok(())
}

fn hexists(call: &mut Call<'_, '_>) -> Done {
    let is_present = members::contains(call, call.key(), Kind::Hash, call.args.at(2))?;
    call.reply.flag(is_present);
    Ok(())
}

fn hlen(call: &mut Call<'_, '_>) -> Done {
    members::reply_count(call, Kind::Hash)
}

fn hstrlen(call: &mut Call<'_, '_>) -> Done {
    let value = field(call, call.args.at(2))?;
    call.reply.count(value.map_or(0, |value| value.len()));
    Ok(())
}

/// Sets fields. Returns the number of new ones.
fn put_fields(call: &mut Call<'_, '_>) -> Done<usize> {
    let (args, key) = (call.args, call.key());
    if !args.len().is_multiple_of(2) {
        let name = String::from_utf8_lossy(args.at(0)).to_lowercase();
        return Err(Fail::with(format!("ERR wrong number of arguments for '{name}' command")));
    }
    check_names(args.from(2).step_by(2))?;
    let mut hash = call.create(key, Kind::Hash)?;
    let mut added = 0;
    let mut words = args.from(2);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        added += usize::from(!hash.contains(name)?);
        hash.set_field_expiry(name, None)?;
        hash.put(name, value)?;
    }
    hash.set_count(hash.count() + added);
    call.notify(event::HASH, "hset", key);
    Ok(added)
}

fn hset(call: &mut Call<'_, '_>) -> Done {
    let added = put_fields(call)?;
    call.reply.count(added);
    Ok(())
}

fn hmset(call: &mut Call<'_, '_>) -> Done {
    put_fields(call)?;
    call.reply.ok();
    Ok(())
}

fn hsetnx(call: &mut Call<'_, '_>) -> Done {
    let (args, key) = (call.args, call.key());
    check_names([args.at(2)])?;
    let mut hash = call.create(key, Kind::Hash)?;
    let is_new = !hash.contains(args.at(2))?;
    if is_new {
        hash.put(args.at(2), args.at(3))?;
        hash.set_count(hash.count() + 1);
        call.notify(event::HASH, "hset", key);
    }
    call.reply.flag(is_new);
    Ok(())
}

fn hdel(call: &mut Call<'_, '_>) -> Done {
    let removed = members::remove(call, Kind::Hash)?;
    call.reply.count(removed);
    Ok(())
}

fn put_field(call: &mut Call<'_, '_>, value: &[u8]) -> Done {
    let (args, key) = (call.args, call.key());
    check_names([args.at(2)])?;
    let mut hash = call.create(key, Kind::Hash)?;
    if !hash.contains(args.at(2))? {
        hash.set_count(hash.count() + 1);
    }
    hash.put(args.at(2), value)
}

fn hincrby(call: &mut Call<'_, '_>) -> Done {
    let by = call.integer(3)?;
    let old = match field(call, call.args.at(2))? {
        None => 0,
        Some(value) => parse_i64(&value).ok_or(Fail::new("ERR hash value is not an integer"))?,
    };
    let new = old.checked_add(by).ok_or(Fail::new("ERR increment or decrement would overflow"))?;
    put_field(call, new.to_string().as_bytes())?;
    call.notify(event::HASH, "hincrby", call.key());
    call.reply.integer(new);
    Ok(())
}

fn hincrbyfloat(call: &mut Call<'_, '_>) -> Done {
    let by = call.float(3)?;
    if !by.is_finite() {
        return Err(Fail::new("ERR value is NaN or Infinity"));
    }
    let old = match field(call, call.args.at(2))? {
        None => 0.0,
        Some(value) => parse_f64(&value).ok_or(Fail::new("ERR hash value is not a float"))?,
    };
    let new = old + by;
    if !new.is_finite() {
        return Err(Fail::new("ERR increment would produce NaN or Infinity"));
    }
    let text = format_decimal(new);
    put_field(call, text.as_bytes())?;
    call.notify(event::HASH, "hincrbyfloat", call.key());
    call.reply.text(&text);
    Ok(())
}

fn hgetall(call: &mut Call<'_, '_>) -> Done {
    reply_all(call, true, true)
}

fn hkeys(call: &mut Call<'_, '_>) -> Done {
    reply_all(call, true, false)
}

fn hvals(call: &mut Call<'_, '_>) -> Done {
    reply_all(call, false, true)
}

fn reply_all(call: &mut Call<'_, '_>, names: bool, values: bool) -> Done {
    let (database, key) = (call.database(), call.key());
    let Some(hash) = call.unit.open(database, key, Kind::Hash)? else {
        if names && values {
            call.reply.map(0);
        } else {
            call.reply.array(0);
        }
        return Ok(());
    };
    let reply = &mut *call.reply;
    if names && values {
        reply.map(hash.count());
    } else {
        reply.array(hash.count());
    }
    hash.visit(ALL, false, |name, value| {
        if names {
            reply.bulk(name);
        }
        if values {
            reply.bulk(value);
        }
        ControlFlow::Continue(())
    })
}

fn hrandfield(call: &mut Call<'_, '_>) -> Done {
    let has_values = match call.args.len() {
        2 | 3 => false,
        4 if call.args.is(3, "withvalues") => true,
        _ => return Err(Fail::SYNTAX),
    };
    let form = if has_values { Form::Pair } else { Form::Name };
    members::reply_random(call, Kind::Hash, form)
}

fn hscan(call: &mut Call<'_, '_>) -> Done {
    members::scan(call, Kind::Hash, |reply, name, value| {
        reply.bulk(name);
        reply.bulk(value);
        2
    })
}
