//! Folders of a share that are on other servers.

use super::*;

#[test]
fn links_are_read() {
    let settings = read(
        "shares:\n  - {name: a, memory: true, links: msdfs}\n  \
         - name: b\n    memory: true\n    links:\n      - msdfs\n      \
         - {at: projects/old, to: 'gw2.example.org:/archive'}\n      \
         - at: new\n        to:\n          - '[2001:db8::20]:/b'\n          \
         - {host: gw3, path: /srv/b, share: b, namespace: true}\n  \
         - {name: c, memory: true, links: {at: 'x y/', to: 'g:/c'}}\n",
    );
    let settings = settings.unwrap_or_else(|faults| panic!("{faults}"));
    let [a, b, c] = &settings.shares[..] else { panic!() };
    assert!(a.links.msdfs && a.links.list.is_empty() && !a.links.is_empty());
    let shown = |links: &crate::Links| {
        let to = |link: &crate::Link| {
            link.to.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        links.list.iter().map(|link| format!("{} {}", link.at, to(link))).collect::<Vec<_>>()
    };
    assert!(b.links.msdfs);
    assert_eq!(
        shown(&b.links),
        ["projects/old gw2.example.org:/archive", "new [2001:db8::20]:/b gw3:/srv/b"]
    );
    assert!(b.links.list[1].to[1].namespace && !b.links.list[1].to[0].namespace);
    assert!(!c.links.msdfs);
    assert_eq!(shown(&c.links), ["x y g:/c"]);
}

#[test]
fn faulty_links_suggest_a_fix() {
    let share =
        |links: &str| told(&format!("shares: [{{name: a, memory: true, links: {links}}}]\n"));
    for (links, what) in [
        ("[]", "the list is empty"),
        ("yes", "`yes` is not a link; write `msdfs`, or entries like"),
        ("[{at: a}]", "this link has no `to`"),
        ("[{to: 'g:/a'}]", "this link has no `at`"),
        ("[{at: a, to: []}]", "this link has no server: the list is empty"),
        ("[{at: a, to: g}]", "write it like `gw2.example.org:/archive`"),
        ("[{at: /a, to: 'g:/a'}]", "write `a`"),
        ("[{at: '', to: 'g:/a'}]", "name a path below it"),
        ("[{at: 'a\\b', to: 'g:/a'}]", "write `/`"),
        ("[{at: a/../b, to: 'g:/a'}]", "`..`"),
        ("[{at: a, from: 'g:/a'}]", "from"),
        ("[{at: a, to: ['g:/a', 'g:/a']}]", "named twice"),
        ("[{at: a/b, to: 'g:/a'}, {at: A/B, to: 'h:/a'}]", "there are two links at `a/b`"),
        ("[{at: a, to: 'g:/a'}, {at: A/b, to: 'h:/a'}]", "one below the other"),
        ("[{at: a/b, to: 'g:/a'}, {at: a, to: 'h:/a'}]", "one below the other"),
    ] {
        let faults = share(links);
        assert!(faults.contains(what), "{links}: {faults}");
    }
    let servers: Vec<String> = (0..17).map(|n| format!("'g:/{n}'")).collect();
    let many = share(&format!("[{{at: a, to: [{}]}}]", servers.join(", ")));
    assert!(many.contains("a link has at most 16 servers"), "{many}");
    let links: Vec<String> = (0..257).map(|n| format!("{{at: a{n}, to: 'g:/a'}}")).collect();
    let many = share(&format!("[{}]", links.join(", ")));
    assert!(many.contains("a share has at most 256 links"), "{many}");
    let deep = share(&format!("[{{at: {}, to: 'g:/a'}}]", ["x"; 33].join("/")));
    assert!(deep.contains("more than 32 names"), "{deep}");
    let away = told("shares: [{name: a, refer: 'g:/a', links: msdfs}]\n");
    assert!(away.contains("this share is on another server, which has `links`"), "{away}");
    let homes = told("shares: [{name: a, path: '/usr/{user}', links: msdfs}]\n");
    assert!(homes.contains("has a folder for each user, and `links`"), "{homes}");
}
