//! The objects that a program holds.
//!
//! Why: a program may use a handle after it freed it, pass one of another kind, or a null. Each is
//! an error here, not a crash.
//!
//! How: a handle is a number with the type of a pointer, which is never dereferenced. Its lower
//! half has the index of a registry and of a slot there, its upper half the generation of the slot.
//! Freeing raises the generation, so an earlier number names nothing. A slot whose generations are
//! used up is not used again.
//!
//! Fork: each process makes its handles in a separate registry. A forked child finds the handles of
//! its parent until it makes the first one; the database refuses their use. From then on they fail
//! here. Freeing them is allowed in both cases.
//!
//! Locks: one for each slot, held while an `Arc` is cloned or exchanged; one for the free slots. In
//! a forked child, a thread that does not exist may hold a lock of the parent's registry. A wait
//! for such a lock fails.

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

/// Number of bits of a half.
const HALF: u32 = usize::BITS / 2;
const HALF_MASK: usize = (1 << HALF) - 1;
/// Maximum number of processes in a chain of forks that all make handles.
const REGISTRIES_MAX: usize = 16;
/// Number of bits of the index of a slot, in the lower half. The registry has the others.
const INDEX_BITS: u32 = HALF - REGISTRIES_MAX.ilog2();
const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;
/// Slots of the first chunk. Each chunk has twice as many slots as the one before.
const CHUNK_SLOTS: usize = 64;
/// Number of chunks: together 2^28 slots at most, as the index of a slot allows.
const CHUNKS: usize = 22;

type Object = Arc<dyn Any + Send + Sync>;

struct Slot {
    generation: usize,
    object: Option<Object>,
}

type Chunk = OnceLock<Box<[RwLock<Slot>]>>;

struct Registry {
    chunks: [Chunk; CHUNKS],
    free: Mutex<FreeSlots>,
    /// The process that makes handles here. 0: none yet.
    process: AtomicU32,
}

struct FreeSlots {
    indexes: Vec<usize>,
    /// Number of slots in use or free.
    count: usize,
}

/// The registries of this process and of those that forked it, the eldest first. They need no
/// initialisation, which a fork could interrupt.
static REGISTRIES: [Registry; REGISTRIES_MAX] = [const {
    Registry {
        chunks: [const { OnceLock::new() }; CHUNKS],
        free: Mutex::new(FreeSlots { indexes: Vec::new(), count: 0 }),
        process: AtomicU32::new(0),
    }
}; REGISTRIES_MAX];

impl Registry {
    /// Returns the registry of this process and its index. The first call of a process takes one.
    fn of_process() -> Result<(usize, &'static Self), Failure> {
        let id = process::id();
        for (index, registry) in REGISTRIES.iter().enumerate() {
            let process = &registry.process;
            match process.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok((index, registry)),
                Err(other) if other == id => return Ok((index, registry)),
                // The process that forked this one, or one that forked that.
                Err(_) => {}
            }
        }
        Err(Failure::new(Code::Limit, "too many processes in a chain of forks make handles"))
    }

    /// Returns a registry by index. Fails with `Forked` if this process has a later one.
    fn at(index: usize) -> Result<&'static Self, Failure> {
        let has_process = |registry: &&Self| registry.process.load(Ordering::Relaxed) != 0;
        if REGISTRIES.get(index + 1).is_some_and(|next| has_process(&next)) {
            return Err(quintet::Error::Forked.into());
        }
        REGISTRIES.get(index).filter(has_process).ok_or_else(freed)
    }

    /// Returns a slot, with a new chunk if needed.
    fn slot(&'static self, index: usize) -> Option<&'static RwLock<Slot>> {
        let (chunk, offset) = place(index);
        let slots = self.chunks.get(chunk)?.get_or_init(|| {
            let slot = || RwLock::new(Slot { generation: 1, object: None });
            (0..CHUNK_SLOTS << chunk).map(|_| slot()).collect()
        });
        slots.get(offset)
    }

    /// Waits for a lock that is held for nanoseconds. Fails with `Forked` if this is a child of the
    /// process that may hold it.
    fn wait<G>(&self, lock: impl Fn() -> Result<G, TryLockError<G>>) -> Result<G, Failure> {
        loop {
            match lock() {
                Ok(guard) => return Ok(guard),
                // No code that can panic runs under the locks.
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => {
                    if self.process.load(Ordering::Relaxed) != process::id() {
                        return Err(quintet::Error::Forked.into());
                    }
                    thread::yield_now();
                }
            }
        }
    }
}

/// The slot that a handle names, and the generation that it must have.
struct Place {
    registry: &'static Registry,
    index: usize,
    slot: &'static RwLock<Slot>,
    generation: usize,
}

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
        let (registry_index, registry) = Registry::of_process()?;
        let index = {
            let mut free = registry.wait(|| registry.free.try_lock())?;
            free.indexes.pop().unwrap_or_else(|| {
                free.count += 1;
                free.count - 1
            })
        };
        let slot = registry.slot(index).filter(|_| index < INDEX_MASK);
        let slot = slot.ok_or_else(|| Failure::new(Code::Limit, "too many handles"))?;
        let mut slot = registry.wait(|| slot.try_write())?;
        slot.object = Some(Arc::new(object));
        let lower = (registry_index << INDEX_BITS) | (index + 1);
        let number = (slot.generation << HALF) | lower;
        Ok(Self(std::ptr::without_provenance_mut(number)))
    }

    /// Returns the object of the handle. Fails with `NullArgument` for a null, `BadHandle` for a
    /// freed or unknown handle, and `WrongHandle` for one of another kind.
    pub fn get(self) -> Result<ObjectRef<T>, Failure> {
        let place = self.place()?;
        let object = {
            let slot = place.registry.wait(|| place.slot.try_read())?;
            let object = slot.object.as_ref().filter(|_| slot.generation == place.generation);
            object.ok_or_else(freed)?.clone()
        };
        object.downcast().map(ObjectRef).map_err(|_| wrong_kind())
    }

    /// Frees the handle and returns its object. Other calls that use it now go on. A null handle is
    /// allowed: `None`. So is one of the process that forked this one: it has nothing to free here.
    pub fn free(self) -> Result<Option<Arc<T>>, Failure> {
        if self.is_null() {
            return Ok(None);
        }
        match self.remove() {
            Err(failure) if failure.code() == Code::Forked => Ok(None),
            result => result.map(Some),
        }
    }

    fn remove(self) -> Result<Arc<T>, Failure> {
        let place = self.place()?;
        let object = {
            let mut slot = place.registry.wait(|| place.slot.try_write())?;
            let object = slot.object.as_ref().filter(|_| slot.generation == place.generation);
            if !object.ok_or_else(freed)?.is::<T>() {
                return Err(wrong_kind());
            }
            slot.generation += 1;
            slot.object.take().ok_or_else(freed)?
        };
        if place.generation < HALF_MASK {
            let free = &place.registry.free;
            place.registry.wait(|| free.try_lock())?.indexes.push(place.index);
        }
        object.downcast().map_err(|_| wrong_kind())
    }

    fn place(self) -> Result<Place, Failure> {
        if self.is_null() {
            return Err(Failure::null("a handle is null"));
        }
        let lower = self.number() & HALF_MASK;
        let registry = Registry::at(lower >> INDEX_BITS)?;
        let index = (lower & INDEX_MASK).checked_sub(1).ok_or_else(freed)?;
        let (chunk, offset) = place(index);
        let slots = registry.chunks.get(chunk).and_then(OnceLock::get).ok_or_else(freed)?;
        let slot = slots.get(offset).ok_or_else(freed)?;
        Ok(Place { registry, index, slot, generation: self.number() >> HALF })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_consecutive_and_within_the_chunks() {
        let mut expected = (0, 0);
        for index in 0..100_000 {
            assert_eq!(place(index), expected);
            let is_last = expected.1 + 1 == CHUNK_SLOTS << expected.0;
            expected = if is_last { (expected.0 + 1, 0) } else { (expected.0, expected.1 + 1) };
        }
        assert!(place(INDEX_MASK - 1).0 <= CHUNKS);
    }

    #[test]
    fn each_bit_of_a_number_counts() {
        let handle = Handle::new(7_u64).expect("a handle");
        assert_eq!(*handle.get().expect("the object"), 7);
        for bit in 0..usize::BITS {
            let other = handle.number() ^ (1 << bit);
            let other = Handle::<u64>(std::ptr::without_provenance_mut(other));
            if let Ok(object) = other.get() {
                panic!("bit {bit} names {}", *object);
            }
        }
        assert_eq!(handle.free().expect("freed").as_deref(), Some(&7));
        assert_eq!(handle.get().map(|_| ()).expect_err("freed").code(), Code::BadHandle);
    }
}
