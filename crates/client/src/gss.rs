//! Creates and destroys RPCSEC_GSS version 1 contexts (RFC 2203) with the krb5 mechanism (RFC 4121).
//!
//! *Operation.* [`establish`] sends the server a ticket and returns a [`Credential`] of the resulting context.
//!
//! *Errors.* A context that the server has forgotten is not created again; the error reports that.

use std::net::IpAddr;
use std::time::Duration;

use gss_krb5::{Enctype, Role};
use gss_sys::{Initiator, Pool, Tickets};
use nfs_proto::oncrpc::{ReplyBody, ReplyHead};
use nfs_proto::rpcsec_gss::{GssInitArg, GssInitRes, GssProc, GssService, RPCSEC_GSS};
use rdma_transport::caller::Answer;
use rdma_transport::channel::Reply;

use crate::context::{Context, cred};
use crate::error::{Error, Result};
use crate::rpc::{Credential, ResultPlace, Rpc, results};

/// Time limit for the library to build a token, since a KDC may not answer. Waiting for a free thread has the same limit.
const TOKEN_MAX: Duration = Duration::from_secs(15);
/// Maximum length of the reply to a ticket, in bytes.
const INIT_REPLY_MAX: usize = 4096;
/// The service name of NFS (RFC 2623 section 3.1).
const SERVICE: &str = "nfs";

/// Limits the number of tokens built at once.
static POOL: Pool = Pool::new(4, TOKEN_MAX);

/// The protection of calls, and the tickets that authenticate the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Security {
    /// Protection of arguments and results: none (`krb5`), a MIC (`krb5i`), encryption (`krb5p`).
    pub service: GssService,
    /// Source of the tickets.
    pub tickets: Tickets,
}

impl Security {
    /// Returns the name used in mount options.
    pub fn name(&self) -> &'static str {
        match self.service {
            GssService::None => "krb5",
            GssService::Integrity => "krb5i",
            GssService::Privacy => "krb5p",
        }
    }
}

/// Establishes a context with the server on this connection, for calls to this program with this host's tickets; `host` is the
/// server name that clients use.
///
/// # Errors
/// [`Error::Kerberos`]: no ticket is available, or the server refuses it.
pub async fn establish(
    rpc: &Rpc,
    (program, version): (u32, u32),
    host: &str,
    security: &Security,
) -> Result<Credential> {
    let refused = |why: String| Error::Kerberos(why);
    if host.parse::<IpAddr>().is_ok() {
        let why = format!("tickets are for names of servers: write its name in place of {host}");
        return Err(refused(why));
    }
    let (to, tickets, name) = (rpc.info().peer.ip(), security.tickets.clone(), host.to_owned());
    let first = move || {
        let mut initiator = Initiator::of_host(&tickets, SERVICE, &name)?;
        let (token, _) = initiator.step(&[])?;
        Ok::<_, gss_sys::Error>((initiator, token))
    };
    let (mut initiator, token) = POOL
        .run(to, first)
        .await
        .map_err(|busy| refused(busy.to_string()))?
        .map_err(|e| refused(format!("no ticket for {SERVICE}@{host}: {e}")))?;
    let service = security.service;
    let init = cred(GssProc::Init, 0, service, &[]);
    let mut w = Rpc::head(program, version, 0, &Credential::plain(RPCSEC_GSS, &init));
    w.value(&GssInitArg { gss_token: &token });
    let answer = rpc.call(w, ResultPlace::long(INIT_REPLY_MAX)).await?;
    let (verifier, made) = init_results(&answer)?;
    if made.gss_major != 0 {
        let GssInitRes { gss_major, gss_minor, .. } = made;
        let why = format!(
            "the server takes no ticket of this client for {SERVICE}@{host} (major status {gss_major:#x}, minor {gss_minor}); \
             its log says why"
        );
        return Err(refused(why));
    }
    // Processing the last token needs only memory.
    let told = |e: gss_sys::Error| refused(format!("the answer of the server: {e}"));
    let (rest, is_complete) = initiator.step(made.gss_token).map_err(told)?;
    if !is_complete || !rest.is_empty() {
        return Err(refused("the server asks for more tokens than Kerberos has".into()));
    }
    let lucid = initiator.lucid().map_err(told)?;
    let has_subkey = lucid.acceptor_key.is_some();
    let key = lucid.acceptor_key.unwrap_or(lucid.initiator_key);
    let enctype = i32::try_from(key.enctype).ok().and_then(Enctype::from_number);
    let keys = enctype
        .and_then(|e| gss_krb5::Context::new(e, &key.key, Role::Initiator, has_subkey).ok())
        .ok_or_else(|| refused(format!("encryption type {} is not known here", key.enctype)))?;
    // RFC 2203 section 5.2.3.1: the verifier of a complete context is a MIC of the window.
    let window = made.seq_window;
    keys.verify_mic(&verifier, &[&window.to_be_bytes()])
        .map_err(|_| refused("the server's window does not verify".into()))?;
    let context = Context::new((keys, lucid.send_seq), (made.handle, window), service);
    Ok(Credential::of_context(context))
}

/// Destroys the context of a credential on the server, if it has one, with a call to this program and version (RFC 2203 section
/// 5.4). The credential must not be used afterwards.
pub(crate) async fn end(
    rpc: &Rpc,
    cred: &Credential,
    (program, version): (u32, u32),
) -> Result<()> {
    let Some(context) = cred.context() else { return Ok(()) };
    let numbered = context.number().await?;
    let xid = rpc.next_xid();
    let head = numbered.head(xid, (program, version, 0), GssProc::Destroy);
    let answer = rpc.exchange(xid, Reply::of(head), ResultPlace::SHORT).await?;
    // The results of this call are not protected.
    let answer = numbered.open_as(answer, GssService::None)?;
    results(&answer).map(drop)
}

/// Returns the verifier and the results of a call that creates a context.
fn init_results(answer: &Answer) -> Result<(Vec<u8>, GssInitRes<'_>)> {
    let made = results(answer)?.value()?;
    let (_, head) =
        wire::decode(&answer.body, ReplyHead::parse).map_err(|e| e.at(&answer.body[..]))?;
    let verifier = match head.body {
        ReplyBody::Accepted(verf, _) if verf.flavor == RPCSEC_GSS => verf.body.to_vec(),
        _ => Vec::new(),
    };
    Ok((verifier, made))
}
