//! The reasons why a KDC and a keytab do not agree.

/// Why a KDC issues no ticket for the keys of a keytab, or one that these do not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No KDC of the realm is known, or none answers.
    NoKdc,
    /// The KDC does not know the principal that asks.
    UnknownClient,
    /// The principal that asks is disabled or locked, or has expired.
    Disabled,
    /// The KDC has another key of the principal that asks.
    OldKey,
    /// The KDC does not know the service.
    UnknownService,
    /// The KDC made the ticket with a key that the keytab does not have.
    OtherKey,
    /// The clocks of this host and of the KDC differ.
    Clock,
    /// Another reason, described by the text.
    Other,
}
