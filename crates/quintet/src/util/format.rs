//! Printing of bytes and keys, for the descriptions of files that `inspect` prints.

/// Most bytes of a key that are printed.
const SHOWN_BYTES_MAX: usize = 64;

/// Receives a line. Returns whether it wants more.
pub type LineSink<'a> = dyn FnMut(&str) -> bool + 'a;

/// Returns the bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// Returns a key in quotes: all of it, or its first bytes and its length.
pub fn brief(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN_BYTES_MAX) {
        Some(start) if bytes.len() > SHOWN_BYTES_MAX => {
            format!("\"{}\"... ({} bytes)", start.escape_ascii(), bytes.len())
        }
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}
