//! Patterns of `KEYS`, `SCAN`, `PSUBSCRIBE` and ACL rules: `*`, `?`, `[a-z]`, `[^x]`, `\x`.
//!
//! The matcher is iterative. It goes back to the last star only, so a match costs at most the
//! product of both lengths (CVE-2022-36021), and it uses no stack (CVE-2024-31228).

/// Longest pattern in bytes. Longer ones are refused by the commands.
pub(crate) const PATTERN_BYTES_MAX: usize = 1024;

/// Returns whether `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // The pattern behind the last star, and the text that the star ends at.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        let step = match (pattern.get(p), text.get(t)) {
            (None, None) => return true,
            (Some(_), Some(byte)) => match_one(pattern, p, *byte),
            _ => None,
        };
        match (step, retry) {
            (Some(next), _) => {
                p = next;
                t += 1;
            }
            (None, Some((after_star, at))) if at < text.len() => {
                retry = Some((after_star, at + 1));
                p = after_star;
                t = at + 1;
            }
            _ => return false,
        }
    }
}

/// Matches the element of the pattern at `p` with a byte. Returns the position behind the element.
fn match_one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => match_class(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => (pattern.get(p + 1)? == &byte).then_some(p + 2),
        literal => (*literal == byte).then_some(p + 1),
    }
}

/// Matches a class whose first byte behind the bracket is at `p`.
fn match_class(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
    let is_negated = pattern.get(p) == Some(&b'^');
    if is_negated {
        p += 1;
    }
    let mut is_member = false;
    loop {
        match (pattern.get(p), pattern.get(p + 1), pattern.get(p + 2)) {
            // A class without its end reaches to the end of the pattern.
            (None, ..) => break,
            (Some(b']'), ..) => {
                p += 1;
                break;
            }
            (Some(b'\\'), Some(literal), _) => {
                is_member |= *literal == byte;
                p += 2;
            }
            (Some(low), Some(b'-'), Some(high)) => {
                let range = if low <= high { *low..=*high } else { *high..=*low };
                is_member |= range.contains(&byte);
                p += 3;
            }
            (Some(literal), ..) => {
                is_member |= *literal == byte;
                p += 1;
            }
        }
    }
    (is_member != is_negated).then_some(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, is_match) in [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            (r"h\*llo", "h*llo", true),
            (r"h\*llo", "hxllo", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("", "", true),
            ("", "a", false),
            ("[", "", false),
            ("user:*:name", "user:1:name", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_cost_a_product_and_no_more() {
        let pattern = "a*".repeat(500);
        let text = "a".repeat(60_000) + "b";
        let start = std::time::Instant::now();
        assert!(!matches(format!("{pattern}c").as_bytes(), text.as_bytes()));
        assert!(start.elapsed().as_secs() < 5);
    }
}
