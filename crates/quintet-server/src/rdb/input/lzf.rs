//! Decompresses LZF, which Redis uses for long strings.
//!
//! A control byte below 32 precedes that many literal bytes and one more. Any other has the length
//! of a copy in its upper three bits and the upper part of its distance in the others. Length 7
//! is followed by a byte to add; the lower part of the distance follows. A copy has two bytes more
//! than its length says, and may overlap what it writes.

/// Decompresses to exactly `expected` bytes. Returns `None` if the input is malformed or has
/// another length. The buffer grows with what is decompressed: at most 264 bytes for 3.
pub(super) fn decompress(input: &[u8], expected: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = input;
    while let Some((control, after)) = rest.split_first() {
        let control = usize::from(*control);
        rest = if control < 32 {
            let (literal, after) = after.split_at_checked(control + 1)?;
            out.extend_from_slice(literal);
            after
        } else {
            copy(&mut out, control, after)?
        };
        if out.len() > expected {
            return None;
        }
    }
    (out.len() == expected).then_some(out)
}

fn copy<'i>(out: &mut Vec<u8>, control: usize, rest: &'i [u8]) -> Option<&'i [u8]> {
    let (mut length, mut rest) = (control >> 5, rest);
    if length == 7 {
        let (more, after) = rest.split_first()?;
        length += usize::from(*more);
        rest = after;
    }
    let (low, after) = rest.split_first()?;
    let distance = ((control & 31) << 8 | usize::from(*low)) + 1;
    let start = out.len().checked_sub(distance)?;
    for at in start..start + length + 2 {
        let byte = *out.get(at)?;
        out.push(byte);
    }
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::decompress;

    #[test]
    fn literals_and_overlapping_copies_decompress() {
        assert_eq!(decompress(b"\x01ab", 2).unwrap(), b"ab");
        // One literal, and a copy of nine bytes from one byte before.
        assert_eq!(decompress(b"\x00a\xe0\x00\x00", 10).unwrap(), b"aaaaaaaaaa");
        assert_eq!(decompress(b"\x01ab\x20\x01", 5).unwrap(), b"ababa");
    }

    #[test]
    fn malformed_input_is_refused() {
        for (input, expected) in [
            (b"\x01a".as_slice(), 2),
            (b"\x20\x00", 3),
            (b"\x00a\x20\x01", 4),
            (b"\x00a\xe0", 10),
            (b"\x00a\xe0\x00", 10),
            (b"\x01ab", 1),
            (b"\x01ab", 3),
        ] {
            assert_eq!(decompress(input, expected), None, "{input:?}");
        }
    }
}
