use super::*;

fn read(text: &str) -> Imported {
    let mut all = Imported::default();
    take(&mut all, "smb.conf", text);
    all
}

#[test]
fn blanks_case_and_synonyms_of_keys_do_not_count() {
    let all = read("[A b]\n Directory = /srv\n WriteAble = Yes\n PUBLIC=1\n");
    let share = &all.shares[0];
    assert_eq!((share.name.as_str(), share.path.as_str()), ("A b", "/srv"));
    assert!(!share.read_only && share.guest);
    assert!(read("[a]\npath=/srv\n").shares[0].read_only);
}

#[test]
fn a_restriction_that_is_lost_keeps_the_share_from_being_served() {
    for line in [
        "valid users = &staff",
        "valid users = %S",
        "read only = no\nread list = bob",
        "hosts deny = 10.0.0.1",
        "hosts allow = LOCAL",
        "hosts allow = ws*.example",
        "hosts allow = ALL EXCEPT 10.0.0.1",
        "veto files = /*.exe/",
        "force group = +staff",
        "users = alice",
        "vfs objects = acl_xattr worm",
        "vfs object = readonly",
        "vfs objects = READ_ONLY:a",
        "vfs objects = acl_tdb",
        "vfs objects = streams_xattr nfs4acl_xattr",
        "vfs objects = zfsacl",
        "acl_xattr:ignore system acls = yes",
        "guest ok = yes\nguest only = yes\nvalid users = alice",
        "only guest = yes\npublic = yes\nwrite list = bob",
        "hosts deny = ALL",
        "preexec = /bin/may-come %u\npreexec close = yes",
        "root preexec = /bin/may-come %u\nroot preexec close = yes",
    ] {
        let all = read(&format!("[a]\npath = /srv\n{line}\n"));
        assert!(!all.shares[0].lost.is_empty(), "{line}");
    }
    assert!(read("[a]\npath = /srv\nread only = no\n").shares[0].lost.is_empty());
    let off = "exec = /bin/greet\npreexec close = no\nguest only = yes\nvfs objects = recycle\n\
             acl_xattr:ignore system acls = no\n";
    assert!(read(&format!("[a]\npath = /srv\n{off}")).shares[0].lost.is_empty());
    let off = "guest ok = yes\nguest only = no\n";
    assert!(read(&format!("[a]\npath = /srv\n{off}")).shares[0].lost.is_empty());
    let none = "veto files =\nfollow symlinks = yes\nhide unreadable = no\nvalid users =\n";
    assert!(read(&format!("[a]\npath = /srv\n{none}")).shares[0].lost.is_empty());
}

#[test]
fn follow_symlinks_is_carried_over() {
    for (text, wanted) in [
        ("[a]\npath = /srv\n", None),
        ("[a]\npath = /srv\nfollow symlinks = yes\n", Some(false)),
        ("[a]\npath = /srv\nfollow symlinks = no\n", Some(true)),
        ("[global]\nfollow symlinks = no\n[a]\npath = /srv\n", Some(true)),
        ("[global]\nfollow symlinks = no\n[a]\npath = /srv\nfollow symlinks = yes\n", Some(false)),
    ] {
        let share = &read(text).shares[0];
        assert_eq!((share.view.leaves_links, &share.lost[..]), (wanted, &[][..]), "{text}");
    }
}

#[test]
fn what_is_said_for_all_holds_where_a_share_says_nothing_else() {
    let all = read(
        "[a]\npath=/a\n[b]\npath=/b\nguest ok=no\nread only=yes\nhosts deny=\n[global]\nguest ok=yes\nwriteable=yes\n\
             hosts allow=10.\nhosts deny=ALL\n[c]\npath=/c\nguest only=yes\nhosts allow=ALL\n",
    );
    let of = |share: &Share| (share.guest, share.read_only, share.force.user.clone());
    let nobody = Some(Who::User("nobody".into()));
    let wanted = [(true, false, None), (false, true, None), (true, false, nobody)];
    assert_eq!(all.shares.iter().map(of).collect::<Vec<_>>(), wanted);
    assert!(all.shares.iter().all(|share| share.lost.is_empty()), "{:?}", all.shares);
    let clients = all.shares.iter().map(|share| share.clients.as_ref().unwrap().len());
    assert_eq!(clients.collect::<Vec<_>>(), [1, 1, 1]);
    let plain = read("[a]\npath=/a\n");
    assert_eq!(of(&plain.shares[0]), (false, true, None));
}

#[test]
fn the_hosts_of_all_hold_beside_those_of_a_share() {
    for (of_all, of_share, wanted) in [
        ("hosts allow=10.", "hosts allow=10.1.", Some("10.1.0.0/16")),
        ("hosts allow=10.1. 10.2.", "hosts allow=10.", Some("10.1.0.0/16 10.2.0.0/16")),
        ("hosts allow=10.\nhosts deny=ALL", "hosts allow=ALL\nhosts deny=", Some("10.0.0.0/8")),
        ("hosts allow=@a .lab", "hosts allow=.lab", Some("*.lab")),
        ("hosts allow=10.", "hosts allow=192.168.", None),
        ("hosts allow=10. 192.168.", "hosts allow=10. 172.16.", None),
        ("hosts allow=10.", "hosts allow=ws.lab", None),
        ("hosts deny=ALL", "hosts allow=10.", None),
        ("hosts deny=ALL", "hosts allow=10.\nhosts deny=", None),
        ("hosts deny=ALL", "hosts deny=", None),
    ] {
        let all = read(&format!("[a]\npath=/a\n{of_share}\n[global]\n{of_all}\n"));
        let share = &all.shares[0];
        assert_eq!(share.lost.is_empty(), wanted.is_some(), "{of_all} {of_share}");
        let shown = share.clients.iter().flatten().map(ToString::to_string);
        let shown = shown.collect::<Vec<_>>().join(" ");
        assert!(wanted.is_none_or(|wanted| wanted == shown), "{of_all} {of_share}: {shown}");
    }
}

#[test]
fn a_section_begins_with_whatever_follows_its_name() {
    let all = read("[a]\npath=/a\nguest ok=yes\n[secret] ; x\npath=/secret\n[b\npath=/b\n");
    let of = |share: &Share| (share.name.clone(), share.path.clone(), share.guest);
    let wanted = [("a".into(), "/a".into(), true), ("secret".into(), "/secret".into(), false)];
    assert_eq!(all.shares.iter().map(of).collect::<Vec<_>>(), wanted);
    assert_eq!((all.notes.len(), all.notes[0].line), (1, 6));
}

#[test]
fn a_share_of_its_own_name_is_no_folder_for_each_user() {
    let all =
        read("[Team]\npath=/srv/%S\n[b]\npath=/%S/x\nprint ok=no\n[c]\npath=/c\nprint ok=yes\n");
    let paths: Vec<&str> = all.shares.iter().map(|share| share.path.as_str()).collect();
    assert_eq!(paths, ["/srv/Team", "/b/x"]);
    let all = read("[own]\npath=/srv/%U\nvalid users=%S\n[homes]\npath=/srv/%S\nvalid users=%S\n");
    let lost: Vec<usize> = all.shares.iter().map(|share| share.lost.len()).collect();
    assert_eq!((lost, all.shares[1].path.as_str()), (vec![1, 0], "/srv/{user}"));
}

#[test]
fn everybody_is_the_guest_where_guests_alone_come() {
    let written = |text: &str| {
        let all = read(text);
        assert!(all.shares[0].lost.is_empty(), "{text}");
        crate::import::write::one(&all.shares[0])
    };
    let share = "[a]\npath=/a\nguest ok=yes\nguest only=yes\n";
    assert!(written(share).contains("    force: {user: nobody}\n"));
    let other = written(&format!("[global]\nguest account=ftp\n{share}force user=team\n"));
    assert!(other.contains("    force: {user: team}\n"), "{other}");
    let ftp = written(&format!("[global]\nguest account=ftp\n{share}"));
    assert!(ftp.contains("    force: {user: ftp}\n"), "{ftp}");
    let none = written("[a]\npath=/a\nguest ok=no\nguest only=yes\n");
    assert!(!none.contains("force"), "{none}");
}

#[test]
fn hosts_are_carried_over_by_name() {
    let all = read("[a]\npath=/a\nhosts allow = .lab WS.org, @Hosts 10. 127.0.0.1 ws.org\n");
    let clients = all.shares[0].clients.iter().flatten().map(ToString::to_string);
    let wanted = ["*.lab", "ws.org", "@Hosts", "10.0.0.0/8", "127.0.0.1/32"];
    assert_eq!(clients.collect::<Vec<_>>(), wanted);
    assert!(all.shares[0].lost.is_empty() && all.notes.is_empty());
}

#[test]
fn a_restriction_of_the_whole_server_is_one_of_each_share() {
    for line in [
        "valid users = &staff",
        "force user = x",
        "hosts deny = 10.0.0.1",
        "hosts allow = c.*",
        "vfs objects = worm",
        "root preexec close = yes",
        "hosts deny = 0.0.0.0/0",
        "include = /etc/samba/more.conf",
        "config file = /etc/samba/%m.conf",
        "config backend = registry",
        "root directory = /srv",
        "rootdir = /srv",
        "root = /srv",
        "available = no",
        "print ok = yes",
        "acl_xattr : ignore system acls = yes",
    ] {
        let all = read(&format!("[a]\npath = /a\n[global]\n{line}\n[b]\npath = /b\n"));
        assert!(all.shares.iter().all(|s| s.lost.len() == 1), "{line}");
    }
    let mut all = read("[a]\npath = /a\n");
    take(&mut all, "other.conf", "[global]\nvalid users = %x\n[b]\npath = /b\n");
    assert!(all.shares[0].lost.is_empty(), "of another file");
}

#[test]
fn who_may_use_a_share_and_as_whom_is_carried_over() {
    let all = read(
        "[global]\nvalid users = @staff\n[a]\npath=/a\nread only=no\nbrowseable=no\nhide unreadable=yes\n\
             invalid users = eve\nforce user = team\nforce group = staff\ncreate mask = 0660\ndirectory mode = 770\n\
             force directory mode = 2000\n[b]\npath=/b\nvalid users = bob\nwrite list = bob\nforce create mode = 0020\n",
    );
    let written: Vec<String> = all.shares.iter().map(crate::import::write::one).collect();
    assert_eq!(
        written,
        [
            "  - name: a\n    path: /a\n    protocols: smb\n    hidden: true\n    \
             access: {write: [\"@staff\"], deny: [eve]}\n    force: {user: team, group: staff}\n    \
             masks: {file: 0660, folder: 2770}\n    list: visible\n",
            "  - name: b\n    path: /b\n    protocols: smb\n    \
             access: {read: [bob], write: [bob]}\n    masks: {file: 0764}\n",
        ]
    );
    assert!(all.shares.iter().all(|s| s.lost.is_empty()) && all.notes.is_empty());
}

#[test]
fn what_is_seen_and_made_is_said_for_all_shares_or_for_one() {
    let all = read(
        "[a]\npath=/a\n[global]\nhide unreadable = yes\nbrowseable = no\ncreate mask = 0660\n\
             directory mask = 0770\nforce create mode = 0001\nforce directory mode = 2000\n\
             [b]\npath=/b\nhide unreadable = no\nbrowseable = yes\ncreate mask = 0600\n",
    );
    let written: Vec<String> = all.shares.iter().map(crate::import::write::one).collect();
    let head = |name| {
        format!("  - name: {name}\n    path: /{name}\n    protocols: smb\n    read_only: true\n")
    };
    let masks = |file| format!("    masks: {{file: {file}, folder: 2770}}\n");
    let of_a = format!("{}    hidden: true\n{}    list: visible\n", head("a"), masks("0661"));
    assert_eq!(written, [of_a, format!("{}{}", head("b"), masks("0601"))]);
    assert!(all.notes.is_empty(), "{:?}", all.notes);
    assert_eq!(read("[global]\ncreate mask = rw\n[a]\npath=/a\n").notes.len(), 1);
}

#[test]
fn what_was_not_read_and_what_nobody_does_here_is_said() {
    let all = read("[a]\npath = /a\ninclude = /x\nvfs objects = acl_xattr recycle\n");
    assert_eq!(all.shares[0].lost, ["`include = /x` was not read"]);
    assert!(all.notes[0].meaning.starts_with("NOT READ"));
    assert!(
        all.notes[1]
            .meaning
            .contains("carried over as `wastebasket`, for NFS clients as well; the NT ACLs"),
        "{}",
        all.notes[1]
    );
    let all = read("[global]\nmin protocol = SMB3\n[a]\npath=/a\n");
    assert!(all.notes[0].meaning.starts_with("LOST"));
}

#[test]
fn snapshots_of_shadow_copy2_are_carried_over() {
    let all = read(
        "[global]\nvfs objects = shadow_copy2\nshadow:format = %Y-%m-%d_%H%M\n[a]\npath=/a\nshadow:snapdir = .zfs/snapshot\n\
             [b]\npath = /b\nvfs objects = acl_xattr\n[c]\npath = /c\nshadow:snapdirseverywhere = yes\n",
    );
    let written: Vec<_> = all.shares.iter().map(crate::import::write::one).collect();
    assert!(
        written[0].contains("    snapshots: \".zfs/snapshot/{time:%Y-%m-%d_%H%M}\"\n"),
        "{}",
        written[0]
    );
    assert!(!written[1].contains("snapshots") && !written[2].contains("snapshots"));
    let said: Vec<_> = all.notes.iter().map(|note| note.meaning.as_str()).collect();
    assert!(said.iter().any(|said| said.starts_with("a: carried over as `snapshots`")), "{said:?}");
    assert!(said.iter().any(|said| said.starts_with("c: `shadow:snapdirseverywhere`")), "{said:?}");
    assert!(all.shares.iter().all(|share| share.lost.is_empty()));
}

#[test]
fn mounts_inside_are_hidden_where_ksmbd_hid_them() {
    for (of_all, of_share, hides) in [
        ("", "", false),
        ("", "crossmnt = no", true),
        ("", "crossmnt = yes", false),
        ("crossmnt = no", "", true),
        ("crossmnt = no", "crossmnt = yes", false),
        ("crossmnt = yes", "crossmnt = no", true),
    ] {
        let all = read(&format!("[global]\n{of_all}\n[a]\npath=/srv\n{of_share}\n"));
        let written = crate::import::write::one(&all.shares[0]);
        assert_eq!(written.contains("cross: false"), hides, "{of_all}; {of_share}");
        assert!(all.notes.is_empty() && all.shares[0].lost.is_empty(), "{of_all}; {of_share}");
    }
}

#[test]
fn lost_limits_of_logons_are_noted() {
    for (line, lost) in [
        ("obey pam restrictions = yes", true),
        ("obey pam restrictions = no", false),
        ("min domain uid = 1000", true),
        ("min domain uid = 0", false),
        ("allow trusted domains = no", true),
        ("allow trusted domains = yes", false),
    ] {
        let all = read(&format!("[global]\n{line}\n[a]\npath=/srv\n"));
        assert_eq!(all.notes[0].meaning.starts_with("LOST"), lost, "{}", all.notes[0]);
        assert!(all.shares[0].lost.is_empty(), "{line}");
    }
}

#[test]
fn settings_of_the_whole_server() {
    let all = read(
        "[global]\nserver signing = mandatory\nsmb encrypt = desired\nsmb ports = 139 1445\n\
             interfaces = lo 192.0.2.1/24\n bind interfaces only = yes\nhosts allow = 192.168. 127.\n[a]\npath=/srv\n",
    );
    assert_eq!(all.signing, Some(Signing::Required));
    assert_eq!(all.encryption, Some(Encryption::Offered));
    assert_eq!((all.smb_port, all.bind.len()), (Some(1445), 2));
    let clients = all.shares[0].clients.as_ref().unwrap();
    assert_eq!(clients[0].to_string(), "192.168.0.0/16");
}

#[test]
fn what_leaves_nfs_locks_unchecked_makes_them_advice() {
    use config::NfsLocks::{Advisory, Enforced};
    for (of_all, of_share, expected) in [
        ("", "", Enforced),
        ("", "strict locking = no", Advisory),
        ("", "strict locking = Auto", Enforced),
        ("", "posix locking = no", Advisory),
        ("strict locking = no", "", Advisory),
        ("strict locking = no", "strict locking = auto", Enforced),
        ("posix locking = no", "strict locking = yes", Advisory),
    ] {
        let all = read(&format!("[global]\n{of_all}\n[a]\npath=/srv\n{of_share}\n"));
        assert_eq!(all.shares[0].locking.nfs_locks(), expected, "{of_all}; {of_share}");
        let lines = [of_all, of_share].iter().filter(|l| !l.is_empty()).count();
        assert_eq!(all.notes.len(), lines, "{of_all}; {of_share}");
    }
}

#[test]
fn of_two_shares_of_one_folder_the_stricter_locks_count() {
    let mut all = read("[a]\npath=/srv\nstrict locking=no\n[b]\npath=/srv\n");
    crate::import::merge(&mut all);
    assert_eq!(all.shares[0].locking.nfs_locks(), config::NfsLocks::Enforced);
    let mut all = read("[a]\npath=/srv\nstrict locking=no\n");
    crate::import::exports::take(&mut all, "exports", "/srv 10.0.0.0/8(rw)\n");
    crate::import::merge(&mut all);
    assert_eq!(all.shares.len(), 1);
    assert_eq!(all.shares[0].locking.nfs_locks(), config::NfsLocks::Advisory);
}

#[test]
fn drafts_of_lists_with_exceptions_admit_few() {
    for (list, wanted) in [
        ("10.1. EXCEPT 10.1.0.1", Some("10.1.0.0/16")),
        ("10.1.0.1, ws.lab except ALL", Some("10.1.0.1/32 ws.lab")),
        ("EXCEPT 10.1.0.1", None),
    ] {
        for text in [
            format!("[a]\npath=/a\nhosts allow={list}\n"),
            format!("[global]\nhosts allow={list}\n[a]\npath=/a\n"),
        ] {
            let all = read(&text);
            let share = &all.shares[0];
            let shown = share
                .clients
                .as_ref()
                .map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
            assert_eq!(shown.as_deref(), wanted, "{text}");
            assert!(!share.lost.is_empty(), "{text}");
            assert!(all.notes.iter().any(|note| note.meaning.starts_with("LOST")), "{text}");
        }
    }
}

#[test]
fn counterparts_are_named() {
    for (line, wanted) in [
        ("admin users = bob", "`access: {admin: [NAMES]}`"),
        ("vfs objects = full_audit", "`audit` in the shares"),
        ("full_audit:success = open", "`audit` of a share"),
        ("inherit acls = yes", "default ACLs of the folder"),
        ("dedicated keytab file = /etc/a.keytab", "`kerberos: {keytab: FILE}`"),
    ] {
        for text in [format!("[global]\n{line}\n"), format!("[a]\npath = /a\n{line}\n")] {
            let all = read(&text);
            assert!(all.notes.iter().any(|note| note.meaning.contains(wanted)), "{text}");
        }
    }
}

#[test]
fn sections_that_mean_something_else_are_left_out_and_told() {
    let all = read(
        "[printers]\nprintable=yes\n[a]\npath=/srv/%m\n[b]\n[c]\npath=/srv/%U/x\n[IPC$]\npath=/tmp\n[d]\npath=srv\n",
    );
    assert!(all.shares.is_empty());
    let told: Vec<(usize, &str)> = all.notes.iter().map(|n| (n.line, n.what.as_str())).collect();
    assert_eq!(
        told,
        [(1, "[printers]"), (3, "[a]"), (5, "[b]"), (6, "[c]"), (8, "[IPC$]"), (10, "[d]")]
    );
}

#[test]
fn a_folder_for_each_user_is_one_share() {
    let all = read(
        "[homes]\nbrowseable = no\nread only = no\nvalid users = %S\n[own]\npath = /srv/%U\nvalid users = alice\n\
             [all]\npath = /all\nvalid users = %S\n",
    );
    let written: Vec<String> = all.shares.iter().map(crate::import::write::one).collect();
    assert_eq!(written[0], "  - name: homes\n    path: \"/home/{user}\"\n    protocols: smb\n");
    assert!(written[1].contains("path: \"/srv/{user}\"\n"), "{}", written[1]);
    let lost = all.shares.iter().map(|share| share.lost.len());
    assert_eq!(lost.collect::<Vec<_>>(), [0, 0, 1], "a name that is the share's is no user's");
    assert!(all.notes[0].meaning.contains(r"`\\SERVER\homes`"), "{}", all.notes[0]);
}

#[test]
fn shares_for_backups_of_macs_are_carried_over() {
    let all = read(
        "[global]\nvfs objects = fruit streams_xattr\nfruit:model = MacSamba\nfruit:metadata = netatalk\n\
         [TM]\npath=/tm\nread only=no\nfruit:time machine = yes\nfruit:time machine max size = 1T\n\
         [a]\npath=/a\nread only=no\n[b]\npath=/b\nfruit:time machine = yes\n\
         [c]\npath=/c\nread only=no\nvfs objects = streams_xattr\nfruit:time machine = yes\n",
    );
    let written: Vec<_> = all.shares.iter().map(crate::import::write::one).collect();
    assert!(written[0].contains("    time_machine: {size: 1TiB}\n"), "{}", written[0]);
    for other in &written[1..] {
        assert!(!other.contains("time_machine"), "{other}");
    }
    assert!(crate::import::write::yaml(&all).ends_with("smb:\n  model: MacSamba\n"));
    let said: Vec<_> = all.notes.iter().map(|note| note.meaning.as_str()).collect();
    assert!(said.iter().any(|said| said.contains("is not read")), "{said:?}");
}
