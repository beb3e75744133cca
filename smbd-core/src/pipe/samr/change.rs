//! Changes of passwords (MS-SAMR sections 3.1.5.10.3 and 3.1.5.10.4).
//!
//! *Operation.* A client that knows the present password of an account may set another one. These calls need no handle. Hashes of
//! LAN Manager are ignored: this server stores none. Method 63 is not in MS-SAMR; it has the arguments of method 55 and one more,
//! and says why a password is refused. Windows and Samba use it.

use smb_proto::ndr::{Reader, Writer};

use super::super::rpc::{Fault, Read};
use super::super::{Host, NotChanged};
use super::PASSWORD_PROPERTIES;
use super::info::FOR_EVER;
use crate::auth::password::{AUTH_DATA_LEN, Aes, BUFFER_LEN, CIPHER_MAX, Change};
use crate::status::Status;

/// The method that also returns the rule that a password breaks.
const WITH_REASON: u16 = 63;
/// The method with AES.
const WITH_AES: u16 = 73;

/// SamrUnicodeChangePasswordUser2, 3 and 4.
pub(super) fn password(host: &dyn Host, op: u16, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    // The name of the server has no meaning.
    if r.pointer()? && r.string_head()? {
        r.text()?;
    }
    let name = if r.string_head()? { r.text()? } else { String::new() };
    let change = if op == WITH_AES { aes(r)? } else { rc4(r)? };
    let wrong = NotChanged { status: Status::INVALID_PARAMETER, reason: 0 };
    let changed = match change {
        _ if !host.knows_caller() => Err(NotChanged { status: Status::ACCESS_DENIED, ..wrong }),
        None => Err(wrong),
        Some(change) => host.change_password(&name, &change),
    };
    let mut w = Writer::default();
    if op == WITH_REASON {
        put_reason(&mut w, host, changed.err());
    }
    w.u32(changed.err().map_or(Status::SUCCESS, |why| why.status).0);
    Ok(w.finish())
}

/// Parses the arguments with RC4. `None` if one is missing.
fn rc4(r: &mut Reader<'_>) -> Read<Option<Change>> {
    let password = if r.pointer()? { Some(Box::new(r.array::<BUFFER_LEN>()?)) } else { None };
    let verifier = if r.pointer()? { Some(r.array()?) } else { None };
    let both = password.zip(verifier);
    Ok(both.map(|(password, verifier)| Change::Rc4 { password, verifier }))
}

/// Parses SAMPR_ENCRYPTED_PASSWORD_AES (section 2.2.6.32). `None` if a value in it is not permitted.
fn aes(r: &mut Reader<'_>) -> Read<Option<Change>> {
    r.align(8)?;
    let (auth_data, salt) = (r.array::<AUTH_DATA_LEN>()?, r.array()?);
    let (len, has_cipher) = (r.u32()?, r.pointer()?);
    let iterations = r.u64()?;
    if !has_cipher {
        return Ok(None);
    }
    let len = Some(len).filter(|len| r.u32() == Ok(*len)).ok_or(Fault::BAD_STUB)?;
    let len = usize::try_from(len).ok().filter(|len| *len <= CIPHER_MAX).ok_or(Fault::BAD_STUB)?;
    let aes = Aes::new(auth_data, salt, r.bytes(len)?, iterations);
    Ok(aes.map(|aes| Change::Aes(Box::new(aes))))
}

/// Writes SAMR's DOMAIN_PASSWORD_INFORMATION and the broken rule, or null pointers if no rule is broken.
fn put_reason(w: &mut Writer, host: &dyn Host, why: Option<NotChanged>) {
    let Some(why) = why.filter(|why| why.reason != 0) else {
        w.null();
        return w.null();
    };
    w.pointer();
    w.u16(host.password_length());
    w.u16(0);
    w.u32(PASSWORD_PROPERTIES);
    w.old_large(FOR_EVER);
    w.old_large(0);
    w.pointer();
    w.u32(why.reason);
    // The name of a filter: none.
    w.u16(0);
    w.u16(0);
    w.null();
}
