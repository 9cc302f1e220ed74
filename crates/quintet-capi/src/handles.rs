//! The objects that a program holds.
//!
//! Why: a program may use a handle after it freed it, pass one of another kind, or a null. Each is
//! an error here, not a crash.
//!
//! How: a handle is a number with the type of a pointer: the index of a slot in its lower half, the
//! slot's generation in its upper half. Freeing raises the generation, so an earlier number names
//! nothing. No handle is ever dereferenced. A slot whose generations are used up is not used again.
//!
//! Locks: one for each slot, held while an `Arc` is cloned or exchanged; one for the free slots. In
//! a forked child a lock may be held by a thread that does not exist; waiting looks for that.

use std::{
    any::Any,
    fmt,
    ops::Deref,
    process,
    sync::{
        Arc, Mutex, OnceLock, RwLock, TryLockError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use crate::failure::{Code, Failure};

/// Number of bits of the index, and of the generation.
const HALF: u32 = usize::BITS / 2;
const HALF_MASK: usize = (1 << HALF) - 1;
/// Slots of the first chunk. Each chunk has twice as many slots as the one before.
const CHUNK_SLOTS: usize = 64;
/// Number of chunks: together 2^31 slots at most.
const CHUNKS: usize = 25;

type Object = Arc<dyn Any + Send + Sync>;

struct Slot {
    generation: usize,
    object: Option<Object>,
}

type Chunk = OnceLock<Box<[RwLock<Slot>]>>;

struct Registry {
    chunks: [Chunk; CHUNKS],
    free: Mutex<FreeSlots>,
    /// The process that made the first handle.
    process: AtomicU32,
}

struct FreeSlots {
    indexes: Vec<usize>,
    /// Number of slots in use or free.
    count: usize,
}

static REGISTRY: Registry = Registry {
    chunks: [const { OnceLock::new() }; CHUNKS],
    free: Mutex::new(FreeSlots { indexes: Vec::new(), count: 0 }),
    process: AtomicU32::new(0),
};

/// A handle of a C program: `Handle<Table>` is `quintet_table *`.
#[repr(transparent)]
pub struct Handle<T>(*mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:#x})", self.number())
    }
}

/// The object of a handle. It lives until this is dropped, also if the handle is freed meanwhile.
pub struct ObjectRef<T>(Arc<T>);

impl<T> Deref for ObjectRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> ObjectRef<T> {
    /// Returns the object, to be kept in another one.
    pub fn into_arc(self) -> Arc<T> {
        self.0
    }
}

impl<T> Handle<T> {
    /// The null handle.
    pub const NULL: Self = Self(std::ptr::null_mut());

    /// Returns whether the handle is null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    fn number(self) -> usize {
        self.0.addr()
    }
}

impl<T: Any + Send + Sync> Handle<T> {
    /// Makes a handle of an object.
    pub fn new(object: T) -> Result<Self, Failure> {
        let _ = REGISTRY.process.compare_exchange(
            0,
            process::id(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        let index = {
            let mut free = retry(|| REGISTRY.free.try_lock())?;
            free.indexes.pop().unwrap_or_else(|| {
                free.count += 1;
                free.count - 1
            })
        };
        let slot = slot(index).ok_or_else(|| Failure::new(Code::Limit, "too many handles"))?;
        let mut slot = retry(|| slot.try_write())?;
        slot.object = Some(Arc::new(object));
        let number = (slot.generation << HALF) | (index + 1);
        Ok(Self(std::ptr::without_provenance_mut(number)))
    }

    /// Returns the object of the handle. Fails with `NullArgument` for a null, `BadHandle` for a
    /// freed or unknown handle, and `WrongHandle` for one of another kind.
    pub fn get(self) -> Result<ObjectRef<T>, Failure> {
        let (slot, generation) = self.slot()?;
        let object = {
            let slot = retry(|| slot.try_read())?;
            let object = slot.object.as_ref().filter(|_| slot.generation == generation);
            object.ok_or_else(freed)?.clone()
        };
        object.downcast().map(ObjectRef).map_err(|_| wrong_kind())
    }

    /// Frees the handle and returns its object. Other calls that use it now go on. A null handle is
    /// allowed: `None`.
    pub fn free(self) -> Result<Option<Arc<T>>, Failure> {
        if self.is_null() {
            return Ok(None);
        }
        let (slot, generation) = self.slot()?;
        let object = {
            let mut slot = retry(|| slot.try_write())?;
            let object = slot.object.as_ref().filter(|_| slot.generation == generation);
            if !object.ok_or_else(freed)?.is::<T>() {
                return Err(wrong_kind());
            }
            slot.generation += 1;
            slot.object.take().ok_or_else(freed)?
        };
        if generation < HALF_MASK {
            retry(|| REGISTRY.free.try_lock())?.indexes.push((self.number() & HALF_MASK) - 1);
        }
        Ok(object.downcast().ok())
    }

    fn slot(self) -> Result<(&'static RwLock<Slot>, usize), Failure> {
        if self.is_null() {
            return Err(Failure::null("a handle is null"));
        }
        let index = (self.number() & HALF_MASK).checked_sub(1).ok_or_else(freed)?;
        let (chunk, offset) = place(index);
        let slots = REGISTRY.chunks.get(chunk).and_then(OnceLock::get).ok_or_else(freed)?;
        Ok((slots.get(offset).ok_or_else(freed)?, self.number() >> HALF))
    }
}

fn freed() -> Failure {
    Failure::new(Code::BadHandle, "the handle was freed, or is no handle of this library")
}

fn wrong_kind() -> Failure {
    Failure::new(Code::WrongHandle, "the handle is one of another kind")
}

/// Returns the chunk of a slot and its index in the chunk.
fn place(index: usize) -> (usize, usize) {
    let number = index / CHUNK_SLOTS + 1;
    let chunk = number.ilog2() as usize;
    (chunk, index - ((1 << chunk) - 1) * CHUNK_SLOTS)
}

/// Returns a slot, with a new chunk if needed.
fn slot(index: usize) -> Option<&'static RwLock<Slot>> {
    let (chunk, offset) = place(index);
    let slots = REGISTRY.chunks.get(chunk)?.get_or_init(|| {
        let slot = || RwLock::new(Slot { generation: 1, object: None });
        (0..CHUNK_SLOTS << chunk).map(|_| slot()).collect()
    });
    slots.get(offset)
}

/// Waits for a lock that is held for nanoseconds. Fails with `Forked` if this is a child of the
/// process that may have held it.
fn retry<G>(lock: impl Fn() -> Result<G, TryLockError<G>>) -> Result<G, Failure> {
    loop {
        match lock() {
            Ok(guard) => return Ok(guard),
            // No code that can panic runs under the locks.
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                if REGISTRY.process.load(Ordering::Relaxed) != process::id() {
                    return Err(quintet::Error::Forked.into());
                }
                thread::yield_now();
            }
        }
    }
}
