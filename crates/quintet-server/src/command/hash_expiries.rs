//! Fields of hashes that expire, as in Redis 7.4.

use super::call::{Call, commands};
use crate::{
    failure::{Done, Fail},
    number::parse_i64,
    resp::Args,
    spec::{Group, Keys},
    store::{Collection, Kind, event},
};

commands! { Group::Hash;
    "hexpire" -6 [WRITE DENYOOM FAST] Keys::ONE, hexpire, "7.4.0",
        "Sets the expiration time of one or more fields in seconds.";
    "hexpireat" -6 [WRITE DENYOOM FAST] Keys::ONE, hexpireat, "7.4.0",
        "Sets the expiration time of one or more fields to a Unix timestamp.";
    "hexpiretime" -5 [READ FAST] Keys::ONE, hexpiretime, "7.4.0",
        "Returns the expiration time of one or more fields as a Unix timestamp.";
    "hpersist" -5 [WRITE FAST] Keys::ONE, hpersist, "7.4.0",
        "Removes the expiration time of one or more fields.";
    "hpexpire" -6 [WRITE DENYOOM FAST] Keys::ONE, hpexpire, "7.4.0",
        "Sets the expiration time of one or more fields in milliseconds.";
    "hpexpireat" -6 [WRITE DENYOOM FAST] Keys::ONE, hpexpireat, "7.4.0",
        "Sets the expiration time of one or more fields to a Unix milliseconds timestamp.";
    "hpexpiretime" -5 [READ FAST] Keys::ONE, hpexpiretime, "7.4.0",
        "Returns the expiration time of one or more fields as a Unix milliseconds timestamp.";
    "hpttl" -5 [READ FAST] Keys::ONE, hpttl, "7.4.0",
        "Returns the expiration time in milliseconds of one or more fields.";
    "httl" -5 [READ FAST] Keys::ONE, httl, "7.4.0",
        "Returns the expiration time in seconds of one or more fields.";
}

/// Latest time at which a field may expire, in milliseconds since 1970: Redis's limit.
const TIME_MAX: i64 = (1 << 46) - 1;

/// No such field.
const MISSING: i64 = -2;
/// The field does not expire.
const LASTING: i64 = -1;
/// The condition does not hold.
const REFUSED: i64 = 0;
/// The expiry was set or removed.
const CHANGED: i64 = 1;
/// The expiry is past, so the field was removed.
const REMOVED: i64 = 2;

/// The condition of an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// The field does not expire.
    Absent,
    /// The field expires.
    Present,
    /// The new expiry is later than that of the field. A field that does not expire ends last.
    Later,
    /// The new expiry is earlier than that of the field, or the field does not expire.
    Earlier,
}

impl Condition {
    fn at(args: Args<'_>, index: usize) -> Option<Self> {
        let names = [
            ("nx", Self::Absent),
            ("xx", Self::Present),
            ("gt", Self::Later),
            ("lt", Self::Earlier),
        ];
        names.into_iter().find(|(name, _)| args.is(index, name)).map(|(_, condition)| condition)
    }

    /// Whether an expiry may become `new`. No expiry is later than each.
    fn allows(self, old: Option<u64>, new: u64) -> bool {
        match self {
            Self::Absent => old.is_none(),
            Self::Present => old.is_some(),
            Self::Later => old.is_some_and(|old| new > old),
            Self::Earlier => old.is_none_or(|old| new < old),
        }
    }
}

/// How a command gives a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeForm {
    /// Milliseconds of its unit.
    pub(super) unit: i64,
    /// Whether it counts from now.
    pub(super) is_relative: bool,
}

/// Parses the time at argument `at`. Returns milliseconds since 1970.
pub(super) fn parse_time(call: &Call<'_, '_>, at: usize, form: TimeForm) -> Done<u64> {
    let number = call.integer(at)?;
    if number < 0 {
        return Err(Fail::new("ERR invalid expire time, must be >= 0"));
    }
    let base = if form.is_relative { i64::try_from(call.unit.now).unwrap_or(0) } else { 0 };
    let time = number.checked_mul(form.unit).and_then(|time| time.checked_add(base));
    let time = time.filter(|time| *time <= TIME_MAX).and_then(|time| u64::try_from(time).ok());
    time.ok_or_else(|| {
        let command = String::from_utf8_lossy(call.args.at(0)).to_lowercase();
        Fail::with(format!("ERR invalid expire time in '{command}' command"))
    })
}

/// The error of `HEXPIRE` and its relatives for a number of fields below 1.
const FIELDS_OF_EXPIRE: Fail = Fail::new("ERR Parameter `numFields` should be greater than 0");
/// The same error of the other commands.
pub(super) const FIELDS_OF_OTHERS: Fail =
    Fail::new("ERR Number of fields must be a positive integer");

/// Parses `FIELDS` and the number of fields from argument `at`. Fails with `invalid` if the number
/// is none above 0.
pub(super) fn parse_field_count(call: &Call<'_, '_>, at: usize, invalid: Fail) -> Done<usize> {
    if !call.args.is(at, "fields") {
        return Err(Fail::new(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let count = parse_i64(call.args.at(at + 1)).filter(|count| *count > 0);
    count.and_then(|count| usize::try_from(count).ok()).ok_or(invalid)
}

/// Parses `FIELDS`, the number of fields and the fields, which end the request, from argument `at`.
/// Returns the position of the first field.
pub(super) fn parse_fields(call: &Call<'_, '_>, at: usize, invalid: Fail) -> Done<usize> {
    if parse_field_count(call, at, invalid)? != call.args.len().saturating_sub(at + 2) {
        return Err(Fail::new("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(at + 2)
}

/// Removes a field of a hash, with its expiry.
pub(super) fn remove_field(hash: &mut Collection<'_>, field: &[u8]) -> Done {
    hash.set_field_expiry(field, None)?;
    hash.remove(field);
    hash.set_count(hash.count() - 1);
    Ok(())
}

/// Replies a number for each field from argument `start` on.
fn reply_each(
    call: &mut Call<'_, '_>,
    start: usize,
    mut each: impl FnMut(&mut Collection<'_>, &[u8]) -> Done<i64>,
) -> Done<Vec<i64>> {
    let (args, key) = (call.args, call.key());
    let mut numbers = Vec::with_capacity(args.len() - start);
    let mut hash = call.open(key, Kind::Hash)?;
    for field in args.from(start) {
        numbers.push(match &mut hash {
            Some(hash) if hash.contains(field)? => each(hash, field)?,
            _ => MISSING,
        });
    }
    call.reply.array(numbers.len());
    for number in &numbers {
        call.reply.integer(*number);
    }
    Ok(numbers)
}

fn hexpire(call: &mut Call<'_, '_>) -> Done {
    set_expiries(call, TimeForm { unit: 1000, is_relative: true })
}

fn hpexpire(call: &mut Call<'_, '_>) -> Done {
    set_expiries(call, TimeForm { unit: 1, is_relative: true })
}

fn hexpireat(call: &mut Call<'_, '_>) -> Done {
    set_expiries(call, TimeForm { unit: 1000, is_relative: false })
}

fn hpexpireat(call: &mut Call<'_, '_>) -> Done {
    set_expiries(call, TimeForm { unit: 1, is_relative: false })
}

fn set_expiries(call: &mut Call<'_, '_>, form: TimeForm) -> Done {
    call.check_kind(call.key(), Kind::Hash)?;
    let time = parse_time(call, 2, form)?;
    let condition = Condition::at(call.args, 3);
    let at = if condition.is_some() { 4 } else { 3 };
    let start = parse_fields(call, at, FIELDS_OF_EXPIRE)?;
    let is_past = call.unit.is_past(time);
    let numbers = reply_each(call, start, |hash, field| {
        if let Some(condition) = condition
            && !condition.allows(hash.field_expiry(field)?, time)
        {
            return Ok(REFUSED);
        }
        if is_past {
            remove_field(hash, field)?;
            return Ok(REMOVED);
        }
        hash.set_field_expiry(field, Some(time))?;
        Ok(CHANGED)
    })?;
    if numbers.contains(&CHANGED) {
        call.notify(event::HASH, "hexpire", call.key());
    }
    if numbers.contains(&REMOVED) {
        call.notify(event::HASH, "hdel", call.key());
    }
    Ok(())
}

fn hpersist(call: &mut Call<'_, '_>) -> Done {
    call.check_kind(call.key(), Kind::Hash)?;
    let start = parse_fields(call, 2, FIELDS_OF_OTHERS)?;
    let numbers = reply_each(call, start, |hash, field| {
        if hash.field_expiry(field)?.is_none() {
            return Ok(LASTING);
        }
        hash.set_field_expiry(field, None)?;
        Ok(CHANGED)
    })?;
    if numbers.contains(&CHANGED) {
        call.notify(event::HASH, "hpersist", call.key());
    }
    Ok(())
}

fn httl(call: &mut Call<'_, '_>) -> Done {
    reply_expiries(call, |expiry, now| expiry.saturating_sub(now).div_ceil(1000))
}

fn hpttl(call: &mut Call<'_, '_>) -> Done {
    reply_expiries(call, u64::saturating_sub)
}

fn hexpiretime(call: &mut Call<'_, '_>) -> Done {
    reply_expiries(call, |expiry, _| expiry.div_ceil(1000))
}

fn hpexpiretime(call: &mut Call<'_, '_>) -> Done {
    reply_expiries(call, |expiry, _| expiry)
}

fn reply_expiries(call: &mut Call<'_, '_>, shown: fn(u64, u64) -> u64) -> Done {
    call.check_kind(call.key(), Kind::Hash)?;
    let start = parse_fields(call, 2, FIELDS_OF_OTHERS)?;
    let now = call.unit.now;
    reply_each(call, start, |hash, field| {
        let expiry = hash.field_expiry(field)?;
        let shown = expiry.map(|expiry| i64::try_from(shown(expiry, now)).unwrap_or(i64::MAX));
        Ok(shown.unwrap_or(LASTING))
    })?;
    Ok(())
}
