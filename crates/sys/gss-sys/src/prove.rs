//! Finds out whether a KDC has the keys of a keytab.

use std::path::Path;

use gss_krb5::Cause;

use crate::accept::Acceptor;
use crate::error::Error;
use crate::fault::Fault;
use crate::initiate::{Initiator, Tickets};

/// Asks a KDC with the key of `client` for a ticket for `service`, and accepts it with the keys of the same keytab. Both are
/// principals: `GW$@LAB.TEST` and `cifs/gw.lab.test@LAB.TEST`. Tickets stay in the memory of this process, so that a
/// later question with the same key may not see a new one of the KDC. May block for minutes.
///
/// # Errors
/// The reason, and the library's message.
pub fn prove(keytab: &Path, client: &str, service: &str) -> Result<(), (Fault, String)> {
    // The caller knows the path.
    let prefix = format!("{}: ", keytab.display());
    let plain = |text: &str| text.strip_prefix(&prefix).unwrap_or(text).to_owned();
    let from_kdc = |error: Error| (error.fault(), plain(&error.text));
    let tickets = Tickets::KeytabOf(keytab.to_owned(), client.to_owned());
    let mut initiator = Initiator::of_principal(&tickets, service).map_err(from_kdc)?;
    let (token, _) = initiator.step(&[]).map_err(from_kdc)?;
    let accepted = Acceptor::new(keytab).and_then(|mut by| by.step(&token));
    accepted.map(drop).map_err(|error| {
        let fault = match error.cause {
            Cause::NoKey | Cause::WrongKey => Fault::OtherKey,
            Cause::Clock | Cause::Expired => Fault::Clock,
            _ => Fault::Other,
        };
        (fault, error.text)
    })
}
