//! Greeting that `serve` prints on a terminal: each share, and the command with which a client mounts it.

use std::fmt::Write as _;

use config::{Settings, ShareTls};

/// Default port of NFS clients.
const NFS_PORT: u16 = 2049;
const SMB_PORT: u16 = 445;

/// Returns the lines for these settings. `host` is this host's name for itself; `with_smb` is true if some user can log on.
pub(crate) fn lines(settings: &Settings, host: &str, with_smb: bool) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for share in settings.shares.iter().filter(|share| !share.hidden) {
        let name = &share.name;
        let _ = writeln!(text, "\n  {name}: {}", share.source);
        if share.protocols.nfs() {
            let port = match settings.nfs_port {
                NFS_PORT => String::new(),
                port => format!(",port={port}"),
            };
            let tls = match share.tls {
                ShareTls::Offered => "",
                ShareTls::Required => ",xprtsec=tls",
                ShareTls::Mutual => ",xprtsec=mtls",
            };
            let _ = writeln!(
                text,
                "    Linux    mount -t nfs -o vers=4.2{port}{tls} {host}:/{name} /mnt"
            );
        }
        if share.protocols.smb() && with_smb {
            let port = match settings.smb.port {
                SMB_PORT => String::new(),
                port => format!(" /tcpport:{port}"),
            };
            let _ = writeln!(text, "    Windows  net use Z: \\\\{host}\\{name}{port}");
        } else if share.protocols.smb() {
            let _ = writeln!(text, "    Windows  no user can log on yet: `headgate user add NAME`");
        }
    }
    text += "\n  `headgate check` prints the mount commands for RDMA and for each address, `headgate status` the clients; \
             Ctrl-C stops the gateway.\n";
    text
}

#[cfg(test)]
mod tests {
    use config::{Protocols, Share, Source};

    use super::*;

    #[test]
    fn a_share_is_told_with_what_clients_type() {
        let share = |name: &str, protocols| Share {
            protocols,
            ..Share::new(name, Source::Folder(format!("/srv/{name}").into()))
        };
        let shares = vec![share("data", Protocols::Both), share("films", Protocols::Nfs)];
        let mut settings = Settings { shares, ..Settings::default() };
        let text = lines(&settings, "gw", true);
        for line in [
            "  data: /srv/data",
            "    Linux    mount -t nfs -o vers=4.2 gw:/data /mnt",
            r"    Windows  net use Z: \\gw\data",
            "    Linux    mount -t nfs -o vers=4.2 gw:/films /mnt",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert_eq!(text.matches("net use").count(), 1);
        settings.nfs_port = 12049;
        settings.smb.port = 1445;
        let text = lines(&settings, "gw", true);
        assert!(text.contains("vers=4.2,port=12049 gw:/data"), "{text}");
        assert!(text.contains(r"\\gw\data /tcpport:1445"), "{text}");
        assert!(lines(&settings, "gw", false).contains("headgate user add NAME"));
        settings.shares[0].hidden = true;
        assert!(!lines(&settings, "gw", true).contains("data"));
    }
}
