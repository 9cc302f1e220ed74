//! Work that must not run on the threads of connections: hashing passwords, reading and writing
//! the file of users. `work.rs` runs it.

use std::fmt;

use crate::acl::{Acl, Login, MayBeOpen};

/// A change of users, or a read or write of their file. Returns a count or why it failed.
type AclChange = Box<dyn FnOnce(&Acl, MayBeOpen<'_>) -> Result<usize, String> + Send>;

/// A piece of work.
pub(crate) enum Work {
    /// Checks a password. Addresses that have failed often wait before it.
    Login(Login),
    /// Changes users.
    Change(AclChange),
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Login(_) => "Login",
            Self::Change(_) => "Change",
        })
    }
}

/// What a piece of work has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The password is right.
    Right,
    /// The password is wrong.
    Wrong,
    /// The change was made. It concerns this many users.
    Changed(usize),
    /// The work failed, or was refused before it started.
    Failed(String),
}
