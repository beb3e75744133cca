//! Explains why a connection is not on RDMA, from the facts that its layers recorded and from other connections of its client.
//!
//! *Operation.* Pure. Each [`Reason`] has a name that metrics and scripts may rely on, and a sentence that says what to do.

use std::fmt;

use audit::PeerText;
use rdma_transport::channel::Facts;
use serde::{Deserialize, Serialize};

use super::protocol::Protocol;

/// A reason, for people and for counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyNot {
    /// Its stable name.
    pub reason: String,
    /// Its meaning for this connection, and the remedy.
    pub text: String,
}

/// Facts about a connection that affect RDMA.
#[derive(Clone, Debug)]
pub struct Story<'a> {
    /// Protocol of the connection.
    pub protocol: Protocol,
    /// It is on RDMA.
    pub is_rdma: bool,
    /// Ports on which clients dial its protocol over RDMA; empty if it is not served there.
    pub rdma_ports: &'a [u16],
    /// Data went directly into or out of the client's memory.
    pub has_placed: bool,
    /// The facts that its layers recorded.
    pub facts: &'a [(String, PeerText)],
    /// The same client has this many connections on RDMA.
    pub others_on_rdma: usize,
    /// Error of the last attempt of this client on the RDMA port, if it failed and no later one succeeded.
    pub failed: Option<String>,
}

/// Reasons for the lack of RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// RDMA is switched off here.
    Off,
    /// The client mounted with `proto=tcp`.
    MountedTcp,
    /// The client tried the RDMA port and failed.
    AttemptFailed,
    /// The dialect has no multichannel.
    Dialect,
    /// The client cannot or may not use several connections.
    NoMultichannel,
    /// The client could use several connections, and did not query the server's interfaces.
    NotAsked,
    /// The client queried the interfaces, and the answer had no address with RDMA.
    NoneTold,
    /// The client learnt of RDMA and did not connect.
    NotTried,
    /// Another connection of this client is on RDMA.
    ElsewhereOnRdma,
    /// The connection is on RDMA, but its messages are signed.
    Signed,
    /// The connection is on RDMA, but its messages are encrypted.
    Encrypted,
}

impl Reason {
    pub const ALL: [Self; 11] = [
        Self::Off,
        Self::MountedTcp,
        Self::AttemptFailed,
        Self::Dialect,
        Self::NoMultichannel,
        Self::NotAsked,
        Self::NoneTold,
        Self::NotTried,
        Self::ElsewhereOnRdma,
        Self::Signed,
        Self::Encrypted,
    ];

    /// Returns the stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::MountedTcp => "mounted-tcp",
            Self::AttemptFailed => "attempt-failed",
            Self::Dialect => "dialect",
            Self::NoMultichannel => "no-multichannel",
            Self::NotAsked => "not-asked",
            Self::NoneTold => "none-told",
            Self::NotTried => "not-tried",
            Self::ElsewhereOnRdma => "elsewhere-on-rdma",
            Self::Signed => "signed",
            Self::Encrypted => "encrypted",
        }
    }

    /// Returns whether the client could have used RDMA, so that a log line is useful.
    pub fn is_a_loss(self) -> bool {
        !matches!(self, Self::Off | Self::ElsewhereOnRdma)
    }

    /// Returns the meaning and the remedy, for the documentation.
    pub fn help(self) -> &'static str {
        match self {
            Self::Off => {
                "RDMA is not served here: `rdma: off`, or no provider. Remove `rdma: off`; `headgate check` shows \
                what each address \
                 has"
            }
            Self::MountedTcp => {
                "An NFS client mounted over TCP. NFS does not discover RDMA: mount with `proto=rdma,port=20049`"
            }
            Self::AttemptFailed => {
                "The client tried the RDMA port, and the attempt failed; the text of the connection ends with the reason. \
                 Often: no RDMA driver for that address at the client, a hardware RoCE adapter against user-space iWARP, a \
                 firewall in between"
            }
            Self::Dialect => {
                "The client speaks SMB 2.0.2 or 2.1, which have no RDMA. Linux: mount with `vers=3.0` or later"
            }
            Self::NoMultichannel => {
                "The client's SMB lacks multichannel, which it needs to find RDMA, or multichannel is switched off. Windows: \
                 `Set-SmbClientConfiguration -EnableMultiChannel $true`. Linux uses RDMA with `mount -o rdma`"
            }
            Self::NotAsked => {
                "The client could use several connections and has not asked for the server's addresses. Windows \
                 asks after its first traffic; if this persists, `Get-SmbMultichannelConstraint` may forbid it"
            }
            Self::NoneTold => {
                "The client asked for the server's addresses, and no address that it may reach has RDMA: `headgate check` says why \
                 for each"
            }
            Self::NotTried => {
                "The client knows the RDMA addresses and has not tried them. Windows: its adapter has no RDMA \
                (`Get-SmbClientNetworkInterface`), \
                 or the edition has no SMB Direct (of Windows 10 and 11: Pro for Workstations, Enterprise and Education have it), \
                 or the feature is switched off. Linux uses RDMA only with `mount -o rdma`; from 7.0 on it asks for the \
                 addresses at every mount. Or a firewall closes the port: iWARP dials TCP port 5445, \
                 RoCE version 2 is UDP port 4791"
            }
            Self::ElsewhereOnRdma => {
                "No problem: the client uses RDMA on another connection, and keeps this one as the first of its session"
            }
            Self::Signed => {
                "The connection is on RDMA, but its messages are signed, and the client has no RDMA transforms, with which its \
                 data would be signed and placed directly: Windows 11, Windows Server 2022 and later have them, Linux does not; or \
                 `smb: {rdma_transforms: off}` is set here. On Linux `--smb-signing offered` gives direct placement, unsigned"
            }
            Self::Encrypted => {
                "The connection is on RDMA, but its session or share encrypts, and the client has no RDMA transforms, with which \
                 its data would be encrypted and placed directly: Windows 11, Windows Server 2022 and later \
                 have them, Linux does not; or `smb: {rdma_transforms: off}` is set here. The data travels \
                 inside encrypted messages"
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Story<'_> {
    fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn can_transform(&self, protection: &str) -> bool {
        self.fact(Facts::RDMA_TRANSFORMS).is_some_and(|known| known.contains(protection))
    }

    /// Returns the reason, unless the connection uses RDMA fully.
    pub fn reason(&self) -> Option<Reason> {
        if self.is_rdma {
            // A client that can protect directly placed data loses no speed, and neither does one that signs and still places data.
            return match self.fact(Facts::PROTECTION) {
                Some("encrypted") if !self.can_transform("Encryption") => Some(Reason::Encrypted),
                Some("signed") if !self.has_placed && !self.can_transform("Signing") => {
                    Some(Reason::Signed)
                }
                _ => None,
            };
        }
        Some(match self.protocol {
            _ if self.rdma_ports.is_empty() => Reason::Off,
            _ if self.others_on_rdma > 0 => Reason::ElsewhereOnRdma,
            _ if self.failed.is_some() => Reason::AttemptFailed,
            Protocol::Nfs => Reason::MountedTcp,
            Protocol::Smb => self.smb(),
        })
    }

    fn smb(&self) -> Reason {
        if self.fact(Facts::DIALECT).is_some_and(|d| d.starts_with('2')) {
            return Reason::Dialect;
        }
        match (self.fact(Facts::MULTICHANNEL), self.fact(Facts::RDMA_TOLD)) {
            // A client may ask for addresses without being able to use a second connection.
            (Some("no"), _) => Reason::NoMultichannel,
            (_, Some("0")) => Reason::NoneTold,
            (_, Some(_)) => Reason::NotTried,
            (_, None) => Reason::NotAsked,
        }
    }

    /// Returns the reason with its sentence for this connection.
    pub fn why_not(&self) -> Option<WhyNot> {
        let reason = self.reason()?;
        let ports: Vec<String> = self.rdma_ports.iter().map(u16::to_string).collect();
        let port = ports.join(" or ");
        let text = match reason {
            Reason::Off => "RDMA is not served here (`rdma: off`)".to_owned(),
            Reason::MountedTcp => {
                format!("the client mounted over TCP; to use RDMA it mounts with proto=rdma,port={port}")
            }
            Reason::AttemptFailed => {
                let how = self.failed.as_deref().unwrap_or_default();
                format!("the client tried RDMA at port {port}, and it failed: {how}")
            }
            Reason::Dialect => {
                let dialect = self.fact(Facts::DIALECT).unwrap_or_default();
                format!("the client speaks SMB {dialect}, which has no RDMA; it needs 3.0 or later")
            }
            Reason::NoMultichannel => "the client has no multichannel, which it needs to find RDMA; Linux uses \
                RDMA with `mount -o rdma`"
                .to_owned(),
            Reason::NotAsked => "the client has not asked where RDMA is served; Linux uses RDMA with `mount -o rdma`"
                .to_owned(),
            Reason::NoneTold => "the client asked where RDMA is served, and none of the addresses that it got \
                has it: see `headgate check`"
                .to_owned(),
            Reason::NotTried => format!(
                "the client knows where RDMA is served and has not connected there: Linux does so only with `mount -o rdma`; the \
                 edition of Windows may lack SMB Direct, the adapter RDMA, or a firewall closes port {port} (RoCE version 2: UDP \
                 port 4791)"
            ),
            Reason::ElsewhereOnRdma => {
                let n = self.others_on_rdma;
                format!("the client uses RDMA on {n} other connection{}", if n == 1 { "" } else { "s" })
            }
            Reason::Signed => "its messages are signed, and it has no RDMA transforms in common with this server (only Windows 11, \
                               Windows Server 2022 and later have them), so data goes inside messages; for Linux \
                               `--smb-signing offered` lets it place data directly, unsigned"
                .to_owned(),
            Reason::Encrypted => "its session or share encrypts, and it has no RDMA transforms in common with this server (only \
                                  Windows 11, Windows Server 2022 and later have them), so data goes inside encrypted messages"
                .to_owned(),
        };
        Some(WhyNot { reason: reason.name().to_owned(), text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::testing;

    fn facts(pairs: &[(&str, &str)]) -> Vec<(String, PeerText)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).into())).collect()
    }

    fn story<'a>(protocol: Protocol, facts: &'a [(String, PeerText)]) -> Story<'a> {
        let rdma_ports = &[5445];
        let (is_rdma, has_placed) = (false, false);
        Story { protocol, is_rdma, rdma_ports, has_placed, facts, others_on_rdma: 0, failed: None }
    }

    #[test]
    fn each_reason_follows_from_what_was_seen() {
        use Protocol::{Nfs, Smb};
        use Reason as R;
        let old = facts(&[(Facts::DIALECT, "2.1")]);
        let new = facts(&[(Facts::DIALECT, "3.1.1"), (Facts::MULTICHANNEL, "yes")]);
        let single = facts(&[(Facts::DIALECT, "3.1.1"), (Facts::MULTICHANNEL, "no")]);
        let told = |n| facts(&[(Facts::DIALECT, "3.1.1"), (Facts::RDMA_TOLD, n)]);
        let (none, two) = (told("0"), told("2"));
        let asks_only = [&single[..], &two[1..]].concat();
        let (signed, sealed) =
            (facts(&[(Facts::PROTECTION, "signed")]), facts(&[(Facts::PROTECTION, "encrypted")]));
        let both = |protection| {
            let able = (Facts::RDMA_TRANSFORMS, "Encryption, Signing");
            facts(&[(Facts::PROTECTION, protection), able])
        };
        let (signs, seals) = (both("signed"), both("encrypted"));
        let one = [(Facts::PROTECTION, "encrypted"), (Facts::RDMA_TRANSFORMS, "Signing")];
        let signs_only = facts(&one);
        let cases = [
            (Story { is_rdma: true, ..story(Smb, &signs) }, None),
            (Story { is_rdma: true, ..story(Smb, &seals) }, None),
            (Story { is_rdma: true, ..story(Smb, &signs_only) }, Some(R::Encrypted)),
            (Story { rdma_ports: &[], ..story(Nfs, &[]) }, Some(R::Off)),
            (story(Nfs, &[]), Some(R::MountedTcp)),
            (Story { failed: Some("no".into()), ..story(Nfs, &[]) }, Some(R::AttemptFailed)),
            (Story { others_on_rdma: 1, ..story(Smb, &new) }, Some(R::ElsewhereOnRdma)),
            (story(Smb, &old), Some(R::Dialect)),
            (story(Smb, &single), Some(R::NoMultichannel)),
            (story(Smb, &asks_only), Some(R::NoMultichannel)),
            (story(Smb, &new), Some(R::NotAsked)),
            (story(Smb, &none), Some(R::NoneTold)),
            (story(Smb, &two), Some(R::NotTried)),
            (Story { is_rdma: true, ..story(Smb, &signed) }, Some(R::Signed)),
            (Story { is_rdma: true, ..story(Smb, &sealed) }, Some(R::Encrypted)),
            (Story { is_rdma: true, has_placed: true, ..story(Smb, &signed) }, None),
            (Story { is_rdma: true, ..story(Smb, &[]) }, None),
            (Story { is_rdma: true, ..story(Nfs, &[]) }, None),
        ];
        for (story, expected) in &cases {
            assert_eq!(story.reason(), *expected, "{story:?}");
            let why = story.why_not();
            assert_eq!(why.as_ref().map(|w| w.reason.as_str()), expected.map(R::name));
        }
        for reason in R::ALL {
            assert!(cases.iter().any(|(_, r)| *r == Some(reason)), "{reason} is provoked");
        }
        let failed = Story { failed: Some("no MPA".into()), ..story(Smb, &two) };
        assert!(failed.why_not().unwrap().text.contains("5445, and it failed: no MPA"));
        let both = Story { rdma_ports: &[445, 5445], ..failed };
        assert!(both.why_not().unwrap().text.contains("port 445 or 5445, and it failed"));
    }

    #[test]
    fn the_page_of_reasons_is_in_step() {
        let mut page = String::from(
            "# Why is this client not on RDMA?\n\n<!-- Made by `HEADGATE_WRITE_DOCS=1 cargo test -p gateway` from \
             gateway/src/admin/why.rs. -->\n\n`headgate status`, `headgate top` and the status page name one reason for each \
             connection that is not on RDMA, or that uses RDMA without direct placement; the metric \
             `headgate_connections_without_rdma` counts them by these names. A client that could have had RDMA is \
             also named once in the log.\n\n\
             | reason | what it means, and what to do |\n|---|---|\n",
        );
        for reason in Reason::ALL {
            page += &format!("| `{reason}` | {} |\n", reason.help());
        }
        testing::in_step("docs/why-not-rdma.md", &page);
    }
}
