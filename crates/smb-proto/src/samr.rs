//! The plain forms of new passwords (MS-SAMR sections 2.2.6.21 and 2.2.6.32). Contains no cryptography.
//!
//! *Errors.* [`wire::Fault`], whose offset counts from the start of the structure.

use wire::{Parser, Rule, le_u16, le_u32, reject, take};

use crate::parse::{Parsed, size, whole};

/// Maximum length of a password in UTF-16, in bytes.
pub const PASSWORD_MAX: usize = 512;
/// Length of SAMPR_USER_PASSWORD, in bytes.
pub const USER_PASSWORD_LEN: usize = PASSWORD_MAX + 4;

/// Parses SAMPR_USER_PASSWORD; returns the UTF-16 of the password, which is at the end of the buffer.
pub fn user_password(plain: &[u8; USER_PASSWORD_LEN]) -> Parsed<&[u8]> {
    whole(plain, |i| {
        let (place, buffer) = take(PASSWORD_MAX, "Buffer")(i)?;
        let (i, len) = le_u32("Length")(place)?;
        let start = PASSWORD_MAX.checked_sub(size(len));
        let start =
            start.ok_or_else(|| reject("Length", Rule::OverLimit { max: PASSWORD_MAX }, place))?;
        Ok((i, &buffer[start..]))
    })
}

/// Parses SAMPR_USER_PASSWORD_AES; returns the UTF-16 of the password, which is at the start of the buffer.
pub fn user_password_aes(plain: &[u8]) -> Parsed<&[u8]> {
    whole(plain, |place| {
        let (i, len) = le_u16("PasswordLength")(place)?;
        if usize::from(len) > PASSWORD_MAX {
            return Err(reject("PasswordLength", Rule::OverLimit { max: PASSWORD_MAX }, place));
        }
        take(len.into(), "Buffer").parse(i)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::test_harness::named;

    #[test]
    fn password_is_as_long_as_its_length_says() {
        let mut plain = [7; USER_PASSWORD_LEN];
        plain[510..].copy_from_slice(&[1, 2, 2, 0, 0, 0]);
        assert_eq!(user_password(&plain), Ok(&[1, 2][..]));
        plain[512..].copy_from_slice(&512_u32.to_le_bytes());
        assert_eq!(user_password(&plain).map(<[u8]>::len), Ok(512));
        for len in [513, u32::MAX] {
            plain[512..].copy_from_slice(&len.to_le_bytes());
            assert_eq!(named(user_password(&plain)), Err("Length"));
        }
        assert_eq!(user_password_aes(&[2, 0, 1, 2, 7, 7]), Ok(&[1, 2][..]));
        assert_eq!(named(user_password_aes(&[2, 0, 1])), Err("Buffer"));
        assert_eq!(named(user_password_aes(&[2])), Err("PasswordLength"));
        assert_eq!(named(user_password_aes(&[1, 2].repeat(400))), Err("PasswordLength"));
    }
}
