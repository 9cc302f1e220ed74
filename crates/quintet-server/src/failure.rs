//! Why a command fails.

use std::borrow::Cow;

/// Why a command fails, as the client reads it.
#[derive(Debug)]
pub(crate) enum Fail {
    /// A message with its code.
    Message(Cow<'static, str>),
    /// The store refused a read or a write.
    Store(quintet::Error),
    /// The command is beyond a limit of its time or memory. Its changes are discarded.
    Ended(String),
}

/// The result of a command: its reply has been written, or its failure is the reply.
pub(crate) type Done<T = ()> = Result<T, Fail>;

impl Fail {
    /// A message, its code first.
    pub(crate) const fn new(message: &'static str) -> Self {
        Self::Message(Cow::Borrowed(message))
    }

    /// A message made for this failure, its code first.
    pub(crate) fn with(message: String) -> Self {
        Self::Message(Cow::Owned(message))
    }

    /// Whether the command may have changed a part of what it had to.
    pub(crate) fn is_partial(&self) -> bool {
        matches!(self, Self::Store(_) | Self::Ended(_))
    }

    pub(crate) const SYNTAX: Self = Self::new("ERR syntax error");
    pub(crate) const NOT_INTEGER: Self = Self::new("ERR value is not an integer or out of range");
    pub(crate) const NOT_FLOAT: Self = Self::new("ERR value is not a valid float");
    pub(crate) const WRONG_TYPE: Self =
        Self::new("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const NO_NAMESPACE: Self = Self::new(
        "NONAMESPACE the namespace of this connection does not exist; choose another with \
         NAMESPACE USE",
    );
    pub(crate) const BAD_NAMESPACE: Self = Self::new(
        "ERR a name of a namespace has 1 to 64 of the characters A-Z, a-z, 0-9, '_', '.' and '-'",
    );
    pub(crate) const NO_SUCH_KEY: Self = Self::new("ERR no such key");
    pub(crate) const OUT_OF_RANGE: Self = Self::new("ERR index out of range");

    /// The text of the error reply.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Message(message) => message.clone().into_owned(),
            Self::Ended(message) => message.clone(),
            Self::Store(error @ quintet::Error::OutOfMemory { .. }) => {
                format!("OOM command not allowed when used memory > 'maxmemory': {error}")
            }
            Self::Store(error @ quintet::Error::ReadOnly) => format!("READONLY {error}"),
            Self::Store(error) => format!("ERR {error}"),
        }
    }
}

impl From<quintet::Error> for Fail {
    fn from(error: quintet::Error) -> Self {
        Self::Store(error)
    }
}
