//! Encoding of typed keys that preserves their order.
//!
//! Why: an engine compares keys as bytes. Here `encode(a) < encode(b)` if and only if `a < b`, so
//! that ranges of a typed table are ranges of its values.
//!
//! | type | bytes | order |
//! |---|---|---|
//! | `u32`, `u64` | 4 or 8, big-endian | numeric |
//! | `i64` | 8, big-endian, the sign bit turned over | numeric, negative first |
//! | `f32`, `f64` | 4 or 8, big-endian; of a negative number all bits turned over, else the sign bit | numeric; infinities at the ends, NaN after all |
//! | `string` | UTF-8 | by byte, which is by code point |
//! | `blob` | as they are | by byte |
//!
//! A composite key is its parts back to back, the most significant first. A `string` or `blob` that
//! is not the last part is escaped (0 becomes 0 255) and ended by 0 1. So each part has an end, and
//! a shorter part precedes a longer one with the same beginning.
//!
//! Decisions: -0.0 and 0.0 are one key, because they are equal. All NaNs are one key, after
//! positive infinity. So any two keys compare, and equal keys have equal bytes. Bytes that no
//! encoding produces (the bits of -0.0, a NaN's payload, a single 0 in a part) are no key.

use std::borrow::Borrow;

use super::{tag::TypeTag, values::TypedValue};

/// One value of a key. Sealed: the store knows the types.
pub trait KeyPart: TypedValue + KeyPartRef {
    /// Reads the part from the front of `bytes`; the last part is all of them. `None` if they do
    /// not parse.
    #[doc(hidden)]
    fn take(bytes: &mut &[u8], is_last: bool) -> Option<Self>;
}

/// Something that encodes as one value of a key. Sealed.
#[doc(hidden)]
pub trait KeyPartRef {
    /// Appends its bytes.
    fn put(&self, out: &mut Vec<u8>, is_last: bool);
}

/// A key of a typed table: `u32`, `u64`, `i64`, `f32`, `f64`, `String`, `Vec<u8>`, or a tuple of
/// two to four of them.
///
/// A program can implement it for its own types: a newtype with the bytes of the wrapped type. A
/// write of bytes that do not fit [`TypedKey::TAGS`] fails.
pub trait TypedKey: Sized + KeyRef {
    /// Its types, in order.
    const TAGS: &'static [TypeTag];
    /// Returns the key with these bytes; `None` if they are no key of this type.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// A key or a borrowed form of it: `str` for `String`, `[u8]` for `Vec<u8>`.
pub trait KeyRef {
    /// Appends the key's bytes, which have the order of the keys.
    fn encode_into(&self, out: &mut Vec<u8>);

    /// Returns the key's bytes.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        self.encode_into(&mut out);
        out
    }
}

/// A prefix of keys of type `K`: text for `String`, bytes for `Vec<u8>`, a tuple of the first parts
/// (`(a,)`, `(a, b)`) for a composite key.
pub trait KeyPrefix<K> {
    /// Returns the bytes that exactly those keys start with.
    fn encode_prefix(&self) -> Vec<u8>;
}

fn read_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (array, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*array)
}

macro_rules! number {
    ($type:ty, $to:expr, $from:expr) => {
        impl KeyPartRef for $type {
            fn put(&self, out: &mut Vec<u8>, _: bool) {
                out.extend_from_slice(&$to(*self).to_be_bytes());
            }
        }

        impl KeyPart for $type {
            fn take(bytes: &mut &[u8], _: bool) -> Option<Self> {
                $from(read_array(bytes)?)
            }
        }
    };
}

const I64_SIGN: u64 = 1 << 63;

number!(u32, |number: u32| number, |bytes| Some(u32::from_be_bytes(bytes)));
number!(u64, |number: u64| number, |bytes| Some(u64::from_be_bytes(bytes)));
number!(i64, |number: i64| number.cast_unsigned() ^ I64_SIGN, |bytes| {
    Some((u64::from_be_bytes(bytes) ^ I64_SIGN).cast_signed())
});

macro_rules! float {
    ($type:ty, $bits:ty) => {
        number!(
            $type,
            |number: $type| {
                let sign = <$bits>::MAX ^ (<$bits>::MAX >> 1);
                // One bit pattern for zero, one for NaN.
                let number = if number == 0.0 { 0.0 } else { number };
                let number = if number.is_nan() { <$type>::NAN.abs() } else { number };
                let bits = number.to_bits();
                if bits & sign == 0 { bits ^ sign } else { !bits }
            },
            |bytes| {
                let sign = <$bits>::MAX ^ (<$bits>::MAX >> 1);
                let bits = <$bits>::from_be_bytes(bytes);
                let number = <$type>::from_bits(if bits & sign == 0 { !bits } else { bits ^ sign });
                let mut canonical = Vec::with_capacity(size_of::<$type>());
                number.put(&mut canonical, true);
                (canonical == bytes).then_some(number)
            }
        );
    };
}

float!(f32, u32);
float!(f64, u64);

const ESCAPED: u8 = 255;
const END: u8 = 1;

fn put_text(text: &[u8], out: &mut Vec<u8>, is_last: bool) {
    if is_last {
        out.extend_from_slice(text);
        return;
    }
    for byte in text {
        out.push(*byte);
        if *byte == 0 {
            out.push(ESCAPED);
        }
    }
    out.extend_from_slice(&[0, END]);
}

fn read_text(bytes: &mut &[u8], is_last: bool) -> Option<Vec<u8>> {
    if is_last {
        return Some(std::mem::take(bytes).to_vec());
    }
    let mut text = Vec::new();
    loop {
        let zero = bytes.iter().position(|byte| *byte == 0)?;
        let (plain, rest) = bytes.split_at_checked(zero)?;
        text.extend_from_slice(plain);
        let (mark, rest) = rest.split_first_chunk::<2>()?;
        *bytes = rest;
        match mark {
            [0, ESCAPED] => text.push(0),
            [0, END] => return Some(text),
            _ => return None,
        }
    }
}

impl KeyPartRef for str {
    fn put(&self, out: &mut Vec<u8>, is_last: bool) {
        put_text(self.as_bytes(), out, is_last);
    }
}

impl KeyPartRef for String {
    fn put(&self, out: &mut Vec<u8>, is_last: bool) {
        self.as_str().put(out, is_last);
    }
}

impl KeyPart for String {
    fn take(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
        Self::from_utf8(read_text(bytes, is_last)?).ok()
    }
}

impl KeyPartRef for [u8] {
    fn put(&self, out: &mut Vec<u8>, is_last: bool) {
        put_text(self, out, is_last);
    }
}

impl KeyPartRef for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>, is_last: bool) {
        self.as_slice().put(out, is_last);
    }
}

impl KeyPart for Vec<u8> {
    fn take(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
        read_text(bytes, is_last)
    }
}

impl<T: KeyPart> TypedKey for T {
    const TAGS: &'static [TypeTag] = &[T::TAG];

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        Self::take(&mut bytes, true).filter(|_| bytes.is_empty())
    }
}

impl<T: KeyPartRef + ?Sized> KeyRef for T {
    fn encode_into(&self, out: &mut Vec<u8>) {
        self.put(out, true);
    }
}

impl KeyPrefix<String> for str {
    fn encode_prefix(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl KeyPrefix<Vec<u8>> for [u8] {
    fn encode_prefix(&self) -> Vec<u8> {
        self.to_vec()
    }
}

macro_rules! composite {
    ($($part:ident $name:ident),+; $last:ident $last_name:ident) => {
        impl<$($part: KeyPart,)+ $last: KeyPart> TypedKey for ($($part,)+ $last) {
            const TAGS: &'static [TypeTag] = &[$($part::TAG,)+ $last::TAG];

            fn decode(mut bytes: &[u8]) -> Option<Self> {
                let key = ($($part::take(&mut bytes, false)?,)+ $last::take(&mut bytes, true)?);
                bytes.is_empty().then_some(key)
            }
        }

        impl<$($part: KeyPart,)+ $last: KeyPart> KeyRef for ($($part,)+ $last) {
            fn encode_into(&self, out: &mut Vec<u8>) {
                let ($($name,)+ $last_name) = self;
                $($name.put(out, false);)+
                $last_name.put(out, true);
            }
        }
    };
}

composite!(A a; B b);
composite!(A a, B b; C c);
composite!(A a, B b, C c; D d);

macro_rules! prefix {
    ($($part:ident $reference:ident $name:ident),+; $($rest:ident),+) => {
        impl<$($part: KeyPart + Borrow<$reference>, $reference: KeyPartRef,)+ $($rest: KeyPart),+>
            KeyPrefix<($($part,)+ $($rest,)+)> for ($($reference,)+)
        {
            fn encode_prefix(&self) -> Vec<u8> {
                let ($($name,)+) = self;
                let mut out = Vec::new();
                $($name.put(&mut out, false);)+
                out
            }
        }
    };
}

prefix!(A RefA a; B);
prefix!(A RefA a; B, C);
prefix!(A RefA a, B RefB b; C);
prefix!(A RefA a; B, C, D);
prefix!(A RefA a, B RefB b; C, D);
prefix!(A RefA a, B RefB b, C RefC c; D);

/// Returns whether `bytes` are a key of these types.
pub(super) fn is_valid(tags: &[TypeTag], mut bytes: &[u8]) -> bool {
    if let [TypeTag::Blob] = tags {
        return true;
    }
    let parts = tags.len();
    tags.iter().enumerate().all(|(index, tag)| {
        let is_last = index + 1 == parts;
        let bytes = &mut bytes;
        match tag {
            TypeTag::U32 => u32::take(bytes, is_last).is_some(),
            TypeTag::U64 => u64::take(bytes, is_last).is_some(),
            TypeTag::I64 => i64::take(bytes, is_last).is_some(),
            TypeTag::F32 => f32::take(bytes, is_last).is_some(),
            TypeTag::F64 => f64::take(bytes, is_last).is_some(),
            TypeTag::String if is_last => std::str::from_utf8(std::mem::take(bytes)).is_ok(),
            TypeTag::String => String::take(bytes, is_last).is_some(),
            TypeTag::Blob => Vec::<u8>::take(bytes, is_last).is_some(),
        }
    }) && bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use std::{cmp::Ordering, fmt::Debug};

    use proptest::{prelude::*, test_runner::TestCaseResult};

    use super::*;
    use crate::util::types::TableTypes;

    fn check<K: TypedKey + Debug>(
        a: &K,
        b: &K,
        compare: impl Fn(&K, &K) -> Ordering,
    ) -> TestCaseResult {
        let (left, right) = (a.encode(), b.encode());
        prop_assert_eq!(left.cmp(&right), compare(a, b), "{:?} {:?}", a, b);
        let back = K::decode(&left).unwrap();
        prop_assert_eq!(compare(&back, a), Ordering::Equal);
        let types = TableTypes::of::<K, u32>();
        prop_assert!(types.is_key(&left));
        Ok(())
    }

    fn by_number<F: PartialOrd + Copy>(is_nan: impl Fn(F) -> bool) -> impl Fn(&F, &F) -> Ordering {
        move |a, b| a.partial_cmp(b).unwrap_or_else(|| is_nan(*a).cmp(&is_nan(*b)))
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        // Mostly the bytes that the escapes are made of.
        let byte = prop_oneof![Just(0_u8), Just(1), Just(254), Just(255), any::<u8>()];
        prop::collection::vec(byte, 0..6)
    }

    fn f64_bits() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            prop::sample::select(vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::MIN]),
            prop::sample::select(vec![f64::NEG_INFINITY, f64::MIN_POSITIVE, 1.0, -1.0, f64::MAX]),
        ]
    }

    proptest! {
        #[test]
        fn numbers_keep_their_order(a: u32, b: u32, c: u64, d: u64, e: i64, f: i64) {
            check(&a, &b, Ord::cmp)?;
            check(&c, &d, Ord::cmp)?;
            check(&e, &f, Ord::cmp)?;
        }

        #[test]
        fn floats_keep_their_order(a in f64_bits(), b in f64_bits(), c: u32, d: u32) {
            check(&a, &b, by_number(f64::is_nan))?;
            check(&f32::from_bits(c), &f32::from_bits(d), by_number(f32::is_nan))?;
        }

        #[test]
        fn text_keeps_its_order(a: String, b: String, c in bytes(), d in bytes()) {
            check(&a, &b, Ord::cmp)?;
            check(&c, &d, Ord::cmp)?;
        }

        #[test]
        fn composite_keys_keep_their_order(
            a in (bytes(), 0_u32..3, bytes(), any::<i64>()),
            b in (bytes(), 0_u32..3, bytes(), any::<i64>()),
            same in 0_usize..4,
        ) {
            let mut b = b;
            if same > 0 { b.0.clone_from(&a.0); }
            if same > 1 { b.1 = a.1; }
            if same > 2 { b.2.clone_from(&a.2); }
            check(&a, &b, Ord::cmp)?;
            check(&(a.0.clone(), a.3), &(b.0.clone(), b.3), Ord::cmp)?;
            check(&(a.3, a.0.clone(), a.2), &(b.3, b.0, b.2), Ord::cmp)?;
        }

        #[test]
        fn a_prefix_is_that_of_its_keys_alone(a in bytes(), b in bytes(), c in bytes()) {
            let prefix = KeyPrefix::<(Vec<u8>, Vec<u8>)>::encode_prefix(&(a.clone(),));
            let key = (b.clone(), c);
            prop_assert_eq!(key.encode().starts_with(&prefix), a == b);
        }

        #[test]
        fn any_bytes_are_a_key_or_not_and_never_a_panic(bytes in bytes(), long: Vec<u8>) {
            for bytes in [bytes, long] {
                for tags in [
                    &[TypeTag::F64][..],
                    &[TypeTag::String],
                    &[TypeTag::U32, TypeTag::F32],
                    &[TypeTag::Blob, TypeTag::Blob],
                    &[TypeTag::String, TypeTag::I64],
                ] {
                    let _ = is_valid(tags, &bytes);
                }
                let decoded = <(Vec<u8>, String)>::decode(&bytes);
                prop_assert_eq!(decoded.is_some(),
                    is_valid(&[TypeTag::Blob, TypeTag::String], &bytes));
                if let Some(key) = decoded {
                    prop_assert_eq!(key.encode(), bytes);
                }
            }
        }
    }

    #[test]
    fn the_bytes_are_pinned() {
        assert_eq!(7_u32.encode(), [0, 0, 0, 7]);
        assert_eq!((-1_i64).encode(), [0x7f, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(1.0_f32.encode(), [0xbf, 0x80, 0, 0]);
        assert_eq!((-1.0_f32).encode(), [0x40, 0x7f, 255, 255]);
        assert_eq!("a\0".encode(), b"a\0");
        assert_eq!(("a\0".to_owned(), 1_u32).encode(), b"a\0\xff\0\x01\0\0\0\x01");
    }

    #[test]
    fn zero_and_nan_are_one_key_each() {
        assert_eq!((-0.0_f64).encode(), 0.0_f64.encode());
        assert_eq!((-f64::NAN).encode(), f64::NAN.encode());
        assert_eq!(f64::from_bits(0x7ff8_0000_0000_0001).encode(), f64::NAN.encode());
        assert!(f64::NAN.encode() > f64::INFINITY.encode());
        let negative_zero = 0x7fff_ffff_ffff_ffff_u64.to_be_bytes();
        assert!(f64::decode(&negative_zero).is_none());
        assert!(!is_valid(&[TypeTag::F64], &negative_zero));
    }
}
