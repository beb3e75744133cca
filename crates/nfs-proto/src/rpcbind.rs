//! The port mapper, version 2, and rpcbind, versions 3 and 4 (RFC 1833), with universal addresses (RFC 5665).

use std::net::{IpAddr, SocketAddr};

use crate::xdr::{Chain, choice, structs};

/// Maximum length of a universal address, a network id or an owner's name, in bytes.
pub const STRING_MAX: usize = 256;
/// Maximum length of the arguments and results of a forwarded call, in bytes.
pub const CALLIT_MAX: usize = 9000;
/// Maximum number of list elements that are accepted.
pub const LIST_MAX: usize = 4096;
/// Number of procedures in version 4, including NULL (RPCBSTAT_HIGHPROC).
pub const STAT_HIGHPROC: usize = 13;

/// IPPROTO_TCP in `mapping`.
pub const TCP: u32 = 6;
/// IPPROTO_UDP in `mapping`.
pub const UDP: u32 = 17;

/// Procedure numbers. All versions have NULL, SET, UNSET and DUMP.
#[allow(missing_docs)] // Names from the specification, without PMAPPROC_ and RPCBPROC_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const SET: u32 = 1;
    pub const UNSET: u32 = 2;
    /// In version 2.
    pub const GETPORT: u32 = 3;
    /// In versions 3 and 4.
    pub const GETADDR: u32 = 3;
    pub const DUMP: u32 = 4;
    pub const CALLIT: u32 = 5;
    pub const GETTIME: u32 = 6;
    pub const UADDR2TADDR: u32 = 7;
    pub const TADDR2UADDR: u32 = 8;
    pub const GETVERSADDR: u32 = 9;
    pub const INDIRECT: u32 = 10;
    pub const GETADDRLIST: u32 = 11;
    pub const GETSTAT: u32 = 12;
}

structs! {
    /// `mapping` of version 2.
    #[derive(Copy)]
    pub struct Mapping {
        prog: u32,
        vers: u32,
        prot: u32,
        port: u32,
    }

    /// `pmaplist`.
    pub struct Pmaplist {
        pmaplist: Chain<Mapping> as LIST_MAX,
    }

    /// `call_args` of version 2, `rpcb_rmtcallargs` of versions 3 and 4.
    #[derive(Copy)]
    pub struct CallArgs<'a> {
        prog: u32,
        vers: u32,
        proc: u32,
        args: &'a [u8] as CALLIT_MAX,
    }

    /// `call_result` of version 2.
    #[derive(Copy)]
    pub struct CallResult<'a> {
        port: u32,
        res: &'a [u8] as CALLIT_MAX,
    }

    /// `rpcb`.
    #[derive(Copy)]
    pub struct Rpcb<'a> {
        r_prog: u32,
        r_vers: u32,
        r_netid: &'a [u8] as STRING_MAX,
        r_addr: &'a [u8] as STRING_MAX,
        r_owner: &'a [u8] as STRING_MAX,
    }

    /// `rpcblist_ptr`.
    pub struct Rpcblist<'a> {
        rpcblist: Chain<Rpcb<'a>> as LIST_MAX,
    }

    /// A universal address; may be empty.
    #[derive(Copy)]
    pub struct Uaddr<'a> {
        uaddr: &'a [u8] as STRING_MAX,
    }

    /// `rpcb_rmtcallres`.
    #[derive(Copy)]
    pub struct RmtCallRes<'a> {
        addr: &'a [u8] as STRING_MAX,
        results: &'a [u8] as CALLIT_MAX,
    }

    /// `netbuf`.
    #[derive(Copy)]
    pub struct Netbuf<'a> {
        maxlen: u32,
        buf: &'a [u8] as STRING_MAX,
    }

    /// `rpcb_entry`.
    #[derive(Copy)]
    pub struct Entry<'a> {
        r_maddr: &'a [u8] as STRING_MAX,
        r_nc_netid: &'a [u8] as STRING_MAX,
        r_nc_semantics: u32,
        r_nc_protofmly: &'a [u8] as STRING_MAX,
        r_nc_proto: &'a [u8] as STRING_MAX,
    }

    /// `rpcb_entry_list_ptr`.
    pub struct EntryList<'a> {
        entries: Chain<Entry<'a>> as LIST_MAX,
    }

    /// `rpcbs_addrlist`.
    #[derive(Copy)]
    pub struct Addrlist<'a> {
        prog: u32,
        vers: u32,
        success: i32,
        failure: i32,
        netid: &'a [u8] as STRING_MAX,
    }

    /// `rpcbs_rmtcalllist`.
    #[derive(Copy)]
    pub struct Rmtcalllist<'a> {
        prog: u32,
        vers: u32,
        proc: u32,
        success: i32,
        failure: i32,
        indirect: i32,
        netid: &'a [u8] as STRING_MAX,
    }

    /// `rpcb_stat`. `info` counts calls of each procedure.
    pub struct Stat<'a> {
        info: [u8; 4 * STAT_HIGHPROC],
        setinfo: i32,
        unsetinfo: i32,
        addrinfo: Chain<Addrlist<'a>> as LIST_MAX,
        rmtinfo: Chain<Rmtcalllist<'a>> as LIST_MAX,
    }

    /// `rpcb_stat_byvers`: statistics of versions 2, 3 and 4.
    pub struct StatByvers<'a> {
        version2: Stat<'a>,
        version3: Stat<'a>,
        version4: Stat<'a>,
    }
}

choice! {
    /// Arguments of version 2, selected by the procedure number.
    pub enum Args2<'a> {
        0 => Null,
        1 => Set(Mapping),
        2 => Unset(Mapping),
        3 => Getport(Mapping),
        4 => Dump,
        5 => Callit(CallArgs<'a>),
    }

    /// Results of version 2, selected by the procedure number.
    pub enum Results2<'a> {
        0 => Null,
        1 => Set(bool),
        2 => Unset(bool),
        3 => Getport(u32),
        4 => Dump(Pmaplist),
        5 => Callit(CallResult<'a>),
    }

    /// Arguments of version 4, selected by the procedure number. TADDR2UADDR is the last procedure of version 3.
    pub enum Args4<'a> {
        0 => Null,
        1 => Set(Rpcb<'a>),
        2 => Unset(Rpcb<'a>),
        3 => Getaddr(Rpcb<'a>),
        4 => Dump,
        5 => Bcast(CallArgs<'a>),
        6 => Gettime,
        7 => Uaddr2taddr(Uaddr<'a>),
        8 => Taddr2uaddr(Netbuf<'a>),
        9 => Getversaddr(Rpcb<'a>),
        10 => Indirect(CallArgs<'a>),
        11 => Getaddrlist(Rpcb<'a>),
        12 => Getstat,
    }

    /// Results of version 4, selected by the procedure number. TADDR2UADDR is the last procedure of version 3.
    pub enum Results4<'a> {
        0 => Null,
        1 => Set(bool),
        2 => Unset(bool),
        3 => Getaddr(Uaddr<'a>),
        4 => Dump(Rpcblist<'a>),
        5 => Bcast(RmtCallRes<'a>),
        6 => Gettime(u32),
        7 => Uaddr2taddr(Netbuf<'a>),
        8 => Taddr2uaddr(Uaddr<'a>),
        9 => Getversaddr(Uaddr<'a>),
        10 => Indirect(RmtCallRes<'a>),
        11 => Getaddrlist(EntryList<'a>),
        12 => Getstat(StatByvers<'a>),
    }
}

/// Formats a universal address (RFC 5665 section 5.2): the host's address followed by the two bytes of the port.
pub fn universal(at: SocketAddr) -> String {
    let [high, low] = at.port().to_be_bytes();
    format!("{}.{high}.{low}", at.ip())
}

/// Parses a universal address.
pub fn parse_universal(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::xdr::sample::choices;

    choices! {
        args_of_version_2: Args2<'_>,
        results_of_version_2: Results2<'_>,
        args_of_version_4: Args4<'_>,
        results_of_version_4: Results4<'_>,
    }

    #[test]
    fn universal_addresses_match_specification() {
        let at = |s: &str| s.parse::<SocketAddr>().unwrap();
        assert_eq!(universal(at("10.77.0.1:2049")), "10.77.0.1.8.1");
        assert_eq!(universal(at("[fe80::1]:111")), "fe80::1.0.111");
        for wrong in ["", "1.2", "10.0.0.1.8", "10.0.0.1.8.256", "10.0.0.1.-1.1", "x.8.1"] {
            assert_eq!(parse_universal(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(parse_universal(b"\xff.8.1"), None);
    }

    proptest! {
        #[test]
        fn universal_addresses_round_trip(ip in any::<IpAddr>(), port in any::<u16>()) {
            let at = SocketAddr::new(ip, port);
            prop_assert_eq!(parse_universal(universal(at).as_bytes()), Some(at));
        }
    }
}
