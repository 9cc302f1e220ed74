//! `LCS`: the longest common subsequence of two strings.

use crate::{
    command::call::Call,
    failure::{Done, Fail},
    store::CallLimits,
};

/// Most cells of the table of lengths: 64 million, which are 256 MiB.
const CELLS_MAX: usize = 64 << 20;

/// A run that both strings have: first and last position in each, both included.
type Match = ((usize, usize), (usize, usize));

pub(super) fn lcs(call: &mut Call<'_, '_>) -> Done {
    let (mut wants_ranges, mut wants_length, mut with_length, mut min) = (false, false, false, 0);
    let mut at = 3;
    while at < call.args.len() {
        if call.args.is(at, "idx") {
            wants_ranges = true;
        } else if call.args.is(at, "len") {
            wants_length = true;
        } else if call.args.is(at, "withmatchlen") {
            with_length = true;
        } else if call.args.is(at, "minmatchlen") && at + 1 < call.args.len() {
            min = usize::try_from(call.integer(at + 1)?).unwrap_or(0);
            at += 1;
        } else {
            return Err(Fail::SYNTAX);
        }
        at += 1;
    }
    if wants_ranges && wants_length {
        return Err(Fail::new("ERR If you want both the length and indexes, please just use IDX."));
    }
    let database = call.database();
    let mut read = |index| {
        let copy = |value: Option<&[u8]>| value.unwrap_or(&[]).to_vec();
        call.unit.with_string(database, call.args.at(index), copy).map_err(|fail| match fail {
            Fail::Message(_) => Fail::new("ERR The specified keys must contain string values"),
            other => other,
        })
    };
    let (a, b) = (read(1)?, read(2)?);
    if (a.len() + 1).saturating_mul(b.len() + 1) > CELLS_MAX {
        return Err(Fail::new(
            "ERR Insufficient memory, transient memory for LCS exceeds the limit",
        ));
    }
    let (text, matches) = compare(&a, &b, &call.unit.limits);
    call.unit.limits.check()?;
    if wants_length {
        call.reply.count(text.len());
    } else if wants_ranges {
        let matches: Vec<Match> =
            matches.into_iter().filter(|((from, to), _)| to - from + 1 >= min).collect();
        call.reply.map(2);
        call.reply.text("matches");
        call.reply.array(matches.len());
        for ((a_from, a_to), (b_from, b_to)) in matches {
            call.reply.array(if with_length { 3 } else { 2 });
            for (from, to) in [(a_from, a_to), (b_from, b_to)] {
                call.reply.array(2);
                call.reply.count(from);
                call.reply.count(to);
            }
            if with_length {
                call.reply.count(a_to - a_from + 1);
            }
        }
        call.reply.text("len");
        call.reply.count(text.len());
    } else {
        call.reply.bulk(&text);
    }
    Ok(())
}

/// The longest common subsequence, and its runs from the last to the first. Without a meaning if
/// the command is beyond a limit.
fn compare(a: &[u8], b: &[u8], limits: &CallLimits) -> (Vec<u8>, Vec<Match>) {
    let width = b.len() + 1;
    let mut lengths = vec![0_u32; (a.len() + 1) * width];
    let cell =
        |lengths: &[u32], i: usize, j: usize| lengths.get(i * width + j).copied().unwrap_or(0);
    for (i, left) in a.iter().enumerate() {
        if limits.look().is_break() {
            return (Vec::new(), Vec::new());
        }
        for (j, right) in b.iter().enumerate() {
            let length = if left == right {
                cell(&lengths, i, j) + 1
            } else {
                cell(&lengths, i, j + 1).max(cell(&lengths, i + 1, j))
            };
            if let Some(target) = lengths.get_mut((i + 1) * width + j + 1) {
                *target = length;
            }
        }
    }
    let (mut i, mut j) = (a.len(), b.len());
    let (mut text, mut matches): (Vec<u8>, Vec<Match>) = (Vec::new(), Vec::new());
    while i > 0 && j > 0 {
        let (left, right) = (a.get(i - 1), b.get(j - 1));
        if left == right {
            text.extend(left);
            match matches.last_mut() {
                Some(((a_from, _), (b_from, _))) if *a_from == i && *b_from == j => {
                    *a_from = i - 1;
                    *b_from = j - 1;
                }
                _ => matches.push(((i - 1, i - 1), (j - 1, j - 1))),
            }
            i -= 1;
            j -= 1;
        } else if cell(&lengths, i - 1, j) > cell(&lengths, i, j - 1) {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    text.reverse();
    (text, matches)
}
