//! Perfect hash functions: each key of a fixed set gets its own slot, for a few bits a key.
//!
//! [`PerfectHash::build`] takes distinct 64-bit hashes. It returns a function from each hash to a
//! slot below [`slot_count`](PerfectHash::slot_count). A hash outside the set gets an arbitrary
//! slot: the caller stores a signature or the key in the slot to detect this. An index over
//! immutable files so needs two or three bits a key instead of the key.
//!
//! | method | bits a key | slots | module |
//! |---|---|---|---|
//! | [`Shift`](Method::Shift), default | 2.1 | one a key | [`shift`] |
//! | [`CpHash`](Method::CpHash) | 3 | 1.1 a key | [`cphash`]: the CompassDB paper, sections 3.1 and 4.1 |
//!
//! The hashes must be keyed ([`crate::util::codec::KeyHash`]) with a seed that is secret from the
//! clients that choose keys. Then no choice of keys makes a build slow. For any hashes, the number
//! of attempts is bounded and a build ends. In the worst case it produces a list of 64 bits a key.
//!
//! Builds are deterministic: hashes, seed and method determine the bytes, independent of the order
//! of the hashes and the number of threads. The paper hashes with DJB and `CityHash`, which are not
//! keyed, and does not say when a build gives up.
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
//! | 40 | 8 | `body_bytes` | bytes after the header |
//! | 48 | 4 | zero | |
//! | 52 | 4 | `body_crc` | CRC32C of the body |
//! | 56 | 4 | zero | |
//! | 60 | 4 | `head_crc` | CRC32C of bytes 0 to 59 |
//! | 64 | .. | body | depends on the method |
//!
//! Invariant: a decoded function never returns a slot beyond `slot_count` and never panics, because
//! `decode` verifies the bytes. Threads: a function is immutable.

mod cphash;
mod hash_mix;
mod packed_bits;
mod radix_partition;
mod shift;
#[cfg(test)]
mod tests;

use self::hash_mix::{DuplicateHash, mix};
use crate::util::{
    codec::{Decoder, crc32c, put_u32, put_u64, to_u64, to_usize},
    error::{Error, Result},
};

const MAGIC: &[u8; 8] = b"QNTPHASH";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 64;
/// Maximum number of keys. Slots are then below 2^40, so that products of the formats do not
/// overflow.
pub const KEYS_MAX: u64 = 1 << 36;

pub use self::{cphash::Lanes, radix_partition::Parallel};

/// The construction of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Buckets shifted into free slots: 2.1 bits a key, as many slots as keys.
    #[default]
    Shift,
    /// Displaced buckets, as in the `CompassDB` paper: 3 bits a key, 1.1 slots a key. The lanes are
    /// the number of parameters that are tried at once. They do not change the function.
    CpHash(Lanes),
}

/// Options of a build.
#[derive(Clone, Copy)]
pub struct BuildOptions<'a> {
    /// The method.
    pub method: Method,
    /// Runs the tasks of the build.
    pub parallel: Parallel<'a>,
}

impl std::fmt::Debug for BuildOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BuildOptions").field("method", &self.method).finish_non_exhaustive()
    }
}

impl Default for BuildOptions<'_> {
    /// The default method, with one task at a time.
    fn default() -> Self {
        Self { method: Method::default(), parallel: &|count, task| (0..count).for_each(task) }
    }
}

/// A perfect hash function of a set. See the module documentation.
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
    /// Builds the function of `hashes`, which are distinct, in any order.
    ///
    /// A build needs about 9 bytes of memory a key besides the function. Fails with
    /// [`Error::Limit`] if there are more than [`KEYS_MAX`] hashes or if two are equal. The message
    /// has the hash and the indexes of the two.
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
            let mut equal = (0_u64..).zip(hashes).filter(|(_, hash)| mixed(**hash) == found);
            let mut next = || equal.next().map_or((0, 0), |(index, hash)| (index, *hash));
            let ((first, hash), (second, _)) = (next(), next());
            let what = format!(
                "the hashes at {first} and at {second} are both {hash:#018x}; \
                 a perfect hash needs distinct ones"
            );
            Error::Limit { what }
        })?;
        Ok(Self { seed, keys, function })
    }

    /// Returns the slot of a hash, below [`slot_count`](Self::slot_count). Different hashes of the
    /// set have different slots. Returns an arbitrary slot for other hashes, and 0 for an empty
    /// set, which has no slots.
    #[inline]
    pub fn slot(&self, hash: u64) -> usize {
        let hash = mix(hash ^ mix(self.seed));
        to_usize(match &self.function {
            Function::Shift(function) => function.slot(hash),
            Function::CpHash(function) => function.slot(hash),
        })
    }

    /// Returns the number of slots, at least the number of keys.
    pub fn slot_count(&self) -> usize {
        to_usize(match &self.function {
            Function::Shift(_) => self.keys,
            Function::CpHash(function) => function.slots(),
        })
    }

    /// Returns the number of keys in the set.
    #[cfg(any(test, feature = "testing"))]
    pub fn key_count(&self) -> usize {
        to_usize(self.keys)
    }

    /// Returns the method. The lanes of a build are not stored.
    #[cfg(any(test, feature = "testing"))]
    pub fn method(&self) -> Method {
        match &self.function {
            Function::Shift(_) => Method::Shift,
            Function::CpHash(_) => Method::CpHash(Lanes::default()),
        }
    }

    /// Returns the memory of the function in bytes.
    pub fn memory_bytes(&self) -> u64 {
        to_u64(size_of::<Self>())
            + match &self.function {
                Function::Shift(function) => function.memory_bytes(),
                Function::CpHash(function) => function.memory_bytes(),
            }
    }

    /// Encodes the function in the layout of the module documentation.
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

    /// Decodes and verifies a function from exactly the bytes that `encode` returned. `file` and
    /// `offset` locate the bytes in error messages.
    ///
    /// Fails with [`Error::Corruption`] if the bytes are damaged, and with [`Error::NewerFormat`]
    /// if a newer release wrote them.
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
            .ok_or_else(|| corrupt(bytes.len(), "the header is incomplete"))?;
        let head = FunctionHeader::decode(head)
            .ok_or_else(|| corrupt(0, "the header's magic or checksum does not match"))?;
        if head.version > VERSION {
            let file = file.to_owned();
            return Err(Error::NewerFormat { file, found: head.version, supported: VERSION });
        }
        if head.body_bytes != to_u64(body.len()) {
            let what = format!("the body has {} bytes instead of {}", body.len(), head.body_bytes);
            return Err(corrupt(40, &what));
        }
        if head.body_crc != crc32c(body) {
            return Err(corrupt(HEAD_BYTES, "the checksum of the body does not match"));
        }
        if head.keys > KEYS_MAX {
            return Err(corrupt(24, "the number of keys exceeds the limit"));
        }
        let mut decoder = Decoder::new(body);
        let function = match head.method {
            1 => shift::Shift::decode(&mut decoder, head.keys).map(Function::Shift),
            2 => cphash::CpHash::decode(&mut decoder, head.keys).map(Function::CpHash),
            _ => Err("the method is unknown"),
        };
        let function = function.map_err(|what| corrupt(HEAD_BYTES, what))?;
        let read = Self { seed: head.seed, keys: head.keys, function };
        if !decoder.is_empty() || to_u64(read.slot_count()) != head.slots {
            return Err(corrupt(32, "the number of slots or the length differs from the body's"));
        }
        Ok(read)
    }
}

/// The fields of the header.
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
    /// Decodes a header. Returns `None` if the magic, the checksum or a reserved field is wrong.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        if decoder.take(MAGIC.len())? != MAGIC {
            return None;
        }
        let (version, method) = (decoder.u32()?, decoder.u32()?);
        let (seed, keys, slots, body_bytes) =
            (decoder.u64()?, decoder.u64()?, decoder.u64()?, decoder.u64()?);
        let (zero, body_crc, more) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        let is_valid = crc32c(bytes.get(..HEAD_BYTES - 4)?) == decoder.u32()?;
        // A newer version may use the fields that are zero in this one.
        let is_zero = version > VERSION || (zero == 0 && more == 0);
        (is_valid && is_zero).then_some(Self {
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
