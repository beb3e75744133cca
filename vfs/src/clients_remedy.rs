//! Suggests the list of `clients` that lets one more client into a share and keeps all others.
//!
//! A share without `clients` admits neighbouring networks for NFS and every address for SMB. A list replaces both, so the remedy
//! for one refused client must name all clients that the share admits now.

use std::net::IpAddr;

use policy::{Cidr, Protocols};

use crate::share::{ClientRule, Share, Whom};
use crate::types::ANONYMOUS;

impl Share {
    /// Returns what to write so that `peer` may use the share as well. `near` are the networks that a share without `clients`
    /// admits for NFS.
    pub fn clients_remedy(&self, near: &[Cidr], peer: IpAddr, by: Protocols) -> String {
        let list = clients_with(self.clients.as_deref(), (self.protocols, by), near, peer);
        let whole = match self.clients {
            Some(_) => "the list that it has and this address",
            None => "all that it admits now and this address",
        };
        format!("write into `clients` of the share {whole}: `clients: [{list}]`")
    }
}

/// Returns the entries of such a list, in the syntax of the configuration: `by` is the protocol that the client uses.
pub fn clients_with(
    clients: Option<&[ClientRule]>,
    (protocols, by): (Protocols, Protocols),
    near: &[Cidr],
    peer: IpAddr,
) -> String {
    let nfs = |from| {
        let is_both = protocols == Protocols::Both;
        ClientRule {
            protocols: if is_both { Protocols::Nfs } else { protocols },
            ..ClientRule::from(from)
        }
    };
    let peer = peer.to_canonical();
    let peer = Cidr { addr: peer, bits: if peer.is_ipv4() { 32 } else { 128 } };
    let mut rules: Vec<ClientRule> = Vec::new();
    match clients {
        Some(own) => {
            rules.extend_from_slice(own);
            rules.push(ClientRule { protocols: by, ..ClientRule::from(peer) });
        }
        None => {
            let host = [IpAddr::from([127, 0, 0, 0]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
            let host = [Cidr { addr: host[0], bits: 8 }, Cidr { addr: host[1], bits: 128 }];
            rules.extend(near.iter().copied().chain(host).chain([peer]).map(nfs));
            if protocols == Protocols::Both {
                let all = [IpAddr::from([0; 4]), IpAddr::from([0_u16; 8])];
                let all = all.map(|addr| ClientRule::from(Cidr { addr, bits: 0 }));
                rules.extend(all.map(|rule| ClientRule { protocols: Protocols::Smb, ..rule }));
            }
        }
    }
    let mut shown: Vec<String> = Vec::new();
    for entry in rules.iter().map(|rule| entry(rule, protocols)) {
        if !shown.contains(&entry) {
            shown.push(entry);
        }
    }
    shown.join(", ")
}

fn entry(rule: &ClientRule, of_share: Protocols) -> String {
    let from = match &rule.from {
        Whom::Range(range) => {
            let whole = if range.addr.is_ipv4() { 32 } else { 128 };
            let range = Cidr::around(range.addr, range.bits);
            if range.bits == whole { range.addr.to_string() } else { range.to_string() }
        }
        name @ Whom::Name(_) => name.to_string(),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-');
    let from = if from.chars().all(is_plain) { from } else { format!("\"{from}\"") };
    let is_default = rule.anonymous == (ANONYMOUS, ANONYMOUS);
    let (uid, gid) = rule.anonymous;
    let said = [
        (rule.protocols != of_share && rule.protocols != Protocols::Both)
            .then(|| format!("protocols: {}", rule.protocols)),
        rule.read_only.then(|| "read_only: true".to_owned()),
        rule.squash.map(|squash| format!("squash: {squash}")),
        (!is_default).then(|| format!("anonuid: {uid}, anongid: {gid}")),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    if said.is_empty() { from } else { format!("{{from: {from}, {}}}", said.join(", ")) }
}

#[cfg(test)]
mod tests {
    use policy::Squash;

    use super::*;

    fn net(text: &str, bits: u8) -> Cidr {
        Cidr { addr: text.parse().unwrap(), bits }
    }

    #[test]
    fn first_list_names_all_admitted_clients() {
        let near = [net("10.77.0.1", 24), net("fd00::1", 64)];
        let peer = "192.0.2.9".parse().unwrap();
        let list = |protocols| clients_with(None, (protocols, Protocols::Nfs), &near, peer);
        assert_eq!(
            list(Protocols::Nfs),
            "10.77.0.0/24, \"fd00::/64\", 127.0.0.0/8, \"::1\", 192.0.2.9"
        );
        let both = list(Protocols::Both);
        for entry in [
            "{from: 10.77.0.0/24, protocols: nfs}",
            "{from: 192.0.2.9, protocols: nfs}",
            "{from: 0.0.0.0/0, protocols: smb}",
            "{from: \"::/0\", protocols: smb}",
        ] {
            assert!(both.contains(entry), "{both}");
        }
    }

    #[test]
    fn existing_entries_and_rights_kept() {
        let own = [
            ClientRule { read_only: true, squash: Some(Squash::All), ..net("10.0.0.0", 8).into() },
            ClientRule { anonymous: (7, 8), ..net("10.1.0.0", 16).into() },
        ];
        let list = clients_with(
            Some(&own),
            (Protocols::Both, Protocols::Nfs),
            &[],
            "10.9.9.9".parse().unwrap(),
        );
        assert_eq!(
            list,
            "{from: 10.0.0.0/8, read_only: true, squash: all}, {from: 10.1.0.0/16, anonuid: 7, anongid: 8}, \
             {from: 10.9.9.9, protocols: nfs}"
        );
    }
}
