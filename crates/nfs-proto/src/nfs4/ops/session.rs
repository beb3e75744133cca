//! Operations on clients and sessions (RFC 8881 sections 18.33 to 18.36, 18.46 and 18.47).

use super::{
    AuthSys, Bitmap4, LIST_MAX, NETADDR_MAX, OPAQUE_LIMIT, SESSIONID_SIZE, Stateid4, VERIFIER_SIZE,
    structs, union,
};
use crate::nfs4::Nfstime4;
use crate::xdr::numbers;

/// Maximum number of callback security parameters in one list.
pub const SEC_PARMS_MAX: usize = 8;
/// Maximum number of SSV algorithms in one list.
const ALGS_MAX: usize = 16;

numbers! {
    /// `channel_dir_from_client4`: the channels that BIND_CONN_TO_SESSION requests.
    pub enum ChannelDir4 {
        Fore = 1,
        Back = 2,
        ForeOrBoth = 3,
        BackOrBoth = 7,
    }
}

structs! {
    /// `gss_cb_handles4`.
    #[derive(Copy)]
    pub struct GssCbHandles4<'a> {
        service: u32,
        handle_from_server: &'a [u8] as NETADDR_MAX,
        handle_from_client: &'a [u8] as NETADDR_MAX,
    }

    /// `BACKCHANNEL_CTL4args`.
    pub struct BackchannelCtl<'a> {
        cb_program: u32,
        sec_parms: Vec<CallbackSecParms4<'a>> as SEC_PARMS_MAX,
    }

    /// `BIND_CONN_TO_SESSION4args`, and its `resok`.
    #[derive(Copy)]
    pub struct BindConnToSession {
        sessid: [u8; SESSIONID_SIZE],
        dir: u32,
        use_conn_in_rdma_mode: bool,
    }

    /// `nfs_impl_id4`.
    #[derive(Copy)]
    pub struct NfsImplId4<'a> {
        domain: &'a [u8] as OPAQUE_LIMIT,
        name: &'a [u8] as OPAQUE_LIMIT,
        date: Nfstime4,
    }

    /// `state_protect_ops4`.
    #[derive(Copy)]
    pub struct StateProtectOps4 {
        must_enforce: Bitmap4,
        must_allow: Bitmap4,
    }

    /// `sec_oid4`.
    #[derive(Copy)]
    pub struct SecOid4<'a> {
        oid: &'a [u8] as NETADDR_MAX,
    }

    /// `ssv_sp_parms4`.
    pub struct SsvSpParms4<'a> {
        ops: StateProtectOps4,
        hash_algs: Vec<SecOid4<'a>> as ALGS_MAX,
        encr_algs: Vec<SecOid4<'a>> as ALGS_MAX,
        window: u32,
        num_gss_handles: u32,
    }

    /// `EXCHANGE_ID4args`.
    pub struct ExchangeId<'a> {
        verifier: [u8; VERIFIER_SIZE],
        ownerid: &'a [u8] as OPAQUE_LIMIT,
        flags: u32,
        state_protect: StateProtect4<'a>,
        client_impl_id: Vec<NfsImplId4<'a>> as 1,
    }

    /// `ssv_prot_info4`.
    pub struct SsvProtInfo4<'a> {
        ops: StateProtectOps4,
        hash_alg: u32,
        encr_alg: u32,
        ssv_len: u32,
        window: u32,
        handles: Vec<SecOid4<'a>> as LIST_MAX,
    }

    /// `EXCHANGE_ID4resok`.
    pub struct Exchanged<'a> {
        clientid: u64,
        sequenceid: u32,
        flags: u32,
        state_protect: StateProtected4<'a>,
        so_minor_id: u64,
        so_major_id: &'a [u8] as OPAQUE_LIMIT,
        server_scope: &'a [u8] as OPAQUE_LIMIT,
        server_impl_id: Vec<NfsImplId4<'a>> as 1,
    }

    /// `channel_attrs4`.
    pub struct ChannelAttrs4 {
        headerpadsize: u32,
        maxrequestsize: u32,
        maxresponsesize: u32,
        maxresponsesize_cached: u32,
        maxoperations: u32,
        maxrequests: u32,
        rdma_ird: Vec<u32> as 1,
    }

    /// `CREATE_SESSION4args`.
    pub struct CreateSession<'a> {
        clientid: u64,
        sequence: u32,
        flags: u32,
        fore_chan_attrs: ChannelAttrs4,
        back_chan_attrs: ChannelAttrs4,
        cb_program: u32,
        sec_parms: Vec<CallbackSecParms4<'a>> as SEC_PARMS_MAX,
    }

    /// `CREATE_SESSION4resok`.
    pub struct SessionCreated {
        sessionid: [u8; SESSIONID_SIZE],
        sequence: u32,
        flags: u32,
        fore_chan_attrs: ChannelAttrs4,
        back_chan_attrs: ChannelAttrs4,
    }

    /// `SEQUENCE4args`.
    #[derive(Copy)]
    pub struct Sequence {
        sessionid: [u8; SESSIONID_SIZE],
        sequenceid: u32,
        slotid: u32,
        highest_slotid: u32,
        cachethis: bool,
    }

    /// `SEQUENCE4resok`.
    #[derive(Copy)]
    pub struct Sequenced {
        sessionid: [u8; SESSIONID_SIZE],
        sequenceid: u32,
        slotid: u32,
        highest_slotid: u32,
        target_highest_slotid: u32,
        status_flags: u32,
    }

    /// `SET_SSV4args`.
    #[derive(Copy)]
    pub struct SetSsv<'a> {
        ssv: &'a [u8] as OPAQUE_LIMIT,
        digest: &'a [u8] as OPAQUE_LIMIT,
    }

    /// `SET_SSV4resok`.
    #[derive(Copy)]
    pub struct Digest<'a> {
        digest: &'a [u8] as OPAQUE_LIMIT,
    }

    /// `GET_DIR_DELEGATION4args`.
    #[derive(Copy)]
    pub struct GetDirDelegation {
        signal_deleg_avail: bool,
        notification_types: Bitmap4,
        child_attr_delay: Nfstime4,
        dir_attr_delay: Nfstime4,
        child_attributes: Bitmap4,
        dir_attributes: Bitmap4,
    }

    /// `GET_DIR_DELEGATION4resok`.
    #[derive(Copy)]
    pub struct DirDelegated {
        cookieverf: [u8; VERIFIER_SIZE],
        stateid: Stateid4,
        notification: Bitmap4,
        child_attributes: Bitmap4,
        dir_attributes: Bitmap4,
    }

    /// `WANT_DELEGATION4args`.
    #[derive(Copy)]
    pub struct WantDelegation {
        want: u32,
        claim: DelegClaim4,
    }
}

union! {
    /// `callback_sec_parms4`.
    pub enum CallbackSecParms4<'a> switch "cb_secflavor" {
        0 => None,
        1 => Sys(AuthSys<'a>),
        6 => Gss(GssCbHandles4<'a>),
    }

    /// `state_protect4_a`.
    pub enum StateProtect4<'a> switch "spa_how" {
        0 => None,
        1 => MachCred(StateProtectOps4),
        2 => Ssv(SsvSpParms4<'a>),
    }

    /// `state_protect4_r`.
    pub enum StateProtected4<'a> switch "spr_how" {
        0 => None,
        1 => MachCred(StateProtectOps4),
        2 => Ssv(SsvProtInfo4<'a>),
    }

    /// `GET_DIR_DELEGATION4res_non_fatal`.
    #[derive(Copy)]
    pub enum DirDelegation4 switch "gddrnf_status" {
        0 => Ok(DirDelegated),
        /// The server will signal when a delegation is available.
        1 => Unavail(bool),
    }

    /// `deleg_claim4`.
    #[derive(Copy)]
    pub enum DelegClaim4 switch "dc_claim" {
        1 => Previous(u32),
        4 => Fh,
        6 => DelegPrevFh,
    }
}
