//! Shares of other servers.

use super::*;
use crate::{Refer, ReferHost};

#[test]
fn a_share_of_another_server() {
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
    };
    assert_eq!(b.refers_to()[1], second);
    assert_eq!((second.smb_path().as_str(), b.refers_to()[0].smb_path().as_str()), ("b", "b"));
}

#[test]
fn what_is_said_of_files_is_said_where_they_are() {
    assert_eq!(
        told(
            "shares:\n  - {name: a, refer: 'g:/a', path: /usr}\n  - {name: b, refer: 'g:/b', squash: all}\n  \
             - {name: c, refer: []}\n  - {name: d, refer: ['g:/d', {host: g, path: /d}]}\n  - {name: e, refer: {host: g}}\n"
        ),
        "\
error: gw.yaml:2:36: this share has a `path`, and is on another server too
  |
2 |   - {name: a, refer: 'g:/a', path: /usr}
  |                                    ^
  = remove `refer` or `path`
error: gw.yaml:3:38: this share is on another server, and `squash` is said there
  |
3 |   - {name: b, refer: 'g:/b', squash: all}
  |                                      ^
  = remove `squash`
error: gw.yaml:4:22: this share is nowhere: the list of servers is empty
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
    assert!(told(&text).contains("more than 16 servers of one share are not possible"));
}
