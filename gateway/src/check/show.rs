//! Output of `check`.

use std::io::IsTerminal;
use std::net::IpAddr;

use config::{Portmap, PrivilegedPorts, Protocols, Rdma, Settings, Share, ShareTls, Squash};
use rdma_transport::devices::{Fabric, Served};
use serde_json::{Value, json};
use vfs::quota::QuotaKind;

use super::{Findings, Handles, ServedAddress, ShareFacts, found, kerberos, ldap, service, smb};
use crate::portmap::Chosen;
use crate::tls::Certificate;
use tools::table::{Table, Tone, bytes};

/// Mount point in the example commands.
const MOUNT_POINT: &str = "/mnt";

fn host(ip: IpAddr) -> String {
    if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() }
}

/// Returns the mount command for one version and transport.
fn mount(f: &Findings<'_>, ip: IpAddr, share: &Share, version: &str, rdma: bool) -> String {
    let (nfs, over_rdma) = (f.settings.nfs_port, f.settings.nfs_rdma_port);
    let mut options = format!("vers={version}");
    match rdma {
        true => options += &format!(",proto=rdma,port={over_rdma}"),
        false => options += &format!(",proto=tcp,port={nfs}"),
    }
    options += match share.tls {
        ShareTls::Offered => "",
        ShareTls::Required => ",xprtsec=tls",
        ShareTls::Mutual => ",xprtsec=mtls",
    };
    if version == "3" {
        // MOUNT uses TCP whatever transport NFS has; clients find the lock manager only through port 111.
        options += &format!(",mountproto=tcp,mountport={nfs}");
        if !f.locks_are_found {
            options += ",nolock";
        }
    }
    // The share's first flavor is the one that its administrator prefers.
    if share.sec.want_kerberos()
        && let Some(sec) = share.sec.iter().next()
    {
        options += &format!(",sec={sec}");
    }
    format!("mount -t nfs -o {options} {}:/{} {MOUNT_POINT}", host(ip), share.nfs_path())
}

fn access(share: &Share) -> String {
    if !share.refers_to().is_empty() {
        return format!("clients are referred there, by {}", share.protocols);
    }
    let mode = if share.read_only { "read only" } else { "read and write" };
    // SMB has no squash.
    let squash = match share.squash {
        _ if !share.protocols.nfs() => "",
        Squash::None => ", NFS root is root",
        Squash::Root => ", NFS root squashed",
        Squash::All => ", all NFS users squashed",
    };
    let by = match share.protocols {
        Protocols::Both => "",
        Protocols::Nfs => ", NFS only",
        Protocols::Smb => ", SMB only",
    };
    let sec =
        if share.sec.want_kerberos() { format!(", sec={}", share.sec) } else { String::new() };
    format!("{mode}{squash}{by}{sec}")
}

fn portmap(chosen: &Chosen) -> String {
    let how = match chosen.how {
        Portmap::Own => "the gateway answers",
        Portmap::Off => "off",
        Portmap::Register | Portmap::Auto => "registered with rpcbind, if one runs",
    };
    chosen.why.as_ref().map_or(how.to_owned(), |why| format!("{how} ({why})"))
}

fn clients(share: &Share) -> String {
    match &share.clients {
        None => "attached networks".into(),
        Some(ranges) => ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}

fn features(s: &ShareFacts<'_>) -> String {
    if !s.share.refers_to().is_empty() {
        return "none here".into();
    }
    let have = |on: bool, what: &str| if on { what.to_owned() } else { format!("no {what}") };
    let handles = match s.handles {
        Handles::Kernel => "kernel handles",
        Handles::Search => "handles by search",
        Handles::Cluster => "handles of the cluster",
        Handles::None => "gone at exit",
    };
    let mut parts: Vec<String> = s.kind.iter().cloned().collect();
    parts.extend([have(s.xattr, "xattrs"), have(s.reflink, "reflinks"), handles.to_owned()]);
    parts.extend(s.lists_sealed.then(|| "sealed lists".to_owned()));
    parts.extend(s.crossed.iter().map(|at| format!("with {at}")));
    parts.extend(s.snapshots.map(|of| match of.told {
        1 => "1 snapshot".to_owned(),
        n => format!("{n} snapshots"),
    }));
    parts.extend(quotas(&s.quotas));
    parts.extend((s.case == Some(false)).then(|| "case lost".to_owned()));
    parts.join(", ")
}

/// Names the kinds of quotas, those that are only counted apart.
fn quotas(of: &[(QuotaKind, bool)]) -> Vec<String> {
    let names = |enforced: bool| {
        let kinds = of.iter().filter(|(_, enforces)| *enforces == enforced);
        kinds.map(|(kind, _)| quota_name(*kind)).collect::<Vec<_>>().join("+")
    };
    let line = |what: &str, kinds: String| {
        if kinds.is_empty() { None } else { Some(format!("{kinds} quotas{what}")) }
    };
    line("", names(true)).into_iter().chain(line(" not enforced", names(false))).collect()
}

fn quota_name(kind: QuotaKind) -> &'static str {
    match kind {
        QuotaKind::User => "user",
        QuotaKind::Group => "group",
        QuotaKind::Project => "project",
    }
}

fn device(place: &ServedAddress) -> String {
    let mut parts = Vec::new();
    parts.extend(place.device.clone());
    parts.extend(place.facts.mtu.map(|m| format!("MTU {m}")));
    parts.extend(place.facts.speed.map(speed));
    parts.join(", ")
}

fn speed(megabits: u32) -> String {
    match megabits {
        s if s >= 1000 && s % 1000 == 0 => format!("{} Gbit/s", s / 1000),
        s => format!("{s} Mbit/s"),
    }
}

/// Describes the RDMA device that serves an address.
fn served(s: &Served) -> String {
    let mut parts = vec![
        format!("{}, port {} {}", s.fabric, s.port, s.state),
        format!("GID {} {}", s.gid_index, s.gid_words()),
    ];
    parts.extend(s.path_mtu.map(|m| format!("path MTU {m}")));
    parts.extend(s.speed.map(speed));
    format!("{} ({})", s.device, parts.join(", "))
}

/// Describes which clients can use RDMA at this address, and why others cannot.
fn rdma_words(f: &Findings<'_>, place: &ServedAddress) -> Vec<String> {
    if f.settings.rdma == Rdma::Off {
        return vec!["no RDMA: `rdma: off`".into()];
    }
    if place.only_this_host() {
        return vec![
            "RDMA for `headgate demo` and `bench` only: Linux refuses its own iWARP on the loopback device".into(),
        ];
    }
    let mut words = Vec::new();
    if let Some(s) = place.offer.device() {
        let clients = match s.fabric {
            Fabric::Roce => "RoCE clients; soft RoCE does, too",
            Fabric::InfiniBand => "clients of this fabric",
            Fabric::Iwarp => "clients with an iWARP adapter, or with soft iWARP on any adapter",
        };
        words.push(format!("RDMA over {}, for {clients}", served(s)));
    }
    if place.offer.iwarp.is_ok() {
        words.push("RDMA over iWARP in user space, for clients with an iWARP adapter, or with soft iWARP on any adapter".into());
        words.push(
            "  (on the client: `modprobe siw && rdma link add siw0 type siw netdev DEVICE`)".into(),
        );
    }
    match &place.offer.verbs {
        Ok(None) => words.push(
            "no RDMA for RoCE and InfiniBand clients: that needs an RDMA device on this host"
                .into(),
        ),
        Err(why) => words.push(format!("no RDMA over a device: {why}")),
        Ok(Some(s)) if s.fabric == Fabric::Iwarp => {
            words.push(format!(
                "no RDMA for RoCE and InfiniBand clients: {} speaks iWARP",
                s.device
            ));
        }
        Ok(Some(_)) => {}
    }
    words
}

/// Prints the findings for people.
pub(super) fn text(f: &Findings<'_>) {
    let colour = std::io::stdout().is_terminal();
    let marks = if colour { ("\x1b[1m", "\x1b[33m", "\x1b[0m") } else { ("", "", "") };
    let (_, warn, off) = marks;
    verdict(f, marks);
    say!();
    let mut table = Table::new(&["share", "files", "access", "clients", "file system"], 5, colour);
    for s in &f.shares {
        let cells = vec![
            format!("/{}", s.share.name),
            s.share.files(),
            access(s.share),
            clients(s.share),
            features(s),
        ];
        table.row(cells, Tone::Plain);
    }
    say!("{}", table.render());
    if by_nfs(f).next().is_some() {
        say!("  Port 111, where NFS 3 clients ask for MOUNT and locks: {}\n", portmap(&f.portmap));
    }
    links(f);
    for place in &f.places {
        at_place(f, place, marks);
    }
    of_server(f);
    for warning in &f.remarks.warnings {
        say!("  {warn}warning:{off} {warning}");
    }
    say!();
}

/// Prints the folders of shares that are on other servers.
fn links(f: &Findings<'_>) {
    let mut is_first = true;
    for share in f.settings.shares.iter().filter(|share| !share.links.is_empty()) {
        let own = share.links.list.iter().map(|link| {
            let to: Vec<String> = link.to.iter().map(ToString::to_string).collect();
            format!("{}/{} is on {}", share.name, link.at, to.join(", "))
        });
        let msdfs = share
            .links
            .msdfs
            .then(|| format!("{}: symbolic links `msdfs:...` are links", share.name));
        for line in own.chain(msdfs) {
            if std::mem::take(&mut is_first) {
                say!("  Links, to which clients are referred:");
            }
            say!("    {line}");
        }
    }
    if !is_first {
        say!();
    }
}

/// Terminal sequences for bold text, for warnings, and for the return to normal text.
type Marks = (&'static str, &'static str, &'static str);

/// Says whether `serve` would start.
fn verdict(f: &Findings<'_>, (_, warn, off): Marks) {
    let stops = &f.remarks.stops;
    match f.remarks.warnings.len() {
        _ if !stops.is_empty() => {
            say!(
                "\n  The configuration is sound, but {warn}`headgate serve` would not start here, or not with all shares{off}:"
            );
            for stop in stops {
                say!("    {stop}");
            }
        }
        0 => say!("\n  The configuration is sound."),
        1 => say!("\n  The configuration is sound; there is one warning, below."),
        n => say!("\n  The configuration is sound; there are {n} warnings, below."),
    }
}

/// Prints the mount commands for an address, and remarks about it.
fn at_place(f: &Findings<'_>, place: &ServedAddress, (bold, _, off): Marks) {
    say!("  {bold}{}{off}  {}", place.ip, device(place));
    for line in rdma_words(f, place) {
        say!("    {line}");
    }
    let rdma = place.offer.rdma();
    if let Some(first) = by_nfs(f).next() {
        let rdma = rdma && first.tls == ShareTls::Offered;
        for (version, over) in commands(rdma) {
            say!("      {}", mount(f, place.ip, first, version, over));
        }
    }
    let mut by_smb = f.settings.by_smb().filter(|s| s.refers_to().is_empty());
    if let Some(first) = by_smb.next().filter(|_| f.smb.served) {
        for line in smb::words(f, place, first) {
            say!("    {line}");
        }
        for line in smb::mounts(f, place, first) {
            say!("      {line}");
        }
    }
    say!();
}

/// Describes the user of the server, and the resources of this host that it needs.
fn of_server(f: &Findings<'_>) {
    let who = match f.rights.acts_as_caller() {
        true => "each call acts as the user who made it",
        false => "every call acts as this user, whichever user made it",
    };
    say!("  runs as user {}: {who}", f.uid);
    for (name, meaning) in f.rights.missing() {
        say!("    without {name}: {meaning}");
    }
    if by_nfs(f).next().is_some() {
        say!("  NFS over TCP: {}", ports(f.settings, &f.smb.weakest_squash));
    }
    if f.serves_already {
        say!(
            "  a gateway serves with this state folder now; the ports that it holds count as free"
        );
    }
    if let Some(certificate) = &f.certificate {
        let days = certificate.days_left();
        say!(
            "  NFS over TCP with TLS for clients that request it: a certificate of {}, valid for {days} days",
            certificate.names.join(", ")
        );
    }
    say!("  {}", smb::summary(f));
    for line in found::words(f.settings, &f.announced) {
        say!("  {line}");
    }
    for line in f.kerberos.iter().flat_map(kerberos::words) {
        say!("  {line}");
    }
    for line in f.service.iter().flat_map(|seen| service::words(seen, f.settings)) {
        say!("  {line}");
    }
    for line in f.ldap.iter().flat_map(ldap::words) {
        say!("  {line}");
    }
    say!(
        "  state in {}, payload memory up to {}",
        f.settings.state.display(),
        bytes(f.settings.memory)
    );
    let files = f.rights.files.map_or("any number of".to_owned(), |n| n.to_string());
    say!(
        "  up to {} connections; {files} files may be open, each connection is one",
        f.rights.connections(f.settings)
    );
}

/// Describes which callers need a privileged port.
fn ports(settings: &Settings, weakest: &[Squash]) -> String {
    match settings.privileged_ports {
        PrivilegedPorts::Local => {
            "callers from this host need a port below 1024, which only root can bind".into()
        }
        PrivilegedPorts::Required => {
            "all callers need a port below 1024, which only root of their host can bind".into()
        }
        PrivilegedPorts::Off => format!(
            "callers from this host need no privileged port: on shares that admit this host, each of its users can claim to be {}",
            claims(&settings.shares, weakest)
        ),
    }
}

/// Describes the identities that a trusted caller can claim, by the weakest squash of the shares served over NFS.
fn claims(shares: &[Share], weakest: &[Squash]) -> String {
    let whom = [
        (Squash::None, "any user, root included"),
        (Squash::Root, "any user but root"),
        (Squash::All, "any client and owner of a lock, but no user"),
    ];
    let of = |squash| {
        let here = |s: &Share| s.protocols.nfs() && s.refers_to().is_empty();
        let names = shares.iter().zip(weakest).filter(|(s, w)| here(s) && **w == squash);
        names.map(|(s, _)| format!("/{}", s.nfs_path())).collect::<Vec<_>>()
    };
    let all = whom.map(|(squash, whom)| (whom, of(squash)));
    let some: Vec<_> = all.iter().filter(|(_, names)| !names.is_empty()).collect();
    match &some[..] {
        [(whom, _)] => (*whom).into(),
        several => {
            let one =
                |(whom, names): &&(&str, Vec<String>)| format!("{whom} ({})", names.join(" "));
            several.iter().map(one).collect::<Vec<_>>().join("; ")
        }
    }
}

/// Returns the shares that this server serves over NFS.
fn by_nfs<'a>(f: &'a Findings<'_>) -> impl Iterator<Item = &'a Share> {
    f.settings.shares.iter().filter(|s| s.protocols.nfs() && s.refers_to().is_empty())
}

/// Returns version and transport of the example commands, best first.
fn commands(rdma: bool) -> Vec<(&'static str, bool)> {
    let mut all = Vec::new();
    if rdma {
        all.extend([("4.2", true), ("3", true)]);
    }
    all.extend([("4.2", false), ("3", false)]);
    all
}

/// Returns the RDMA providers at an address, best first.
fn providers(place: &ServedAddress) -> Vec<&'static str> {
    let verbs = place.offer.device().map(|_| "verbs");
    let iwarp = place.offer.iwarp.is_ok().then_some("iwarp");
    verbs.into_iter().chain(iwarp).collect()
}

fn device_json(s: &Served) -> Value {
    json!({
        "name": s.device,
        "port": s.port,
        "link_layer": s.fabric.to_string(),
        "state": s.state,
        "gid_index": s.gid_index,
        "gid_type": s.gid_words(),
        "path_mtu": s.path_mtu,
        "speed_mbit": s.speed,
    })
}

/// Formats the faults of a refused configuration as JSON.
pub(super) fn faults(faults: &config::Faults) -> Value {
    let fault = |f: &config::Fault| {
        let mut one = json!({ "what": f.what, "help": f.help });
        match &f.place {
            config::Location::File { file, line, column, .. } => {
                one["file"] = file.display().to_string().into();
                // The line is 0 if the fault concerns the whole file.
                (one["line"], one["column"]) = ((*line).into(), (*column).into());
            }
            config::Location::Option(option) => one["option"] = (*option).into(),
            config::Location::Nowhere => {}
        }
        one
    };
    let all: Vec<Value> = faults.0.iter().map(fault).collect();
    json!({ "sound": false, "would_start": false, "faults": all })
}

/// Prints the findings as JSON.
pub(super) fn json(f: &Findings<'_>) {
    let shares: Vec<Value> = f.shares.iter().map(share_json).collect();
    let places: Vec<Value> = f.places.iter().map(|place| place_json(f, place)).collect();
    let all = json!({
        "sound": true,
        "faults": [],
        "shares": shares,
        "addresses": places,
        "nfs_port": f.settings.nfs_port,
        "nfs_rdma_port": f.settings.nfs_rdma_port,
        "privileged_ports": f.settings.privileged_ports.to_string(),
        "portmap": { "asked": f.settings.portmap.to_string(), "is": f.portmap.how.to_string(), "why": f.portmap.why },
        "smb": smb::json(f),
        "kerberos": kerberos::json(f.kerberos.as_ref()),
        "domain": service::json(f.service.as_ref()),
        "ldap": ldap::json(f.ldap.as_ref()),
        "acts_as_caller": f.rights.acts_as_caller(),
        "missing_capabilities": f.rights.missing().iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        "tls_certificate_days": f.certificate.as_ref().map(Certificate::days_left),
        "memlock": f.rights.memlock,
        "connections": f.rights.connections(f.settings),
        "open_files": f.rights.files,
        "uid": f.uid,
        "state": f.settings.state.display().to_string(),
        "memory": f.settings.memory,
        "serves_already": f.serves_already,
        "announced": found::json(&f.announced),
        "would_start": f.remarks.stops.is_empty(),
        "stops": f.remarks.stops,
        "warnings": f.remarks.warnings,
    });
    say!("{all}");
}

fn share_json(s: &ShareFacts<'_>) -> Value {
    json!({
        "name": s.share.name,
        "files": s.share.files(),
        "export": s.share.protocols.nfs().then(|| format!("/{}", s.share.nfs_path())),
        "protocols": s.share.protocols.to_string(),
        "read_only": s.share.read_only,
        "squash": s.share.squash.to_string(),
        "sec": s.share.sec.iter().map(|sec| sec.to_string()).collect::<Vec<_>>(),
        "nfs_locks": s.share.nfs_locks.to_string(),
        "durability": s.share.durability.to_string(),
        "tls": s.share.tls.to_string(),
        "clients": s.share.clients.as_ref().map(|c| c.iter().map(ToString::to_string).collect::<Vec<_>>()),
        "xattr": s.xattr,
        "reflink": s.reflink,
        "snapshots": s.snapshots.map(|of| of.told),
        "size": s.share.size,
        "limits": (!s.share.limits.is_empty()).then(|| config::rates_text(&s.share.limits)),
        "quotas": s.quotas.iter().map(quota_json).collect::<Vec<_>>(),
        "handles": match s.handles {
            Handles::Kernel => "kernel",
            Handles::Search => "search",
            Handles::Cluster => "cluster",
            Handles::None => "none",
        },
        "lists_sealed": s.lists_sealed,
        "file_system": s.kind,
        "links": s.share.links.list.iter().map(link_json).collect::<Vec<_>>(),
        "msdfs": s.share.links.msdfs,
        "case_kept_apart": s.case,
    })
}

fn quota_json((kind, enforces): &(QuotaKind, bool)) -> Value {
    json!({ "of": quota_name(*kind), "enforced": enforces })
}

fn link_json(link: &config::Link) -> Value {
    let to: Vec<String> = link.to.iter().map(ToString::to_string).collect();
    json!({ "at": link.at, "to": to })
}

fn place_json(f: &Findings<'_>, p: &ServedAddress) -> Value {
    let mounts: Vec<String> = by_nfs(f)
        .flat_map(|s| {
            commands(p.offer.rdma())
                .into_iter()
                .filter(|(_, over)| !over || s.tls == ShareTls::Offered)
                .map(|(version, over)| mount(f, p.ip, s, version, over))
        })
        .collect();
    json!({
        "address": p.ip.to_string(),
        "device": p.device,
        "mtu": p.facts.mtu,
        "speed_mbit": p.facts.speed,
        "rdma_providers": providers(p),
        "rdma_device": p.offer.device().map(device_json),
        "rdma_device_why_not": p.offer.verbs.as_ref().err(),
        "rdma": rdma_words(f, p),
        "mount": mounts,
        "smb": smb::place_json(f, p),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squash_is_of_nfs() {
        let of = |squash, protocols| {
            access(&Share { squash, protocols, ..Share::new("team", config::Source::Memory) })
        };
        for (squash, protocols, wanted) in [
            (Squash::None, Protocols::Both, "read and write, NFS root is root"),
            (Squash::Root, Protocols::Both, "read and write, NFS root squashed"),
            (Squash::All, Protocols::Nfs, "read and write, all NFS users squashed, NFS only"),
            (Squash::Root, Protocols::Smb, "read and write, SMB only"),
            (Squash::All, Protocols::Smb, "read and write, SMB only"),
        ] {
            assert_eq!(of(squash, protocols), wanted);
        }
    }

    #[test]
    fn whom_a_caller_can_claim_to_be_is_said_by_the_squash_of_the_shares() {
        let share = |name: &str, squash, protocols| Share {
            squash,
            protocols,
            ..Share::new(name, config::Source::Memory)
        };
        let data = share("data", Squash::Root, Protocols::Both);
        let open = share("open", Squash::None, Protocols::Nfs);
        let drop = share("drop", Squash::All, Protocols::Nfs);
        let smb = share("smb", Squash::None, Protocols::Smb);
        let off = |shares: &[&Share]| {
            let shares: Vec<Share> = shares.iter().copied().cloned().collect();
            let weakest: Vec<Squash> = shares.iter().map(Share::weakest_squash).collect();
            let off = PrivilegedPorts::Off;
            let off = Settings { privileged_ports: off, shares, ..Settings::default() };
            let said = ports(&off, &weakest);
            said.rsplit_once("claim to be ").unwrap().1.to_owned()
        };
        assert_eq!(off(&[&data, &smb]), "any user but root");
        assert_eq!(off(&[&open]), "any user, root included");
        assert_eq!(off(&[&drop]), "any client and owner of a lock, but no user");
        assert_eq!(
            off(&[&data, &open, &drop, &Share { name: "more".into(), ..data.clone() }]),
            "any user, root included (/open); any user but root (/data /more); any client and owner of a lock, but no user (/drop)"
        );
    }
}
