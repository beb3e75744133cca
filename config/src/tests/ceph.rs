//! Shares in CephFS.

use super::*;

#[test]
fn cephfs_share_is_read() {
    let settings = read(
        "shares:\n  - name: a\n    \
         ceph: {filesystem: fs, path: /p/, user: client.gate, config: /c.conf, keyring: /k, exclusive: false}\n  \
         - {name: b, ceph: {filesystem: fs}}\n",
    );
    let settings = settings.unwrap_or_else(|faults| panic!("{faults}"));
    let ceph = |path: &str| crate::Ceph::new("fs".into(), path.into());
    let whole = crate::Ceph {
        user: Some("gate".into()),
        config: Some("/c.conf".into()),
        keyring: Some("/k".into()),
        exclusive: false,
        ..ceph("/p")
    };
    assert_eq!(settings.shares[0].source, Source::Ceph(whole));
    assert_eq!(settings.shares[1].source, Source::Ceph(ceph("/")));
    assert_eq!(
        told(
            "shares:\n  - {name: a, ceph: {path: p}}\n  - {name: b, ceph: {filesystem: 'f s'}}\n  \
             - {name: c, path: /usr, ceph: {filesystem: fs}}\n"
        ),
        "\
error: gw.yaml:2:21: this share names no file system
  |
2 |   - {name: a, ceph: {path: p}}
  |                     ^
  = add `filesystem: NAME`, as `ceph fs ls` names it
error: gw.yaml:2:28: `p` is not an absolute path; begin it with `/`
  |
2 |   - {name: a, ceph: {path: p}}
  |                            ^
error: gw.yaml:3:34: `f s` is not the name of a file system of Ceph (`ceph fs ls` lists them)
  |
3 |   - {name: b, ceph: {filesystem: 'f s'}}
  |                                  ^
error: gw.yaml:4:33: this share has `ceph`, and `path` or `memory` too
  |
4 |   - {name: c, path: /usr, ceph: {filesystem: fs}}
  |                                 ^
  = remove `ceph`, or `path` and `memory`; the folder in CephFS is `ceph.path`"
    );
}

#[test]
fn records_require_cephfs_share() {
    let text = "shares:\n  - {name: a, ceph: {filesystem: fs, path: /p}}\n  - {name: b, path: /usr}\nrecords: a\n";
    let settings = read(text).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(settings.records, Some("fs/p".parse().unwrap()));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{text}no-such-key: 1\n")).unwrap();
    assert_eq!(crate::records_of(file.path()), Some("fs/p".parse().unwrap()));
    assert_eq!(
        told(&text.replace("records: a", "records: b")),
        "\
error: gw.yaml:4:10: `records` names the share `b`, which is not in CephFS
  |
4 | records: b
  |          ^
  = name a share in CephFS, or remove `records` to keep the records in the folder `state`"
    );
    assert!(
        told(&text.replace("records: a", "records: c"))
            .contains("`records` names the share `c`, which does not exist")
    );
    assert_eq!(read(&text.replace("records: a\n", "")).unwrap().records, None);
}
