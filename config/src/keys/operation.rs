//! Keys of logons by tickets, of the audit trail, of limits and of the log.

use super::rates::{BURST, OPERATIONS, READ, READ_OPERATIONS, WRITE, WRITE_OPERATIONS};
use super::{Group, key};

pub(crate) const KERBEROS: Group = Group {
    name: "kerberos",
    is_list: false,
    about: "Logons with Kerberos tickets, in addition to passwords. It needs `keytab`. The gateway uses this host's MIT krb5 \
            library (`libgssapi_krb5.so.2`) and krb5.conf. See [Kerberos](kerberos.md).",
    keys: &[
        key(
            "keytab",
            "absolute path of a file, or `credential:NAME`",
            "",
            "The keys of this server, of `cifs/NAME` or `host/NAME` for SMB, `nfs/NAME` for NFS. Only its owner may read it. \
             It is read at each logon, so new keys need no restart.",
        ),
        key(
            "realm",
            "word, like `EXAMPLE.ORG`",
            "",
            "The realm whose principals, like `alice@EXAMPLE.ORG`, are users of that name, like `alice`, even where krb5.conf \
             does not say so. If not set: krb5.conf maps principals to users (`default_realm`, `auth_to_local`).",
        ),
        key(
            "names",
            "name of this host as clients type it, or list of them",
            "",
            "The host names whose keys `headgate check` looks for in the keytab. If not set: the name of the host.",
        ),
        key(
            "map",
            "`names`, `rid`, `winbind` or `sssd`",
            "names",
            "How principals are mapped to users of the file system. `names`: to users of the same name, in `users` and on this \
             host, where SSSD or winbind provides the users of a domain; `rid`: principals of `realm` get numbers computed \
             from the user's and groups' SIDs in Active Directory tickets, and this host need not know the users; `winbind` \
             and `sssd`: to the numbers that these have for the SIDs. [domain.by](#domain) sets the last three, and is their \
             better place.",
        ),
        key(
            "rid_base",
            "number of a user",
            "100000",
            "With `map: rid`: the number, at least 1000, that is added to the last number of a user's or a group's SID. All \
             gateways of the same files need the same value.",
        ),
    ],
};

pub(crate) const DOMAIN: Group = Group {
    name: "domain",
    is_list: false,
    about: "Who turns identities of an Active Directory domain into names and numbers. If not set: `kerberos.map` says it for \
            tickets, and users of the domain have no password logons. See [Active Directory](active-directory.md).",
    keys: &[key(
        "by",
        "`winbind`, `rid` or `sssd`",
        "",
        "`winbind`: the winbindd of this host, a member of the domain, by `libwbclient.so.0`. Users log on with tickets, if \
         there is a keytab, and with passwords, unless `smb.ntlm` is off. `rid`: the gateway itself, for tickets only, as \
         `kerberos: {map: rid}`. `sssd`: the sssd of this host, a member of the domain `kerberos.realm`, by \
         `libsss_nss_idmap.so.0`, for tickets only.",
    )],
};

pub(crate) const AUDIT: Group = Group {
    name: "audit",
    is_list: false,
    about: "The audit trail: logons, refusals, mounts, actions of administrators, and the operations that shares select with \
            their own `audit`, as lines of JSON. It needs `to`. See [audit](audit.md).",
    keys: &[
        key(
            "to",
            "absolute path of a file, or `journald`",
            "",
            "The destination. The gateway creates the file so that only its own user can read it, only appends to it, and \
             reopens it at each reload, so that it can be rotated.",
        ),
        key(
            "required",
            "`true` or `false`",
            "false",
            "`true`: while the trail cannot be written, the gateway refuses operations that it must record (logons, mounts, \
             and operations on shares with `audit`), and `/readyz` reports this. `false`: service continues, and records \
             that do not fit in memory are lost and counted.",
        ),
    ],
};

pub(crate) const LIMITS: Group = Group {
    name: "limits",
    is_list: false,
    about: "Limits per client, so that each client leaves enough for the others; `connections` and `memory` limit all clients \
            together. The gateway refuses the request that would exceed a limit; the log names the limit, and the metric \
            `headgate_limits_met_total` counts it. The rates from `read` to `burst` are of all clients together: what exceeds them \
            waits (see [rates](#rates)).",
    keys: &[
        key(
            "client_connections",
            "whole number",
            "",
            "Connections from one address. If not set: three quarters of `connections`.",
        ),
        key(
            "client_memory",
            "size, like `64MiB`",
            "",
            "Payload memory of all connections from one address. When it is used up, only its own requests wait. If not set: \
             three quarters of `memory`. Large requests without payload may use an eighth as much in addition.",
        ),
        key(
            "client_opens",
            "whole number",
            "65536",
            "Files that one client may hold open: each SMB session and each NFSv4 client. An NFSv4 open may have three further \
             states (locks, a delegation).",
        ),
        key(
            "nfs_clients",
            "whole number",
            "16384",
            "Maximum number of NFSv4 clients; an eighth of them may come from one address (IPv6: one /64). Silent clients are \
             dropped to make room.",
        ),
        key(
            "introduction",
            "time, like `45s`",
            "45s",
            "How long a connection may take until a user has logged on (SMB) or a share has admitted a call (NFS), including \
             the set-up of RDMA. Until then it counts as new: all new connections together may use half of `connections`, \
             and those from one address a quarter.",
        ),
        READ,
        WRITE,
        OPERATIONS,
        READ_OPERATIONS,
        WRITE_OPERATIONS,
        BURST,
        key(
            "client",
            "group",
            "",
            "The rates of each client address by itself (IPv6: of each /64). See [rates](#rates).",
        ),
    ],
};

pub(crate) const LOG: Group = Group {
    name: "log",
    is_list: false,
    about: "The log on standard error.",
    keys: &[
        key(
            "level",
            "`error`, `warn`, `info`, `debug` or `trace`",
            "info",
            "The lines that are written. Parts of the program may have another level: `info,nfsrdma=debug`. `headgate log` \
             changes the level until the next reload.",
        ),
        key("format", "`text` or `json`", "text", "Format of the lines."),
    ],
};
