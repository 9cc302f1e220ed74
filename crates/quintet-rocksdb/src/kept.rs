//! Options that are kept for their getters.

use std::collections::BTreeMap;

/// The value of an option.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// A number without a fraction.
    Integer(i128),
    /// Another number.
    Real(f64),
}

/// A type of options.
pub trait Scalar: Copy {
    /// Returns the number of a value.
    fn number(self) -> Number;
    /// Returns the value of a number. `None`: the type cannot have it.
    fn of(number: Number) -> Option<Self>;
}

macro_rules! integers {
    ($($type:ty)*) => {
        $(
            impl Scalar for $type {
                fn number(self) -> Number {
                    // A `usize` fits in 128 bits.
                    Number::Integer(i128::try_from(self).unwrap_or(i128::MAX))
                }

                fn of(number: Number) -> Option<Self> {
                    match number {
                        Number::Integer(value) => value.try_into().ok(),
                        Number::Real(_) => None,
                    }
                }
            }
        )*
    };
}
integers! { i8 u8 i32 u32 i64 u64 usize }

impl Scalar for f64 {
    fn number(self) -> Number {
        Number::Real(self)
    }

    fn of(number: Number) -> Option<Self> {
        match number {
            Number::Real(value) => Some(value),
            Number::Integer(_) => None,
        }
    }
}

/// The options that were set, by the names of their setters.
#[derive(Clone, Debug, Default)]
pub struct OptionNumbers(BTreeMap<&'static str, Number>);

impl OptionNumbers {
    /// Sets an option.
    pub fn set(&mut self, name: &'static str, value: impl Scalar) {
        self.0.insert(name, value.number());
    }

    /// Returns an option that was set.
    pub fn get<T: Scalar>(&self, name: &str) -> Option<T> {
        self.0.get(name).copied().and_then(T::of)
    }
}

/// Exports setters that keep their value, and getters of it. The first argument is the type of the
/// object. A line has the setter with its type, and the getter with its type and default.
macro_rules! kept {
    ($object:ty {
        $($set:ident($type:ty) $(=> $get:ident -> $result:ty = $default:expr)?;)*
    }) => {
        quintet_compat::export! {
            $(
                /// Keeps a value.
                pub fn $set(object: Option<&mut $object>, value: $type) {
                    if let Some(object) = object {
                        object.kept.set(stringify!($set), value);
                    }
                }
            )*
        }
        $($(
            quintet_compat::export! {
                /// Returns the value that was kept, or the default.
                pub fn $get(object: Option<&$object>) -> $result, $default, {
                    let kept = object.and_then(|object| object.kept.get(stringify!($set)));
                    kept.unwrap_or($default)
                }
            }
        )?)*
    };
}
pub(crate) use kept;
