//! The built-in merge operators.

use std::cmp::Ordering;

use crate::util::types::{TypeTag, TypedValue};

/// A built-in merge operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuiltinMerge {
    AddI64,
    AddU64,
    Max,
    Min,
    Append,
}

impl BuiltinMerge {
    /// Every operator with its name.
    pub(super) const ALL: [(Self, &'static str); 5] = [
        (Self::AddI64, "add_i64"),
        (Self::AddU64, "add_u64"),
        (Self::Max, "max"),
        (Self::Min, "min"),
        (Self::Append, "append"),
    ];

    /// Returns the operator of this name.
    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, own)| *own == name).map(|(operator, _)| *operator)
    }

    /// Returns whether it makes values of this type.
    pub(super) fn accepts(self, value_type: TypeTag) -> bool {
        match self {
            Self::AddI64 => matches!(value_type, TypeTag::I64 | TypeTag::Blob),
            Self::AddU64 => matches!(value_type, TypeTag::U64 | TypeTag::Blob),
            Self::Max | Self::Min => true,
            Self::Append => matches!(value_type, TypeTag::String | TypeTag::Blob),
        }
    }

    /// Computes the new value. Fails with the reason why the operand cannot be merged.
    pub(super) fn merge(
        self,
        value_type: Option<TypeTag>,
        old: Option<&[u8]>,
        operand: &[u8],
    ) -> Result<Vec<u8>, String> {
        match self {
            Self::AddI64 => add(old, operand, i64::checked_add),
            Self::AddU64 => add(old, operand, u64::checked_add),
            Self::Max => extreme(value_type, old, operand, Ordering::Greater),
            Self::Min => extreme(value_type, old, operand, Ordering::Less),
            Self::Append => Ok([old.unwrap_or_default(), operand].concat()),
        }
    }
}

/// Adds two integers of eight bytes. An absent value counts as 0.
fn add<N: TypedValue + Default>(
    old: Option<&[u8]>,
    operand: &[u8],
    sum: impl Fn(N, N) -> Option<N>,
) -> Result<Vec<u8>, String> {
    let integer = |bytes: &[u8], what: &str| {
        let failure = || format!("{what} has {} bytes, and an integer has 8", bytes.len());
        N::decode_value(bytes).ok_or_else(failure)
    };
    let old = old.map_or_else(|| Ok(N::default()), |old| integer(old, "the value"))?;
    let sum = sum(old, integer(operand, "the operand")?);
    let sum = sum.ok_or("the sum is outside the range of the integer")?;
    sum.with_bytes(|bytes| Ok(bytes.to_vec())).map_err(|error| error.to_string())
}

/// Returns the operand if it compares to the value as `wanted`, otherwise the value.
fn extreme(
    value_type: Option<TypeTag>,
    old: Option<&[u8]>,
    operand: &[u8],
    wanted: Ordering,
) -> Result<Vec<u8>, String> {
    let Some(old) = old else { return Ok(operand.to_vec()) };
    let order = compare(value_type, operand, old).ok_or_else(|| {
        let tag = value_type.unwrap_or(TypeTag::Blob);
        format!("an operand of {} bytes does not compare to a {tag}", operand.len())
    })?;
    Ok(if order == wanted { operand } else { old }.to_vec())
}

/// Compares two values of a type: numbers by size, others byte by byte. `None`: one is no value of
/// the type.
fn compare(value_type: Option<TypeTag>, one: &[u8], other: &[u8]) -> Option<Ordering> {
    fn decoded<N: TypedValue>(one: &[u8], other: &[u8]) -> Option<(N, N)> {
        Some((N::decode_value(one)?, N::decode_value(other)?))
    }
    Some(match value_type {
        None | Some(TypeTag::String | TypeTag::Blob) => one.cmp(other),
        Some(TypeTag::U32) => {
            decoded(one, other).map(|(one, other): (u32, u32)| one.cmp(&other))?
        }
        Some(TypeTag::U64) => {
            decoded(one, other).map(|(one, other): (u64, u64)| one.cmp(&other))?
        }
        Some(TypeTag::I64) => {
            decoded(one, other).map(|(one, other): (i64, i64)| one.cmp(&other))?
        }
        Some(TypeTag::F32) => {
            decoded(one, other).map(|(one, other): (f32, f32)| one.total_cmp(&other))?
        }
        Some(TypeTag::F64) => {
            decoded(one, other).map(|(one, other): (f64, f64)| one.total_cmp(&other))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(
        operator: BuiltinMerge,
        old: Option<&[u8]>,
        operand: &[u8],
    ) -> Result<Vec<u8>, String> {
        operator.merge(None, old, operand)
    }

    #[test]
    fn sums_stay_in_the_range_of_their_integer() {
        let signed = |old: i64, operand: i64| {
            merged(BuiltinMerge::AddI64, Some(&old.to_le_bytes()), &operand.to_le_bytes())
        };
        assert_eq!(signed(5, -8), Ok((-3_i64).to_le_bytes().to_vec()));
        assert!(signed(i64::MAX, 1).is_err());
        let unsigned = |old: u64, operand: u64| {
            merged(BuiltinMerge::AddU64, Some(&old.to_le_bytes()), &operand.to_le_bytes())
        };
        assert_eq!(unsigned(1 << 63, 7), Ok(((1_u64 << 63) + 7).to_le_bytes().to_vec()));
        assert!(unsigned(u64::MAX, 1).is_err());
        assert_eq!(merged(BuiltinMerge::AddI64, None, &[7; 8]), Ok(vec![7; 8]));
        assert!(merged(BuiltinMerge::AddI64, None, &[7; 4]).is_err());
        assert!(merged(BuiltinMerge::AddU64, Some(b"text"), &[7; 8]).is_err());
    }

    #[test]
    fn numbers_compare_by_size_and_other_values_byte_by_byte() {
        let max = |tag, old: &[u8], operand: &[u8]| {
            BuiltinMerge::Max.merge(tag, Some(old), operand).unwrap()
        };
        let (minus_one, one) = ((-1_i64).to_le_bytes(), 1_i64.to_le_bytes());
        assert_eq!(max(Some(TypeTag::I64), &minus_one, &one), one);
        assert_eq!(max(None, &minus_one, &one), minus_one);
        let (small, large) = (256_u32.to_le_bytes(), 257_u32.to_le_bytes());
        assert_eq!(max(Some(TypeTag::U32), &small, &large), large);
        let (negative, positive) = ((-0.5_f64).to_le_bytes(), 0.25_f64.to_le_bytes());
        assert_eq!(max(Some(TypeTag::F64), &negative, &positive), positive);
        let min = BuiltinMerge::Min.merge(None, Some(b"b"), b"ab").unwrap();
        assert_eq!(min, b"ab");
        assert!(BuiltinMerge::Max.merge(Some(TypeTag::U64), Some(&[1; 8]), b"short").is_err());
    }

    #[test]
    fn each_operator_is_found_by_its_name() {
        for (operator, name) in BuiltinMerge::ALL {
            assert_eq!(BuiltinMerge::find(name), Some(operator));
        }
        assert_eq!(BuiltinMerge::find("add"), None);
    }
}
