//! Keys of the directory with users and groups.

use super::{Group, key};

pub(crate) const USERS_FROM: Group = Group {
    name: "users_from",
    is_list: false,
    about: "An LDAP directory with users and groups, in addition to `users` and `headgate user add`, which take precedence. It \
            needs `ldap` and `base`. Users log on over SMB with the NT hashes that the directory has. See \
            [users of a directory](permissions.md#users-of-an-ldap-directory).",
    keys: &[
        key(
            "ldap",
            "server like `ldaps://ldap.example.org`, or list of up to four",
            "",
            "The servers, which have the same users: the next one is asked if one does not answer. `ldap://` without encryption \
             only with an address of this host, like `ldap://127.0.0.1`.",
        ),
        key(
            "base",
            "distinguished name, like `dc=example,dc=org`",
            "",
            "Users and groups are searched below it. The servers must have all of it, without references to other servers.",
        ),
        key(
            "bind_dn",
            "distinguished name",
            "",
            "The name of the gateway in the directory. It must be allowed to read the hashes. If not set: anonymous.",
        ),
        key(
            "bind_password_file",
            "absolute path of a file, or `credential:NAME`",
            "",
            "Its first line is the password of `bind_dn`. Only its owner may read it. It is read at each look-up.",
        ),
        key(
            "ca",
            "absolute path of a file",
            "",
            "Certificates, in PEM, of the authorities that sign the certificates of the servers, which must name the host in \
             `ldap`. If not set: the authorities of the system.",
        ),
        key(
            "filter",
            "filter in parentheses",
            "(objectClass=posixAccount)",
            "Entries that are users, in addition to `uid`, which must be the name.",
        ),
        key(
            "keep",
            "time, like `168h`",
            "168h",
            "How long the last answer about a user is valid while no server answers, at most `720h`. `0s`: not at all.",
        ),
    ],
};
