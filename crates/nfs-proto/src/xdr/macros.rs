//! The declarations of XDR's language: `struct`, `enum`, `union`, and what a procedure number chooses.

/// Structures: each field in order, with the limit of a list or opaque behind `as`.
macro_rules! structs {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident $(<$lt:lifetime>)? {
            $( $(#[$field_meta:meta])* $field:ident : $ty:ty $(as $max:expr)? ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // The names are the specification's own.
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

/// Enumerations.
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
        #[allow(missing_docs)] // The names are the specification's own, without their common prefix.
        pub enum $name {
            $( $(#[$variant_meta])* $variant = $number ),*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The one of this number.
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

/// Unions: the field that chooses, then each arm's number. A number without an arm has no such value.
macro_rules! union {
    ($(
        $(#[$meta:meta])*
        pub enum $name:ident $(<$lt:lifetime>)? switch $tag:literal {
            $( $(#[$variant_meta:meta])* $number:literal => $variant:ident $(($ty:ty $(as $max:expr)?))? ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        // The names are the specification's own, without their common prefix. A value lives as long as one call.
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

/// What a number chooses that stands elsewhere, as a procedure's number does in the head of the call.
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
        // The names are the specification's own, without their common prefix. A value lives as long as one call.
        #[allow(missing_docs, clippy::large_enum_variant)]
        pub enum $name $(<$lt>)? {
            $( $(#[$variant_meta])* $variant $(($ty))? ),*
        }

        impl<'a> $name $(<$lt>)? {
            /// All numbers that choose something.
            pub const NUMBERS: &'static [u32] = &[$($number $(, $more)*),*];

            /// Reads what this number chooses; `None`, and nothing is read, when that is nothing.
            ///
            /// # Errors
            ///
            /// The first field that breaks a rule.
            #[inline]
            #[allow(clippy::manual_range_patterns)] // The numbers are listed, for `NUMBERS`.
            pub fn parse(number: u32, input: &'a [u8]) -> ::wire::Parsed<'a, Option<Self>> {
                match number {
                    $( $number $(| $more)* => {
                        $crate::xdr::union!(@parse input, $variant $(, $ty $(, $max)?)?)
                            .map(|(rest, value)| (rest, Some(value)))
                    } )*
                    _ => Ok((input, None)),
                }
            }

            /// Appends it, without the number.
            #[inline]
            pub fn emit(&self, out: &mut Vec<u8>) {
                let _ = &out;
                match self {
                    $( $crate::xdr::union!(@pattern value, $variant $(, $ty)?) => {
                        $( $crate::xdr::union!(@emit value, out, $ty $(, $max)?); )?
                    } )*
                }
            }

            /// One that this number chooses.
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
