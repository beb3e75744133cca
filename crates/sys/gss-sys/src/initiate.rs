//! The client's end, from the tickets of `kinit`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use gss_krb5::Cause;

use crate::error::{Error, check};
use crate::ffi::{
    self, CONTINUE_NEEDED, Context, Cred, INITIATE, KRB5, NT_PRINCIPAL, Name, Output,
    gss_buffer_desc, gss_key_value_element_desc, gss_key_value_set_desc,
};
use crate::lucid::Lucid;
use crate::{accept, names};

/// `GSS_C_MUTUAL_FLAG`, `GSS_C_CONF_FLAG` and `GSS_C_INTEG_FLAG`; replay detection and sequencing are off, as RFC 2203 section
/// 5.2.2 wants them: each protocol has its own.
const FLAGS: u32 = 2 | 16 | 32;

/// By which tickets a client shows who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tickets {
    /// Those of the environment: `KRB5CCNAME`, else the usual cache of the user.
    Usual,
    /// Those of this file, which `kinit -c` made.
    Cache(PathBuf),
    /// Such as the first key of this keytab gets from the KDC; they are kept in the memory of this process.
    Keytab(PathBuf),
}

impl Tickets {
    /// A credential by them.
    fn acquire(&self) -> Result<Cred, Error> {
        let named = |kind: &str, path: &Path| {
            CString::new([kind.as_bytes(), path.as_os_str().as_bytes()].concat())
                .map_err(|_| Error::new(Cause::Other, "a path with a zero byte"))
        };
        let (path, store) = match self {
            Self::Usual => return accept::acquire(INITIATE, &Name::none(), None),
            Self::Cache(path) => (path, vec![(c"ccache", named("FILE:", path)?)]),
            Self::Keytab(path) => {
                let keys = (c"client_keytab", named("FILE:", path)?);
                (path, vec![keys, (c"ccache", named("MEMORY:", path)?)])
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
        // The library does not say where it has looked.
        accept::acquire(INITIATE, &Name::none(), Some(&store))
            .map_err(|e| Error { text: format!("{}: {}", path.display(), e.text), ..e })
    }
}

/// One exchange with one server. Asks a KDC where there is no ticket for the service yet, so it may wait.
pub struct Initiator {
    cred: Cred,
    target: Name,
    context: Context,
}

impl Initiator {
    /// To the service of this principal, such as `cifs/server.lab.test@LAB.TEST`, with the tickets of this cache.
    ///
    /// # Errors
    /// The library's, such as no cache.
    pub fn new(cache: &Path, service: &str) -> Result<Self, Error> {
        let cred = Tickets::Cache(cache.to_owned()).acquire()?;
        let (mut minor, mut target) = (0, Name::none());
        let service = gss_buffer_desc::of(service.as_bytes());
        // SAFETY: the name's bytes outlive the call; the rest are variables here.
        let major =
            unsafe { ffi::gss_import_name(&mut minor, &service, &NT_PRINCIPAL, &mut target.0) };
        check(major, minor)?;
        Ok(Self { cred, target, context: Context::none() })
    }

    /// To a service of a host by the names that clients know, such as `nfs` and `server.lab.test`: the realm is that which
    /// krb5.conf says for the host.
    ///
    /// # Errors
    /// The library's, such as no tickets.
    pub fn of_host(tickets: &Tickets, service: &str, host: &str) -> Result<Self, Error> {
        let target = names::of_service(&format!("{service}@{host}"))?;
        Ok(Self { cred: tickets.acquire()?, target, context: Context::none() })
    }

    /// The next token, to the server's answer; empty for the first one. The second part: the exchange is complete on this side.
    ///
    /// # Errors
    /// The library's: no ticket, or an answer that is not the server's.
    pub fn step(&mut self, answer: &[u8]) -> Result<(Vec<u8>, bool), Error> {
        let (mut minor, mut token) = (0, Output::new());
        let input = gss_buffer_desc::of(answer);
        // SAFETY: the handles are of this library or null; the input outlives the call; the rest are variables here.
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
    /// The library's.
    pub fn mic(&mut self, message: &[u8]) -> Result<Vec<u8>, Error> {
        accept::mic(&self.context, message)
    }

    /// Verifies the server's signature of a message.
    ///
    /// # Errors
    /// As [`crate::Established::verify`].
    pub fn verify(&mut self, message: &[u8], mic: &[u8]) -> Result<(), Error> {
        accept::verify(&self.context, message, mic)
    }

    /// What signs and seals messages of the context by other code, once it is complete on this side. The context ends by it.
    ///
    /// # Errors
    /// As [`crate::Established::lucid`].
    pub fn lucid(self) -> Result<Lucid, Error> {
        Lucid::of(self.context)
    }
}
