//! RQUOTA versions 1 and 2 (`rquota.x` of ONC+ and of the Linux quota tools): what a user or group uses of a file system, and its
//! limits.

use crate::xdr::{choice, structs, union};

/// Lowest and highest version.
pub const VERSIONS: (u32, u32) = (1, 2);
/// Maximum length of a path, in bytes (RQ_PATHLEN).
pub const PATH_MAX: usize = 1024;

/// Procedure numbers of both versions. The last two are those of Linux.
#[allow(missing_docs)] // Names from the specification, without RQUOTAPROC_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const GETQUOTA: u32 = 1;
    pub const GETACTIVEQUOTA: u32 = 2;
    pub const SETQUOTA: u32 = 3;
    pub const SETACTIVEQUOTA: u32 = 4;
}

/// `gqa_type` of version 2.
#[allow(missing_docs)] // The names are those of Linux.
pub mod kind {
    pub const USRQUOTA: u32 = 0;
    pub const GRPQUOTA: u32 = 1;
}

structs! {
    /// `getquota_args` of version 1.
    #[derive(Copy)]
    pub struct GetquotaArgs<'a> {
        gqa_pathp: &'a [u8] as PATH_MAX,
        gqa_uid: u32,
    }

    /// `ext_getquota_args` of version 2.
    #[derive(Copy)]
    pub struct ExtGetquotaArgs<'a> {
        gqa_pathp: &'a [u8] as PATH_MAX,
        gqa_type: u32,
        gqa_id: u32,
    }

    /// `sq_dqblk`: limits and use in blocks, to be set.
    #[derive(Copy)]
    pub struct SqDqblk {
        rq_bhardlimit: u32,
        rq_bsoftlimit: u32,
        rq_curblocks: u32,
        rq_fhardlimit: u32,
        rq_fsoftlimit: u32,
        rq_curfiles: u32,
        rq_btimeleft: u32,
        rq_ftimeleft: u32,
    }

    /// `setquota_args` of version 1.
    #[derive(Copy)]
    pub struct SetquotaArgs<'a> {
        sqa_qcmd: u32,
        sqa_pathp: &'a [u8] as PATH_MAX,
        sqa_id: u32,
        sqa_dqblk: SqDqblk,
    }

    /// `ext_setquota_args` of version 2.
    #[derive(Copy)]
    pub struct ExtSetquotaArgs<'a> {
        sqa_qcmd: u32,
        sqa_pathp: &'a [u8] as PATH_MAX,
        sqa_id: u32,
        sqa_type: u32,
        sqa_dqblk: SqDqblk,
    }

    /// `rquota`: limits and use in blocks of `rq_bsize` bytes; times in seconds from now on.
    #[derive(Copy)]
    pub struct Rquota {
        rq_bsize: u32,
        rq_active: bool,
        rq_bhardlimit: u32,
        rq_bsoftlimit: u32,
        rq_curblocks: u32,
        rq_fhardlimit: u32,
        rq_fsoftlimit: u32,
        rq_curfiles: u32,
        rq_btimeleft: u32,
        rq_ftimeleft: u32,
    }
}

union! {
    /// `getquota_rslt` and `setquota_rslt`.
    #[derive(Copy)]
    pub enum QuotaRslt switch "status" {
        1 => Ok(Rquota),
        2 => Noquota,
        3 => Eperm,
    }
}

choice! {
    /// Arguments of version 1, selected by the procedure number.
    pub enum Args1<'a> {
        0 => Null,
        1 | 2 => Getquota(GetquotaArgs<'a>),
        3 | 4 => Setquota(SetquotaArgs<'a>),
    }

    /// Arguments of version 2, selected by the procedure number.
    pub enum Args2<'a> {
        0 => Null,
        1 | 2 => Getquota(ExtGetquotaArgs<'a>),
        3 | 4 => Setquota(ExtSetquotaArgs<'a>),
    }

    /// Results, selected by the procedure number.
    pub enum Results {
        0 => Null,
        1 | 2 | 3 | 4 => Quota(QuotaRslt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::sample::choices;

    choices! {
        args1: Args1<'_>,
        args2: Args2<'_>,
        results: Results,
    }

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// The calls of quota(1) of the Linux quota tools, and an answer.
    #[test]
    fn procedure_encodings_match_specification() {
        let path = [5, 0x2f64_6174, 0x6100_0000];
        let gqa_pathp: &[u8] = b"/data";
        let old = bytes(&[&path[..], &[1000]].concat());
        let wanted = Args1::Getquota(GetquotaArgs { gqa_pathp, gqa_uid: 1000 });
        assert_eq!(Args1::parse(1, &old).unwrap(), (&[][..], Some(wanted)));
        let new = bytes(&[&path[..], &[1, 100]].concat());
        let wanted =
            Args2::Getquota(ExtGetquotaArgs { gqa_pathp, gqa_type: kind::GRPQUOTA, gqa_id: 100 });
        assert_eq!(Args2::parse(2, &new).unwrap(), (&[][..], Some(wanted)));
        let words = [1, 1024, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        let quota = Rquota {
            rq_bsize: 1024,
            rq_active: true,
            rq_bhardlimit: 2,
            rq_bsoftlimit: 3,
            rq_curblocks: 4,
            rq_fhardlimit: 5,
            rq_fsoftlimit: 6,
            rq_curfiles: 7,
            rq_btimeleft: 8,
            rq_ftimeleft: 9,
        };
        let wanted = Results::Quota(QuotaRslt::Ok(quota));
        assert_eq!(Results::parse(1, &bytes(&words)).unwrap(), (&[][..], Some(wanted)));
        let refused = Results::Quota(QuotaRslt::Eperm);
        assert_eq!(Results::parse(3, &bytes(&[3])).unwrap(), (&[][..], Some(refused)));
        assert!(Results::parse(1, &bytes(&[4])).is_err());
        assert_eq!(Args2::parse(5, &[0; 9]).unwrap().1, None);
    }
}
