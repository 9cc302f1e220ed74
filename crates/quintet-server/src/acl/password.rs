//! Passwords: argon2id hashes, and random numbers for salts and `ACL GENPASS`.
//!
//! A hash costs 19 MiB and some 20 ms (OWASP's first choice of parameters). Callers hash on the
//! blocking pool, through `network/connection/work.rs`, which bounds how many run at once.
//!
//! A hash is a string such as `$argon2id$v=19$m=19456,t=2,p=1$salt$hash`. Its parameters come from
//! the administrator, and they decide what a login costs. So they have limits.

use argon2::{
    Algorithm, Argon2, Params, Version,
    password_hash::{PasswordHash, PasswordHasher as _, PasswordVerifier as _, SaltString},
};
use zeroize::Zeroizing;

/// Longest password in bytes.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;
/// Bytes of a salt.
const SALT_BYTES: usize = 16;
/// Longest hash in characters. One with the parameters of this module has 97.
const HASH_BYTES_MAX: usize = 256;
/// Most memory of a hash in KiB, most passes over it and most lanes.
const MEMORY_KIB_MAX: u32 = 64 << 10;
const PASSES_MAX: u32 = 10;
const LANES_MAX: u32 = 4;

/// A hash that no password has. Verifying against it takes the time of a user that exists.
const NO_USER: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$\
     AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn argon2id() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
}

/// Fills a buffer with random bytes of the system.
pub(crate) fn fill_random(mut buffer: &mut [u8]) -> Result<(), String> {
    while !buffer.is_empty() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut *buffer, flags) {
            Ok(count) => buffer = buffer.get_mut(count..).unwrap_or(&mut []),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("the system has no random numbers: {error}")),
        }
    }
    Ok(())
}

/// Hashes a password with a new salt.
pub(crate) fn hash(password: &[u8]) -> Result<String, String> {
    let mut salt = [0; SALT_BYTES];
    fill_random(&mut salt)?;
    let explain = |error: argon2::password_hash::Error| format!("cannot hash a password: {error}");
    let salt = SaltString::encode_b64(&salt).map_err(explain)?;
    Ok(argon2id().hash_password(password, &salt).map_err(explain)?.to_string())
}

/// Checks the form and the parameters of a hash. Fails with what is wrong.
pub(crate) fn check_hash(text: &str) -> Result<(), String> {
    let form = "The password hash must be an argon2id string such as \
                $argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>; SHA-256 is not accepted";
    let parsed = PasswordHash::new(text).ok().filter(|_| text.len() <= HASH_BYTES_MAX);
    let parsed = parsed.ok_or(form)?;
    let is_whole = parsed.salt.is_some() && parsed.hash.is_some_and(|hash| hash.len() >= 16);
    let is_argon2id = parsed.algorithm == argon2::ARGON2ID_IDENT && parsed.version == Some(19);
    let params = Params::try_from(&parsed).map_err(|_| form)?;
    if !is_whole || !is_argon2id {
        return Err(form.to_owned());
    }
    let (memory, passes, lanes) = (params.m_cost(), params.t_cost(), params.p_cost());
    if memory > MEMORY_KIB_MAX || passes > PASSES_MAX || lanes > LANES_MAX {
        return Err(format!(
            "The parameters of the password hash exceed m={MEMORY_KIB_MAX},t={PASSES_MAX},\
             p={LANES_MAX}, so a login would cost too much"
        ));
    }
    Ok(())
}

/// Whether a password has a hash. Compares in constant time.
pub(crate) fn has_hash(password: &[u8], hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| argon2id().verify_password(password, &hash).is_ok())
}

/// Compares in a time that does not depend on where the texts differ.
fn is_equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    let mut difference = usize::from(a.len() != b.len());
    for (at, byte) in a.iter().enumerate() {
        difference |= usize::from(byte ^ b.get(at).copied().unwrap_or(!*byte));
    }
    std::hint::black_box(difference) == 0
}

/// A password of a login, with what it is compared with.
pub(crate) struct Login {
    /// The password of the client.
    pub(crate) password: Zeroizing<Vec<u8>>,
    /// `requirepass`, for the user `default`.
    pub(crate) plain: Option<Zeroizing<String>>,
    /// The hashes of the user; `None` if there is no such user or if it is off.
    pub(crate) hashes: Option<Vec<String>>,
    /// The name of the user for the audit line, shortened and escaped.
    pub(crate) user: String,
    /// The address of the client.
    pub(crate) address: String,
}

impl Login {
    /// Whether the password is right. Takes as long for a user that does not exist or has none.
    pub(crate) fn is_right(&self) -> bool {
        let password = self.password.as_slice();
        let is_long = password.len() > PASSWORD_BYTES_MAX;
        let bounded = if is_long { &[] } else { password };
        let is_plain = self
            .plain
            .as_ref()
            .is_some_and(|plain| is_equal_in_constant_time(password, plain.as_bytes()));
        let is_hashed = match &self.hashes {
            None => {
                std::hint::black_box(has_hash(bounded, NO_USER));
                return false;
            }
            Some(hashes) if hashes.is_empty() && self.plain.is_none() => {
                std::hint::black_box(has_hash(bounded, NO_USER));
                false
            }
            Some(hashes) => hashes.iter().any(|hash| has_hash(bounded, hash)),
        };
        is_plain || (is_hashed && !is_long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_has_its_password_only_and_bad_hashes_are_refused() {
        let one = hash(b"secret").unwrap();
        assert!(has_hash(b"secret", &one));
        assert!(!has_hash(b"Secret", &one));
        assert_ne!(one, hash(b"secret").unwrap(), "two salts are equal");
        assert_eq!(check_hash(&one), Ok(()));
        assert_eq!(check_hash(NO_USER), Ok(()));
        for bad in [
            "",
            "x",
            "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4",
            "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA",
            &one.replace("argon2id", "argon2i"),
            &one.replace("v=19", "v=16"),
            &one.replace("m=19456", "m=4194304"),
            &one.replace("t=2", "t=100000"),
        ] {
            assert!(check_hash(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_login_needs_the_password_of_an_enabled_user() {
        let login = |password: &str, plain: Option<&str>, hashes: Option<Vec<String>>| Login {
            password: Zeroizing::new(password.as_bytes().to_vec()),
            plain: plain.map(|plain| Zeroizing::new(plain.to_owned())),
            hashes,
            user: String::new(),
            address: String::new(),
        };
        let hashes = vec![hash(b"one").unwrap(), hash(b"two").unwrap()];
        assert!(login("two", None, Some(hashes.clone())).is_right());
        assert!(login("plain", Some("plain"), Some(hashes.clone())).is_right());
        assert!(!login("plai", Some("plain"), Some(hashes.clone())).is_right());
        assert!(!login("three", None, Some(hashes)).is_right());
        assert!(!login("one", None, Some(Vec::new())).is_right());
        assert!(!login("plain", Some("plain"), None).is_right());
    }
}
