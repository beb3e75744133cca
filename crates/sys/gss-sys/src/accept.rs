//! The server side (RFC 2743 section 2.2.2, RFC 4121).

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use gss_krb5::Cause;
use zeroize::Zeroizing;

use crate::error::{Error, check};
use crate::ffi::{
    self, ACCEPT, CONTINUE_NEEDED, Context, Cred, ERROR_MASK, KRB5, Name, Output, SESSION_KEY,
    gss_OID_set_desc, gss_buffer_desc, gss_key_value_element_desc, gss_key_value_set_desc,
};
use crate::lucid::{self, Lucid};
use crate::{keytab, names};

/// Maximum length of a client's token, in bytes; a ticket whose PAC has a thousand groups has 64 KiB.
const TOKEN_MAX: usize = 256 << 10;
/// Maximum number of rounds of one exchange; Kerberos needs one, with DCE_STYLE two.
const ROUNDS_MAX: u32 = 4;

/// One exchange with one client.
pub struct Acceptor {
    cred: Cred,
    context: Context,
    rounds: u32,
    /// The library reads the keytab at each token through this descriptor.
    keytab: File,
}

/// The result of processing a token.
pub enum Step {
    /// The client must respond to this token.
    Continue(Vec<u8>),
    /// The client is authenticated.
    Done {
        /// Token for the client; empty if it did not request mutual authentication.
        token: Vec<u8>,
        /// The established context.
        established: Box<Established>,
    },
}

impl Acceptor {
    /// Accepts tickets for every key of this keytab, which is opened now, so that changes need no restart. Refuses files that are
    /// not regular before the library opens them: it would wait without limit for the other end of a pipe.
    ///
    /// # Errors
    /// [`Cause::NoLibrary`]; [`Cause::Keytab`], with the path, if the file cannot be read or is empty.
    pub fn new(path: &Path) -> Result<Self, Error> {
        Self::by(path, None)
    }

    /// Like `new`, for the keys of one service on any host.
    fn by(path: &Path, service: Option<&str>) -> Result<Self, Error> {
        let unusable = |why: &dyn std::fmt::Display| {
            Error::new(Cause::Keytab, format!("keytab {}: {why}", path.display()))
        };
        let file = keytab::open(path).map_err(|e| unusable(&e))?;
        // Pass the opened file, so that the library uses the file that was checked even if the path is replaced meanwhile.
        let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
        let name = CString::new(format!("FILE:{opened}")).map_err(|e| unusable(&e))?;
        let element = gss_key_value_element_desc { key: c"keytab".as_ptr(), value: name.as_ptr() };
        let store = gss_key_value_set_desc { count: 1, elements: &element };
        let name = service.map_or(Ok(Name::none()), names::of_service)?;
        let cred = acquire(ACCEPT, &name, Some(&store)).map_err(|e| match e.cause {
            Cause::NoLibrary => e,
            _ => unusable(&e.text.replace(&opened, &path.display().to_string())),
        })?;
        Ok(Self { cred, context: Context::none(), rounds: 0, keytab: file })
    }

    /// Processes the client's next token, without SPNEGO. May read files: see [`crate::Pool`].
    ///
    /// # Errors
    /// The exchange has failed; [`Error::token`] must be sent to the client.
    pub fn step(&mut self, token: &[u8]) -> Result<Step, Error> {
        self.rounds += 1;
        if token.is_empty() || token.len() > TOKEN_MAX || self.rounds > ROUNDS_MAX {
            return Err(Error::new(
                Cause::Malformed,
                "a token that is empty or too long, or one too many",
            ));
        }
        let (mut minor, mut lifetime, mut flags) = (0, 0, 0);
        let (mut source, mut answer) = (Name::none(), Output::new());
        let mut mech = ptr::null();
        let input = gss_buffer_desc::of(token);
        // SAFETY: the handles belong to this library or are null; the input outlives the call; all other pointers refer to local
        // variables.
        let major = unsafe {
            ffi::gss_accept_sec_context(
                &mut minor,
                &mut self.context.0,
                self.cred.0,
                &input,
                ptr::null(),
                &mut source.0,
                &mut mech,
                &mut answer.0,
                &mut flags,
                &mut lifetime,
                ptr::null_mut(),
            )
        };
        if let Err(error) = check(major, minor) {
            return Err(Error { token: answer.bytes().to_vec(), ..error });
        }
        let (input_token, token) = (token, answer.bytes().to_vec());
        if major & CONTINUE_NEEDED != 0 {
            return Ok(Step::Continue(token));
        }
        let context = std::mem::replace(&mut self.context, Context::none());
        self.check_authorization(input_token)?;
        let established = Established::new(context, source, lifetime)?;
        Ok(Step::Done { token, established: Box::new(established) })
    }

    /// Refuses a ticket with authorization data outside of AD-IF-RELEVANT of a type that neither the library nor this program
    /// knows (RFC 4120 section 5.2.6): it may restrict the ticket. The library ignores it. A ticket of an older encryption type,
    /// such as RC4, is not examined.
    fn check_authorization(&self, token: &[u8]) -> Result<(), Error> {
        /// AD-KDCIssued, AD-MANDATORY-FOR-KDC, AD-CAMMAC (RFC 7751), AD-WIN2K-PAC.
        const KNOWN: [i32; 4] = [4, 8, 96, 128];
        let types = keytab::keys_of(&self.keytab, |entries| {
            let keys = entries.iter().map(|(entry, key)| (entry.enctype, *key));
            gss_krb5::mandatory_types(token, keys)
        });
        let types = types.ok().flatten().unwrap_or_default();
        match types.into_iter().find(|of| !KNOWN.contains(of)) {
            None => Ok(()),
            Some(of) => Err(Error::new(
                Cause::Other,
                format!(
                    "the ticket has authorization data of type {of}, which is not known and must not be ignored"
                ),
            )),
        }
    }
}

/// Processes a client's first token with the keys of these services, in this order, and finally with every key of the keytab. If
/// several names share a key, as all names of a computer in Active Directory do, the ticket counts for the first of these services,
/// because the requested name is not signed. Opens the keytab each time.
///
/// # Errors
/// The errors of [`Acceptor::new`] and [`Acceptor::step`].
pub fn accept(keytab: &Path, services: &[&str], token: &[u8]) -> Result<Step, Error> {
    for service in services {
        let taken = Acceptor::by(keytab, Some(service)).and_then(|mut by| by.step(token));
        match taken {
            // The ticket was not decrypted, so the library has not recorded the token and will not consider it a replay.
            Err(Error { cause: Cause::Keytab | Cause::NoKey | Cause::WrongKey, .. }) => {}
            taken => return taken,
        }
    }
    Acceptor::new(keytab)?.step(token)
}

/// Acquires a credential for the krb5 mechanism, for this name or for any name.
pub(crate) fn acquire(
    usage: std::ffi::c_int,
    name: &Name,
    store: Option<&gss_key_value_set_desc>,
) -> Result<Cred, Error> {
    let (mut minor, mut cred) = (0, Cred::none());
    let mechs = gss_OID_set_desc { count: 1, elements: &KRB5 };
    // SAFETY: the store's strings outlive the call; all other pointers refer to local variables.
    let major = unsafe {
        ffi::gss_acquire_cred_from(
            &mut minor,
            name.0,
            u32::MAX,
            &mechs,
            usage,
            store.map_or(ptr::null(), ptr::from_ref),
            &mut cred.0,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    check(major, minor)?;
    Ok(cred)
}

/// A complete context: the client's identity and the shared keys.
pub struct Established {
    context: Context,
    source: Name,
    principal: String,
    service: String,
    lifetime: Duration,
}

impl Established {
    fn new(context: Context, source: Name, lifetime: u32) -> Result<Self, Error> {
        let (mut minor, mut target) = (0, Name::none());
        // SAFETY: the context belongs to the library; null pointers mark unneeded results.
        let major = unsafe {
            ffi::gss_inquire_context(
                &mut minor,
                context.0,
                ptr::null_mut(),
                &mut target.0,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        check(major, minor)?;
        let principal = names::display(&source)?;
        let service = names::display(&target)?;
        let lifetime = Duration::from_secs(lifetime.into());
        Ok(Self { context, source, principal, service, lifetime })
    }

    /// Returns the client's principal: `alice@LAB.TEST`, `host/client.lab.test@LAB.TEST`, `CLIENT$@LAB.TEST`.
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// Returns the service of the ticket: `cifs/server.lab.test@LAB.TEST`.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Returns how long the library accepts the context, measured from its creation: until the ticket expires, plus `clockskew`
    /// (300 s). [`Established::end_time`] returns the expiry of the ticket.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Returns the local user to which krb5.conf maps the client (`auth_to_local`; otherwise the first component of a principal in
    /// the default realm), or `None`. Does not check that the user exists.
    pub fn local_name(&self) -> Option<String> {
        names::local(&self.source)
    }

    /// Returns `KERB_VALIDATION_INFO` of the client's PAC (MS-PAC section 2.5) with its NDR headers, at most 128 KiB; `None` unless
    /// the library has verified the PAC's signature with the service's key.
    pub fn logon_info(&self) -> Option<Vec<u8>> {
        names::attribute(&self.source, b"urn:mspac:logon-info")
    }

    /// Returns the shared key (`GSS_C_INQ_SSPI_SESSION_KEY`) of 16 or 32 bytes, depending on the encryption type.
    ///
    /// # Errors
    /// An error of the library.
    pub fn session_key(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let (mut minor, mut set) = (0, ptr::null_mut());
        // SAFETY: the context belongs to the library; all other pointers refer to local variables.
        let major = unsafe {
            ffi::gss_inquire_sec_context_by_oid(&mut minor, self.context.0, &SESSION_KEY, &mut set)
        };
        check(major, minor)?;
        // SAFETY: on success the result is null or a set of `count` buffers.
        let key = unsafe {
            set.as_ref().filter(|set| set.count > 0 && !set.elements.is_null()).map(|set| {
                let first = &*set.elements;
                Zeroizing::new(first.bytes().to_vec())
            })
        };
        // SAFETY: the library allocated it, and the key has been copied. The library wipes it.
        unsafe { ffi::gss_release_buffer_set(&mut 0, &mut set) };
        key.filter(|key| !key.is_empty())
            .ok_or_else(|| Error::new(Cause::Other, "the context has no session key"))
    }

    /// Signs a message as the server (`GSS_GetMIC`).
    ///
    /// # Errors
    /// An error of the library, such as [`Cause::Expired`].
    pub fn mic(&mut self, message: &[u8]) -> Result<Vec<u8>, Error> {
        mic(&self.context, message)
    }

    /// Verifies the client's signature of a message (`GSS_VerifyMIC`).
    ///
    /// # Errors
    /// [`Cause::Mic`] or [`Cause::Malformed`] if the signature does not match message and context.
    pub fn verify(&mut self, message: &[u8], mic: &[u8]) -> Result<(), Error> {
        verify(&self.context, message, mic)
    }

    /// Returns the expiry of the ticket in seconds since 1970. Consumes the context.
    ///
    /// # Errors
    /// An error of the library.
    pub fn end_time(self) -> Result<u64, Error> {
        let read = |at: *const ffi::gss_krb5_lucid_context_v1_t| {
            // SAFETY: the argument is null or a structure of version 1.
            unsafe { at.as_ref() }.map(|context| context.endtime.into())
        };
        let end = lucid::export(self.context, read)?;
        end.ok_or_else(|| Error::new(Cause::Other, "the context has no end"))
    }

    /// Exports the keys of the context, so that other code can sign and encrypt messages (RFC 4121, RFC 1964). Consumes the
    /// context.
    ///
    /// # Errors
    /// An error of the library; [`Cause::Other`] for a context of RFC 1964, whose ciphers (DES, RC4) are refused.
    pub fn lucid(self) -> Result<Lucid, Error> {
        Lucid::of(self.context)
    }
}

pub(crate) fn mic(context: &Context, message: &[u8]) -> Result<Vec<u8>, Error> {
    let (mut minor, mut mic) = (0, Output::new());
    let message = gss_buffer_desc::of(message);
    // SAFETY: the context belongs to the library; the message outlives the call.
    let major = unsafe { ffi::gss_get_mic(&mut minor, context.0, 0, &message, &mut mic.0) };
    check(major, minor)?;
    Ok(mic.bytes().to_vec())
}

pub(crate) fn verify(context: &Context, message: &[u8], mic: &[u8]) -> Result<(), Error> {
    let mut minor = 0;
    let (message, mic) = (gss_buffer_desc::of(message), gss_buffer_desc::of(mic));
    // SAFETY: see above.
    let major =
        unsafe { ffi::gss_verify_mic(&mut minor, context.0, &message, &mic, ptr::null_mut()) };
    if major & !ERROR_MASK != 0 && major & ERROR_MASK == 0 {
        // Supplementary information such as "old token" means that the message was seen before. RFC 2743 leaves the decision to the
        // caller, and this code never verifies a message twice.
        return Err(Error::new(Cause::Mic, "the message is old, or out of its order"));
    }
    check(major, minor).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Opening a pipe blocks until a writer opens it, which never happens here.
    #[test]
    fn pipe_as_keytab_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("krb5.keytab");
        let made = std::process::Command::new("mkfifo").arg(&at).status().unwrap();
        assert!(made.success());
        let (answer, answered) = mpsc::channel();
        let path = at.clone();
        std::thread::spawn(move || {
            let refused = Acceptor::new(&path).err().map(|e| (e.cause, e.text));
            let read = keytab::read(&path).map_err(|e| e.kind());
            answer.send((refused, read))
        });
        let (refused, read) = answered.recv_timeout(Duration::from_secs(30)).unwrap();
        let why = format!("keytab {}: not a regular file", at.display());
        assert_eq!(refused, Some((Cause::Keytab, why)));
        assert_eq!(read, Err(std::io::ErrorKind::InvalidInput));
    }
}
