//! A table of a simulated disk, of a database that never has anything to say; and damage to its
//! files.

use std::{path::Path, sync::Arc};

use quintet::{
    Result,
    testing::{
        budget::Budget,
        codec::{Decoder, KeyHash, Lsn},
        disk::{
            Env,
            sim::{Damage, SimEnv},
        },
        engine::{Context, Host},
    },
};

pub(super) const TABLE_ID: u64 = 7;

#[derive(Debug)]
struct Silent {
    /// Values that begin with this byte have expired.
    expired: Option<u8>,
}

impl Host for Silent {
    fn sync_log(&self) -> Result<()> {
        Ok(())
    }
    fn wake(&self) {}
    fn is_expired(&self, stored: &[u8]) -> bool {
        self.expired.is_some() && stored.first() == self.expired.as_ref()
    }
}

/// A table in `/table`, in which values that begin with an E have expired.
pub(super) fn context(env: &SimEnv, database_id: [u8; 16]) -> Context {
    Context {
        env: Arc::new(env.clone()),
        dir: env.open_dir(Path::new("/table"), true).expect("a folder"),
        database_id,
        table_id: TABLE_ID,
        hash: KeyHash::new([1, 2]),
        budget: Arc::new(Budget::new(64 << 20)),
        host: Arc::new(Silent { expired: Some(b'E') }),
        read_only: false,
        complete: Lsn(0),
    }
}

/// The same where nothing expires.
pub(super) fn lasting_context(env: &SimEnv, database_id: [u8; 16]) -> Context {
    Context { host: Arc::new(Silent { expired: None }), ..context(env, database_id) }
}

/// Overwrites parts of `bytes` with parts of the input: place (2 bytes), length, bytes.
pub(super) fn overlay(bytes: &mut [u8], input: &[u8]) {
    let mut decoder = Decoder::new(input);
    while let Some((low, high)) = decoder.u8().zip(decoder.u8()) {
        let at = usize::from(low) | usize::from(high) << 8;
        let count = decoder.u8().map_or(0, usize::from) % 32;
        let Some(source) = decoder.take(count.min(decoder.rest().len())) else { return };
        let size = bytes.len().max(1);
        for (index, byte) in source.iter().enumerate() {
            if let Some(target) = bytes.get_mut((at + index) % size) {
                *target = *byte;
            }
        }
    }
}

/// An input of [`overlay`].
pub(super) fn placed(place: u16, bytes: &[u8]) -> Vec<u8> {
    let mut out = place.to_le_bytes().to_vec();
    out.push(u8::try_from(bytes.len()).expect("a short input"));
    out.extend_from_slice(bytes);
    out
}

/// A disk with a file replaced.
pub(super) fn damaged(base: &SimEnv, name: &str, bytes: Vec<u8>) -> SimEnv {
    let env = base.kill();
    env.damage(name, &Damage::Replace(bytes)).expect("a file of the base");
    env
}
