//! Shares of other servers.

use super::*;
use crate::{Refer, ReferHost};

#[test]
fn referred_share_is_read() {
    let settings = read(
        "shares:\n  - {name: a, refer: 'gw2.example.org:/archive', protocols: nfs, clients: 10.0.0.0/8, hidden: true}\n  \
         - name: b\n    comment: there\n    refer:\n      - '[2001:db8::20]:/b'\n      \
         - {host: 192.0.2.20, path: /srv/nfs/b, share: b, rdma: true}\n",
    );
    let settings = settings.unwrap_or_else(|faults| panic!("{faults}"));
    let [a, b] = &settings.shares[..] else { panic!() };
    assert_eq!(a.files(), "gw2.example.org:/archive");
    assert!(a.hidden && a.clients.is_some() && a.protocols == crate::Protocols::Nfs);
    assert_eq!(b.files(), "[2001:db8::20]:/b, 192.0.2.20:/srv/nfs/b");
    let second = Refer {
        host: ReferHost::Ip("192.0.2.20".parse().unwrap()),
        path: "/srv/nfs/b".parse().unwrap(),
        share: Some("b".into()),
        rdma: true,
        namespace: false,
    };
    assert_eq!(b.refers_to()[1], second);
    assert_eq!((second.smb_path().as_str(), b.refers_to()[0].smb_path().as_str()), ("b", "b"));
}

#[test]
fn referred_share_refuses_file_settings() {
    assert_eq!(
        told(
            "shares:\n  - {name: a, refer: 'g:/a', path: /usr}\n  - {name: b, refer: 'g:/b', squash: all}\n  \
             - {name: c, refer: []}\n  - {name: d, refer: ['g:/d', {host: g, path: /d}]}\n  - {name: e, refer: {host: g}}\n"
        ),
        "\
error: gw.yaml:2:36: this share has both `refer` and `path`
  |
2 |   - {name: a, refer: 'g:/a', path: /usr}
  |                                    ^
  = remove `refer` or `path`
error: gw.yaml:3:38: this share is on another server, which has `squash` in its own configuration
  |
3 |   - {name: b, refer: 'g:/b', squash: all}
  |                                      ^
  = remove `squash`
error: gw.yaml:4:22: this share has no server: the list is empty
  |
4 |   - {name: c, refer: []}
  |                      ^
  = name one, as in `refer: gw2.example.org:/archive`
error: gw.yaml:5:31: g:/d is named twice
  |
5 |   - {name: d, refer: ['g:/d', {host: g, path: /d}]}
  |                               ^
  = remove one of the two
error: gw.yaml:6:22: this server has no `path`
  |
6 |   - {name: e, refer: {host: g}}
  |                      ^
  = add `path: /archive`"
    );
    let many: Vec<String> = (0..17).map(|n| format!("'g:/{n}'")).collect();
    let text = format!("shares: [{{name: a, refer: [{}]}}]\n", many.join(", "));
    assert!(told(&text).contains("a share has at most 16 servers"));
}

/// Returns the shares and warnings of a gateway with the configuration `own` that knows these services.
fn with_services(own: &str, services: &[(&str, &str, &str)]) -> (Vec<crate::Share>, String) {
    let dir = tempfile::tempdir().unwrap();
    let of = |&(name, text, ip): &(&str, &str, &str)| {
        let file = dir.path().join(name);
        if !text.is_empty() {
            std::fs::write(&file, text).unwrap();
        }
        let ips: Vec<_> = ip.split(' ').map(|ip| ip.parse().unwrap()).collect();
        crate::Elsewhere::of(name, &file, &ips)
    };
    let options = Options { elsewhere: services.iter().map(of).collect(), ..Options::default() };
    let settings = settle(Path::new("gw.yaml"), own, options, KNOWN);
    let settings = settings.unwrap_or_else(|faults| panic!("{faults}"));
    let warnings = Faults(settings.warnings).to_string();
    (settings.shares, warnings.replace(&dir.path().display().to_string(), "DIR"))
}

#[test]
fn shares_of_other_services_are_added() {
    let (shares, warnings) = with_services(
        "shares: [{name: files, memory: true}]\n",
        &[
            (
                "second",
                "shares:\n  - {name: archive, path: /no/such/folder, export: /srv/archive, hidden: true, \
                 clients: 10.0.0.0/8, squash: all}\n  \
                 - {name: far, refer: 'gw9:/far'}\n",
                "192.0.2.11 2001:db8::11",
            ),
            (
                "third",
                "shares: [{name: scratch, memory: true}]\nrdma: off\nsmb: {port: 4450}\n",
                "scratch.lab 192.0.2.12",
            ),
        ],
    );
    assert_eq!(warnings, "");
    let [files, archive, far, scratch] = &shares[..] else { panic!("{shares:?}") };
    assert!(files.refers_to().is_empty());
    assert_eq!(archive.files(), "192.0.2.11:/srv/archive, [2001:db8::11]:/srv/archive");
    assert!(archive.refers_to()[0].rdma && archive.refers_to()[0].smb_path() == "archive");
    assert!(archive.hidden && archive.clients.is_some() && archive.nfs_path() == "srv/archive");
    assert_eq!(archive.squash, crate::Squash::default(), "that is decided there");
    assert_eq!(far.files(), "gw9:/far");
    assert_eq!(scratch.files(), "scratch.lab:/scratch, 192.0.2.12:/scratch");
    assert!(!scratch.refers_to()[0].rdma);
    assert_eq!(scratch.protocols, crate::Protocols::Nfs, "no client asks another port of SMB");
}

#[test]
fn faulty_other_service_only_warns() {
    let (shares, warnings) = with_services(
        "shares: [{name: files, memory: true}]\n",
        &[
            ("gone", "", "192.0.2.11"),
            ("wrong", "shares: [{name: files}]\n", "192.0.2.12"),
            (
                "same",
                "shares: [{name: Files, memory: true}, {name: more, memory: true}]\n",
                "192.0.2.13",
            ),
        ],
    );
    assert_eq!(shares.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["files", "more"]);
    for what in [
        "the shares of the service `gone` are not shown here: DIR/gone: cannot read the configuration",
        "the shares of the service `wrong` are not shown here: DIR/wrong: this share has no folder",
        "the share `Files` of the service `same` is not shown here: SMB clients cannot tell the shares `files` and `Files` apart",
        "give each share of a cluster a unique name and path",
    ] {
        assert!(warnings.contains(what), "{what}: {warnings}");
    }
}
