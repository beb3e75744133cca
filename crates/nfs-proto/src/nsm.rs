//! NSM version 1 (X/Open XNFS chapter 11).

use crate::xdr::{choice, numbers, structs};

/// Version of the RPC program.
pub const VERSION: u32 = 1;
/// Maximum length of a name, in bytes (SM_MAXSTRLEN).
pub const STRING_MAX: usize = 1024;

/// Procedure numbers (X/Open XNFS section 11.2).
#[allow(missing_docs)] // Names from the specification, without SM_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const STAT: u32 = 1;
    pub const MON: u32 = 2;
    pub const UNMON: u32 = 3;
    pub const UNMON_ALL: u32 = 4;
    pub const SIMU_CRASH: u32 = 5;
    pub const NOTIFY: u32 = 6;
}

numbers! {
    /// `res`.
    pub enum Res {
        StatSucc = 0,
        StatFail = 1,
    }
}

structs! {
    /// `sm_name`.
    #[derive(Copy)]
    pub struct SmName<'a> {
        mon_name: &'a [u8] as STRING_MAX,
    }

    /// `my_id`: the host, program and procedure to call back.
    #[derive(Copy)]
    pub struct MyId<'a> {
        my_name: &'a [u8] as STRING_MAX,
        my_prog: u32,
        my_vers: u32,
        my_proc: u32,
    }

    /// `mon_id`.
    #[derive(Copy)]
    pub struct MonId<'a> {
        mon_name: &'a [u8] as STRING_MAX,
        my_id: MyId<'a>,
    }

    /// `mon`.
    #[derive(Copy)]
    pub struct Mon<'a> {
        mon_id: MonId<'a>,
        private: [u8; 16],
    }

    /// `stat_chge`.
    #[derive(Copy)]
    pub struct StatChge<'a> {
        mon_name: &'a [u8] as STRING_MAX,
        state: i32,
    }

    /// `sm_stat_res`.
    #[derive(Copy)]
    pub struct SmStatRes {
        res_stat: Res,
        state: i32,
    }

    /// `sm_stat`.
    #[derive(Copy)]
    pub struct SmStat {
        state: i32,
    }
}

choice! {
    /// Arguments, selected by the procedure number.
    pub enum Args<'a> {
        0 => Null,
        1 => Stat(SmName<'a>),
        2 => Mon(Mon<'a>),
        3 => Unmon(MonId<'a>),
        4 => UnmonAll(MyId<'a>),
        5 => SimuCrash,
        6 => Notify(StatChge<'a>),
    }

    /// Results, selected by the procedure number.
    pub enum Results {
        0 | 5 | 6 => Void,
        1 | 2 => StatRes(SmStatRes),
        3 | 4 => State(SmStat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::sample::choices;

    choices! {
        args: Args<'_>,
        results: Results,
    }

    #[test]
    fn procedure_encodings_match_specification() {
        let mon_name: &[u8] = b"host";
        let host = [4, 0x686f_7374];
        let id = [2, 0x6d65_0000, 100_021, 4, 16];
        let my_id = MyId { my_name: b"me", my_prog: 100_021, my_vers: 4, my_proc: 16 };
        let mon_id = MonId { mon_name, my_id };
        let private = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];
        let cases: [(u32, Vec<u32>, Args<'_>); 7] = [
            (0, vec![], Args::Null),
            (1, host.to_vec(), Args::Stat(SmName { mon_name })),
            (2, [&host[..], &id, &[1, 2, 3, 4]].concat(), Args::Mon(Mon { mon_id, private })),
            (3, [&host[..], &id].concat(), Args::Unmon(mon_id)),
            (4, id.to_vec(), Args::UnmonAll(my_id)),
            (5, vec![], Args::SimuCrash),
            (6, [&host[..], &[7]].concat(), Args::Notify(StatChge { mon_name, state: 7 })),
        ];
        for (number, words, wanted) in cases {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
            let (rest, args) = Args::parse(number, &bytes).unwrap();
            assert_eq!((rest, args), (&[][..], Some(wanted)), "procedure {number}");
        }
        assert_eq!(Args::parse(7, &[0; 9]).unwrap().1, None);
    }
}
