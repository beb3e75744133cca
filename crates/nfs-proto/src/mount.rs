//! MOUNT version 3 (RFC 1813 section 5). Version 1 has the same procedures except MNT.

use crate::xdr::{Chain, Xdr, choice, numbers, structs};

/// Version of the RPC program.
pub const VERSION: u32 = 3;
/// Maximum length of a path, in bytes (MNTPATHLEN).
pub const PATH_MAX: usize = 1024;
/// Maximum length of a host or group name, in bytes (MNTNAMLEN).
pub const NAME_MAX: usize = 255;
/// Maximum length of a file handle, in bytes (FHSIZE3).
pub const FH_MAX: usize = 64;
/// Maximum number of credential flavors that a server may list.
pub const FLAVORS_MAX: usize = 64;
/// Maximum number of list elements that are accepted.
pub const LIST_MAX: usize = 4096;

/// Procedure numbers (RFC 1813 section 5.2).
#[allow(missing_docs)] // Names from the specification, without MOUNTPROC3_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const MNT: u32 = 1;
    pub const DUMP: u32 = 2;
    pub const UMNT: u32 = 3;
    pub const UMNTALL: u32 = 4;
    pub const EXPORT: u32 = 5;
}

numbers! {
    /// `mountstat3` except MNT3_OK: the reason why no handle is returned.
    pub enum Mountstat3 {
        Perm = 1,
        Noent = 2,
        Io = 5,
        Acces = 13,
        Notdir = 20,
        Inval = 22,
        Nametoolong = 63,
        Notsupp = 10004,
        Serverfault = 10006,
    }
}

structs! {
    /// `dirpath`.
    #[derive(Copy)]
    pub struct Dirpath<'a> {
        dirpath: &'a [u8] as PATH_MAX,
    }

    /// `mountres3_ok`.
    pub struct Mountres3Ok<'a> {
        fhandle: &'a [u8] as FH_MAX,
        auth_flavors: Vec<u32> as FLAVORS_MAX,
    }

    /// `mountbody`: a mount of a host.
    pub struct Mountbody<'a> {
        ml_hostname: &'a [u8] as NAME_MAX,
        ml_directory: &'a [u8] as PATH_MAX,
    }

    /// `mountlist`.
    pub struct Mountlist<'a> {
        mountlist: Chain<Mountbody<'a>> as LIST_MAX,
    }

    /// `groupnode`: a host or netgroup that may mount.
    pub struct Groupnode<'a> {
        gr_name: &'a [u8] as NAME_MAX,
    }

    /// `exportnode`.
    pub struct Exportnode<'a> {
        ex_dir: &'a [u8] as PATH_MAX,
        ex_groups: Chain<Groupnode<'a>> as LIST_MAX,
    }

    /// `exports`.
    pub struct Exports<'a> {
        exports: Chain<Exportnode<'a>> as LIST_MAX,
    }
}

/// `mountres3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mountres3<'a> {
    /// MNT3_OK.
    Ok(Mountres3Ok<'a>),
    /// The error status.
    Err(Mountstat3),
}

impl<'a> Xdr<'a> for Mountres3<'a> {
    fn field(_: &'static str, input: &'a [u8]) -> wire::Parsed<'a, Self> {
        match u32::field("fhs_status", input)? {
            (rest, 0) => Mountres3Ok::parse(rest).map(|(rest, ok)| (rest, Self::Ok(ok))),
            _ => Mountstat3::field("fhs_status", input).map(|(rest, why)| (rest, Self::Err(why))),
        }
    }

    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ok(ok) => {
                0u32.emit(out);
                ok.emit(out);
            }
            Self::Err(why) => why.emit(out),
        }
    }
}

choice! {
    /// Arguments, selected by the procedure number.
    pub enum Args<'a> {
        0 => Null,
        1 => Mnt(Dirpath<'a>),
        2 => Dump,
        3 => Umnt(Dirpath<'a>),
        4 => Umntall,
        5 => Export,
    }

    /// Results, selected by the procedure number.
    pub enum Results<'a> {
        0 => Null,
        1 => Mnt(Mountres3<'a>),
        2 => Dump(Mountlist<'a>),
        3 => Umnt,
        4 => Umntall,
        5 => Export(Exports<'a>),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::sample::{Sample, Seed, choices};

    impl<'a> Sample<'a> for Mountres3<'a> {
        fn sample(seed: &mut Seed<'a>) -> Self {
            match bool::sample(seed) {
                true => Self::Ok(Sample::sample(seed)),
                false => Self::Err(Sample::sample(seed)),
            }
        }
    }

    choices! {
        args: Args<'_>,
        results: Results<'_>,
    }

    #[test]
    fn endless_list_is_refused() {
        let entry = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let long = entry.repeat(LIST_MAX + 1);
        let fault = crate::xdr::decode::<Mountlist<'_>>(&long).unwrap_err().at(&long);
        assert_eq!(fault.to_string(), "mountlist over its limit of 4096 at 49152");
    }
}
