//! A change of one key that is computed from its value: what a read-modify-write commits.

use crate::{
    contract::Op,
    db::{
        encoding::envelope::{EncodedEnvelope, Envelope},
        tables::value::Value,
    },
};

/// What to write to a key after its value was read. `B` is the user's bytes.
#[derive(Debug)]
pub(crate) enum KeyChange<B> {
    /// Nothing.
    Keep,
    /// Sets the value.
    Put {
        /// Expiry and type tag of the new value.
        envelope: Envelope,
        /// The user's bytes.
        body: B,
    },
    /// Removes the key.
    Delete,
}

/// Where the function that computes a change may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComputeSite {
    /// Without a lock: it is the user's. It runs again if the value changed before the commit.
    Unlocked,
    /// Under the key's stripe too: it calls nothing of the user's.
    Anywhere,
}

/// A value that was read, and the change that was computed from it.
#[derive(Debug)]
pub(crate) struct ComputedChange<B> {
    /// Version of the key's stripe, read before the value.
    pub(crate) version: u64,
    /// The visible value.
    pub(crate) old: Option<Value>,
    /// The change.
    pub(crate) change: KeyChange<B>,
}

impl<B: AsRef<[u8]>> KeyChange<B> {
    /// Returns the envelope of the new value, encoded.
    pub(crate) fn head(&self) -> EncodedEnvelope {
        match self {
            Self::Put { envelope, .. } => envelope.encode(),
            Self::Keep | Self::Delete => Envelope::default().encode(),
        }
    }

    /// Returns the operation on `key`, with the envelope `head`. `None` if nothing is written.
    pub(crate) fn op<'a>(&'a self, key: &'a [u8], head: &'a EncodedEnvelope) -> Option<Op<'a>> {
        match self {
            Self::Keep => None,
            Self::Put { body, .. } => {
                Some(Op::Put { key, head: head.as_slice(), body: body.as_ref() })
            }
            Self::Delete => Some(Op::Delete { key }),
        }
    }

    /// Returns whether what was admitted for one change serves for the other: both need the same
    /// memory and the same entry of the expiry index.
    pub(crate) fn is_admitted_by(&self, admitted: &Self) -> bool {
        match (self, admitted) {
            (Self::Delete, Self::Delete) => true,
            (
                Self::Put { envelope, body },
                Self::Put { envelope: admitted_envelope, body: admitted_body },
            ) => {
                envelope == admitted_envelope && body.as_ref().len() == admitted_body.as_ref().len()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_equal_size_and_envelope_share_an_admission() {
        let put = |expires_at, body: &'static str| KeyChange::Put {
            envelope: Envelope { expires_at, type_tag: None },
            body,
        };
        let one = put(None, "one");
        assert!(put(None, "two").is_admitted_by(&one));
        assert!(!put(None, "three").is_admitted_by(&one));
        assert!(!put(Some(1), "two").is_admitted_by(&one));
        assert!(!KeyChange::Delete.is_admitted_by(&one));
        assert!(KeyChange::<&[u8]>::Delete.is_admitted_by(&KeyChange::Delete));
        assert!(!KeyChange::<&[u8]>::Keep.is_admitted_by(&KeyChange::Keep));
        let head = one.head();
        let op = Op::Put { key: b"k", head: &[0], body: b"one" };
        assert_eq!(one.op(b"k", &head), Some(op));
        assert_eq!(KeyChange::<&[u8]>::Keep.op(b"k", &head), None);
    }
}
