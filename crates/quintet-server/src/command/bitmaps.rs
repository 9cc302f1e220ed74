//! Bits of strings. Bit 0 is the highest bit of byte 0.

use super::{
    call::{Call, commands},
    strings::{set_keeping_expiry, value_bytes_max},
};
use crate::{
    failure::{Done, Fail},
    number::{parse_i64, parse_u64},
    spec::{Group, Keys},
    store::event,
};

commands! { Group::Bitmap;
    "bitcount" -2 [READ] Keys::ONE, bitcount, "2.6.0",
        "Counts the number of set bits (population counting) in a string.";
    "bitfield" -2 [WRITE DENYOOM] Keys::ONE, bitfield, "3.2.0",
        "Performs arbitrary bitfield integer operations on strings.";
    "bitfield_ro" -2 [READ FAST] Keys::ONE, bitfield_ro, "6.0.0",
        "Performs arbitrary read-only bitfield integer operations on strings.";
    "bitop" -4 [WRITE DENYOOM] Keys::Range { first: 2, last: -1, step: 1 }, bitop, "2.6.0",
        "Performs bitwise operations on multiple strings, and stores the result.";
    "bitpos" -3 [READ] Keys::ONE, bitpos, "2.8.7",
        "Finds the first set (1) or clear (0) bit in a string.";
    "getbit" 3 [READ FAST] Keys::ONE, getbit, "2.2.0", "Returns a bit value by offset.";
    "setbit" 4 [WRITE DENYOOM] Keys::ONE, setbit, "2.2.0",
        "Sets or clears the bit at offset of the string value. Creates the key if it doesn't \
         exist.";
}

const BAD_OFFSET: Fail = Fail::new("ERR bit offset is not an integer or out of range");

fn bit_at(value: &[u8], bit: usize) -> bool {
    value.get(bit / 8).is_some_and(|byte| byte >> (7 - bit % 8) & 1 == 1)
}

fn set_bit_at(value: &mut [u8], bit: usize, is_set: bool) {
    if let Some(byte) = value.get_mut(bit / 8) {
        let mask = 1 << (7 - bit % 8);
        *byte = if is_set { *byte | mask } else { *byte & !mask };
    }
}

/// Parses a position of a bit.
fn parse_bit(text: &[u8], max_bytes: usize) -> Done<usize> {
    let bit = parse_u64(text).and_then(|bit| usize::try_from(bit).ok()).ok_or(BAD_OFFSET)?;
    if bit / 8 >= max_bytes { Err(BAD_OFFSET) } else { Ok(bit) }
}

fn copy_string(call: &mut Call<'_, '_>, key: &[u8]) -> Done<Option<Vec<u8>>> {
    let copy = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
    let value = call.unit.with_string(call.session.database, key, copy)?;
    call.hold(value.as_ref().map_or(0, Vec::len))?;
    Ok(value)
}

fn getbit(call: &mut Call<'_, '_>) -> Done {
    let bit = parse_bit(call.args.at(2), value_bytes_max(call))?;
    let reply = &mut *call.reply;
    call.unit.with_string(call.session.database, call.args.at(1), |value| {
        reply.flag(value.is_some_and(|value| bit_at(value, bit)));
    })
}

fn setbit(call: &mut Call<'_, '_>) -> Done {
    let (database, key) = (call.database(), call.key());
    let bit = parse_bit(call.args.at(2), value_bytes_max(call))?;
    let is_set = match call.args.at(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(Fail::new("ERR bit is not an integer or out of range")),
    };
    if call.unit.string_mut(database, key)?.is_none() {
        call.unit.set_string(database, key, Vec::new(), None)?;
    }
    let value = call.unit.string_mut(database, key)?.ok_or(Fail::NO_SUCH_KEY)?;
    let grows = value.len() <= bit / 8;
    let more = (bit / 8 + 1).saturating_sub(value.len());
    if grows {
        value.resize(bit / 8 + 1, 0);
    }
    let was_set = bit_at(value, bit);
    set_bit_at(value, bit, is_set);
    call.grow(more)?;
    if grows || was_set != is_set {
        call.notify(event::STRING, "setbit", key);
    }
    call.reply.flag(was_set);
    Ok(())
}

/// Parses `start end [BYTE | BIT]` from argument `at`. Returns the first and the last bit, or
/// `None` if the range is empty, and whether an end was given.
fn bit_range(
    call: &Call<'_, '_>,
    at: usize,
    length: usize,
) -> Done<(Option<(usize, usize)>, bool)> {
    let is_bits = match call.args.get(at + 2) {
        None => false,
        Some(word) if word.eq_ignore_ascii_case(b"bit") => true,
        Some(word) if word.eq_ignore_ascii_case(b"byte") => false,
        Some(_) => return Err(Fail::SYNTAX),
    };
    let total = i64::try_from(if is_bits { length * 8 } else { length }).unwrap_or(i64::MAX);
    let start = if call.args.len() > at { call.integer(at)? } else { 0 };
    let has_end = call.args.len() > at + 1;
    let end = if has_end { call.integer(at + 1)? } else { -1 };
    let from = if start < 0 { start.saturating_add(total).max(0) } else { start };
    let to = if end < 0 { end.saturating_add(total).max(0) } else { end.min(total - 1) };
    let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to)) else {
        return Ok((None, has_end));
    };
    if from > to || length == 0 {
        return Ok((None, has_end));
    }
    Ok((Some(if is_bits { (from, to) } else { (from * 8, to * 8 + 7) }), has_end))
}

fn bitcount(call: &mut Call<'_, '_>) -> Done {
    if call.args.len() == 3 || call.args.len() > 5 {
        return Err(Fail::SYNTAX);
    }
    let value = copy_string(call, call.key())?;
    // `BITPOS` has no such rule.
    if call.args.len() > 3 {
        let (start, end) = (call.integer(2)?, call.integer(3)?);
        if start < 0 && end < 0 && start > end {
            call.reply.integer(0);
            return Ok(());
        }
    }
    let range = bit_range(call, 2, value.as_ref().map_or(0, Vec::len))?;
    let (Some(value), (Some((from, to)), _)) = (value, range) else {
        call.reply.integer(0);
        return Ok(());
    };
    let whole = |from: usize, to: usize| -> usize {
        let bytes = value.get(from..to).unwrap_or(&[]).iter();
        bytes.map(|byte| usize::try_from(byte.count_ones()).unwrap_or(0)).sum()
    };
    let single = |from: usize, to: usize| (from..to).filter(|bit| bit_at(&value, *bit)).count();
    let (first, last) = (from.div_ceil(8), (to + 1) / 8);
    let count = if first > last {
        single(from, to + 1)
    } else {
        single(from, first * 8) + whole(first, last) + single(last * 8, to + 1)
    };
    call.reply.count(count);
    Ok(())
}

fn bitpos(call: &mut Call<'_, '_>) -> Done {
    let is_set = match call.args.at(2) {
        b"0" => false,
        b"1" => true,
        text if parse_i64(text).is_some() => {
            return Err(Fail::new("ERR The bit argument must be 1 or 0."));
        }
        _ => return Err(Fail::NOT_INTEGER),
    };
    if call.args.len() > 6 {
        return Err(Fail::SYNTAX);
    }
    let Some(value) = copy_string(call, call.key())? else {
        bit_range(call, 3, 0)?;
        call.reply.integer(if is_set { -1 } else { 0 });
        return Ok(());
    };
    let (range, has_end) = bit_range(call, 3, value.len())?;
    let Some((from, to)) = range else {
        call.reply.integer(-1);
        return Ok(());
    };
    let skipped = if is_set { 0 } else { 0xff };
    let mut bit = from;
    while bit <= to {
        if bit.is_multiple_of(8) && bit + 8 <= to + 1 && value.get(bit / 8) == Some(&skipped) {
            bit += 8;
            continue;
        }
        if bit_at(&value, bit) == is_set {
            call.reply.count(bit);
            return Ok(());
        }
        bit += 1;
    }
    // Without an end the string continues with zeros.
    if !is_set && !has_end {
        call.reply.count(value.len() * 8);
    } else {
        call.reply.integer(-1);
    }
    Ok(())
}

fn bitop(call: &mut Call<'_, '_>) -> Done {
    let name = call.args.at(1).to_ascii_lowercase();
    let combine: fn(u8, u8) -> u8 = match name.as_slice() {
        b"and" => |a, b| a & b,
        b"or" => |a, b| a | b,
        b"xor" => |a, b| a ^ b,
        b"not" => |a, _| !a,
        _ => return Err(Fail::SYNTAX),
    };
    if name == b"not" && call.args.len() != 4 {
        return Err(Fail::new("ERR BITOP NOT must be called with a single source key."));
    }
    let mut sources = Vec::new();
    for key in call.args.from(3) {
        sources.push(copy_string(call, key)?.unwrap_or_default());
    }
    let length = sources.iter().map(Vec::len).max().unwrap_or(0);
    let mut result = sources.first().cloned().unwrap_or_default();
    result.resize(length, 0);
    if name == b"not" {
        for byte in &mut result {
            *byte = !*byte;
        }
    }
    for source in sources.iter().skip(1) {
        call.look()?;
        for (at, byte) in result.iter_mut().enumerate() {
            *byte = combine(*byte, source.get(at).copied().unwrap_or(0));
        }
    }
    let (database, target) = (call.database(), call.args.at(2));
    if result.is_empty() {
        if call.unit.remove(database, target)? {
            call.notify(event::GENERIC, "del", target);
        }
    } else {
        call.unit.set_string(database, target, result, None)?;
        call.notify(event::STRING, "set", target);
    }
    call.reply.count(length);
    Ok(())
}

/// What `BITFIELD` does when a number is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// The type of a number in a bitfield.
#[derive(Clone, Copy, Debug)]
struct FieldType {
    is_signed: bool,
    bits: u32,
}

/// An operation of `BITFIELD`.
struct FieldOperation {
    field: FieldType,
    offset: usize,
    change: Change,
    overflow: Overflow,
}

enum Change {
    Get,
    Set(i64),
    Add(i64),
}

fn parse_field_type(text: &[u8]) -> Option<FieldType> {
    let (sign, digits) = text.split_first()?;
    let is_signed = match sign {
        b'i' => true,
        b'u' => false,
        _ => return None,
    };
    let bits = u32::try_from(parse_i64(digits)?).ok()?;
    let max = if is_signed { 64 } else { 63 };
    (1..=max).contains(&bits).then_some(FieldType { is_signed, bits })
}

fn parse_operations(call: &Call<'_, '_>, reads_only: bool) -> Done<Vec<FieldOperation>> {
    let max = value_bytes_max(call);
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut at = 2;
    while at < call.args.len() {
        let word = call.args.at(at).to_ascii_lowercase();
        if word == b"overflow" && at + 1 < call.args.len() {
            overflow = match call.args.at(at + 1).to_ascii_lowercase().as_slice() {
                b"wrap" => Overflow::Wrap,
                b"sat" => Overflow::Saturate,
                b"fail" => Overflow::Fail,
                _ => return Err(Fail::new("ERR Invalid OVERFLOW type specified")),
            };
            at += 2;
            continue;
        }
        let length = match word.as_slice() {
            b"get" => 3,
            b"set" | b"incrby" => 4,
            _ => return Err(Fail::SYNTAX),
        };
        if at + length > call.args.len() {
            return Err(Fail::SYNTAX);
        }
        let field = parse_field_type(call.args.at(at + 1)).ok_or(Fail::new(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not \
             supported but i64 is.",
        ))?;
        let text = call.args.at(at + 2);
        let offset = match text.strip_prefix(b"#") {
            Some(index) => {
                let bits = usize::try_from(field.bits).unwrap_or(0);
                parse_bit(index, usize::MAX)?.checked_mul(bits).ok_or(BAD_OFFSET)?
            }
            None => parse_bit(text, usize::MAX)?,
        };
        if offset / 8 >= max {
            return Err(BAD_OFFSET);
        }
        let change = match word.as_slice() {
            b"get" => Change::Get,
            b"set" => Change::Set(call.integer(at + 3)?),
            _ => Change::Add(call.integer(at + 3)?),
        };
        if reads_only && !matches!(change, Change::Get) {
            return Err(Fail::new("ERR BITFIELD_RO only supports the GET subcommand"));
        }
        operations.push(FieldOperation { field, offset, change, overflow });
        at += length;
    }
    Ok(operations)
}

fn bitfield(call: &mut Call<'_, '_>) -> Done {
    run_bitfield(call, false)
}

fn bitfield_ro(call: &mut Call<'_, '_>) -> Done {
    run_bitfield(call, true)
}

fn run_bitfield(call: &mut Call<'_, '_>, reads_only: bool) -> Done {
    let operations = parse_operations(call, reads_only)?;
    let mut value = copy_string(call, call.key())?.unwrap_or_default();
    let writes = operations.iter().filter(|operation| !matches!(operation.change, Change::Get));
    let end = writes.clone().map(field_end).max();
    let grows = end.is_some_and(|end| value.len() < end);
    if let Some(end) = end.filter(|_| grows) {
        value.resize(end, 0);
    }
    let mut is_changed = false;
    call.reply.array(operations.len());
    for FieldOperation { field, offset, change, overflow } in &operations {
        let old = read_field(&value, *offset, *field);
        let (new, result) = match change {
            Change::Get => (None, Some(old)),
            Change::Set(wanted) => {
                let new = fit(i128::from(*wanted), *field, *overflow);
                (new, new.map(|_| old))
            }
            Change::Add(by) => {
                let new = fit(i128::from(old) + i128::from(*by), *field, *overflow);
                (new, new)
            }
        };
        if let Some(new) = new {
            write_field(&mut value, *offset, *field, new);
            is_changed |= grows || new != old;
        }
        match result {
            Some(result) => call.reply.integer(result),
            None => call.reply.null(),
        }
    }
    if end.is_some() {
        set_keeping_expiry(call, call.key(), value)?;
    }
    if is_changed {
        call.notify(event::STRING, "setbit", call.key());
    }
    Ok(())
}

/// The byte behind a field.
fn field_end(operation: &FieldOperation) -> usize {
    (operation.offset + usize::try_from(operation.field.bits).unwrap_or(0)).div_ceil(8)
}

fn read_field(value: &[u8], offset: usize, field: FieldType) -> i64 {
    let bits = usize::try_from(field.bits).unwrap_or(0);
    let mut number = 0_u64;
    for bit in offset..offset + bits {
        number = number << 1 | u64::from(bit_at(value, bit));
    }
    let unused = 64 - field.bits;
    if field.is_signed { (number << unused).cast_signed() >> unused } else { number.cast_signed() }
}

fn write_field(value: &mut [u8], offset: usize, field: FieldType, number: i64) {
    let bits = usize::try_from(field.bits).unwrap_or(0);
    for at in 0..bits {
        set_bit_at(value, offset + at, number >> (bits - 1 - at) & 1 == 1);
    }
}

/// The number as the field holds it, or `None` if it must not overflow.
fn fit(number: i128, field: FieldType, overflow: Overflow) -> Option<i64> {
    let (min, max) = if field.is_signed {
        (-(1_i128 << (field.bits - 1)), (1_i128 << (field.bits - 1)) - 1)
    } else {
        (0, (1_i128 << field.bits) - 1)
    };
    let fitted = match overflow {
        _ if (min..=max).contains(&number) => number,
        Overflow::Fail => return None,
        Overflow::Saturate if number < min => min,
        Overflow::Saturate => max,
        Overflow::Wrap => (number - min).rem_euclid(max - min + 1) + min,
    };
    i64::try_from(fitted).ok()
}
