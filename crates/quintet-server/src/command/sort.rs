//! `SORT`: the elements of a list, set or sorted set in order, or by other keys.

use std::cmp::Ordering;

use super::{
    call::{Call, commands},
    lists::{End, List},
    sorted_set::parse_scores,
};
use crate::{
    failure::{Done, Fail},
    number::parse_f64,
    spec::{Group, Keys},
    store::{ALL, Kind, event},
};

commands! { Group::Generic;
    "sort" -2 [WRITE DENYOOM LOCK_ALL DANGEROUS] Keys::Stored, sort, "1.0.0",
        "Sorts the elements in a list, a set, or a sorted set, optionally storing the result.";
    "sort_ro" -2 [READ LOCK_ALL DANGEROUS] Keys::ONE, sort_ro, "7.0.0",
        "Returns the sorted elements of a list, a set, or a sorted set.";
}

/// Options of `SORT`.
#[derive(Default)]
struct SortOptions<'c> {
    by: Option<&'c [u8]>,
    get: Vec<&'c [u8]>,
    limit: Option<(i64, i64)>,
    is_descending: bool,
    is_alphabetic: bool,
    store: Option<&'c [u8]>,
}

fn parse<'c>(call: &Call<'c, '_>, may_store: bool) -> Done<SortOptions<'c>> {
    let mut options = SortOptions::default();
    let args = call.args;
    let mut at = 2;
    while at < args.len() {
        let has_value = at + 1 < args.len();
        if args.is(at, "asc") {
            options.is_descending = false;
        } else if args.is(at, "desc") {
            options.is_descending = true;
        } else if args.is(at, "alpha") {
            options.is_alphabetic = true;
        } else if args.is(at, "limit") && at + 2 < args.len() {
            options.limit = Some((call.integer(at + 1)?, call.integer(at + 2)?));
            at += 2;
        } else if args.is(at, "by") && has_value {
            if args.at(at + 1).contains(&b'*') {
                check_reads_all(call, "BY")?;
            }
            options.by = Some(args.at(at + 1));
            at += 1;
        } else if args.is(at, "get") && has_value {
            check_reads_all(call, "GET")?;
            options.get.push(args.at(at + 1));
            at += 1;
        } else if may_store && args.is(at, "store") && has_value {
            options.store = Some(args.at(at + 1));
            at += 1;
        } else {
            return Err(Fail::SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

/// Fails if the user may not read all keys: the patterns of an option name any of them.
fn check_reads_all(call: &Call<'_, '_>, option: &str) -> Done {
    let name = call.args.at(0).to_ascii_lowercase();
    if call.server.acl.reads_all_keys(&call.session.user, &name) {
        return Ok(());
    }
    Err(Fail::with(format!(
        "ERR {option} option of SORT denied due to insufficient ACL permissions."
    )))
}

fn sort(call: &mut Call<'_, '_>) -> Done {
    let options = parse(call, true)?;
    run(call, &options)
}

fn sort_ro(call: &mut Call<'_, '_>) -> Done {
    let options = parse(call, false)?;
    run(call, &options)
}

/// The elements of a key, in the order of the type.
fn elements(call: &mut Call<'_, '_>, key: &[u8]) -> Done<(Option<Kind>, Vec<Vec<u8>>)> {
    let database = call.database();
    let kind = call.unit.head(database, key)?.map(crate::store::Head::kind);
    let found = match kind {
        None => Vec::new(),
        Some(Kind::List) => match call.list(key)? {
            Some(list) => list.values()?,
            None => Vec::new(),
        },
        Some(Kind::Set) => match call.open(key, Kind::Set)? {
            Some(set) => set.collect(ALL)?.into_iter().map(|(member, _)| member).collect(),
            None => Vec::new(),
        },
        Some(Kind::SortedSet) => match call.sorted_set(key)? {
            Some(set) => {
                let everything = parse_scores(b"-inf", b"+inf")?;
                let members = set.members(&everything, false, (0, usize::MAX))?;
                members.into_iter().map(|(member, _)| member).collect()
            }
            None => Vec::new(),
        },
        Some(_) => return Err(Fail::WRONG_TYPE),
    };
    Ok((kind, found))
}

/// The value that a pattern names for an element: `weight_*`, `object_*->field`, or `#`.
fn look_up(call: &mut Call<'_, '_>, pattern: &[u8], element: &[u8]) -> Done<Option<Vec<u8>>> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let (before, after) =
        (pattern.get(..star).unwrap_or(&[]), pattern.get(star + 1..).unwrap_or(&[]));
    let arrow = after.windows(2).position(|two| two == b"->").filter(|at| at + 2 < after.len());
    let suffix = arrow.map_or(after, |at| after.get(..at).unwrap_or(&[]));
    let key = [before, element, suffix].concat();
    call.look()?;
    let database = call.database();
    if key.is_empty() {
        return Ok(None);
    }
    let kind = call.unit.head(database, &key)?.map(crate::store::Head::kind);
    let value = match (arrow, kind) {
        (Some(at), Some(Kind::Hash)) => match call.open(&key, Kind::Hash)? {
            Some(hash) => hash.get(after.get(at + 2..).unwrap_or(&[])),
            None => Ok(None),
        },
        (None, Some(Kind::String)) => {
            call.unit.with_string(database, &key, |value| value.map(<[u8]>::to_vec))
        }
        _ => Ok(None),
    }?;
    call.hold(value.as_ref().map_or(0, Vec::len))?;
    Ok(value)
}

/// What an element is sorted by.
enum Weight {
    Text(Option<Vec<u8>>),
    Number(f64),
}

fn compare(a: &(Weight, Vec<u8>), b: &(Weight, Vec<u8>)) -> Ordering {
    match (&a.0, &b.0) {
        (Weight::Number(left), Weight::Number(right)) => {
            left.total_cmp(right).then_with(|| a.1.cmp(&b.1))
        }
        (Weight::Text(left), Weight::Text(right)) => left.cmp(right),
        _ => Ordering::Equal,
    }
}

fn sorted(
    call: &mut Call<'_, '_>,
    options: &SortOptions<'_>,
    elements: Vec<Vec<u8>>,
) -> Done<Vec<Vec<u8>>> {
    let mut weighted = Vec::with_capacity(elements.len());
    for element in elements {
        let value = match options.by {
            Some(pattern) => look_up(call, pattern, &element)?,
            None => Some(element.clone()),
        };
        let weight = if options.is_alphabetic {
            Weight::Text(value)
        } else {
            let number = match value {
                Some(value) if !value.is_empty() => parse_f64(&value),
                _ => Some(0.0),
            };
            Weight::Number(
                number.ok_or(Fail::new("ERR One or more scores can't be converted into double"))?,
            )
        };
        weighted.push((weight, element));
    }
    call.look()?;
    weighted.sort_by(|a, b| {
        let order = compare(a, b);
        if options.is_descending { order.reverse() } else { order }
    });
    Ok(weighted.into_iter().map(|(_, element)| element).collect())
}

fn run(call: &mut Call<'_, '_>, options: &SortOptions<'_>) -> Done {
    let (kind, mut found) = elements(call, call.key())?;
    let is_unsorted = options.by.is_some_and(|pattern| !pattern.contains(&b'*'));
    // A set has no order, so a stored result is made one of a fixed order.
    let needs_order = kind == Some(Kind::Set) && options.store.is_some();
    if is_unsorted && needs_order {
        found.sort();
    } else if !is_unsorted {
        found = sorted(call, options, found)?;
    } else if options.is_descending && kind == Some(Kind::SortedSet) {
        found.reverse();
    }
    if let Some((offset, count)) = options.limit {
        let offset = usize::try_from(offset).unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        found = found.into_iter().skip(offset).take(count).collect();
    }
    let mut results = Vec::with_capacity(found.len());
    for element in found {
        if options.get.is_empty() {
            results.push(Some(element));
            continue;
        }
        for pattern in &options.get {
            results.push(look_up(call, pattern, &element)?);
        }
    }
    let Some(target) = options.store else {
        call.reply.array(results.len());
        for result in results {
            call.reply.optional(result.as_deref());
        }
        return Ok(());
    };
    let was_present = call.unit.remove(call.session.database, target)?;
    if !results.is_empty() {
        let mut list = List::new(call.create(target, Kind::List)?);
        for result in &results {
            list.push(End::Right, result.as_deref().unwrap_or(&[]))?;
        }
    }
    let states = (was_present, !results.is_empty());
    call.notify_stored(event::LIST, "sortstore", target, states);
    call.reply.count(results.len());
    Ok(())
}
