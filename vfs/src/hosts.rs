//! Host names and addresses, from the name service of this host, which may have to ask a DNS server: every function here may wait.
//!
//! *Errors.* [`io::Error`] when the name service gave no answer: an unreachable server must not look like a host without a name.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::net::IpAddr;
use std::ptr;
use std::sync::Mutex;

use libc::{addrinfo, c_char, c_int, sockaddr, socklen_t};
use mutex::locked;

/// Longest name in bytes (NI_MAXHOST of getnameinfo(3)).
const NAME_MAX: u16 = 1025;
/// Largest number of addresses of a name.
const ADDRESSES_MAX: usize = 1024;

unsafe extern "C" {
    /// innetgr(3) of the C library.
    fn innetgr(
        netgroup: *const c_char,
        host: *const c_char,
        user: *const c_char,
        domain: *const c_char,
    ) -> c_int;
    /// setnetgrent(3) of the C library: 1 where the netgroup was found.
    fn setnetgrent(netgroup: *const c_char) -> c_int;
    /// endnetgrent(3) of the C library.
    fn endnetgrent();
}

/// The functions above share one state of the whole process (attributes(7): `MT-Unsafe race:netgrent`), so their callers hold this
/// lock.
static NETGROUPS: Mutex<()> = Mutex::new(());

/// Returns the addresses of a name; empty if the name does not exist.
pub fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    let Ok(name) = CString::new(name) else { return Ok(Vec::new()) };
    // SAFETY: a structure of numbers and pointers, of which zero is a value.
    let mut hints: addrinfo = unsafe { mem::zeroed() };
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut first: *mut addrinfo = ptr::null_mut();
    // SAFETY: the name ends with zero, the hints and the place for the answer live.
    let rc = unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &hints, &raw mut first) };
    if rc != 0 {
        return if is_nobody(rc) { Ok(Vec::new()) } else { Err(failed(rc)) };
    }
    let mut found = Vec::new();
    let mut at = first;
    // SAFETY: the list is the library's own until it is freed, and ends with a null pointer.
    while let Some(one) = unsafe { at.as_ref() }.filter(|_| found.len() < ADDRESSES_MAX) {
        let ip = address(one).map(|ip| ip.to_canonical());
        found.extend(ip.filter(|ip| !found.contains(ip)));
        at = one.ai_next;
    }
    // SAFETY: it was filled by the call above and is freed once.
    unsafe { libc::freeaddrinfo(first) };
    Ok(found)
}

fn address(one: &addrinfo) -> Option<IpAddr> {
    match one.ai_family {
        libc::AF_INET => {
            // SAFETY: the family says which structure it is; it may be at any place.
            let four = unsafe { one.ai_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::from(four.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let six = unsafe { one.ai_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::from(six.sin6_addr.s6_addr))
        }
        _ => None,
    }
}

/// Returns the name of an address, which the owner of its DNS zone chooses; `None` if it has none.
pub fn name(ip: IpAddr) -> io::Result<Option<String>> {
    let mut name: [c_char; NAME_MAX as usize] = [0; NAME_MAX as usize];
    let mut ask = |at: *const sockaddr, length: usize| {
        let (to, space) = (name.as_mut_ptr(), socklen_t::from(NAME_MAX));
        // The length is a few bytes.
        let length = socklen_t::try_from(length).unwrap_or_default();
        let flags = libc::NI_NAMEREQD;
        // SAFETY: the address and the space for the name live, with their lengths.
        unsafe { libc::getnameinfo(at, length, to, space, ptr::null_mut(), 0, flags) }
    };
    let rc = match ip.to_canonical() {
        IpAddr::V4(ip) => {
            // SAFETY: a structure of numbers, of which zero is a value.
            let mut at: libc::sockaddr_in = unsafe { mem::zeroed() };
            at.sin_family = family(libc::AF_INET);
            at.sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
            ask((&raw const at).cast(), mem::size_of_val(&at))
        }
        IpAddr::V6(ip) => {
            // SAFETY: as above.
            let mut at: libc::sockaddr_in6 = unsafe { mem::zeroed() };
            at.sin6_family = family(libc::AF_INET6);
            at.sin6_addr.s6_addr = ip.octets();
            ask((&raw const at).cast(), mem::size_of_val(&at))
        }
    };
    match rc {
        // SAFETY: the call has ended the name with zero.
        0 => Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().ok().map(str::to_owned)),
        rc if is_nobody(rc) => Ok(None),
        rc => Err(failed(rc)),
    }
}

/// Converts an address family; all values fit.
fn family(family: c_int) -> libc::sa_family_t {
    family.try_into().unwrap_or_default()
}

/// Returns the names of an address that resolve back to it. Any zone owner can claim a name, so a name that does not resolve back
/// is ignored: mountd(8) makes the same second look-up.
pub fn names_that_lead_back(ip: IpAddr) -> io::Result<Vec<String>> {
    let Some(name) = name(ip)? else { return Ok(Vec::new()) };
    // A zone may answer with the text of an address, which would resolve to itself.
    if name.is_empty() || is_numeric(&name) {
        return Ok(Vec::new());
    }
    let leads_back = addresses(&name)?.contains(&ip.to_canonical());
    Ok(if leads_back { vec![name] } else { Vec::new() })
}

/// Returns true if the library takes it as an address, in any form: `0xc0000207` and `3221225991` are 192.0.2.7 to inet_aton(3).
fn is_numeric(name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: a structure of numbers and pointers, of which zero is a value.
    let mut hints: addrinfo = unsafe { mem::zeroed() };
    hints.ai_flags = libc::AI_NUMERICHOST;
    let mut first: *mut addrinfo = ptr::null_mut();
    // SAFETY: the name ends with zero, the hints and the place for the answer live.
    let rc = unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &hints, &raw mut first) };
    if rc == 0 {
        // SAFETY: it was filled by the call above and is freed once.
        unsafe { libc::freeaddrinfo(first) };
    }
    rc == 0
}

/// Returns whether one of these names or addresses of one host is in a netgroup of this host's name service. `None` if the netgroup
/// is unknown or the name service did not answer; the library does not distinguish these, and innetgr(3) answers "not in it" in
/// both cases.
pub fn in_netgroup(group: &str, host: &[&str]) -> Option<bool> {
    let group = CString::new(group).ok()?;
    let _alone = locked(&NETGROUPS);
    let is_in = host.iter().filter_map(|name| CString::new(*name).ok()).any(|name| {
        let (any, group) = (ptr::null(), group.as_ptr());
        // SAFETY: both names end with zero; null stands for any user and domain. No other thread is in these functions.
        (unsafe { innetgr(group, name.as_ptr(), any, any) }) == 1
    });
    // SAFETY: the name ends with zero; no other thread is in these functions.
    let is_known = is_in || unsafe { setnetgrent(group.as_ptr()) } == 1;
    // SAFETY: no other thread is in these functions. It frees what the call above has read, and may be called without that.
    unsafe { endnetgrent() };
    is_known.then_some(is_in)
}

/// Returns the domain of this host: the part after the first dot of its name, or else of its name in the name service.
pub fn own_domain() -> Option<String> {
    let name = own_name()?;
    let domain = |name: &str| name.split_once('.').map(|(_, domain)| domain.to_owned());
    domain(&name).or_else(|| domain(&canonical(&name)?)).filter(|domain| !domain.is_empty())
}

/// Returns the name of this host; `None` if it exceeds the length limit.
fn own_name() -> Option<String> {
    let mut name = [0_u8; NAME_MAX as usize];
    // SAFETY: the space for the name lives, with its length.
    let rc = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let name = CStr::from_bytes_until_nul(&name).ok().filter(|_| rc == 0)?;
    Some(name.to_str().ok()?.to_owned())
}

/// Returns the full name of a host (getaddrinfo(3), AI_CANONNAME).
fn canonical(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: a structure of numbers and pointers, of which zero is a value.
    let mut hints: addrinfo = unsafe { mem::zeroed() };
    hints.ai_flags = libc::AI_CANONNAME;
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut first: *mut addrinfo = ptr::null_mut();
    // SAFETY: the name ends with zero, the hints and the place for the answer live.
    let rc = unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &hints, &raw mut first) };
    if rc != 0 {
        return None;
    }
    // SAFETY: the list is the library's own until it is freed.
    let own = unsafe { first.as_ref() }.map(|one| one.ai_canonname).filter(|own| !own.is_null());
    // SAFETY: the library's own text, which ends with zero.
    let own = own.and_then(|own| unsafe { CStr::from_ptr(own) }.to_str().ok().map(str::to_owned));
    // SAFETY: it was filled by the call above and is freed once.
    unsafe { libc::freeaddrinfo(first) };
    own
}

/// Returns true if the name does not exist, or the address has no name.
fn is_nobody(code: c_int) -> bool {
    matches!(code, libc::EAI_NONAME | libc::EAI_NODATA)
}

fn failed(code: c_int) -> io::Error {
    if code == libc::EAI_SYSTEM {
        return io::Error::last_os_error();
    }
    // SAFETY: the library's own text, which lives for ever and ends with zero.
    let why = unsafe { CStr::from_ptr(libc::gai_strerror(code)) };
    io::Error::other(why.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_host_name_resolves_back() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        assert!(addresses("localhost").unwrap().contains(&ip));
        assert_eq!(names_that_lead_back(ip).unwrap(), ["localhost"]);
        assert!(addresses("nul\0inside").unwrap().is_empty());
        assert_eq!(addresses("192.0.2.7").unwrap(), [IpAddr::from([192, 0, 2, 7])]);
    }

    #[test]
    fn unreachable_server_is_not_missing_name() {
        assert!(is_nobody(libc::EAI_NONAME) && is_nobody(libc::EAI_NODATA));
        for code in [libc::EAI_AGAIN, libc::EAI_FAIL, libc::EAI_SYSTEM, libc::EAI_MEMORY] {
            assert!(!is_nobody(code), "{code}");
            assert!(!failed(code).to_string().is_empty());
        }
    }

    #[test]
    fn membership_of_missing_netgroup_unknown() {
        assert_eq!(in_netgroup("headgate-has-no-such-group", &["localhost", "127.0.0.1"]), None);
        assert_eq!(in_netgroup("nul\0inside", &["localhost"]), None);
    }

    #[test]
    fn numeric_name_counts_as_address() {
        for name in
            ["192.0.2.7", "0xc0000207", "3221225991", "192.0.519", "2001:db8::1", "fe80::1%1"]
        {
            assert!(is_numeric(name), "{name}");
        }
        for name in ["localhost", "0xc0000207.lab", "ws1", "192.0.2.7.lab", "nul\0inside", "0xg"] {
            assert!(!is_numeric(name), "{name}");
        }
    }

    #[test]
    fn own_domain_excludes_host_name() {
        let name = own_name().unwrap();
        let domain = own_domain();
        match name.split_once('.') {
            Some((_, own)) => assert_eq!(domain.as_deref(), Some(own)),
            None => assert!(domain.is_none_or(|d| canonical(&name).unwrap().ends_with(&d))),
        }
    }
}
