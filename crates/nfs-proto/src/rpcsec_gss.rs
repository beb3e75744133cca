//! RPCSEC_GSS version 1 (RFC 2203): the formats of credentials, of the calls that create and destroy a context, and of protected
//! arguments and results. Tokens are opaque here.

use crate::xdr::{Bulk, numbers, structs};

/// The flavor of credentials and verifiers (RFC 2203 section 5).
pub const RPCSEC_GSS: u32 = 6;
/// The only supported version (RFC 2203 section 5.1, `RPCSEC_GSS_VERS_1`).
pub const VERSION_1: u32 = 1;
/// The largest sequence number (RFC 2203 section 5.3.3.1, `MAXSEQ`), after which the context is unusable.
pub const MAXSEQ: u32 = 0x8000_0000;
/// Maximum length of a context handle in bytes: with the other fields, it fills a credential of 400 bytes.
pub const HANDLE_MAX: usize = 380;
/// Maximum length of a token that establishes a context, in bytes: a Kerberos ticket of a user in a thousand groups has 64 KiB.
pub const TOKEN_MAX: usize = 128 << 10;
/// Maximum length of a MIC, in bytes: in RFC 4121 a MIC has at most 40.
pub const MIC_MAX: usize = 256;
/// Maximum length of an encrypted body, in bytes; the transport's limit is smaller.
pub const SEALED_MAX: usize = 16 << 20;

numbers! {
    /// The purpose of a call (RFC 2203 section 5.1, `rpc_gss_proc_t`).
    pub enum GssProc {
        /// A call of the program.
        Data = 0,
        /// Sends the first token of a context.
        Init = 1,
        /// Sends a further token.
        ContinueInit = 2,
        /// Destroys the context.
        Destroy = 3,
    }

    /// The protection of arguments and results (RFC 2203 section 5.1, `rpc_gss_service_t`).
    pub enum GssService {
        /// Only the header of the call is protected.
        None = 1,
        /// A MIC.
        Integrity = 2,
        /// Encryption.
        Privacy = 3,
    }
}

structs! {
    /// The body of a credential (RFC 2203 section 5.1, `rpc_gss_cred_t`): the version, then the fields of version 1.
    #[derive(Copy)]
    pub struct GssCred<'a> {
        vers: u32,
        gss_proc: GssProc,
        seq_num: u32,
        service: GssService,
        handle: &'a [u8] as HANDLE_MAX,
    }

    /// The arguments of calls that establish a context (RFC 2203 section 5.2.2, `rpc_gss_init_arg`).
    #[derive(Copy)]
    pub struct GssInitArg<'a> {
        gss_token: &'a [u8] as TOKEN_MAX,
    }

    /// The results of these calls (RFC 2203 section 5.2.3.1, `rpc_gss_init_res`).
    #[derive(Copy)]
    pub struct GssInitRes<'a> {
        handle: &'a [u8] as HANDLE_MAX,
        gss_major: u32,
        gss_minor: u32,
        seq_window: u32,
        gss_token: &'a [u8] as TOKEN_MAX,
    }

    /// The start of arguments or results with a MIC (RFC 2203 section 5.3.2.2, `rpc_gss_integ_data`): the length of
    /// `databody_integ`, and its first word. The arguments or results follow, then [`GssMic`].
    #[derive(Copy)]
    pub struct GssInteg {
        databody_integ: u32,
        seq_num: u32,
    }

    /// The end of arguments or results with a MIC.
    #[derive(Copy)]
    pub struct GssMic<'a> {
        checksum: &'a [u8] as MIC_MAX,
    }

    /// Encrypted arguments or results (RFC 2203 section 5.3.2.3, `rpc_gss_priv_data`): the length of the token that follows.
    #[derive(Copy)]
    pub struct GssPriv {
        databody_priv: Bulk as SEALED_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::sample::round_trips;
    use crate::xdr::{decode, encode};

    round_trips! {
        creds: GssCred<'_>,
        init_args: GssInitArg<'_>,
        init_results: GssInitRes<'_>,
        integrity: GssInteg,
        mics: GssMic<'_>,
        privacy: GssPriv,
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// The credential of a Linux client: version 1, RPCSEC_GSS_DATA, number 7, integrity, a handle.
    #[test]
    fn credential_matches_specification() {
        let (gss_proc, service) = (GssProc::Data, GssService::Integrity);
        let cred =
            GssCred { vers: VERSION_1, gss_proc, seq_num: 7, service, handle: &[0, 0, 0, 9] };
        let bytes = words(&[1, 0, 7, 2, 4, 9]);
        assert_eq!(encode(&cred), bytes);
        assert_eq!(decode::<GssCred<'_>>(&bytes), Ok((&[][..], cred)));
    }

    #[test]
    fn undefined_numbers_are_refused() {
        let fault = |w: [u32; 5]| {
            let bytes = words(&w);
            decode::<GssCred<'_>>(&bytes).unwrap_err().at(&bytes).to_string()
        };
        assert_eq!(fault([1, 4, 7, 1, 0]), "gss_proc invalid at 4");
        assert_eq!(fault([1, 0, 7, 0, 0]), "service invalid at 12");
        assert_eq!(fault([1, 0, 7, 4, 0]), "service invalid at 12");
        assert_eq!(fault([1, 0, 7, 3, 381]), "handle over its limit of 380 at 16");
    }
}
