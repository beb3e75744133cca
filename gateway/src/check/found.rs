//! What would be announced on the network, and which ports other programs of this host keep from it.

use std::net::IpAddr;

use config::{Discovery, Settings};
use discovery::links::{self, Listening};
use discovery::socket;
use serde_json::{Value, json};

use super::Remarks;
use crate::listen::addresses;
use crate::{announce, port};

/// The announcement on one link.
pub(super) struct Announced {
    link: String,
    addresses: Vec<IpAddr>,
    protocols: Vec<&'static str>,
}

/// Finds the links on which `serve` would announce the gateway; empty with `discovery: off`.
pub(super) fn facts(
    settings: &Settings,
    by_smb: bool,
    serves_already: bool,
    remarks: &mut Remarks,
) -> Vec<Announced> {
    if settings.discovery == Discovery::Off {
        return Vec::new();
    }
    let at = |is_served: bool, port| {
        if is_served { addresses(&settings.bind, port) } else { Vec::new() }
    };
    let listening = Listening {
        smb: at(by_smb, settings.smb.port),
        nfs: at(settings.by_nfs(), settings.nfs_port),
        macos: announce::macos(settings),
    };
    let all = match links::read() {
        Ok(all) => all,
        Err(error) => {
            remarks.warn(format!(
                "not announced on the network: the addresses of this host cannot be read: {error}"
            ));
            return Vec::new();
        }
    };
    let (served, left_out) = links::served(&all, &listening);
    if let Some(line) = links::left_out_line(&left_out) {
        remarks.warn(line);
    }
    let is_ours = serves_already && port::is_held_by(discovery::wsd::HTTP_PORT, "headgate");
    let http = format!("TCP port {}", discovery::wsd::HTTP_PORT);
    let mut announced = Vec::new();
    for (link, offer) in served {
        let troubles = socket::tried(&link, &offer);
        for trouble in troubles.into_iter().filter(|line| !(is_ours && line.contains(&http))) {
            remarks.warn(format!("{}: {trouble}", link.name));
        }
        let protocols = [(offer.smb.is_some(), "SMB"), (offer.nfs.is_some(), "NFS")];
        let protocols =
            protocols.into_iter().filter(|(is_served, _)| *is_served).map(|(_, name)| name);
        announced.push(Announced {
            link: link.name,
            addresses: offer.addresses,
            protocols: protocols.collect(),
        });
    }
    announced
}

/// Describes the announcements in lines.
pub(super) fn words(settings: &Settings, announced: &[Announced]) -> Vec<String> {
    if settings.discovery == Discovery::Off {
        return vec!["not announced on the network: `discovery: off`".into()];
    }
    if announced.is_empty() {
        return vec!["not announced on the network: no address that serves is on one".into()];
    }
    let line = |it: &Announced| {
        let addresses: Vec<String> = it.addresses.iter().map(ToString::to_string).collect();
        let protocols = it.protocols.join(" and ");
        format!(
            "announced on {} as {}.local ({}), with {protocols}",
            it.link,
            announce::name(),
            addresses.join(", ")
        )
    };
    announced.iter().map(line).collect()
}

/// Describes the announcements for programs.
pub(super) fn json(announced: &[Announced]) -> Value {
    let one = |it: &Announced| {
        json!({
            "link": it.link,
            "name": format!("{}.local", announce::name()),
            "addresses": it.addresses,
            "protocols": it.protocols,
        })
    };
    announced.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use config::{Share, Source};

    use super::*;

    fn of(discovery: Discovery, bind: &[&str]) -> (Vec<String>, Vec<String>) {
        let settings = Settings {
            discovery,
            bind: bind.iter().map(|ip| ip.parse().unwrap()).collect(),
            shares: vec![Share::new("data", Source::Memory)],
            ..Settings::default()
        };
        let mut remarks = Remarks::default();
        let announced = facts(&settings, true, false, &mut remarks);
        (words(&settings, &announced), remarks.warnings)
    }

    #[test]
    fn nothing_is_announced_on_loopback_or_if_it_is_off() {
        let (words, warnings) = of(Discovery::On, &["127.0.0.1", "::1"]);
        assert_eq!((words.len(), warnings.len()), (1, 0));
        assert!(words[0].contains("no address that serves"), "{words:?}");
        let (words, warnings) = of(Discovery::Off, &[]);
        assert!(words[0].contains("`discovery: off`") && warnings.is_empty(), "{words:?}");
    }
}
