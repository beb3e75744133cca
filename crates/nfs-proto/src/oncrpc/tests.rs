use proptest::prelude::*;

use super::*;
use crate::xdr::sample::{Sample, Seed, round_trip, round_trips, seed};

fn words(w: &[u32]) -> Vec<u8> {
    w.iter().flat_map(|v| v.to_be_bytes()).collect()
}

#[test]
fn call_parses_up_to_arguments() {
    let message = words(&[9, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, 77]);
    let (rest, head) = CallHead::decode(&message).unwrap();
    let none = OpaqueAuth::NONE;
    let wanted =
        CallHead { xid: 9, program: 100_003, version: 3, procedure: 1, cred: none, verf: none };
    assert_eq!((rest, head), (&words(&[77])[..], wanted));
}

#[test]
fn malformed_headers_have_distinct_errors() {
    let of = |w: &[u32]| {
        let message = words(w);
        let (error, why) = CallHead::decode(&message).unwrap_err();
        (error, why.at(&message).to_string())
    };
    let is = |error, text: &str| (error, text.to_owned());
    assert_eq!(of(&[9]), is(CallError::NotACall, "mtype truncated at 4"));
    assert_eq!(of(&[9, 1, 0, 0, 0, 0]), is(CallError::NotACall, "mtype invalid at 4"));
    let mismatch = CallError::RpcMismatch { xid: 9 };
    assert_eq!(of(&[9, 0, 3, 1, 1, 1]), is(mismatch, "rpcvers invalid at 8"));
    assert_eq!(of(&[9, 0, 2, 1, 1]), is(CallError::Short { xid: 9 }, "proc truncated at 20"));
    let cred = CallError::Auth { xid: 9, stat: AuthStat::BadCred };
    let over = "cred.body over its limit of 400 at 28";
    assert_eq!(of(&[9, 0, 2, 1, 1, 1, 0, 401]), is(cred, over));
    assert_eq!(of(&[9, 0, 2, 1, 1, 1, 0, 8, 0]), is(cred, "cred.body truncated at 32"));
    let verf = CallError::Auth { xid: 9, stat: AuthStat::BadVerf };
    assert_eq!(of(&[9, 0, 2, 1, 1, 1, 0, 0, 0, 4]), is(verf, "verf.body truncated at 40"));
}

#[test]
fn reply_headers_match_specification() {
    let of = |body, wanted: &[u32]| {
        let head = ReplyHead { xid: 9, body };
        let mut out = Vec::new();
        head.emit(&mut out);
        assert_eq!(out, words(wanted));
        round_trip(&head, &out, ReplyHead::parse);
    };
    let accepted = |stat| ReplyBody::Accepted(OpaqueAuth::NONE, stat);
    of(accepted(AcceptStat::Success), &[9, 1, 0, 0, 0, 0]);
    of(accepted(AcceptStat::ProgUnavail), &[9, 1, 0, 0, 0, 1]);
    of(accepted(AcceptStat::ProgMismatch(3, 4)), &[9, 1, 0, 0, 0, 2, 3, 4]);
    of(accepted(AcceptStat::ProcUnavail), &[9, 1, 0, 0, 0, 3]);
    of(accepted(AcceptStat::GarbageArgs), &[9, 1, 0, 0, 0, 4]);
    of(accepted(AcceptStat::SystemErr), &[9, 1, 0, 0, 0, 5]);
    of(ReplyBody::RpcMismatch(2, 2), &[9, 1, 1, 0, 2, 2]);
    of(ReplyBody::AuthError(AuthStat::TooWeak), &[9, 1, 1, 1, 5]);
}

#[test]
fn auth_sys_limits_are_enforced() {
    let of = |machine: usize, gids: usize| {
        let machinename = vec![b'a'; machine];
        let gids = vec![7; gids];
        let body = AuthSys { stamp: 1, machinename: &machinename, uid: 2, gid: 3, gids };
        let bytes = crate::xdr::encode(&body);
        crate::xdr::decode::<AuthSys<'_>>(&bytes).map(|_| ()).map_err(|e| e.at(&bytes).to_string())
    };
    assert_eq!(of(255, 16), Ok(()));
    assert_eq!(of(256, 0), Err("machinename over its limit of 255 at 4".into()));
    assert_eq!(of(0, 17), Err("gids over its limit of 16 at 16".into()));
}

round_trips! {
    opaque_auth: OpaqueAuth<'_>,
    auth_sys: AuthSys<'_>,
    auth_stat: AuthStat,
}

proptest! {
    #[test]
    fn call_header_round_trips(seed in seed()) {
        let mut seed = Seed(&seed);
        let [xid, program, version, procedure] = [(); 4].map(|()| u32::sample(&mut seed));
        let [cred, verf] = [(); 2].map(|()| OpaqueAuth::sample(&mut seed));
        let head = CallHead { xid, program, version, procedure, cred, verf };
        let mut out = Vec::new();
        head.emit(&mut out);
        round_trip(&head, &out, CallHead::parse);
    }

    #[test]
    fn reply_header_round_trips(seed in seed(), stat in 0..6u32) {
        let mut seed = Seed(&seed);
        let xid = u32::sample(&mut seed);
        let verf = OpaqueAuth::sample(&mut seed);
        let bytes = words(&[stat, 5, 6]);
        let (_, stat) = AcceptStat::parse(&bytes).unwrap();
        let head = ReplyHead { xid, body: ReplyBody::Accepted(verf, stat) };
        let mut out = Vec::new();
        head.emit(&mut out);
        round_trip(&head, &out, ReplyHead::parse);
    }
}
