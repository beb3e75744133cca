//! Macros for the declarations of the XDR language: `struct`, `enum`, `union`, and choices by procedure number.

/// Declares structures: each field in order, with the limit of a list or opaque after `as`.
macro_rules! structs {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident $(<$lt:lifetime>)? {
            $( $(#[$field_meta:meta])* $field:ident : $ty:ty $(as $max:expr)? ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // Names from the specification.
        pub struct $name $(<$lt>)? {
            $( $(#[$field_meta])* pub $field: $ty ),*
        }

        impl<'a> $crate::xdr::Xdr<'a> for $name $(<$lt>)? {
            #[inline]
            fn field(_: &'static str, input: &'a [u8]) -> ::wire::Parsed<'a, Self> {
                let rest = input;
                $( let (rest, $field) = $crate::xdr::structs!(@parse rest, $ty, stringify!($field) $(, $max)?)?; )*
                Ok((rest, Self { $($field),* }))
            }

            #[inline]
            fn emit(&self, out: &mut Vec<u8>) {
                $( $crate::xdr::structs!(@emit &self.$field, out $(, $max)?); )*
            }
        }

        #[cfg(test)]
        impl<'a> $crate::xdr::sample::Sample<'a> for $name $(<$lt>)? {
            fn sample(seed: &mut $crate::xdr::sample::Seed<'a>) -> Self {
                Self { $( $field: $crate::xdr::structs!(@sample seed, $ty $(, $max)?) ),* }
            }
        }
    )* };
    (@parse $input:expr, $ty:ty, $name:expr) => {
        <$ty as $crate::xdr::Xdr<'a>>::field($name, $input)
    };
    (@parse $input:expr, $ty:ty, $name:expr, $max:expr) => {
        <$ty as $crate::xdr::Bounded<'a>>::bounded($max, $name, $input)
    };
    (@emit $value:expr, $out:expr) => { $crate::xdr::Xdr::emit($value, $out) };
    (@emit $value:expr, $out:expr, $max:expr) => { $crate::xdr::Bounded::put($value, $out) };
    (@sample $seed:expr, $ty:ty) => { <$ty as $crate::xdr::sample::Sample<'a>>::sample($seed) };
    (@sample $seed:expr, $ty:ty, $max:expr) => {
        <$ty as $crate::xdr::sample::SampleBounded<'a>>::sample($max, $seed)
    };
}

/// Declares enumerations.
macro_rules! numbers {
    ($(
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $number:literal ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        #[allow(missing_docs)] // The names come from the specification, without their common prefix.
        pub enum $name {
            $( $(#[$variant_meta])* $variant = $number ),*
        }

        impl $name {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the value with this number.
            #[inline]
            pub const fn from_u32(number: u32) -> Option<Self> {
                match number {
                    $( $number => Some(Self::$variant), )*
                    _ => None,
                }
            }
        }

        impl<'a> $crate::xdr::Xdr<'a> for $name {
            #[inline]
            fn field(name: &'static str, input: &'a [u8]) -> ::wire::Parsed<'a, Self> {
                ::wire::known(name, ::wire::be_u32(name), Self::from_u32)(input)
            }

            #[inline]
            fn emit(&self, out: &mut Vec<u8>) {
                ::wire::emit::be_u32(out, *self as u32);
            }
        }

        #[cfg(test)]
        impl<'a> $crate::xdr::sample::Sample<'a> for $name {
            fn sample(seed: &mut $crate::xdr::sample::Seed<'a>) -> Self {
                Self::ALL[seed.below(Self::ALL.len())]
            }
        }
    )* };
}

/// Declares unions: the discriminant, then the number of each arm. Other numbers are invalid.
macro_rules! union {
    ($(
        $(#[$meta:meta])*
        pub enum $name:ident $(<$lt:lifetime>)? switch $tag:literal {
            $( $(#[$variant_meta:meta])* $number:literal => $variant:ident $(($ty:ty $(as $max:expr)?))? ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        // Names from the specification, without their common prefix. A value lives only during one call.
        #[allow(missing_docs, clippy::large_enum_variant)]
        pub enum $name $(<$lt>)? {
            $( $(#[$variant_meta])* $variant $(($ty))? ),*
        }

        impl<'a> $crate::xdr::Xdr<'a> for $name $(<$lt>)? {
            #[inline]
            fn field(_: &'static str, input: &'a [u8]) -> ::wire::Parsed<'a, Self> {
                let (rest, number) = ::wire::be_u32($tag)(input)?;
                match number {
                    $( $number => $crate::xdr::union!(@parse rest, $variant $(, $ty $(, $max)?)?), )*
                    _ => Err(::wire::reject($tag, ::wire::Rule::Value, input)),
                }
            }

            #[inline]
            fn emit(&self, out: &mut Vec<u8>) {
                match self {
                    $( $crate::xdr::union!(@pattern value, $variant $(, $ty)?) => {
                        ::wire::emit::be_u32(out, $number);
                        $( $crate::xdr::union!(@emit value, out, $ty $(, $max)?); )?
                    } )*
                }
            }
        }

        #[cfg(test)]
        impl<'a> $crate::xdr::sample::Sample<'a> for $name $(<$lt>)? {
            fn sample(seed: &mut $crate::xdr::sample::Seed<'a>) -> Self {
                const NUMBERS: &[u32] = &[$($number),*];
                match NUMBERS[seed.below(NUMBERS.len())] {
                    $( $number => $crate::xdr::union!(@sample seed, $variant $(, $ty $(, $max)?)?), )*
                    _ => unreachable!(),
                }
            }
        }
    )* };
    (@parse $input:expr, $variant:ident) => { Ok(($input, Self::$variant)) };
    (@parse $input:expr, $variant:ident, $ty:ty $(, $max:expr)?) => {
        $crate::xdr::structs!(@parse $input, $ty, stringify!($variant) $(, $max)?)
            .map(|(rest, value)| (rest, Self::$variant(value)))
    };
    (@pattern $value:ident, $variant:ident) => { Self::$variant };
    (@pattern $value:ident, $variant:ident, $ty:ty) => { Self::$variant($value) };
    (@emit $value:ident, $out:ident, $ty:ty $(, $max:expr)?) => {
        $crate::xdr::structs!(@emit $value, $out $(, $max)?)
    };
    (@sample $seed:expr, $variant:ident) => { Self::$variant };
    (@sample $seed:expr, $variant:ident, $ty:ty $(, $max:expr)?) => {
        Self::$variant($crate::xdr::structs!(@sample $seed, $ty $(, $max)?))
    };
}

/// Declares choices by a number that is stored elsewhere, like a procedure number in the header of the call.
macro_rules! choice {
    ($(
        $(#[$meta:meta])*
        pub enum $name:ident $(<$lt:lifetime>)? {
            $(
                $(#[$variant_meta:meta])*
                $number:literal $(| $more:literal)* => $variant:ident $(($ty:ty $(as $max:expr)?))?
            ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        // Names from the specification, without their common prefix. A value lives only during one call.
        #[allow(missing_docs, clippy::large_enum_variant)]
        pub enum $name $(<$lt>)? {
            $( $(#[$variant_meta])* $variant $(($ty))? ),*
        }

        impl<'a> $name $(<$lt>)? {
            /// All numbers with a choice.
            pub const NUMBERS: &'static [u32] = &[$($number $(, $more)*),*];

            /// Parses the choice for this number; `None`, without consuming input, for other numbers.
            ///
            /// # Errors
            ///
            /// The first field that breaks a rule.
            #[inline]
            #[allow(clippy::manual_range_patterns)] // `NUMBERS` needs the list of numbers.
            pub fn parse(number: u32, input: &'a [u8]) -> ::wire::Parsed<'a, Option<Self>> {
                match number {
                    $( $number $(| $more)* => {
                        $crate::xdr::union!(@parse input, $variant $(, $ty $(, $max)?)?)
                            .map(|(rest, value)| (rest, Some(value)))
                    } )*
                    _ => Ok((input, None)),
                }
            }

            /// Appends its encoding, without the number.
            #[inline]
            pub fn emit(&self, out: &mut Vec<u8>) {
                let _ = &out;
                match self {
                    $( $crate::xdr::union!(@pattern value, $variant $(, $ty)?) => {
                        $( $crate::xdr::union!(@emit value, out, $ty $(, $max)?); )?
                    } )*
                }
            }

            /// Generates a choice for this number.
            #[cfg(test)]
            #[allow(clippy::manual_range_patterns)]
            pub(crate) fn sample(number: u32, seed: &mut $crate::xdr::sample::Seed<'a>) -> Self {
                match number {
                    $( $number $(| $more)* => $crate::xdr::union!(@sample seed, $variant $(, $ty $(, $max)?)?), )*
                    _ => unreachable!(),
                }
            }
        }
    )* };
}

pub(crate) use {choice, numbers, structs, union};
