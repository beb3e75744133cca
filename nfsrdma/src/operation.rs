//! Numbers of operations, for counters: NFSv4 operations keep their own number; a version 3 procedure gets the number of the NFSv4
//! operation of the same name, or else one that version 4 does not use.

use crate::v3::acl::procedure as acl;
use crate::v3::procedure as v3;
use crate::v4::wire::op;

/// Stands for operations that are not defined.
pub(crate) const ILLEGAL: u8 = 2;

/// Flag for procedures of NFSACL.
const ACL: u32 = 0x100;

/// Procedures of version 3 without a counterpart in version 4, and those of NFSACL. They are numbered from [`ONLY_V3_AT`].
const ONLY_V3: [(u32, &str); 11] = [
    (v3::NULL, "NULL"),
    (v3::MKDIR, "MKDIR"),
    (v3::SYMLINK, "SYMLINK"),
    (v3::MKNOD, "MKNOD"),
    (v3::RMDIR, "RMDIR"),
    (v3::READDIRPLUS, "READDIRPLUS"),
    (v3::FSSTAT, "FSSTAT"),
    (v3::FSINFO, "FSINFO"),
    (v3::PATHCONF, "PATHCONF"),
    (ACL | acl::GETACL, "GETACL"),
    (ACL | acl::SETACL, "SETACL"),
];

/// Above all operations of version 4, with room for future ones.
const ONLY_V3_AT: u8 = 100;

/// The number of an operation of version 4.
pub(crate) fn of_v4(opcode: u32) -> u8 {
    match u8::try_from(opcode) {
        Ok(number) if (op::ACCESS..=op::REMOVEXATTR).contains(&opcode) => number,
        _ => ILLEGAL,
    }
}

/// The number of a procedure of version 3.
pub(crate) fn of_v3(procedure: u32) -> u8 {
    let same = match procedure {
        v3::GETATTR => op::GETATTR,
        v3::SETATTR => op::SETATTR,
        v3::LOOKUP => op::LOOKUP,
        v3::ACCESS => op::ACCESS,
        v3::READLINK => op::READLINK,
        v3::READ => op::READ,
        v3::WRITE => op::WRITE,
        v3::CREATE => op::CREATE,
        v3::REMOVE => op::REMOVE,
        v3::RENAME => op::RENAME,
        v3::LINK => op::LINK,
        v3::READDIR => op::READDIR,
        v3::COMMIT => op::COMMIT,
        _ => {
            let only = (ONLY_V3_AT..).zip(ONLY_V3).find(|(_, (number, _))| *number == procedure);
            return only.map_or(ILLEGAL, |(number, _)| number);
        }
    };
    of_v4(same)
}

/// The number of a procedure of NFSACL.
pub(crate) fn of_acl(procedure: u32) -> u8 {
    of_v3(ACL | procedure)
}

/// The name of an operation by its number here.
pub fn name(number: u8) -> &'static str {
    match number.checked_sub(ONLY_V3_AT) {
        Some(at) => ONLY_V3.get(usize::from(at)).map_or("ILLEGAL", |(_, name)| name),
        None => op::name(number.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_unique_numbers_and_names() {
        for opcode in op::ACCESS..=op::REMOVEXATTR {
            assert_eq!(name(of_v4(opcode)), op::name(opcode));
        }
        assert_eq!((of_v4(0), of_v4(op::ILLEGAL), name(ILLEGAL)), (ILLEGAL, ILLEGAL, "ILLEGAL"));
        let of_acls = [acl::GETACL, acl::SETACL].map(of_acl);
        assert_eq!(of_acls.map(name), ["GETACL", "SETACL"]);
        let mut numbers: Vec<u8> = (v3::NULL..=v3::COMMIT).map(of_v3).chain(of_acls).collect();
        assert!(!numbers.contains(&ILLEGAL));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 24, "RFC 1813 has 22 procedures, NFSACL two");
        assert_eq!((name(of_v3(v3::READ)), name(of_v3(v3::PATHCONF))), ("READ", "PATHCONF"));
        assert_eq!((of_v3(22), name(200)), (ILLEGAL, "ILLEGAL"));
        assert!(numbers.iter().all(|n| usize::from(*n) < rdma_transport::meter::OPERATIONS_MAX));
    }
}
