//! The keys of requests that have arrived and have not run.
//!
//! A pipeline's requests run one after the other, and each waits for memory. If their keys are
//! known early, the server prefetches for several at once. The look keeps nothing and decides
//! nothing: each request is parsed again when it runs.
//!
//! Invariant: the look ends at the first request that is not whole, or has more than [`ARGS_MAX`]
//! arguments. So a long request that arrives in parts costs little each time.

use crate::resp::{Limits, Parser};

/// Requests of one look: enough that their cache misses overlap.
const REQUESTS_MAX: usize = 16;
/// Most arguments of a request that the look passes.
const ARGS_MAX: usize = 16;

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
    pub(super) fn look(buffer: &'b [u8], limits: &Limits) -> Self {
        let limits = Limits { args_max: limits.args_max.min(ARGS_MAX), ..*limits };
        let (mut next, mut parser, mut rest) = (Self::default(), Parser::default(), buffer);
        while next.requests < REQUESTS_MAX
            && let Ok(Some(length)) = parser.parse(rest, &limits)
        {
            next.requests += 1;
            // The words of an inline request are not in the buffer.
            let first = parser.ranges.get(1).filter(|_| parser.words.is_empty());
            let key = first.and_then(|(start, end)| rest.get(*start..*end));
            if let Some(key) = key.filter(|key| !key.is_empty())
                && let Some(slot) = next.keys.get_mut(next.key_count)
            {
                *slot = key;
                next.key_count += 1;
            }
            rest = rest.get(length..).unwrap_or(&[]);
            parser.reset();
        }
        next
    }

    /// The first arguments of the requests: the keys, for nearly all commands that have keys.
    pub(super) fn keys(&self) -> &[&'b [u8]] {
        self.keys.get(..self.key_count).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { args_max: 1000, bulk_bytes_max: 1 << 20, is_authenticated: true };

    fn look(text: &str) -> (Vec<&str>, usize) {
        let next = NextRequests::look(text.as_bytes(), &LIMITS);
        let keys = next.keys().iter().map(|key| std::str::from_utf8(key).unwrap());
        (keys.collect(), next.requests)
    }

    #[test]
    fn the_first_arguments_of_whole_requests_are_found() {
        let get = "*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n";
        let set = "*3\r\n$3\r\nSET\r\n$2\r\nk2\r\n$4\r\n*9\r\n\r\n";
        let ping = "*1\r\n$4\r\nPING\r\n";
        assert_eq!(look(&[get, set, ping, get].concat()), (vec!["k1", "k2", "k1"], 4));
        assert_eq!(look(&[ping, "GET k3\r\n", get].concat()), (vec!["k1"], 3));
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
            "*17\r\n",
            "*2\r\n$-1\r\n",
            "*123456789\r\n",
            "*99999999999999999999999999\r\n",
            "*1\r\n$99999999\r\nx\r\n",
            "*1\r\n:1\r\n",
            "*1\n$1\nx\n",
        ] {
            assert_eq!(look(&[get, odd, get].concat()), (vec!["k1"], 1), "{odd:?}");
        }
    }
}
