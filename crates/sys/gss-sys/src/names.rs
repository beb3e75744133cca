//! Names of principals.

use std::ptr;

use crate::Error;
use crate::error::check;
use crate::ffi::{
    self, KRB5, NT_PRINCIPAL, NT_SERVICE, Name, Output, gss_OID_desc, gss_buffer_desc,
};

/// Maximum length of any name, in bytes; longer names are refused.
pub(crate) const NAME_MAX: usize = 1024;
/// Maximum length of a PAC's logon information, in bytes: 1,015 groups with SIDs of 68 bytes, and the strings.
const LOGON_INFO_MAX: usize = 128 << 10;

/// Imports a service on any host (`nfs`), or on one host (`nfs@server.lab.test`).
pub(crate) fn of_service(service: &str) -> Result<Name, Error> {
    import(service, &NT_SERVICE)
}

/// Imports a principal: `cifs/server.lab.test@LAB.TEST`.
pub(crate) fn of_principal(principal: &str) -> Result<Name, Error> {
    import(principal, &NT_PRINCIPAL)
}

fn import(text: &str, kind: &gss_OID_desc) -> Result<Name, Error> {
    let (mut minor, mut name) = (0, Name::none());
    let text = gss_buffer_desc::of(text.as_bytes());
    // SAFETY: the text's bytes outlive the call; all other pointers refer to local variables and a static.
    let major = unsafe { ffi::gss_import_name(&mut minor, &text, kind, &mut name.0) };
    check(major, minor)?;
    Ok(name)
}

/// Formats a name as `kinit` does: `alice@LAB.TEST`, `cifs/server.lab.test@LAB.TEST`.
pub(crate) fn display(name: &Name) -> Result<String, Error> {
    let (mut minor, mut text) = (0, Output::new());
    // SAFETY: the name belongs to the library; all other pointers refer to local variables.
    let major = unsafe { ffi::gss_display_name(&mut minor, name.0, &mut text.0, ptr::null_mut()) };
    check(major, minor)?;
    if text.bytes().len() > NAME_MAX {
        return Err(Error::new(gss_krb5::Cause::Malformed, "a name of more than 1024 bytes"));
    }
    let name = std::str::from_utf8(text.bytes());
    name.map(str::to_owned)
        .map_err(|_| Error::new(gss_krb5::Cause::Malformed, "a name that is not UTF-8"))
}

/// Returns the local user according to the rules of krb5.conf (`auth_to_local`), if any.
pub(crate) fn local(name: &Name) -> Option<String> {
    let mut text = Output::new();
    // SAFETY: see above.
    let major = unsafe { ffi::gss_localname(&mut 0, name.0, &KRB5, &mut text.0) };
    if major & ffi::ERROR_MASK != 0 || text.bytes().len() > NAME_MAX {
        return None;
    }
    let name = std::str::from_utf8(text.bytes()).ok()?.trim_end_matches('\0');
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns an attribute of this name, if the library has authenticated it.
pub(crate) fn attribute(name: &Name, attribute: &[u8]) -> Option<Vec<u8>> {
    let (mut authenticated, mut complete, mut more) = (0, 0, -1);
    let (mut value, mut shown) = (Output::new(), Output::new());
    let attribute = gss_buffer_desc::of(attribute);
    // SAFETY: see above; the attribute's bytes outlive the call.
    let major = unsafe {
        ffi::gss_get_name_attribute(
            &mut 0,
            name.0,
            &attribute,
            &mut authenticated,
            &mut complete,
            &mut value.0,
            &mut shown.0,
            &mut more,
        )
    };
    let is_good = major & ffi::ERROR_MASK == 0 && authenticated != 0;
    (is_good && value.bytes().len() <= LOGON_INFO_MAX).then(|| value.bytes().to_vec())
}
