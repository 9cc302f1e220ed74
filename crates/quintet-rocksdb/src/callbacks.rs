//! Callbacks of the program: merge operators and prefix extractors.

use std::ffi::c_int;

use quintet_compat::{
    boundary::{Bytes, Context, ProgramMemory, View},
    comparator::{Comparator, CompareFunction, Destructor, NameFunction},
    export,
};

/// Merges operands into a value.
pub type FullMergeFunction = extern "C-unwind" fn(
    state: Context,
    key: View,
    key_size: usize,
    existing: View,
    existing_size: usize,
    operands: View<View>,
    operand_sizes: View<usize>,
    count: c_int,
    success: &mut u8,
    new_size: &mut usize,
) -> ProgramMemory;
/// Merges operands into one operand. It is never called: operands are merged when they are written.
pub type PartialMergeFunction = extern "C-unwind" fn(
    state: Context,
    key: View,
    key_size: usize,
    operands: View<View>,
    operand_sizes: View<usize>,
    count: c_int,
    success: &mut u8,
    new_size: &mut usize,
) -> ProgramMemory;
/// Releases a value that a merge has returned.
pub type DeleteValueFunction = extern "C-unwind" fn(state: Context, value: View, size: usize);
/// Returns the prefix of a key.
pub type TransformFunction =
    extern "C-unwind" fn(state: Context, key: View, size: usize, prefix_size: &mut usize) -> Bytes;
/// Returns whether a key has a prefix, or is one.
pub type DomainFunction = extern "C-unwind" fn(state: Context, key: View, size: usize) -> u8;

/// `rocksdb_mergeoperator_t`. Dropping it releases the state of its callbacks.
#[derive(Debug)]
pub struct MergeOperator(Merge);

#[derive(Debug)]
enum Merge {
    Add,
    Callbacks {
        state: Context,
        destructor: Option<Destructor>,
        full_merge: Option<FullMergeFunction>,
        delete_value: Option<DeleteValueFunction>,
        name: Option<NameFunction>,
    },
}

impl MergeOperator {
    /// Adds numbers of 64 bits, little-endian, and wraps around.
    pub const ADD: Self = Self(Merge::Add);

    /// Returns the new value of a key. Fails with a reason if the operator refuses.
    pub fn merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let Merge::Callbacks { state, full_merge, delete_value, .. } = &self.0 else {
            return add(existing, operands);
        };
        let full_merge = full_merge.ok_or("the merge operator has no full merge")?;
        let addresses: Vec<_> = operands.iter().map(|operand| View::of(operand)).collect();
        let sizes: Vec<_> = operands.iter().map(|operand| operand.len()).collect();
        let count = c_int::try_from(operands.len()).map_err(|_| "too many operands")?;
        let (mut success, mut size) = (0, 0);
        let value = full_merge(
            *state,
            View::of(key),
            key.len(),
            existing.map_or(View::NULL, View::of),
            existing.map_or(0, <[u8]>::len),
            View::of(&addresses),
            View::of(&sizes),
            count,
            &mut success,
            &mut size,
        );
        let merged = if success == 0 {
            let name = self.name();
            Err(format!("Could not perform merge. Merge operator {name} refuses the operand"))
        } else {
            value.to_vec(size).map_err(|status| status.to_string())
        };
        match delete_value {
            Some(delete_value) => delete_value(*state, value.into_view(), size),
            None => value.free(),
        }
        merged
    }

    fn name(&self) -> String {
        match &self.0 {
            Merge::Add => "uint64add".to_owned(),
            Merge::Callbacks { state, name, .. } => {
                name.and_then(|name| name(*state).text().ok()).unwrap_or_default()
            }
        }
    }
}

impl Drop for MergeOperator {
    fn drop(&mut self) {
        if let Merge::Callbacks { state, destructor: Some(destructor), .. } = &self.0 {
            destructor(*state);
        }
    }
}

fn add(existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
    let number = |bytes: &[u8]| {
        let bytes = bytes.try_into().map_err(|_| "a number has 8 bytes".to_owned())?;
        Ok::<_, String>(u64::from_le_bytes(bytes))
    };
    let mut sum = existing.map(number).transpose()?.unwrap_or_default();
    for operand in operands {
        sum = sum.wrapping_add(number(operand)?);
    }
    Ok(sum.to_le_bytes().to_vec())
}

/// `rocksdb_slicetransform_t`. Dropping it releases the state of its callbacks.
#[derive(Debug)]
pub struct PrefixExtractor(Prefix);

#[derive(Debug)]
enum Prefix {
    Fixed(usize),
    Whole,
    Callbacks {
        state: Context,
        destructor: Option<Destructor>,
        transform: Option<TransformFunction>,
        in_domain: Option<DomainFunction>,
    },
}

impl PrefixExtractor {
    /// Returns the prefix of a key. `None`: it has none.
    pub fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        match &self.0 {
            Prefix::Fixed(size) => key.get(..*size),
            Prefix::Whole => Some(key),
            Prefix::Callbacks { state, transform, in_domain, .. } => {
                let address = View::of(key);
                let is_in = in_domain.is_none_or(|is_in| is_in(*state, address, key.len()) != 0);
                let transform = transform.filter(|_| is_in)?;
                let mut size = 0;
                // RocksDB requires that the prefix is a part of the key, at its start.
                let _ = transform(*state, address, key.len(), &mut size);
                key.get(..size)
            }
        }
    }
}

impl Drop for PrefixExtractor {
    fn drop(&mut self) {
        if let Prefix::Callbacks { state, destructor: Some(destructor), .. } = &self.0 {
            destructor(*state);
        }
    }
}

export! {
    /// Makes a merge operator of callbacks. The partial merge is not called.
    pub fn rocksdb_mergeoperator_create(
        state: Context, destructor: Option<Destructor>, full_merge: Option<FullMergeFunction>,
        _partial_merge: Option<PartialMergeFunction>, delete_value: Option<DeleteValueFunction>,
        name: Option<NameFunction>,
    ) -> Option<Box<MergeOperator>>, None, {
        let merge = Merge::Callbacks { state, destructor, full_merge, delete_value, name };
        Some(Box::new(MergeOperator(merge)))
    }

    /// Frees a merge operator that belongs to no options.
    pub fn rocksdb_mergeoperator_destroy(operator: Option<Box<MergeOperator>>) {
        drop(operator);
    }

    /// Makes a prefix extractor of callbacks.
    pub fn rocksdb_slicetransform_create(
        state: Context, destructor: Option<Destructor>, transform: Option<TransformFunction>,
        in_domain: Option<DomainFunction>, _in_range: Option<DomainFunction>,
        _name: Option<NameFunction>,
    ) -> Option<Box<PrefixExtractor>>, None, {
        let prefix = Prefix::Callbacks { state, destructor, transform, in_domain };
        Some(Box::new(PrefixExtractor(prefix)))
    }

    /// Makes a prefix extractor of a fixed size.
    pub fn rocksdb_slicetransform_create_fixed_prefix(
        size: usize,
    ) -> Option<Box<PrefixExtractor>>, None, {
        Some(Box::new(PrefixExtractor(Prefix::Fixed(size))))
    }

    /// Makes a prefix extractor whose prefix is the key.
    pub fn rocksdb_slicetransform_create_noop() -> Option<Box<PrefixExtractor>>, None, {
        Some(Box::new(PrefixExtractor(Prefix::Whole)))
    }

    /// Frees a prefix extractor that belongs to no options.
    pub fn rocksdb_slicetransform_destroy(extractor: Option<Box<PrefixExtractor>>) {
        drop(extractor);
    }

    /// Makes a comparator of callbacks.
    pub fn rocksdb_comparator_create(
        state: Context, destructor: Option<Destructor>, compare: Option<CompareFunction>,
        name: Option<NameFunction>,
    ) -> Option<Box<Comparator>>, None, {
        Some(Box::new(Comparator::new(state, destructor, compare, name)))
    }

    /// Frees a comparator: calls its destructor.
    pub fn rocksdb_comparator_destroy(comparator: Option<Box<Comparator>>) {
        drop(comparator);
    }
}
