//! Perfect hashes: a fixed set of keys, each with a slot of its own, in a few bits a key.
//!
//! What: [`PerfectHash::build`] takes distinct 64-bit hashes and makes a function from each of them
//! to a slot below [`slot_count`](PerfectHash::slot_count). Of a hash that was not in the set it
//! gives some slot: whoever needs to know stores a signature or the key there.
//! Why: an index over immutable files needs two or three bits a key instead of the key.
//!
//! Two methods:
//!
//! | method | bits a key | slots | |
//! |---|---|---|---|
//! | [`Shift`](Method::Shift), default | 2.1 | as many as keys | [`shift`] |
//! | [`CpHash`](Method::CpHash) | 3 | 1.1 a key | [`cphash`]; of the CompassDB paper, 3.1 and 4.1 |
//!
//! The hashes must be keyed ([`crate::util::codec::KeyHash`]) with a seed that nobody knows who
//! chooses
//! keys: then no choice of keys makes a build slow. Whatever the hashes, attempts are bounded and a
//! build ends; the worst that chosen hashes do is a list of 64 bits a key. Builds are
//! deterministic: the same hashes in any order, seed and method give the same bytes, with
//! whatever number of threads. (The paper hashes with DJB and `CityHash`, which are not keyed, and
//! does not say when a build gives up.)
//!
//! Layout (little-endian):
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `magic` | `QNTPHASH` |
//! | 8 | 4 | `version` | 1 |
//! | 12 | 4 | `method` | 1 `Shift`, 2 `CpHash` |
//! | 16 | 8 | `seed` | mixed into every hash |
//! | 24 | 8 | `keys` | hashes in the set |
//! | 32 | 8 | `slots` | slots, at least `keys` |
//! | 40 | 8 | `body_bytes` | what follows the head |
//! | 48 | 4 | zero | |
//! | 52 | 4 | `body_crc` | CRC32C of the body |
//! | 56 | 4 | zero | |
//! | 60 | 4 | `head_crc` | CRC32C of the bytes before |
//! | 64 | .. | body | of the method |
//!
//! Invariants: a decoded function never gives a slot beyond `slot_count`, and never panics,
//! whatever the bytes were: they are verified once, by `decode`.
//! Thread rules: immutable; share it as you like.

mod cphash;
mod deal;
mod holes;
mod shift;
#[cfg(test)]
mod tests;

use crate::util::{
    codec::{Decoder, crc32c, put_u32, put_u64, to_u64, to_usize},
    error::{Error, Result},
};

const MAGIC: &[u8; 8] = b"QNTPHASH";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 64;
/// Keys at most: slots are then below 2^40 and no product of the formats overflows.
pub const KEYS_MAX: u64 = 1 << 36;

pub use cphash::Lanes;

/// Calls a task with 0 to a count less one, on as many threads as the caller likes, and returns
/// when all have ended: `Env::parallel`.
pub type Parallel<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// How a function is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Buckets shifted into free slots: 2.1 bits a key, as many slots as keys.
    #[default]
    Shift,
    /// Displaced buckets, as in the `CompassDB` paper: 3 bits a key, 1.1 slots a key. Parameters
    /// are tried as the lanes say; the function is the same.
    CpHash(Lanes),
}

/// How to build.
#[derive(Clone, Copy)]
pub struct BuildOptions<'a> {
    /// The method.
    pub method: Method,
    /// What runs tasks, those of one call apart from each other.
    pub parallel: Parallel<'a>,
}

impl std::fmt::Debug for BuildOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BuildOptions").field("method", &self.method).finish_non_exhaustive()
    }
}

impl Default for BuildOptions<'_> {
    /// The default method, one task after the other.
    fn default() -> Self {
        Self { method: Method::default(), parallel: &|count, task| (0..count).for_each(task) }
    }
}

/// Two hashes of the set are this one, mixed.
#[derive(Debug)]
struct DuplicateHash(u64);

/// A perfect hash of a set.
#[derive(Debug, PartialEq, Eq)]
pub struct PerfectHash {
    seed: u64,
    keys: u64,
    function: Function,
}

#[derive(Debug, PartialEq, Eq)]
enum Function {
    Shift(shift::Shift),
    CpHash(cphash::CpHash),
}

impl PerfectHash {
    /// Builds the function of `hashes`, all different and at most [`KEYS_MAX`], in any order.
    ///
    /// Takes about 9 bytes of memory a key while it works, beside the function itself. Fails with
    /// [`Error::Limit`] where two hashes are equal, and names the hash and where the two are.
    pub fn build(hashes: &[u64], seed: u64, options: &BuildOptions<'_>) -> Result<Self> {
        let keys = to_u64(hashes.len());
        if keys > KEYS_MAX {
            let what = format!("a perfect hash of {keys} keys; at most {KEYS_MAX} are allowed");
            return Err(Error::Limit { what });
        }
        let key = mix(seed);
        let mixed = |hash: u64| mix(hash ^ key);
        let function = match options.method {
            Method::Shift => {
                shift::Shift::build(hashes, mixed, options.parallel).map(Function::Shift)
            }
            Method::CpHash(lanes) => {
                cphash::CpHash::build(hashes, mixed, options.parallel, lanes).map(Function::CpHash)
            }
        };
        let function = function.map_err(|DuplicateHash(found)| {
            let mut places = (0_u64..).zip(hashes).filter(|(_, hash)| mixed(**hash) == found);
            let mut place = || places.next().map_or((0, 0), |(index, hash)| (index, *hash));
            let ((first, hash), (second, _)) = (place(), place());
            let what = format!(
                "the hash {hash:#018x} is there twice, at {first} and at {second}; \
                 a perfect hash needs distinct ones"
            );
            Error::Limit { what }
        })?;
        Ok(Self { seed, keys, function })
    }

    /// The slot of a hash of the set: below [`slot_count`](Self::slot_count) and no other's. Of
    /// other hashes it is any slot; of an empty set 0, which is none.
    #[inline]
    pub fn slot(&self, hash: u64) -> usize {
        let hash = mix(hash ^ mix(self.seed));
        to_usize(match &self.function {
            Function::Shift(function) => function.slot(hash),
            Function::CpHash(function) => function.slot(hash),
        })
    }

    /// How many slots there are, at least as many as keys.
    pub fn slot_count(&self) -> usize {
        to_usize(match &self.function {
            Function::Shift(_) => self.keys,
            Function::CpHash(function) => function.slots(),
        })
    }

    /// How many keys the set has.
    #[cfg(any(test, feature = "testing"))]
    pub fn key_count(&self) -> usize {
        to_usize(self.keys)
    }

    /// The method.
    #[cfg(any(test, feature = "testing"))]
    pub fn method(&self) -> Method {
        match &self.function {
            Function::Shift(_) => Method::Shift,
            Function::CpHash(_) => Method::CpHash(Lanes::default()),
        }
    }

    /// Bytes of memory that the function holds.
    pub fn memory_bytes(&self) -> u64 {
        to_u64(size_of::<Self>())
            + match &self.function {
                Function::Shift(function) => function.memory_bytes(),
                Function::CpHash(function) => function.memory_bytes(),
            }
    }

    /// The function as bytes: see the module's head.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let method = match &self.function {
            Function::Shift(function) => {
                function.encode(&mut body);
                1
            }
            Function::CpHash(function) => {
                function.encode(&mut body);
                2
            }
        };
        let mut out = Vec::with_capacity(HEAD_BYTES + body.len());
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, VERSION);
        put_u32(&mut out, method);
        put_u64(&mut out, self.seed);
        put_u64(&mut out, self.keys);
        put_u64(&mut out, to_u64(self.slot_count()));
        put_u64(&mut out, to_u64(body.len()));
        put_u32(&mut out, 0);
        put_u32(&mut out, crc32c(&body));
        put_u32(&mut out, 0);
        let crc = crc32c(&out);
        put_u32(&mut out, crc);
        out.append(&mut body);
        out
    }

    /// Reads a function that `encode` wrote, from exactly its bytes, and verifies it. `file` and
    /// `offset` say in errors where the bytes are from: [`Error::Corruption`] where they are not
    /// what was written, [`Error::NewerFormat`] where a newer release wrote them.
    pub fn decode(bytes: &[u8], file: &str, offset: u64) -> Result<Self> {
        let corrupt = |at: usize, what: &str| {
            Error::corruption(
                file,
                offset.saturating_add(to_u64(at)),
                format!("perfect hash: {what}"),
            )
        };
        let (head, body) = bytes
            .split_at_checked(HEAD_BYTES)
            .ok_or_else(|| corrupt(bytes.len(), "the head is cut short"))?;
        let head = FunctionHeader::decode(head)
            .ok_or_else(|| corrupt(0, "the head is not what was written"))?;
        if head.version > VERSION {
            let file = file.to_owned();
            return Err(Error::NewerFormat { file, found: head.version, supported: VERSION });
        }
        if head.body_bytes != to_u64(body.len()) {
            let what = format!("{} bytes of body, not {}", body.len(), head.body_bytes);
            return Err(corrupt(40, &what));
        }
        if head.body_crc != crc32c(body) {
            return Err(corrupt(HEAD_BYTES, "the checksum does not fit"));
        }
        if head.keys > KEYS_MAX {
            return Err(corrupt(24, "more keys than there may be"));
        }
        let mut from = Decoder::new(body);
        let function = match head.method {
            1 => shift::Shift::decode(&mut from, head.keys).map(Function::Shift),
            2 => cphash::CpHash::decode(&mut from, head.keys).map(Function::CpHash),
            _ => Err("no such method"),
        };
        let function = function.map_err(|what| corrupt(HEAD_BYTES, what))?;
        let read = Self { seed: head.seed, keys: head.keys, function };
        if !from.is_empty() || to_u64(read.slot_count()) != head.slots {
            return Err(corrupt(32, "slots or length differ from the body's"));
        }
        Ok(read)
    }
}

/// What the head says.
struct FunctionHeader {
    version: u32,
    method: u32,
    seed: u64,
    keys: u64,
    slots: u64,
    body_bytes: u64,
    body_crc: u32,
}

impl FunctionHeader {
    /// Reads a head; `None` where magic, checksum or a reserved field differ.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder::new(bytes);
        if from.take(MAGIC.len())? != MAGIC {
            return None;
        }
        let (version, method) = (from.u32()?, from.u32()?);
        let (seed, keys, slots, body_bytes) = (from.u64()?, from.u64()?, from.u64()?, from.u64()?);
        let (zero, body_crc, more) = (from.u32()?, from.u32()?, from.u32()?);
        let sound = crc32c(bytes.get(..HEAD_BYTES - 4)?) == from.u32()?;
        // A newer version may use what is zero here.
        let known = version > VERSION || (zero == 0 && more == 0);
        (sound && known).then_some(Self {
            version,
            method,
            seed,
            keys,
            slots,
            body_bytes,
            body_crc,
        })
    }
}

/// Spreads the differences of hashes over all bits; different hashes stay different (the last steps
/// of `SplitMix64`).
#[inline]
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
