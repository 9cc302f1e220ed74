//! A reader that limits the length of a row.

use std::{
    cell::Cell,
    io::{self, BufRead, Read},
    rc::Rc,
};

/// Bytes that the current row may still have. A [`Limited`] reader and the parser above it share
/// it.
#[derive(Clone, Debug)]
pub struct Allowance {
    left: Rc<Cell<u64>>,
    limit: u64,
}

impl Allowance {
    /// Starts a new row, which may have the full length.
    pub fn renew(&self) {
        self.left.set(self.limit);
    }
}

/// Passes bytes through and fails if one row is longer than the limit.
#[derive(Debug)]
pub struct Limited<R> {
    source: R,
    allowance: Allowance,
}

impl<R: Read> Limited<R> {
    /// Allows each row `limit` bytes. Read-ahead of the parser makes the limit approximate.
    pub fn new(source: R, limit: u64) -> Self {
        let allowance = Allowance { left: Rc::new(Cell::new(limit)), limit };
        Self { source, allowance }
    }

    /// Returns a handle that renews the allowance.
    pub fn allowance(&self) -> Allowance {
        self.allowance.clone()
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.left.get();
        if left == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "one row is longer than {} bytes; is a quote left open?",
                    self.allowance.limit
                ),
            ));
        }
        let count = self.source.read(buffer)?;
        self.allowance.left.set(left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX)));
        Ok(count)
    }
}

/// Reads one line into `line`, without its line end. Returns false at the end of the file. The last
/// line may lack a line end. Fails with `InvalidData` if the line has more than `limit` bytes.
pub fn read_line(source: &mut dyn BufRead, line: &mut Vec<u8>, limit: u64) -> io::Result<bool> {
    line.clear();
    let count = source.take(limit.saturating_add(1)).read_until(b'\n', line)?;
    if line.pop_if(|last| *last == b'\n').is_some() {
        line.pop_if(|last| *last == b'\r');
    } else if u64::try_from(count).unwrap_or(u64::MAX) > limit {
        let what = format!("the line is longer than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_end_is_refused_and_short_rows_are_not() {
        let mut endless = Limited::new(io::repeat(b'x'), 100_000);
        assert!(io::copy(&mut endless, &mut io::sink()).is_err());
        let mut renewed = Limited::new(io::repeat(b'x').take(1_000_000), 100_000);
        let allowance = renewed.allowance();
        let mut buffer = [0; 10_000];
        while renewed.read(&mut buffer).unwrap() > 0 {
            allowance.renew();
        }
    }

    #[test]
    fn lines_end_with_or_without_their_mark() {
        let mut source = &b"a\r\n\nb\rc\nlast"[..];
        let mut line = Vec::new();
        let mut lines = Vec::new();
        while read_line(&mut source, &mut line, 10).unwrap() {
            lines.push(line.clone());
        }
        assert_eq!(lines, [&b"a"[..], b"", b"b\rc", b"last"]);
        assert!(read_line(&mut &b"0123456789"[..], &mut line, 10).unwrap());
        assert!(read_line(&mut &b"0123456789a"[..], &mut line, 10).is_err());
    }
}
