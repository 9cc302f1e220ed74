//! The keys of requests that have arrived and have not run.
//!
//! A pipeline's requests run one after the other, and each waits for memory. If their keys are
//! known early, the server prefetches for several at once. The look costs a few nanoseconds a
//! request, keeps nothing and decides nothing: the [parser](crate::resp::Parser) reads each request
//! again.
//!
//! Invariant: the look ends at the first request that is not a whole array of at most
//! [`ARGS_MAX`] arguments.

/// Requests of one look: enough that their cache misses overlap.
const REQUESTS_MAX: usize = 16;
/// Most arguments of a request that the look passes.
const ARGS_MAX: usize = 16;
/// Most digits of a length.
const DIGITS_MAX: usize = 8;

/// What a look has found: at most [`REQUESTS_MAX`] requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NextRequests<'b> {
    keys: [&'b [u8]; REQUESTS_MAX],
    key_count: usize,
    /// Number of whole requests that were looked at.
    pub(super) requests: usize,
}

impl<'b> NextRequests<'b> {
    /// Looks at the requests at the start of `buffer`.
    pub(super) fn look(buffer: &'b [u8]) -> Self {
        let mut next = Self::default();
        let mut rest = buffer;
        while next.requests < REQUESTS_MAX
            && let Some(first) = take_request(&mut rest)
        {
            next.requests += 1;
            if !first.is_empty()
                && let Some(key) = next.keys.get_mut(next.key_count)
            {
                *key = first;
                next.key_count += 1;
            }
        }
        next
    }

    /// The first arguments of the requests: the keys, for nearly all commands that have keys.
    pub(super) fn keys(&self) -> &[&'b [u8]] {
        self.keys.get(..self.key_count).unwrap_or(&[])
    }
}

/// Takes a request from the front and returns its first argument; empty if it has none.
fn take_request<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let mut after = *rest;
    let count = take_length(&mut after, b'*').filter(|count| *count <= ARGS_MAX)?;
    let mut first: &[u8] = &[];
    for index in 0..count {
        let length = take_length(&mut after, b'$')?;
        let argument = after.get(..length)?;
        after = after.get(length + 2..)?;
        if index == 1 {
            first = argument;
        }
    }
    *rest = after;
    Some(first)
}

/// Takes a line with a length from the front.
fn take_length(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let mut bytes = rest.strip_prefix(&[kind])?;
    let mut length = 0;
    for _ in 0..=DIGITS_MAX {
        let (byte, after) = bytes.split_first()?;
        match byte {
            b'0'..=b'9' => length = length * 10 + usize::from(byte - b'0'),
            b'\r' => {
                *rest = after.strip_prefix(b"\n")?;
                return Some(length);
            }
            _ => return None,
        }
        bytes = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str) -> (Vec<&str>, usize) {
        let next = NextRequests::look(text.as_bytes());
        let keys = next.keys().iter().map(|key| std::str::from_utf8(key).unwrap());
        (keys.collect(), next.requests)
    }

    #[test]
    fn the_first_arguments_of_whole_requests_are_found() {
        let get = "*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n";
        let set = "*3\r\n$3\r\nSET\r\n$2\r\nk2\r\n$4\r\n*9\r\n\r\n";
        let ping = "*1\r\n$4\r\nPING\r\n";
        assert_eq!(look(&[get, set, ping, get].concat()), (vec!["k1", "k2", "k1"], 4));
        assert_eq!(look(&[ping, "PING\r\n", get].concat()), (vec![], 1));
        assert_eq!(look(&get.repeat(100)), (vec!["k1"; REQUESTS_MAX], REQUESTS_MAX));
        assert_eq!(look("*0\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n"), (vec![], 2));
    }

    #[test]
    fn a_request_that_is_cut_or_odd_ends_the_look() {
        let get = "*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n";
        for end in 0..get.len() {
            assert_eq!(look(&[get, &get[..end]].concat()), (vec!["k1"], 1), "{end}");
        }
        for odd in [
            "*-1\r\n",
            "*17\r\n",
            "*2\r\n$-1\r\n",
            "*123456789\r\n",
            "*99999999999999999999999999\r\n",
            "*1\r\n$99999999\r\nx\r\n",
            "*1\r\n:1\r\n",
            "*1\n$1\nx\n",
            "\0\u{7f}",
        ] {
            assert_eq!(look(&[get, odd, get].concat()), (vec!["k1"], 1), "{odd:?}");
        }
    }
}
