//! The language of rules: `on`, `>password`, `~pattern`, `+@read`, `(selector)` and so on.
//!
//! A list of rules applies as a whole or not at all. The caller works on a copy.

use zeroize::Zeroizing;

use super::{
    access::KeyAccess,
    password,
    user::{KeyPattern, Permissions, User},
};
use crate::{
    glob::PATTERN_BYTES_MAX,
    spec::{Registry, Spec, flag},
    store::{NAMESPACES_MAX, is_namespace_name},
};

/// Most hashes of a user. Each login may verify against all of them.
const HASHES_MAX: usize = 16;
/// Most selectors of a user, and most patterns of a selector. Each command may match all.
const SELECTORS_MAX: usize = 64;
const PATTERNS_MAX: usize = 1024;
/// Longest name of a user in bytes.
const NAME_BYTES_MAX: usize = 128;

/// A category of Redis that has no commands here.
const EMPTY_CATEGORY: &str = "scripting";

const SYNTAX: &str = "Syntax error";
const UNKNOWN: &str = "Unknown command or category name in ACL";

/// A rule may have a password, so its memory is overwritten.
pub(crate) type Rule = Zeroizing<String>;

/// Fails if a name cannot be that of a user.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("Usernames can't contain spaces or null characters".to_owned());
    }
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(format!("Usernames have 1 to {NAME_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// Joins the parts of selectors that were given as several arguments.
fn join_selectors(rules: &[Rule]) -> Result<Vec<Rule>, String> {
    let mut joined: Vec<Rule> = Vec::new();
    let mut open: Option<Rule> = None;
    for rule in rules {
        let mut whole = match open.take() {
            Some(start) => Zeroizing::new(format!("{} {}", start.as_str(), rule.as_str())),
            None => rule.clone(),
        };
        if whole.starts_with('(') && !whole.ends_with(')') {
            open = Some(std::mem::take(&mut whole));
        } else {
            joined.push(whole);
        }
    }
    match open {
        None => Ok(joined),
        Some(start) => {
            let first = start.split(' ').next().unwrap_or_default();
            let first = shown(first);
            Err(format!("Unmatched parenthesis in acl selector starting at '{first}'."))
        }
    }
}

/// A rule for a message: without a password, and what follows one in a selector.
fn shown(rule: &str) -> String {
    let is_start = |before: &str| before.is_empty() || before.ends_with(['(', ' ']);
    let secret = rule
        .match_indices(['>', '<'])
        .find(|(at, _)| is_start(rule.get(..*at).unwrap_or_default()));
    let end = secret.map_or(rule.len(), |(at, _)| at);
    let mut shown: String = rule.get(..end).unwrap_or_default().chars().take(128).collect();
    if let Some((_, kind)) = secret {
        shown.push_str(kind);
        shown.push_str("***");
    }
    shown
}

/// Applies rules to a user. Fails with the first rule that is wrong; the user is then in between.
///
/// Hashes passwords, so it can take 20 ms and more for each.
pub(super) fn apply(user: &mut User, rules: &[Rule], registry: &Registry) -> Result<(), String> {
    for rule in join_selectors(rules)? {
        apply_one(user, &rule, registry)
            .map_err(|why| format!("Error in ACL SETUSER modifier '{}': {why}", shown(&rule)))?;
    }
    user.finish(registry);
    Ok(())
}

/// A rule without the case of its letters, if it is a word. Passwords and patterns stay.
fn folded(rule: &str) -> std::borrow::Cow<'_, str> {
    if rule.chars().all(|c| c.is_ascii_alphabetic()) {
        rule.to_ascii_lowercase().into()
    } else {
        rule.into()
    }
}

fn apply_one(user: &mut User, rule: &str, registry: &Registry) -> Result<(), String> {
    match folded(rule).as_ref() {
        "on" => user.is_enabled = true,
        "off" => user.is_enabled = false,
        "nopass" => {
            user.is_nopass = true;
            user.hashes.clear();
        }
        "resetpass" => {
            user.is_nopass = false;
            user.hashes.clear();
        }
        "reset" => *user = User::new(&user.name),
        "resetnamespaces" => user.namespaces.clear(),
        "clearselectors" => user.selectors.clear(),
        _ => {
            let inside = rule.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            if let Some(inside) = inside {
                return add_selector(user, inside, registry);
            }
            if let Some(("namespace", name)) = rule.split_once('=') {
                return add_namespace(user, name);
            }
            if apply_password(user, rule)? {
                return Ok(());
            }
            return apply_permission(&mut user.root, rule, registry);
        }
    }
    Ok(())
}

fn add_namespace(user: &mut User, name: &str) -> Result<(), String> {
    if name != "*" && !is_namespace_name(name.as_bytes()) {
        return Err("A namespace is *, or 1 to 64 letters, digits, '_', '.' and '-'".to_owned());
    }
    // All others, `default` and `*`.
    if user.namespaces.len() >= NAMESPACES_MAX + 2 {
        return Err(format!("A user has at most {} namespaces", NAMESPACES_MAX + 2));
    }
    if !user.namespaces.iter().any(|own| own == name) {
        user.namespaces.push(name.to_owned());
    }
    Ok(())
}

fn add_selector(user: &mut User, inside: &str, registry: &Registry) -> Result<(), String> {
    if user.selectors.len() >= SELECTORS_MAX {
        return Err(format!("A user has at most {SELECTORS_MAX} selectors"));
    }
    let mut selector = User::new(&user.name).root;
    for rule in inside.split_whitespace() {
        apply_permission(&mut selector, rule, registry)?;
    }
    user.selectors.push(selector);
    Ok(())
}

/// Applies a rule of passwords. Returns whether it is one.
fn apply_password(user: &mut User, rule: &str) -> Result<bool, String> {
    let (kind, text) = (rule.chars().next(), rule.get(1..).unwrap_or_default());
    let is_text = text.len() <= password::PASSWORD_BYTES_MAX;
    let long = || format!("A password has at most {} bytes", password::PASSWORD_BYTES_MAX);
    match kind {
        Some('>') => {
            let is_known = || user.hashes.iter().any(|h| password::has_hash(text.as_bytes(), h));
            if !is_text {
                return Err(long());
            }
            if !is_known() {
                let hash = password::hash(text.as_bytes())?;
                add_hash(user, hash)?;
            }
            user.is_nopass = false;
        }
        Some('#') => {
            password::check_hash(text)?;
            if !user.hashes.iter().any(|own| own == text) {
                add_hash(user, text.to_owned())?;
            }
            user.is_nopass = false;
        }
        Some('<' | '!') => {
            let count = user.hashes.len();
            if kind == Some('!') {
                password::check_hash(text)?;
                user.hashes.retain(|own| own != text);
            } else if is_text {
                user.hashes.retain(|own| !password::has_hash(text.as_bytes(), own));
            }
            if user.hashes.len() == count {
                return Err("The password you are trying to remove from the user does not \
                            exist"
                    .to_owned());
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn add_hash(user: &mut User, hash: String) -> Result<(), String> {
    if user.hashes.len() >= HASHES_MAX {
        return Err(format!("A user has at most {HASHES_MAX} passwords"));
    }
    user.hashes.push(hash);
    Ok(())
}

/// Applies a rule of commands, keys or channels.
fn apply_permission(own: &mut Permissions, rule: &str, registry: &Registry) -> Result<(), String> {
    match folded(rule).as_ref() {
        "allkeys" | "~*" | "%RW~*" => {
            own.has_all_keys = true;
            own.keys.clear();
        }
        "resetkeys" => {
            own.has_all_keys = false;
            own.keys.clear();
        }
        "allchannels" | "&*" => {
            own.has_all_channels = true;
            own.channels.clear();
        }
        "resetchannels" => {
            own.has_all_channels = false;
            own.channels.clear();
        }
        "allcommands" => set_commands(own, true, "@all", registry)?,
        "nocommands" => set_commands(own, false, "@all", registry)?,
        _ => {
            let rest = rule.get(1..).unwrap_or_default();
            match rule.chars().next() {
                Some('+') => set_commands(own, true, rest, registry)?,
                Some('-') => set_commands(own, false, rest, registry)?,
                Some('~') => add_keys(own, KeyAccess::BOTH, rest)?,
                Some('%') => {
                    let (letters, pattern) = rest.split_once('~').ok_or(SYNTAX)?;
                    add_keys(own, parse_access(letters)?, pattern)?;
                }
                Some('&') => add_channel(own, rest)?,
                _ => return Err(SYNTAX.to_owned()),
            }
        }
    }
    Ok(())
}

fn parse_access(letters: &str) -> Result<KeyAccess, String> {
    let (reads, writes) = (letters.contains(['R', 'r']), letters.contains(['W', 'w']));
    let is_sound = !letters.is_empty() && letters.len() <= 2;
    let is_known = letters.chars().all(|letter| "RrWw".contains(letter));
    if is_sound && is_known { Ok(KeyAccess { reads, writes }) } else { Err(SYNTAX.to_owned()) }
}

fn check_pattern(pattern: &str, count: usize) -> Result<(), String> {
    if pattern.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(SYNTAX.to_owned());
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("A pattern has at most {PATTERN_BYTES_MAX} bytes"));
    }
    if count >= PATTERNS_MAX {
        return Err(format!("A selector has at most {PATTERNS_MAX} patterns"));
    }
    Ok(())
}

fn add_keys(own: &mut Permissions, access: KeyAccess, pattern: &str) -> Result<(), String> {
    if own.has_all_keys {
        return Err("Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid \
                    and does not have any effect. Try 'resetkeys' to start with an empty list of \
                    patterns"
            .to_owned());
    }
    check_pattern(pattern, own.keys.len())?;
    let added = KeyPattern { access, pattern: pattern.to_owned() };
    if !own.keys.contains(&added) {
        own.keys.push(added);
    }
    Ok(())
}

fn add_channel(own: &mut Permissions, pattern: &str) -> Result<(), String> {
    if own.has_all_channels {
        return Err("Adding a pattern after the * pattern (or the 'allchannels' flag) is not \
                    valid and does not have any effect. Try 'resetchannels' to start with an \
                    empty list of channels"
            .to_owned());
    }
    check_pattern(pattern, own.channels.len())?;
    if !own.channels.iter().any(|channel| channel == pattern) {
        own.channels.push(pattern.to_owned());
    }
    Ok(())
}

/// The rows that a name selects: `@category`, `command` with its subcommands, `command|sub`.
fn select_rows<'r>(registry: &'r Registry, name: &str) -> Result<Vec<(usize, &'r Spec)>, String> {
    let all = registry.specs().iter().enumerate();
    if let Some(category) = name.strip_prefix('@') {
        let is_member = |spec: &Spec| category == "all" || spec.categories().contains(&category);
        let found: Vec<_> = all.filter(|(_, spec)| is_member(spec)).collect();
        let is_known = !found.is_empty() || category == EMPTY_CATEGORY;
        return if is_known { Ok(found) } else { Err(UNKNOWN.to_owned()) };
    }
    let row = registry.find(name.as_bytes()).ok_or(UNKNOWN)?;
    let is_container = registry.spec(row).is_some_and(|spec| spec.has(flag::CONTAINER));
    let is_selected =
        |spec: &Spec| spec.name == name || (is_container && is_below(spec.name, name));
    Ok(all.filter(|(_, spec)| is_selected(spec)).collect())
}

/// Whether `name` is a subcommand of `command`.
fn is_below(name: &str, command: &str) -> bool {
    name.strip_prefix(command).is_some_and(|rest| rest.starts_with('|'))
}

fn set_commands(
    own: &mut Permissions,
    is_allowed: bool,
    name: &str,
    registry: &Registry,
) -> Result<(), String> {
    let name = name.to_ascii_lowercase();
    for (row, _) in select_rows(registry, &name)? {
        own.commands.set(row, is_allowed);
    }
    // The new rule decides about all that an earlier one of the same name has decided.
    own.command_rules.retain(|rule| {
        let earlier = rule.get(1..).unwrap_or_default();
        name != "@all" && earlier != name && !is_below(earlier, &name)
    });
    own.command_rules.push(format!("{}{name}", if is_allowed { '+' } else { '-' }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> Registry {
        crate::command::registry(&crate::command::table())
    }

    fn user(rules: &str) -> Result<User, String> {
        let mut user = User::new("u");
        let rules: Vec<Rule> = rules.split(' ').map(|r| Zeroizing::new(r.to_owned())).collect();
        apply(&mut user, &rules, &registry()).map(|()| user)
    }

    #[test]
    fn rules_print_as_they_apply() {
        for (given, printed) in [
            ("on nopass allkeys allchannels allcommands", "on nopass ~* &* +@all"),
            ("off", "off resetchannels -@all"),
            ("on ~a ~a %R~b %w~c &d +GET", "on ~a %R~b %W~c resetchannels &d -@all +get"),
            ("+@all -@dangerous +@all", "off resetchannels +@all"),
            ("+config|get -config +config|set", "off resetchannels -@all -config +config|set"),
            ("(+@read ~s:*)", "off resetchannels -@all (~s:* resetchannels -@all +@read)"),
            ("(+get ~s:* ) clearselectors", "off resetchannels -@all"),
            ("on ~x &y +@all reset", "off resetchannels -@all"),
            ("~* resetkeys ~x", "off ~x resetchannels -@all"),
            (
                "namespace=a namespace=* namespace=a",
                "off namespace=a namespace=* resetchannels -@all",
            ),
            (
                "namespace=a resetnamespaces namespace=b-1.x_Y",
                "off namespace=b-1.x_Y resetchannels -@all",
            ),
            ("-@scripting", "off resetchannels -@all -@scripting"),
        ] {
            let made = user(given).unwrap();
            assert_eq!(made.rules().join(" "), printed, "{given}");
            // What is printed makes the same user.
            assert_eq!(user(printed).unwrap(), made, "{given}");
        }
    }

    #[test]
    fn wrong_rules_are_refused_without_their_passwords() {
        for (rule, why) in [
            ("foo", "Syntax error"),
            ("", "Syntax error"),
            ("+nosuch", "Unknown command"),
            ("+@nosuch", "Unknown command"),
            ("+config|nosuch", "Unknown command"),
            ("+select|0", "Unknown command"),
            ("%X~a", "Syntax error"),
            ("%~a", "Syntax error"),
            ("~a\u{a0}b", "Syntax error"),
            ("(on)", "Syntax error"),
            ("(namespace=a)", "Syntax error"),
            ("namespace=", "A namespace is"),
            ("namespace=a*", "A namespace is"),
            ("namespace=a/b", "A namespace is"),
            ("(+get", "Unmatched parenthesis"),
            ("(>secret", "Unmatched parenthesis"),
            ("(+get >secret)", "Syntax error"),
            ("(<secret more)", "Syntax error"),
            ("#abc", "argon2id"),
            ("!abc", "argon2id"),
            ("<secret", "does not exist"),
        ] {
            let failure = user(rule).unwrap_err();
            assert!(failure.contains(why), "{rule}: {failure}");
            assert!(!failure.contains("secret"), "{failure}");
        }
        assert!(user("~* ~x").unwrap_err().contains("resetkeys"));
        assert!(user("&* &x").unwrap_err().contains("resetchannels"));
        let long = format!(">{}", "secret".repeat(1000));
        assert!(!user(&long).unwrap_err().contains("secret"));
    }

    #[test]
    fn passwords_are_added_once_and_removed() {
        let mut own = user("on >one >two >one").unwrap();
        assert_eq!(own.hashes.len(), 2);
        let hash = own.hashes[0].clone();
        let apply_to =
            |own: &mut User, rule: String| apply(own, &[Zeroizing::new(rule)], &registry());
        apply_to(&mut own, format!("!{hash}")).unwrap();
        assert_eq!(own.hashes.len(), 1);
        apply_to(&mut own, "<two".to_owned()).unwrap();
        assert_eq!(own.hashes.len(), 0);
        apply_to(&mut own, "nopass".to_owned()).unwrap();
        assert!(own.is_nopass);
        apply_to(&mut own, format!("#{hash}")).unwrap();
        assert!(!own.is_nopass && own.hashes == [hash]);
    }
}
