//! Names of counted events: rules that a peer can break and limits that it can meet. Their counters begin at 0, so that `rate()`
//! sees the first event as a rise.

use rdma_transport::{ibverbs, iwarp, refused, rpcrdma, smbdirect, tcp};

/// Rules of one protocol, named in the terms of its specification.
pub(super) struct Family {
    /// The protocol and specification of the rules.
    pub(super) of: &'static str,
    pub(super) names: Vec<&'static str>,
}

/// Returns every rule, grouped by protocol.
pub(super) fn families() -> Vec<Family> {
    let family = |of, names: &[&'static str]| Family { of, names: names.to_vec() };
    let iwarp: Vec<&str> = iwarp::Violation::ALL.iter().map(|v| v.name()).collect();
    vec![
        family("SMB, MS-SMB2", smbd_core::violation::Violation::NAMES),
        family("frames of SMB over TCP, MS-SMB2 section 2.1", tcp::direct::Violation::NAMES),
        family("SMB Direct, MS-SMBD", smbdirect::Violation::NAMES),
        family("ONC RPC, RFC 5531", nfsrdma::violation::Violation::NAMES),
        family("record marks of ONC RPC, RFC 5531 section 11", tcp::record::Violation::NAMES),
        family("TLS below ONC RPC, RFC 9289", &[tcp::TLS_HANDSHAKE]),
        family("RPC-over-RDMA, RFC 8166 and 8167", rpcrdma::check::Violation::NAMES),
        family("iWARP, RFC 5040, 5041, 5044 and 6581", &iwarp),
        family("RDMA, as the card reports it", ibverbs::RULES),
        family(
            "no protocol: an address that guesses passwords waits, datagrams beyond those in progress are dropped",
            &[smbd_core::violation::LOGON_SLOWED, crate::portmap::DATAGRAMS_IN_WORK],
        ),
    ]
}

/// Returns the configuration rules that refuse clients: the possible values of `rule` in `headgate_refusals_total`.
pub(super) fn refusals() -> Vec<&'static str> {
    // Counts credentials whose flavor is not served; an unreadable credential breaks the protocol rule of the same name.
    let credential = nfsrdma::violation::Violation::Credential.name();
    let of_calls = [
        nfsrdma::source_port::RULE,
        nfsrdma::rpc::gss::RULE,
        rdma_transport::tls::CERTIFICATE,
        credential,
    ];
    let smb = smbd_core::refusal::Rule::NAMES;
    let page = &super::actions::RULES;
    let names = [refused::SHARE_NAME, super::access::RULE];
    [vfs::namespace::Refusal::NAMES, &names, smb, &of_calls, page].concat()
}

/// Returns the protocol and specification of a rule.
pub(super) fn of(rule: &str) -> Option<&'static str> {
    families().iter().find(|f| f.names.contains(&rule)).map(|f| f.of)
}

/// Memory for case-insensitive name lookups, for one address and in total.
pub(super) const NAMES_OF_ADDRESS: &str = "names-of-address";
pub(super) const NAMES: &str = "names";

/// Operations that got no turn on a file system that does not answer.
pub(super) const SILENT_STORAGE: &str = "silent-storage";

/// Reads and writes that got no payload memory.
pub(super) const MEMORY_WAIT: &str = rdma_transport::limits::MEMORY_WAIT;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_rules_have_one_name() {
        let names: Vec<&str> = families().into_iter().flat_map(|f| f.names).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn what_the_configuration_refuses_breaks_no_rule_of_a_protocol() {
        let broken: BTreeSet<&str> = families().into_iter().flat_map(|f| f.names).collect();
        let refused: BTreeSet<&str> = refusals().into_iter().collect();
        assert_eq!(refused.len(), refusals().len());
        let both: Vec<&&str> = broken.intersection(&refused).collect();
        assert_eq!(
            both,
            [&"rpc-credential"],
            "the flavor is refused, and what cannot be read is broken"
        );
    }
}
