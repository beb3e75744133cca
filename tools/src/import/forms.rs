//! Detects files that are neither smb.conf nor exports, each of which would be misread as one of the two, and describes each
//! in one sentence.

/// Returns a description of the file and what to do instead, if it is neither Samba's nor a file of exports.
pub(super) fn other_form(text: &str) -> Option<&'static str> {
    let lines: Vec<&str> = lines(text).collect();
    let by = [
        (
            is_passdb(&lines),
            "these are accounts of Samba: take them over with `headgate user import FILE`",
        ),
        (text.starts_with("TDB file"), PASSDB_TDB),
        (
            is_ganesha(&lines),
            "this is a configuration of NFS-Ganesha, for which there is no converter: docs/migrating.md says what each of its keys \
             is here",
        ),
        (
            is_compose(&lines),
            "this is a compose file of containers: docs/containers.md has one for headgate",
        ),
        (
            lines.iter().any(|line| line.trim_end() == "shares:"),
            "this is a configuration of headgate already: try it with `headgate check --config FILE`",
        ),
        (
            lines.iter().any(|line| {
                line.starts_with("share ") && line.contains("-F nfs") || line.contains("sharenfs")
            }),
            "these are shares of Solaris or ZFS: write each as a line of exports(5)",
        ),
        (
            is_table_of_mounts(&lines),
            "this is a table of mounts (fstab), which says what this host mounts from others; give the server's /etc/exports",
        ),
        (
            is_autofs(&lines),
            "this is a map of autofs, which says what clients mount; give the server's /etc/exports",
        ),
        (
            is_rsync(text, &lines),
            "this is a configuration of rsync, whose sections look like those of Samba and mean something else",
        ),
        (
            is_afp(text, &lines),
            "this is a configuration of Netatalk, whose sections look like those of Samba and mean something else",
        ),
        (
            has_section(&lines, &["nfsd", "mountd", "exportfs", "exportd"]),
            "these are settings of nfs-utils without shares; give /etc/exports",
        ),
        (
            has_section(&lines, &["unit", "mount", "automount", "service"]),
            "this is a unit of systemd; give smb.conf or /etc/exports",
        ),
        (
            has_section(&lines, &["sssd"]),
            "this is a configuration of SSSD; give smb.conf or /etc/exports",
        ),
        (
            lines.iter().any(|line| line.starts_with("usershare_acl=")),
            "this is a share of `net usershare`: write it as a section of smb.conf, as `testparm -s` shows it",
        ),
        (
            is_listing(text),
            "this is the output of `exportfs -v` or `showmount -e`; give /etc/exports and the files of /etc/exports.d",
        ),
        (is_json(text), "this is JSON; give smb.conf or /etc/exports"),
    ];
    by.into_iter().find(|(is_it, _)| *is_it).map(|(_, sentence)| sentence)
}

const PASSDB_TDB: &str = "this is a database of Samba: write its accounts with `pdbedit -L -w > FILE`, and take \
    them over with `headgate user import FILE`";

/// Returns the lines without surrounding blanks and without comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
}

/// Detects `NAME:UID:LM:NT:[FLAGS]:LCT-TIME:`, as in smbpasswd(5).
fn is_passdb(lines: &[&str]) -> bool {
    lines.first().is_some_and(|line| {
        let parts: Vec<&str> = line.split(':').collect();
        parts.len() >= 5 && parts[3].len() == 32 && parts[1].parse::<i64>().is_ok()
    })
}

/// Detects blocks `EXPORT { ... }`, also with the brace on the next line.
fn is_ganesha(lines: &[&str]) -> bool {
    let block = |at: usize| {
        let rest = lines[at].to_lowercase();
        let name: String =
            rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let opens = match rest[name.len()..].trim_start() {
            "" => lines.get(at + 1).is_some_and(|next| next.starts_with('{')),
            after => after.starts_with('{'),
        };
        let is_known = matches!(
            name.as_str(),
            "export"
                | "export_defaults"
                | "log"
                | "fsal"
                | "mdcache"
                | "cacheinode"
                | "9p"
                | "ceph"
                | "vfs"
                | "rgw"
                | "directory_services"
        );
        opens && (is_known || name.starts_with("nfs") || name.starts_with("rados"))
    };
    !lines.iter().any(|line| line.starts_with('[')) && (0..lines.len()).any(block)
}

fn is_compose(lines: &[&str]) -> bool {
    let has = |key: &str| lines.iter().any(|line| line.trim_start_matches("- ").starts_with(key));
    lines.iter().any(|line| line.trim_end() == "services:") && (has("image:") || has("build:"))
}

/// Detects lines of fstab(5): the third word is a file system type.
fn is_table_of_mounts(lines: &[&str]) -> bool {
    const TYPES: [&str; 16] = [
        "nfs", "nfs4", "cifs", "smb3", "ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "swap",
        "vfat", "proc", "sysfs", "zfs", "fuse",
    ];
    lines.iter().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (4..=6).contains(&words.len())
            && words[2].split('.').next().is_some_and(|word| TYPES.contains(&word))
    })
}

/// Detects lines of auto.master(5) or autofs(5).
fn is_autofs(lines: &[&str]) -> bool {
    lines.iter().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let last = words.last().copied().unwrap_or_default();
        let is_source = |word: &str| {
            let of = ["/etc/auto", "auto.", "file:", "program:", "yp:", "ldap:", "sss:", "-hosts"];
            of.iter().any(|start| word.starts_with(start))
        };
        let is_master = words.len() >= 2 && words[0].starts_with('/') && is_source(words[1]);
        // `KEY [-OPTIONS] HOST:/FOLDER`. A client in exports(5) cannot contain `:/`.
        let is_entry = words.len() >= 2
            && last.split_once(":/").is_some_and(|(host, _)| !host.contains(['(', '=', '@']));
        is_master || is_entry || line.starts_with("+auto") || line.contains("-fstype=")
    })
}

fn is_rsync(text: &str, lines: &[&str]) -> bool {
    has_sections(lines)
        && has_key(
            text,
            &[
                "auth users",
                "secrets file",
                "use chroot",
                "uid",
                "gid",
                "incoming chmod",
                "exclude",
            ],
        )
}

fn is_afp(text: &str, lines: &[&str]) -> bool {
    let keys = [
        "mimic model",
        "basedir regex",
        "rolist",
        "rwlist",
        "vol dbpath",
        "uam list",
        "afp port",
        "time machine",
        "cnid scheme",
    ];
    has_sections(lines) && has_key(text, &keys)
}

fn is_listing(text: &str) -> bool {
    let is_client = |line: &str| line.starts_with("\t\t") && line.contains('(');
    text.starts_with("Export list for") || text.contains("<world>(") || text.lines().any(is_client)
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<serde_json::Value>(text).is_ok()
}

fn has_sections(lines: &[&str]) -> bool {
    lines.iter().any(|line| line.starts_with('['))
}

fn has_section(lines: &[&str], names: &[&str]) -> bool {
    let name = |line: &&str| {
        let name = line.strip_prefix('[')?.split_once(']')?.0;
        names.contains(&name.to_lowercase().as_str()).then_some(())
    };
    // A share of Samba may have any name, but it has a `path`.
    lines.iter().any(|line| name(line).is_some())
        && !lines.iter().any(|line| line.to_lowercase().starts_with("path"))
}

fn has_key(text: &str, keys: &[&str]) -> bool {
    lines(text).any(|line| {
        line.split_once('=').is_some_and(|(key, _)| {
            let key = key.split_whitespace().collect::<Vec<_>>().join(" ");
            keys.contains(&key.to_lowercase().as_str())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_named() {
        for (text, told) in [
            ("EXPORT {\n Path = /a;\n}\n", "NFS-Ganesha"),
            (
                "# x\nNFS_CORE_PARAM { Protocols = 3, 4; }\nEXPORT\n{\n Path = /a;\n}\n",
                "NFS-Ganesha",
            ),
            ("services:\n  nas:\n    image: samba\n    volumes: [\"/srv:/srv\"]\n", "compose"),
            ("shares:\n  - name: a\n    path: /a\n", "headgate already"),
            ("UUID=1 / ext4 defaults 0 1\ngw:/a /mnt nfs4 rw,soft 0 0\n", "fstab"),
            ("/dev/sda1 /srv xfs defaults 0 0\n", "fstab"),
            ("/mnt/nfs /etc/auto.nfs --timeout=60\n", "autofs"),
            ("+auto.master\n", "autofs"),
            ("data -fstype=nfs4,rw gw:/data\n", "autofs"),
            ("/net -hosts\n", "autofs"),
            ("* -rw,soft gw:/home/&\n", "autofs"),
            (
                "[data]\npath = /data\nauth users = kim\nsecrets file = /etc/rsyncd.secrets\n",
                "rsync",
            ),
            ("[Global]\nmimic model = Xserve\n[Data]\npath = /data\nrolist = kim\n", "Netatalk"),
            ("[nfsd]\nthreads=8\n", "nfs-utils"),
            ("[Unit]\nDescription=x\n[Mount]\nWhat=gw:/a\nWhere=/a\n", "systemd"),
            (
                "kim:1000:AAD3B435B51404EEAAD3B435B51404EE:8846F7EAEE8FB117AD06BDD830B7586C:[U          ]:LCT-5F000000:\n",
                "headgate user import",
            ),
            ("TDB file\n\0\0", "pdbedit -L -w"),
            ("#VERSION 2\npath=/a\nusershare_acl=S-1-1-0:R\nguest_ok=y\n", "net usershare"),
            ("/srv/long/name\n\t\t10.0.0.0/8(sync,wdelay,hide,ro)\n", "exportfs -v"),
            ("Export list for gw:\n/srv 10.0.0.0/8\n", "showmount -e"),
            ("share -F nfs -o rw=host /a\n", "Solaris"),
        ] {
            assert!(
                other_form(text).is_some_and(|said| said.contains(told)),
                "{text}: {:?}",
                other_form(text)
            );
        }
    }

    #[test]
    fn both_files_are_not_taken_for_another() {
        for text in [
            "",
            "/srv 10.0.0.0/8(rw)\n",
            "/srv *(ro,refer=/a@gw:/b@gw2)\n",
            "/srv/a \\\n  host(rw) \\\n  gss/krb5(rw)\n",
            "/srv fd00::/8(rw) [fe80::1](ro) 2001:db8::1\n",
            "[global]\nworkgroup = X\n[unit]\npath = /unit\n",
            "[a]\npath=/a\n[export]\npath=/b\nvfs objects = fruit\nfruit:time machine = yes\n",
            "[homes]\nbrowseable = no\n",
        ] {
            assert_eq!(other_form(text), None, "{text}");
        }
    }
}
