//! Hosts, asked of the name service of this host, which may have to ask a DNS server: all of it may wait.
//!
//! *Errors.* [`io::Error`] where the name service did not say: a server that is away must not look like a host without a name.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::net::IpAddr;
use std::ptr;

use libc::{addrinfo, c_char, c_int, sockaddr, socklen_t};

/// Bytes of a name at most (NI_MAXHOST of getnameinfo(3)).
const NAME_MAX: u16 = 1025;
/// Addresses of a name at most.
const ADDRESSES_MAX: usize = 1024;

unsafe extern "C" {
    /// innetgr(3) of the C library.
    fn innetgr(
        netgroup: *const c_char,
        host: *const c_char,
        user: *const c_char,
        domain: *const c_char,
    ) -> c_int;
}

/// The addresses of a name; none where nobody has it.
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

/// The name of an address, which is whatever the one who runs its zone says; `None` where it has none.
pub fn name(ip: IpAddr) -> io::Result<Option<String>> {
    let mut name: [c_char; NAME_MAX as usize] = [0; NAME_MAX as usize];
    let mut ask = |at: *const sockaddr, length: usize| {
        let (to, space) = (name.as_mut_ptr(), socklen_t::from(NAME_MAX));
        // Of a few bytes.
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

/// As addresses have it; all of them fit.
fn family(family: c_int) -> libc::sa_family_t {
    family.try_into().unwrap_or_default()
}

/// The names of an address that lead back to it. A name that does not is anybody's claim, and counts as none: mountd(8) looks
/// twice, too.
pub fn names_that_lead_back(ip: IpAddr) -> io::Result<Vec<String>> {
    let Some(name) = name(ip)? else { return Ok(Vec::new()) };
    // A zone may answer with the text of an address, which would lead back to itself.
    if name.parse::<IpAddr>().is_ok() || name.is_empty() {
        return Ok(Vec::new());
    }
    let leads_back = addresses(&name)?.contains(&ip.to_canonical());
    Ok(if leads_back { vec![name] } else { Vec::new() })
}

/// Some of these, which are names or addresses of one host, is in a netgroup of this host's name service. A netgroup that nobody
/// has has no member.
pub fn in_netgroup(group: &str, host: &[&str]) -> bool {
    let Ok(group) = CString::new(group) else { return false };
    host.iter().filter_map(|name| CString::new(*name).ok()).any(|name| {
        let (any, group) = (ptr::null(), group.as_ptr());
        // SAFETY: both names end with zero; null stands for any user and domain.
        (unsafe { innetgr(group, name.as_ptr(), any, any) }) == 1
    })
}

/// Nobody has that name, or the address has none.
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
    fn this_host_has_its_name_and_leads_back() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        assert!(addresses("localhost").unwrap().contains(&ip));
        assert_eq!(names_that_lead_back(ip).unwrap(), ["localhost"]);
        assert!(addresses("nul\0inside").unwrap().is_empty());
        assert_eq!(addresses("192.0.2.7").unwrap(), [IpAddr::from([192, 0, 2, 7])]);
    }

    #[test]
    fn that_nobody_has_a_name_is_an_answer_and_a_server_that_is_away_none() {
        assert!(is_nobody(libc::EAI_NONAME) && is_nobody(libc::EAI_NODATA));
        for code in [libc::EAI_AGAIN, libc::EAI_FAIL, libc::EAI_SYSTEM, libc::EAI_MEMORY] {
            assert!(!is_nobody(code), "{code}");
            assert!(!failed(code).to_string().is_empty());
        }
    }

    #[test]
    fn nobody_is_in_a_netgroup_that_is_not_there() {
        assert!(!in_netgroup("headgate-has-no-such-group", &["localhost", "127.0.0.1"]));
        assert!(!in_netgroup("nul\0inside", &["localhost"]));
    }
}
