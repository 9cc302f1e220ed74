//! Parser of requests.
//!
//! A request is an array of bulk strings (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`) or a line of words. The
//! parser remembers where it stopped, so each byte is read once however the request is cut.
//!
//! Invariants:
//! - A declared length allocates nothing. The buffer grows as bytes arrive, the list of arguments
//!   as arguments arrive.
//! - Offsets of arguments count from the start of the request in the buffer. The caller removes
//!   bytes from the buffer only between requests.

/// Longest line of an inline request, and of a length, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Arguments for which memory is kept between requests.
const KEPT_ARGS_MAX: usize = 4096;

/// What a request may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Most arguments.
    pub(crate) args_max: usize,
    /// Longest argument in bytes.
    pub(crate) bulk_bytes_max: usize,
    /// Whether the client has given its password.
    pub(crate) is_authenticated: bool,
}

impl Limits {
    fn too_many_args(&self) -> ProtocolError {
        refuse(if self.is_authenticated {
            "invalid multibulk length"
        } else {
            "unauthenticated multibulk length"
        })
    }

    fn too_long_arg(&self) -> ProtocolError {
        refuse(if self.is_authenticated {
            "invalid bulk length"
        } else {
            "unauthenticated bulk length"
        })
    }
}

/// Why a request cannot be parsed. The connection ends: what follows has no known start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolError(pub(crate) String);

/// The arguments of a request, the name of the command first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a> {
    buffer: &'a [u8],
    ranges: &'a [(usize, usize)],
}

impl<'a> Args<'a> {
    /// Arguments at `ranges` (start, end) of `buffer`.
    pub(crate) fn new(buffer: &'a [u8], ranges: &'a [(usize, usize)]) -> Self {
        Self { buffer, ranges }
    }

    /// Number of arguments with the name.
    pub(crate) fn len(self) -> usize {
        self.ranges.len()
    }

    /// Argument `index`, empty if there is none.
    pub(crate) fn at(self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or(&[])
    }

    /// Argument `index`.
    pub(crate) fn get(self, index: usize) -> Option<&'a [u8]> {
        let (start, end) = *self.ranges.get(index)?;
        self.buffer.get(start..end)
    }

    /// Whether argument `index` is `word` in any case.
    pub(crate) fn is(self, index: usize, word: &str) -> bool {
        self.get(index).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// The arguments from `index`.
    pub(crate) fn from(self, index: usize) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.ranges
            .get(index..)
            .unwrap_or(&[])
            .iter()
            .map(move |(start, end)| self.buffer.get(*start..*end).unwrap_or(&[]))
    }

    /// Copies the arguments from `index` out of the buffer, without copies in memory that is freed.
    pub(crate) fn owned_from(self, index: usize) -> (Vec<u8>, Vec<(usize, usize)>) {
        let mut buffer = Vec::with_capacity(self.from(index).map(<[u8]>::len).sum());
        let mut ranges = Vec::with_capacity(self.len());
        for argument in self.from(index) {
            ranges.push((buffer.len(), buffer.len() + argument.len()));
            buffer.extend_from_slice(argument);
        }
        (buffer, ranges)
    }
}

/// State of a request that has been parsed in part.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// Bytes of the buffer that have been read.
    position: usize,
    /// Arguments that are missing; `None` before the array's length.
    missing: Option<usize>,
    /// Length of the argument at `position`, if it has been read.
    bulk: Option<usize>,
    /// Arguments so far.
    pub(crate) ranges: Vec<(usize, usize)>,
    /// Words of an inline request with quotes removed; empty for an array.
    pub(crate) words: Vec<u8>,
}

impl Parser {
    /// Forgets the request, before the next one.
    pub(crate) fn reset(&mut self) {
        self.position = 0;
        self.missing = None;
        self.bulk = None;
        self.ranges.clear();
        self.words.clear();
        if self.ranges.capacity() > KEPT_ARGS_MAX {
            self.ranges = Vec::new();
        }
    }

    /// Bytes of its memory.
    pub(crate) fn memory(&self) -> usize {
        self.ranges.capacity() * size_of::<(usize, usize)>() + self.words.capacity()
    }

    /// Bytes that the request under way needs, as far as its lengths are known.
    pub(crate) fn wanted(&self) -> usize {
        self.position + self.bulk.map_or(0, |length| length + 2)
    }

    /// Parses the request at the start of `buffer`. Returns its length in bytes once it is whole;
    /// an empty request has no arguments. Fails for a request that breaks the protocol or a limit.
    pub(crate) fn parse(
        &mut self,
        buffer: &[u8],
        limits: &Limits,
    ) -> Result<Option<usize>, ProtocolError> {
        if self.missing.is_none() {
            match buffer.first() {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => return self.parse_inline(buffer, limits),
            }
            let Some(line) = self.line(buffer, "too big mbulk count string")? else {
                return Ok(None);
            };
            let count = number(line.get(1..).unwrap_or(&[]))
                .filter(|count| *count <= i64::from(i32::MAX))
                .ok_or_else(|| refuse("invalid multibulk length"))?;
            let count = usize::try_from(count).unwrap_or(0);
            if count > limits.args_max {
                return Err(limits.too_many_args());
            }
            self.missing = Some(count);
        }
        while self.missing.is_some_and(|missing| missing > 0) {
            if !self.parse_bulk(buffer, limits)? {
                return Ok(None);
            }
        }
        Ok(Some(self.position))
    }

    /// Parses one argument. Returns whether it is whole.
    fn parse_bulk(&mut self, buffer: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        let length = match self.bulk {
            Some(length) => length,
            None => match self.parse_length(buffer, limits)? {
                Some(length) => length,
                None => return Ok(false),
            },
        };
        self.bulk = Some(length);
        let end = self.position + length;
        if buffer.len() < end + 2 {
            return Ok(false);
        }
        self.ranges.push((self.position, end));
        self.position = end + 2;
        self.bulk = None;
        self.missing = self.missing.map(|missing| missing - 1);
        Ok(true)
    }

    /// Parses the length of an argument, if its line is whole.
    fn parse_length(
        &mut self,
        buffer: &[u8],
        limits: &Limits,
    ) -> Result<Option<usize>, ProtocolError> {
        let Some(line) = self.line(buffer, "too big bulk count string")? else { return Ok(None) };
        if line.first() != Some(&b'$') {
            let got = char::from(line.first().copied().unwrap_or(b'\r'));
            return Err(refuse(&format!("expected '$', got '{got}'")));
        }
        let length = number(line.get(1..).unwrap_or(&[]))
            .and_then(|length| usize::try_from(length).ok())
            .ok_or_else(|| refuse("invalid bulk length"))?;
        if length <= limits.bulk_bytes_max {
            return Ok(Some(length));
        }
        Err(limits.too_long_arg())
    }

    /// Returns the line at the position without its end, and moves behind it.
    fn line<'b>(
        &mut self,
        buffer: &'b [u8],
        too_long: &str,
    ) -> Result<Option<&'b [u8]>, ProtocolError> {
        let rest = buffer.get(self.position..).unwrap_or(&[]);
        let window = rest.get(..LINE_BYTES_MAX).unwrap_or(rest);
        let Some(end) = window.iter().position(|byte| *byte == b'\r') else {
            let is_too_long = rest.len() >= LINE_BYTES_MAX;
            return if is_too_long { Err(refuse(too_long)) } else { Ok(None) };
        };
        if rest.len() < end + 2 {
            return Ok(None);
        }
        self.position += end + 2;
        Ok(rest.get(..end))
    }

    fn parse_inline(
        &mut self,
        buffer: &[u8],
        limits: &Limits,
    ) -> Result<Option<usize>, ProtocolError> {
        let window = buffer.get(..LINE_BYTES_MAX).unwrap_or(buffer);
        let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
            let is_too_long = buffer.len() >= LINE_BYTES_MAX;
            return if is_too_long { Err(refuse("too big inline request")) } else { Ok(None) };
        };
        let line = window.get(..end).unwrap_or(&[]);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        split_words(line, &mut self.words, &mut self.ranges)
            .ok_or_else(|| refuse("unbalanced quotes in request"))?;
        if self.ranges.len() > limits.args_max {
            return Err(limits.too_many_args());
        }
        if self.ranges.iter().any(|(start, end)| end - start > limits.bulk_bytes_max) {
            return Err(limits.too_long_arg());
        }
        self.position = end + 1;
        Ok(Some(end + 1))
    }
}

fn refuse(what: &str) -> ProtocolError {
    ProtocolError(format!("Protocol error: {what}"))
}

/// Parses a length: digits with an optional minus.
fn number(text: &[u8]) -> Option<i64> {
    crate::number::parse_i64(text)
}

/// Splits a line as `redis-cli` and Redis do: words, "quoted with \n and \x41", 'quoted'.
/// Returns `None` if a quote is not closed, or if a word follows it without a space.
fn split_words(line: &[u8], out: &mut Vec<u8>, ranges: &mut Vec<(usize, usize)>) -> Option<()> {
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if at >= line.len() {
            return Some(());
        }
        let start = out.len();
        loop {
            match line.get(at) {
                None => break,
                Some(byte) if byte.is_ascii_whitespace() => break,
                Some(quote @ (b'"' | b'\'')) => {
                    at = quoted(line, at + 1, *quote, out)?;
                    if line.get(at).is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return None;
                    }
                    break;
                }
                Some(byte) => {
                    out.push(*byte);
                    at += 1;
                }
            }
        }
        ranges.push((start, out.len()));
    }
}

/// Copies a quoted part from `at` to its end. Returns the position behind the quote.
fn quoted(line: &[u8], mut at: usize, quote: u8, out: &mut Vec<u8>) -> Option<usize> {
    loop {
        match (*line.get(at)?, line.get(at + 1)) {
            (byte, _) if byte == quote => return Some(at + 1),
            (b'\\', Some(b'\'')) if quote == b'\'' => {
                out.push(b'\'');
                at += 2;
            }
            (b'\\', Some(b'x')) if quote == b'"' && hexadecimal(line, at + 2).is_some() => {
                out.push(hexadecimal(line, at + 2)?);
                at += 4;
            }
            (b'\\', Some(escaped)) if quote == b'"' => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                at += 2;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
}

/// The byte that two hexadecimal digits at `at` spell.
fn hexadecimal(line: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| char::from(*line.get(at)?).to_digit(16);
    u8::try_from(digit(at)? * 16 + digit(at + 1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { args_max: 8, bulk_bytes_max: 100, is_authenticated: true };

    /// Parses one request that arrives in the given parts.
    fn parse(parts: &[&[u8]]) -> Result<Option<Vec<Vec<u8>>>, String> {
        let mut parser = Parser::default();
        let mut buffer = Vec::new();
        for part in parts {
            buffer.extend_from_slice(part);
            if parser.parse(&buffer, &LIMITS).map_err(|error| error.0)?.is_some() {
                let source = if parser.words.is_empty() { &buffer } else { &parser.words };
                let args = Args::new(source, &parser.ranges);
                return Ok(Some(args.from(0).map(<[u8]>::to_vec).collect()));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_request_may_be_cut_at_every_byte() {
        for request in
            ["*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\r\n\r\n", "SET k 'a b' \"\\x41\\n\"\r\n"]
        {
            let bytes = request.as_bytes();
            let whole = parse(&[bytes]).unwrap().unwrap();
            for cut in 0..bytes.len() {
                let (first, second) = bytes.split_at(cut);
                assert_eq!(parse(&[first]), Ok(None), "{request:?} at {cut}");
                assert_eq!(parse(&[first, second]).unwrap().unwrap(), whole, "{request:?} {cut}");
            }
            let each: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(parse(&each).unwrap().unwrap(), whole);
        }
    }

    #[test]
    fn bad_requests_are_refused_with_the_messages_of_redis() {
        for (request, message) in [
            ("*x\r\n", "invalid multibulk length"),
            ("*9\r\n", "invalid multibulk length"),
            ("*1\r\n+OK\r\n", "expected '$', got '+'"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$101\r\n", "invalid bulk length"),
            ("SET 'a\r\n", "unbalanced quotes in request"),
            ("SET \"a\"b\r\n", "unbalanced quotes in request"),
        ] {
            let error = parse(&[request.as_bytes()]).unwrap_err();
            assert_eq!(error, format!("Protocol error: {message}"), "{request:?}");
        }
        let long = "a".repeat(LINE_BYTES_MAX);
        assert!(parse(&[long.as_bytes()]).unwrap_err().contains("too big inline request"));
    }

    #[test]
    fn a_declared_length_allocates_nothing() {
        let mut parser = Parser::default();
        let limits = Limits { args_max: 1 << 20, bulk_bytes_max: 512 << 20, ..LIMITS };
        let request = b"*1048576\r\n$536870912\r\n";
        assert_eq!(parser.parse(request, &limits), Ok(None));
        assert_eq!(parser.ranges.capacity(), 0);
        assert_eq!(parser.wanted(), request.len() + (512 << 20) + 2);
    }
}
