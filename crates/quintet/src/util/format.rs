//! Files in words: what the descriptions of all engines' files share.

/// Bytes of a key that are shown.
const SHOWN_BYTES_MAX: usize = 64;

/// Takes a line; whether more are wanted.
pub type Say<'a> = dyn FnMut(&str) -> bool + 'a;

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// A key: its first bytes, and its length where there are more.
pub fn brief(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN_BYTES_MAX) {
        Some(start) if bytes.len() > SHOWN_BYTES_MAX => {
            format!("\"{}\"... ({} bytes)", start.escape_ascii(), bytes.len())
        }
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}
