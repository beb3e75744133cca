//! The client side, with the tickets of `kinit`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use gss_krb5::Cause;

use crate::error::{Error, check};
use crate::ffi::{
    self, CONTINUE_NEEDED, Context, Cred, INITIATE, KRB5, Name, Output, gss_buffer_desc,
    gss_key_value_element_desc, gss_key_value_set_desc,
};
use crate::lucid::Lucid;
use crate::{accept, names};

/// `GSS_C_MUTUAL_FLAG`, `GSS_C_CONF_FLAG` and `GSS_C_INTEG_FLAG`. Replay detection and sequencing are off as RFC 2203 section 5.2.2
/// requires, because each protocol has its own.
const FLAGS: u32 = 2 | 16 | 32;

/// The source of a client's tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tickets {
    /// The cache of the environment: `KRB5CCNAME`, otherwise the user's default cache.
    Usual,
    /// This cache file, created by `kinit -c`.
    Cache(PathBuf),
    /// Tickets from the KDC for the first key of this keytab, kept in the memory of this process.
    Keytab(PathBuf),
    /// The same for this principal of the keytab.
    KeytabOf(PathBuf, String),
}

impl Tickets {
    /// Acquires a credential.
    fn acquire(&self) -> Result<Cred, Error> {
        let named = |kind: &str, path: &Path| {
            CString::new([kind.as_bytes(), path.as_os_str().as_bytes()].concat())
                .map_err(|_| Error::new(Cause::Other, "a path with a zero byte"))
        };
        let from_keys = |path, cache: &str| {
            let keys = (c"client_keytab", named("FILE:", path)?);
            Ok::<_, Error>(vec![keys, (c"ccache", named(cache, path)?)])
        };
        let (path, store, name) = match self {
            Self::Usual => return accept::acquire(INITIATE, &Name::none(), None),
            Self::Cache(path) => (path, vec![(c"ccache", named("FILE:", path)?)], Name::none()),
            Self::Keytab(path) => (path, from_keys(path, "MEMORY:")?, Name::none()),
            Self::KeytabOf(path, principal) => {
                // A cache has one principal.
                let cache = format!("MEMORY:{principal} ");
                (path, from_keys(path, &cache)?, names::of_principal(principal)?)
            }
        };
        let elements: Vec<gss_key_value_element_desc> = store
            .iter()
            .map(|(key, value)| gss_key_value_element_desc {
                key: key.as_ptr(),
                value: value.as_ptr(),
            })
            .collect();
        // Two at most.
        let count = u32::try_from(elements.len()).unwrap_or(0);
        let store = gss_key_value_set_desc { count, elements: elements.as_ptr() };
        // The library's message does not name the cache.
        accept::acquire(INITIATE, &name, Some(&store))
            .map_err(|e| Error { text: format!("{}: {}", path.display(), e.text), ..e })
    }
}

/// One exchange with one server. Requests a ticket for the service from a KDC if necessary, so it may block.
pub struct Initiator {
    cred: Cred,
    target: Name,
    context: Context,
}

impl Initiator {
    /// Starts an exchange with a service principal, such as `cifs/server.lab.test@LAB.TEST`, with the tickets of this cache.
    ///
    /// # Errors
    /// An error of the library, such as a missing cache.
    pub fn new(cache: &Path, service: &str) -> Result<Self, Error> {
        Self::of_principal(&Tickets::Cache(cache.to_owned()), service)
    }

    /// Like `new`, with any tickets.
    ///
    /// # Errors
    /// An error of the library, such as missing tickets.
    pub(crate) fn of_principal(tickets: &Tickets, service: &str) -> Result<Self, Error> {
        let target = names::of_principal(service)?;
        Ok(Self { cred: tickets.acquire()?, target, context: Context::none() })
    }

    /// Starts an exchange with a service on a host, such as `nfs` and `server.lab.test`; krb5.conf maps the host to a realm.
    ///
    /// # Errors
    /// An error of the library, such as missing tickets.
    pub fn of_host(tickets: &Tickets, service: &str, host: &str) -> Result<Self, Error> {
        let target = names::of_service(&format!("{service}@{host}"))?;
        Ok(Self { cred: tickets.acquire()?, target, context: Context::none() })
    }

    /// Processes the server's response (empty for the first call) and returns the next token, and whether the exchange is complete
    /// on this side.
    ///
    /// # Errors
    /// An error of the library: no ticket, or an invalid response.
    pub fn step(&mut self, answer: &[u8]) -> Result<(Vec<u8>, bool), Error> {
        let (mut minor, mut token) = (0, Output::new());
        let input = gss_buffer_desc::of(answer);
        // SAFETY: the handles belong to this library or are null; the input outlives the call; all other pointers refer to local
        // variables.
        let major = unsafe {
            ffi::gss_init_sec_context(
                &mut minor,
                self.cred.0,
                &mut self.context.0,
                self.target.0,
                &KRB5,
                FLAGS,
                0,
                ptr::null(),
                &input,
                ptr::null_mut(),
                &mut token.0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        check(major, minor)?;
        Ok((token.bytes().to_vec(), major & CONTINUE_NEEDED == 0))
    }

    /// Signs a message as the client.
    ///
    /// # Errors
    /// An error of the library.
    pub fn mic(&mut self, message: &[u8]) -> Result<Vec<u8>, Error> {
        accept::mic(&self.context, message)
    }

    /// Verifies the server's signature of a message.
    ///
    /// # Errors
    /// See [`crate::Established::verify`].
    pub fn verify(&mut self, message: &[u8], mic: &[u8]) -> Result<(), Error> {
        accept::verify(&self.context, message, mic)
    }

    /// Exports the keys of a complete context, so that other code can sign and encrypt messages. Consumes the context.
    ///
    /// # Errors
    /// See [`crate::Established::lucid`].
    pub fn lucid(self) -> Result<Lucid, Error> {
        Lucid::of(self.context)
    }
}
