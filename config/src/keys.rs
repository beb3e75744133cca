//! All keys of the file: type, default and meaning. The reader and the documentation both use this table, so neither can have a key
//! that the other lacks.

mod cluster;
mod ldap;
mod macos;
mod operation;
mod rates;
mod wastebasket;

pub(crate) use cluster::{CLUSTER, CLUSTER_FILE, SERVICE};
pub(crate) use ldap::USERS_FROM;
pub(crate) use macos::TIME_MACHINE;
pub(crate) use operation::{AUDIT, DOMAIN, KERBEROS, LIMITS, LOG};
pub(crate) use rates::RATES;
pub(crate) use wastebasket::WASTEBASKET;

/// A key of a group.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Spelling of the key.
    pub name: &'static str,
    /// Type of the value.
    pub value: &'static str,
    /// Default, as a user would write it; empty: no default.
    pub default: &'static str,
    /// Meaning of the key.
    pub about: &'static str,
}

/// A group of keys.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The key that contains the group; empty for the top level.
    pub name: &'static str,
    /// The group is an entry of a list.
    pub is_list: bool,
    /// One sentence about the group.
    pub about: &'static str,
    /// In the order of the documentation.
    pub keys: &'static [Key],
}

impl Group {
    /// Returns the names of the keys.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|k| k.name).collect()
    }
}

const fn key(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    about: &'static str,
) -> Key {
    Key { name, value, default, about }
}

pub(crate) const TOP: Group = Group {
    name: "",
    is_list: false,
    about: "At the top of the file.",
    keys: &[
        key("shares", "list of groups", "", "The folders that are served. See [shares](#shares)."),
        key(
            "users",
            "list of groups",
            "",
            "The users that may log on over SMB. See [users](#users).",
        ),
        key(
            "users_from",
            "group",
            "",
            "An LDAP directory with further users. See [users_from](#users_from).",
        ),
        key(
            "bind",
            "address, or list of addresses",
            "",
            "Addresses of this host to listen on. If not set: all of them, IPv4 and IPv6.",
        ),
        key(
            "rdma",
            "`auto`, `iwarp`, `verbs` or `off`, or group",
            "auto",
            "The RDMA provider; a group has more settings, see [rdma](#rdma). `iwarp` runs in user space and needs no device \
             on this side; `verbs` uses an RDMA device through libibverbs; `auto` uses a device if one serves the address, \
             and iWARP otherwise.",
        ),
        key(
            "rdma_crc",
            "`asked` or `always`",
            "asked",
            "A CRC32C in every iWARP frame: when the client asks for it, or on every connection.",
        ),
        key(
            "rdma_spin",
            "`auto`, or time up to `1ms`, like `20us`",
            "auto",
            "Maximum time that a connection over an RDMA device polls for completions before it sleeps: lower latency at the \
             price of processor time. A connection that finds no completions polls for less. `0us`: never; `auto`: `20us`, \
             and never with 4 processors or fewer.",
        ),
        key(
            "state",
            "absolute path",
            "/var/lib/headgate",
            "The folder for data that must survive a restart: the key of file handles, the SMB users, the records of lock \
             holders. It must be outside of every share and belong to one gateway only.",
        ),
        key(
            "records",
            "name of a share",
            "",
            "A share in CephFS. Its hidden folder `.headgate/records` then holds the data that moves with the service from \
             node to node: the key of file handles, the SMB users, the records of lock holders. `state` keeps only data of \
             this host. A gateway that opens the records cuts off the gateway that had them open. If not set: all data is \
             in `state`. See [cluster](cluster.md).",
        ),
        key(
            "recall",
            "time, like `35s`",
            "35s",
            "How long a client of any protocol has to return a delegation, an oplock or a lease that conflicts with another \
             client. Then the gateway revokes it, and the other client proceeds. A client that did not return one in time has a \
             sixteenth of this time, and half a second at least, for its others until it answers again.",
        ),
        key(
            "memory",
            "size, like `512MiB` or `2GiB`",
            "256MiB",
            "Payload memory of all connections together. An eighth is reserved for the replies that NFS keeps for \
             retransmitted requests, an eighth for large requests that carry no payload, a sixteenth for the names in \
             folders that SMB clients search with different case, a sixteenth for TCP receive buffers, and, unless `rdma: off`, \
             an eighth for RDMA receives. When it is used up, requests wait in a queue. At most the memory of the machine, or of \
             the process's control \
             group (cgroup).",
        ),
        key(
            "connections",
            "whole number",
            "2048",
            "Maximum number of connections; further ones are closed on accept.",
        ),
        key(
            "admin",
            "address with port, or `off`",
            "127.0.0.1:9464",
            "The address that serves health, metrics and the status page.",
        ),
        key(
            "admin_clients",
            "range of addresses, or list of them",
            "",
            "Addresses that may read metrics and status, in addition to root and the gateway's own user on this host. \
             `127.0.0.1`: every user of this host. Others may read `/livez` and `/readyz` only: whether the gateway runs, \
             and why it is not ready.",
        ),
        key(
            "privileged_ports",
            "`local`, `required` or `off`",
            "local",
            "NFS, NLM and MOUNT over TCP and UDP: which clients must call from a port below 1024, which only root of the \
             calling host can bind. `local`: this host's own addresses, so that its users cannot claim to be others; \
             `required`: all; `off`: none. RDMA has no such ports.",
        ),
        key(
            "discovery",
            "`on` or `off`",
            "on",
            "Whether the gateway is announced on the networks of the addresses that serve, never on loopback, so that file \
             managers list it and its name resolves. See [operating](operating.md#found-on-the-network).",
        ),
        key(
            "drain",
            "time, like `8s`",
            "8s",
            "How long requests in progress may take when the gateway is asked to stop. `docker stop` kills after 10s.",
        ),
        key(
            "names",
            "`host` or `own`",
            "host",
            "Where NFSv4 and SMB find the names of users and groups. `host`: in `users` and on this host; `own`: in `users` \
             only.",
        ),
        key("limits", "group", "", "Limits per client, and rates of all. See [limits](#limits)."),
        key("log", "group", "", "Level and format of the log. See [log](#log)."),
        key("nfs", "group", "", "Settings of NFS. See [nfs](#nfs)."),
        key("smb", "group", "", "Settings of SMB. See [smb](#smb)."),
        key("tls", "group", "", "TLS for NFS over TCP and for the admin address. See [tls](#tls)."),
        key("kerberos", "group", "", "Logons with Kerberos tickets. See [kerberos](#kerberos)."),
        key("domain", "group", "", "Who maps identities of a domain. See [domain](#domain)."),
        key("privileges", "group", "", "SMB users with privileges. See [privileges](#privileges)."),
        key(
            "audit",
            "group",
            "",
            "The audit trail, a record of the operations of users. If not set: no records. See [audit](#audit).",
        ),
    ],
};

pub(crate) const SHARE: Group = Group {
    name: "shares",
    is_list: true,
    about: "A folder that is served under a name. It needs `name`, and one of `path`, `ceph`, `memory` and `refer`.",
    keys: &[
        key(
            "name",
            "name of 1 to 80 bytes",
            "",
            "NFS clients see `/NAME`, SMB clients `\\\\host\\NAME`. Letters of any language, digits, spaces inside and signs, \
             but no control characters and none of `/ \\ : * ? \" < > , =` or a vertical bar; not `.`, `..` or `IPC$`. SMB \
             ignores case.",
        ),
        key(
            "path",
            "absolute path of a folder",
            "",
            "The folder that is served. Folders of shares may overlap: a file has one set of opens, locks and caches, \
             and rights are those of the share ([coherence](coherence.md#shares-that-overlap)). With `{user}` as its last \
             part, as in `/home/{user}`, each SMB user sees only the folder of that name, which the gateway creates when \
             the user first connects; NFS clients see the folder above. See [homes](permissions.md#homes).",
        ),
        key("ceph", "group", "", "A folder of CephFS, in place of `path`. See [ceph](#ceph)."),
        key("memory", "`true` or `false`", "false", "A volume in memory, lost at exit."),
        key(
            "refer",
            "server with path like `gw2.example.org:/archive`, group, or list of them",
            "",
            "In place of a folder: the share is on another server, to which the gateway sends clients by NFSv4 referrals and \
             by DFS. Such a share can have only `protocols`, `clients`, `hidden`, `export` and `comment`. See \
             [refer](#refer).",
        ),
        key(
            "protocols",
            "`nfs`, `smb` or `both`",
            "both",
            "The protocols that serve the share. Clients of the other protocol do not see it.",
        ),
        key(
            "read_only",
            "`true` or `false`",
            "false",
            "Clients cannot change files through this share.",
        ),
        key(
            "cross",
            "`true` or `false`",
            "true",
            "File systems that are mounted inside the folder are part of the share, each with its own free space; files cannot \
             be moved or linked between them. `false`: clients see their folders and are refused. The kernel's own file \
             systems (`proc` and the like), and mounts that show a part of the share again, are always refused. See \
             [mounts inside a share](operating.md#mounts-inside-a-share).",
        ),
        key(
            "squash",
            "`root`, `all` or `none`",
            "root",
            "NFS alone: which calls run as the anonymous user (65534). `root`: calls of the superuser; `all`: calls of every user; \
             `none`: no calls.",
        ),
        key(
            "sec",
            "list of `sys`, `krb5`, `krb5i`, `krb5p`",
            "sys",
            "NFS: how callers authenticate. `sys`: with the user number that the client claims. The others need a keytab \
             (`kerberos`): `krb5` authenticates the user, `krb5i` also signs messages, `krb5p` also encrypts them. Over \
             RDMA, data is placed directly only with `sys` and `krb5`. Mounts with another flavor are refused.",
        ),
        key(
            "nfs_locks",
            "`enforced` or `advisory`",
            "enforced",
            "The effect of an NFS client's byte-range lock on SMB clients. It always conflicts with their locks. `enforced`: \
             it also blocks their reads and writes, like an SMB lock; `advisory`: it does not. Among NFS clients such \
             locks are always advisory. A change of this key applies to new locks.",
        ),
        key(
            "durability",
            "`strict` or `relaxed`",
            "strict",
            "When a change of names or attributes is on stable storage. `strict`: before the reply, for NFS, and for SMB if \
             `continuous_availability` is set; `relaxed`, for scratch data: when the host's file system writes it, so that \
             a power cut loses the last seconds of acknowledged changes. In both, data is stable when the client asks for \
             it (stable writes, COMMIT, FLUSH).",
        ),
        key(
            "clients",
            "range of addresses like `10.0.0.0/8`, host like `ws1.example.org`, pattern like `\"*.example.org\"`, netgroup like \
             `\"@hosts\"`, group, or list of them",
            "",
            "The clients that may use the share over NFS and SMB. If not set: over NFS, directly attached networks and this \
             host; over SMB, every client whose user can log on. See [clients](#clients).",
        ),
        key(
            "hidden",
            "`true` or `false`",
            "false",
            "Lists leave the share out: the browser of Windows, `smbclient -L`, `showmount -e` and the root of NFSv4. A client \
             that knows the name can use it.",
        ),
        key(
            "export",
            "absolute path",
            "",
            "The path that NFS clients mount, like `/srv/nfs/public`, in place of `/NAME`; it need not be the path of the \
             folder on this host. NFSv4 shows the folders above it. A share cannot be below the path of another.",
        ),
        key("access", "group", "", "The users that may read or write. See [access](#access)."),
        key(
            "audit",
            "list of `changes`, `reads`, `writes`",
            "",
            "The operations on its files that are recorded, over NFS and SMB. `changes`: changes of names, permissions and \
             attributes; `reads`: opens to read; `writes`: opens to write. Needs the group [audit](#audit).",
        ),
        key("force", "group", "", "The user and group that all users act as. See [force](#force)."),
        key(
            "masks",
            "group",
            "",
            "Upper limit of the mode of new files and folders. See [masks](#masks).",
        ),
        key(
            "wastebasket",
            "group",
            "",
            "Removed and replaced files are kept for a time. See [wastebasket](#wastebasket).",
        ),
        key(
            "time_machine",
            "group",
            "",
            "SMB: Time Machine of macOS may back up to the share. See [time_machine](#time_machine).",
        ),
        key(
            "list",
            "`all` or `visible`",
            "all",
            "The names that listings of folders show. `visible`: names of files that the user can read and of folders that it \
             can read or enter. A user that knows another name can still see that it exists.",
        ),
        key(
            "symlinks",
            "`server` or `client`",
            "server",
            "SMB: whether gateway or client follows symbolic links. `server`: the gateway, like smbd; a link that leads out of \
             the share, or to a missing file, is not listed and cannot be opened. `client`: clients read the target and \
             follow it themselves, which few programs except the Linux mount do. A client that negotiates the POSIX \
             extensions of SMB 3.1.1, as Linux does with each mount, always follows links itself, like NFS clients. See \
             [Windows](windows.md#symbolic-links).",
        ),
        key(
            "links",
            "`msdfs`, group, or list of them",
            "",
            "Folders of the share that are on other servers: SMB clients are sent there by DFS, NFS 4 clients by referrals. \
             `msdfs`: symbolic links with the text `msdfs:SERVER\\SHARE`, as smbd uses with `msdfs root`, are such folders. \
             See [links](#links).",
        ),
        key(
            "snapshots",
            "path with a time, like `/srv/.snapshots/{time:%Y-%m-%d_%H%M%S}`",
            "",
            "The folders that have the files of the share as they were: previous versions of Windows, and `.snapshot` in each \
             folder. `{time:FORMAT}` is the time in UTC in a format of strftime(3), `{local:FORMAT}` that of this host's zone; \
             the name may begin and end with other text, and `*` for any. `.snapshots/{number}/snapshot` has those of snapper. \
             A path that does not begin with `/` is inside the share (`.zfs/snapshot/auto-{time:%Y-%m-%d_%H-%M}`); clients \
             then reach it by `.snapshot` only. See [snapshots](operating.md#snapshots).",
        ),
        key(
            "size",
            "size, like `2TiB`",
            "",
            "The size of the share: clients see it as the size of the disk, and more is refused. The gateway sets it as the \
             limit of the folder's own project on the host, so it needs XFS or ext4 with project quotas, a project that no \
             other folder has, and CAP_SYS_ADMIN; `headgate check` says what is missing. A limit that the project already has \
             is shown without this key. See [quotas](operating.md#quotas).",
        ),
        key("limits", "group", "", "Bytes and operations for each second. See [rates](#rates)."),
        key(
            "encrypt",
            "`true` or `false`",
            "false",
            "SMB: clients must encrypt; data of this share is never sent unencrypted. For NFS see `tls`.",
        ),
        key(
            "compress",
            "`true` or `false`",
            "false",
            "SMB: the gateway tells clients to compress what they write to this share and to ask for compressed data. For slow \
             networks. See [Windows](windows.md#compression).",
        ),
        key(
            "tls",
            "`offered`, `required` or `mutual`",
            "offered",
            "NFS: whether clients must use TLS. `offered`: they may; `required`: they must; `mutual`: they must, with a \
             certificate that `tls.ca` has signed. RDMA has no TLS. Needs the group [tls](#tls).",
        ),
        key(
            "guest",
            "`true` or `false`",
            "false",
            "SMB: users without an account may connect as the anonymous user.",
        ),
        key(
            "continuous_availability",
            "`true` or `false`",
            "false",
            "SMB: clients may request handles that survive a restart of the gateway.",
        ),
        key(
            "comment",
            "one line of at most 255 characters",
            "",
            "SMB: description that browsers show next to the name.",
        ),
    ],
};

pub(crate) const REFER: Group = Group {
    name: "refer",
    is_list: true,
    about: "A server to which a share refers its clients. They try several in this order, and connect to the standard ports. \
            See [referrals](cluster.md#one-tree-of-several-gateways).",
    keys: &[
        key(
            "host",
            "name in DNS, or address",
            "",
            "The server. Clients look the name up; Linux needs the program `key.dns_resolver` (package keyutils) for that; an \
             address needs no program.",
        ),
        key("path", "absolute path", "", "The path that NFS clients mount there, like `/archive`."),
        key(
            "share",
            "name of a share",
            "",
            "The share that SMB clients use there. If not set: `path`, whose first name is the share.",
        ),
        key(
            "rdma",
            "`true` or `false`",
            "false",
            "NFS: the server also offers RDMA. NFS 4.1 clients can query this (`fs_locations_info`); Linux tries RDMA anyway.",
        ),
        key(
            "namespace",
            "`true` or `false`",
            "false",
            "SMB: the share there is a DFS root itself (`links`, smbd's `msdfs root`, a namespace of Windows), which clients ask \
             again. For `links` only.",
        ),
    ],
};

pub(crate) const LINK: Group = Group {
    name: "links",
    is_list: true,
    about: "A folder of a share that is on other servers. The gateway makes the folder if it is missing, and clients see nothing \
            of what is in it. They can neither rename nor remove it, nor a folder above it. A share has at most 256 links. See \
            [links](windows.md#links-to-other-servers) and [NFS](linux.md#links-to-other-servers).",
    keys: &[
        key(
            "at",
            "path in the share, like `projects/old`",
            "",
            "The folder. Links cannot be below each other.",
        ),
        key(
            "to",
            "server with path like `gw2.example.org:/archive`, group, or list of them",
            "",
            "The servers, at most 16, in order of preference. See [refer](#refer).",
        ),
    ],
};

pub(crate) const CLIENT: Group = Group {
    name: "clients",
    is_list: true,
    about: "The clients that may use a share, and their settings. If several entries match a client, only the most specific \
            applies, as in exports(5): a host name or full address, then ranges, the longest prefix first, then patterns, then \
            netgroups, then `0.0.0.0/0` and `::/0`; among equals the first. See [names of \
            clients](permissions.md#clients-by-name).",
    keys: &[
        key(
            "from",
            "range of addresses, host, pattern or netgroup",
            "",
            "The clients of this entry.",
        ),
        key(
            "protocols",
            "`nfs`, `smb` or `both`",
            "both",
            "The protocols that the entry applies to.",
        ),
        key(
            "read_only",
            "`true` or `false`",
            "false",
            "NFS and SMB: these clients cannot change files.",
        ),
        key(
            "squash",
            "`root`, `all` or `none`",
            "",
            "NFS: `squash` for these clients. If not set: the setting of the share.",
        ),
        key("anonuid", "number of a user", "65534", "NFS: the user that squashed calls run as."),
        key("anongid", "number of a group", "65534", "NFS: the group that squashed calls run as."),
    ],
};

pub(crate) const TLS: Group = Group {
    name: "tls",
    is_list: false,
    about: "TLS 1.3 for NFS over TCP (RFC 9289), for clients that request it with `xprtsec=tls` or `xprtsec=mtls`, and for the \
            admin address. The files are read at the start and at each reload. See [TLS](tls.md).",
    keys: &[
        key(
            "certificate",
            "absolute path, or `credential:NAME`",
            "",
            "The certificate of this gateway in PEM, followed by the intermediate certificates. It must contain the server \
             names that clients use.",
        ),
        key(
            "key",
            "absolute path, or `credential:NAME`",
            "",
            "Its private key in PEM, readable only by the gateway's user.",
        ),
        key(
            "ca",
            "absolute path, or `credential:NAME`",
            "",
            "Authorities in PEM that sign certificates of clients. If not set: the gateway does not request client \
             certificates, and `mutual` is not available.",
        ),
        key(
            "admin_ca",
            "absolute path, or `credential:NAME`",
            "",
            "Authorities in PEM that sign the certificates of other hosts that may read metrics and status. With this key or \
             `admin_token`, the admin address answers other hosts only over TLS (`https`).",
        ),
        key(
            "admin_token",
            "absolute path, or `credential:NAME`",
            "",
            "A file whose first line is a token of 16 characters or more, which other hosts may send instead (`Authorization: \
             Bearer ...`). Readable only by the gateway's user.",
        ),
    ],
};

pub(crate) const ACCESS: Group = Group {
    name: "access",
    is_list: false,
    about: "The users that may use a share over NFS and SMB; the permissions of its files apply as well. Users and groups are \
            those of this host, of `users` and of `headgate user add`, by name or number, and with `kerberos` those of the \
            domain: `alice@example.org`, `\"@Domain Admins@example.org\"`, or a SID like `S-1-5-21-1-2-3-1104`. Names are looked \
            up at the start and at each reload. Without this group, only the permissions of the files apply. See \
            [permissions](permissions.md#rights-of-a-share).",
    keys: &[
        key(
            "read",
            "user like `alice`, group like `\"@staff\"`, `\"*\"` for everyone, or list of them",
            "",
            "These users may only read.",
        ),
        key("write", "the same", "", "These users may read and write."),
        key(
            "deny",
            "the same",
            "",
            "These users have no access, even if another list names them. If `read` and `write` are empty, all other users may \
             read and write.",
        ),
        key(
            "admin",
            "user like `alice`, group like `\"@staff\"`, or list of them",
            "",
            "SMB: these users act as root on the files of the share, like `admin users` of Samba. Over NFS they may read and \
             write as the files permit. See [privileges](permissions.md#administrators-and-privileges).",
        ),
    ],
};

pub(crate) const PRIVILEGES: Group = Group {
    name: "privileges",
    is_list: false,
    about: "SMB users and groups with privileges of Windows, in all shares that admit them. Each use is recorded in the audit \
            trail. NFS has no privileges. Names are those of [access](#access). See \
            [privileges](permissions.md#administrators-and-privileges).",
    keys: &[
        key(
            "backup",
            "user like `alice`, group like `\"@staff\"`, or list of them",
            "",
            "May read every file that they open with backup intent, with its access list and its SACL.",
        ),
        key(
            "restore",
            "the same",
            "",
            "May create, write and remove every file that they open with backup intent, set its access list and its SACL, and \
             give files to any owner.",
        ),
        key("security", "the same", "", "May read and set the SACL of files."),
        key("take_ownership", "the same", "", "May make themselves owner of every file."),
    ],
};

pub(crate) const FORCE: Group = Group {
    name: "force",
    is_list: false,
    about: "The user and group that all users of a share act as, over NFS and SMB, if `access` allows them: new files belong \
            to that user, and its rights are checked. Names are those of [access](#access).",
    keys: &[
        key(
            "user",
            "user",
            "",
            "This user, with its groups. If not set: each user acts as itself.",
        ),
        key("group", "group", "", "The primary group. If not set: the user's."),
    ],
};

pub(crate) const MASKS: Group = Group {
    name: "masks",
    is_list: false,
    about: "Upper limit of the mode of new files and folders. The gateway clears further bits that an NFS client requests; new \
            files of SMB clients get exactly this mode. Later changes of a mode are not limited.",
    keys: &[
        key(
            "file",
            "octal mode, like `0660`",
            "",
            "For files. SMB clients do not create executable files.",
        ),
        key(
            "folder",
            "octal mode, like `2770`",
            "",
            "For folders. Set-group-id (2000) and sticky (1000) are set if the number includes them.",
        ),
    ],
};

pub(crate) const CEPH: Group = Group {
    name: "ceph",
    is_list: false,
    about: "A folder of CephFS, accessed through Ceph's library (`libcephfs2`). It needs `filesystem`. See [CephFS](ceph.md).",
    keys: &[
        key("filesystem", "name", "", "The file system, as `ceph fs ls` names it."),
        key("path", "absolute path", "/", "The folder in it."),
        key("user", "name, without `client.`", "admin", "The Ceph user that the gateway acts as."),
        key(
            "config",
            "absolute path",
            "/etc/ceph/ceph.conf",
            "Ceph's configuration, which names the monitors.",
        ),
        key(
            "keyring",
            "absolute path",
            "",
            "The keyring with the user's key. If not set: the one that `config` names.",
        ),
        key(
            "exclusive",
            "`true` or `false`",
            "true",
            "No other client of the cluster changes files in the folder, so clients of the gateway may cache them. Set `false` \
             if others write.",
        ),
    ],
};

pub(crate) const USER: Group = Group {
    name: "users",
    is_list: true,
    about: "Users that may log on over SMB, in addition to users added with `headgate user add`. It needs `name`.",
    keys: &[
        key("name", "word", "", "The name that clients type; case is ignored."),
        key(
            "password_file",
            "absolute path of a file, or `credential:NAME`",
            "",
            "Its first line is the password. If not set: the password set with `headgate user add NAME`.",
        ),
        key(
            "uid",
            "number of a user",
            "",
            "Its number in the file system, which must not be 65534. If not set: the number of the host's user of the same \
             name; if there is no such user, a gateway that runs as root computes a number from the name.",
        ),
        key("gid", "number of a group", "", "Its primary group. If not set: as the host has it."),
        key(
            "groups",
            "list of numbers of groups",
            "",
            "Its further groups. If not set: as the host has them.",
        ),
        key(
            "limits",
            "group",
            "",
            "Bytes and operations for each second, over all shares: of SMB sessions of this name, and of NFS calls with its \
             number. See [rates](#rates).",
        ),
    ],
};

pub(crate) const NFS: Group = Group {
    name: "nfs",
    is_list: false,
    about: "Settings of NFS.",
    keys: &[
        key("port", "port", "2049", "NFS and MOUNT over TCP; 0: any free port."),
        key("rdma_port", "port", "20049", "NFS over RDMA; 0: any free port."),
        key(
            "lease",
            "time, like `90s` or `2m`",
            "90s",
            "How long an NFSv4 client that is silent keeps its opens and locks. Linux returns a delegation that was unused for \
             two thirds of this time.",
        ),
        key(
            "grace",
            "time, like `90s` or `2m`",
            "90s",
            "How long after a restart clients may reclaim their opens and locks, while other clients cannot take them; at \
             least the lease. It ends as soon as all clients are back. If not set: as long as the lease.",
        ),
        key(
            "courtesy",
            "time, like `24h` or `0s`",
            "24h",
            "How long after its lease a silent NFSv4 client keeps opens and locks that no other client needs. It ends sooner \
             for a client that holds a removed file, whose space it keeps, and if clients, memory or open files are \
             scarce; a client without opens and locks is dropped at once.",
        ),
        key(
            "portmap",
            "`auto`, `register`, `own` or `off`",
            "auto",
            "How clients of NFS version 3 find MOUNT and the lock manager: they query port 111 of the host. `register` \
             registers with the host's rpcbind, if it runs; `own` answers there without rpcbind; `auto` is `register` if \
             rpcbind runs, otherwise `own` if port 111 is free and the gateway may bind it; with `off` clients must name \
             the ports and mount with `nolock`.",
        ),
        key(
            "domain",
            "word, like `example.org`",
            "",
            "NFSv4: users and groups appear as `NAME@DOMAIN`, with the names in `users` and, with `names: host`, the names of \
             this host. Clients must have the same domain (`Domain` in idmapd.conf). If not set: as numbers, which are \
             always accepted.",
        ),
    ],
};

pub(crate) const RDMA: Group = Group {
    name: "rdma",
    is_list: false,
    about: "Settings of RDMA, if more than the provider must be set.",
    keys: &[
        key(
            "by",
            "`auto`, `iwarp`, `verbs` or `off`",
            "auto",
            "The RDMA provider, with the same values as the word in place of this group.",
        ),
        key(
            "relaxed_ordering",
            "`on` or `off`",
            "on",
            "Whether an RDMA device may write to memory in any order before it reports completion (PCI Express relaxed \
             ordering), if it supports that: this is faster on machines with several memory controllers. Use `off` for \
             devices on which it is faulty.",
        ),
        key(
            "dscp",
            "a number from 0 to 63",
            "",
            "The differentiated services code point of the packets that the gateway sends to clients of SMB and NFS, over \
             RDMA and over TCP, by which switches choose a queue. Unset: the system's default. On RoCE and InfiniBand the \
             client chooses it when it connects \
             ([RDMA networks](rdma.md#the-class-of-packets)). A reload applies it to new connections.",
        ),
    ],
};

pub(crate) const SMB: Group = Group {
    name: "smb",
    is_list: false,
    about: "Settings of SMB. The gateway serves SMB if there is a user, a keytab, a share for guests, or a port set here.",
    keys: &[
        key(
            "port",
            "port",
            "445",
            "SMB over TCP, and SMB Direct over RoCE and InfiniBand, which have a separate port space; 0: any free port.",
        ),
        key(
            "direct_port",
            "port",
            "5445",
            "SMB Direct over iWARP, and for Linux clients before 7.0 over RoCE and InfiniBand as well; 0: any free port. \
             Clients connect to 5445 and 445 and cannot be configured otherwise.",
        ),
        key(
            "signing",
            "`required` or `offered`",
            "required",
            "Whether clients must sign messages. For a client that signs but lacks RDMA transforms, like every Linux client, \
             data is not placed directly: all of it is sent inside messages.",
        ),
        key(
            "encryption",
            "`off`, `offered` or `required`",
            "offered",
            "`offered`: for clients that request it and shares with `encrypt`; `required`: clients that cannot encrypt are \
             refused.",
        ),
        key(
            "rdma_transforms",
            "`on` or `off`",
            "on",
            "Data placed through RDMA is signed or encrypted separately from the messages, for clients of dialect 3.1.1 that \
             support it (Windows 11, Windows Server 2022 and later), so that it can be placed directly even if the session \
             signs or encrypts. `off`: it is sent inside the messages.",
        ),
        key(
            "directory_leases",
            "`on` or `off`",
            "on",
            "Directory leases let clients of SMB 3 answer listings from their cache. `on`: all clients get them except those \
             that negotiate the POSIX extensions, as Linux does from dialect 3.1.1 on with and without `posix`: it shows \
             names that it has removed. `off`: no client gets them, for Linux clients that mount with `vers=3.0` or \
             `vers=3.0.2`.",
        ),
        key(
            "compression",
            "`on` or `off`",
            "on",
            "Messages may be compressed, by TCP and in dialect 3.1.1: what clients write compressed is taken, and what they ask to \
             have compressed is (robocopy `/compress`, Linux' mount option `compress`). `off`: nothing is. See \
             [Windows](windows.md#compression).",
        ),
        key(
            "ntlm",
            "`on` or `off`",
            "on",
            "Logons with passwords (NTLM version 2). `off`: only with [Kerberos](#kerberos) tickets, and no guests.",
        ),
        key(
            "password_length",
            "`8` to `64`",
            "12",
            "Fewest characters of new passwords: of those that users [set themselves](windows.md#passwords), and of \
             `headgate user add` without `--weak`. Passwords that are easily guessed are refused whatever their length.",
        ),
        key(
            "model",
            "1 to 31 letters, digits, `-`, `_`, `.` or `,`",
            "RackMac",
            "The model of computer that macOS shows an icon for.",
        ),
    ],
};

/// All groups, the top level first.
pub const GROUPS: [Group; 27] = [
    TOP,
    SHARE,
    REFER,
    LINK,
    CLIENT,
    ACCESS,
    PRIVILEGES,
    FORCE,
    MASKS,
    WASTEBASKET,
    TIME_MACHINE,
    CEPH,
    USER,
    USERS_FROM,
    NFS,
    RDMA,
    SMB,
    TLS,
    KERBEROS,
    DOMAIN,
    AUDIT,
    LIMITS,
    RATES,
    LOG,
    CLUSTER_FILE,
    CLUSTER,
    SERVICE,
];

/// Returns the documentation page as Markdown.
pub fn reference() -> String {
    let mut out = String::from(INTRODUCTION);
    for group in &GROUPS {
        let title = if group.name.is_empty() { "The top of the file" } else { group.name };
        let list = match group.name {
            "clients" => {
                " A list: each entry is a range or a name, or begins with `- from: CLIENT`."
            }
            "links" => " A list: each entry is the word `msdfs`, or begins with `- at: PATH`.",
            "refer" => " A list: each entry is `HOST:/PATH`, or begins with `- host: HOST`.",
            _ if group.is_list => " A list: each entry begins with `- name: NAME`.",
            _ => "",
        };
        out += &format!("\n## {title}\n\n{}{list}\n\n", group.about);
        out += "| key | holds | default | meaning |\n|---|---|---|---|\n";
        for k in group.keys {
            let default =
                if k.default.is_empty() { String::new() } else { format!("`{}`", k.default) };
            out += &format!("| `{}` | {} | {default} | {} |\n", k.name, k.value, k.about);
        }
    }
    out
}

const INTRODUCTION: &str = "\
# Configuration, key by key

This page is made from the program's own tables (`cargo run --package config --example reference`); a test compares the two.

`headgate serve --config FILE` reads one YAML file. Options of the command line take precedence over the file; shares, users and
addresses given there are added to it. `headgate check --config FILE` reports every fault with line and column and serves nothing.

* An unknown key is an error, with the nearest known key as a suggestion. So is a key that is set twice.
* Sizes are bytes, or have a unit: `KiB`, `MiB`, `GiB`, `TiB`. Times have a unit: `s`, `m`, `h`.
* A list of one may be written as a single value.
* Paths are absolute. A key or a password may be a credential that systemd gives: `credential:NAME`
  ([security](security.md#credentials)).
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_page_matches_key_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
        let told = std::fs::read_to_string(page).unwrap_or_default();
        assert!(
            told == reference(),
            "docs/configuration.md is not what the tables say; make it anew: \
             cargo run --package config --example reference > docs/configuration.md"
        );
    }

    #[test]
    fn key_texts_fit_table_cells() {
        for key in GROUPS.iter().flat_map(|g| g.keys) {
            for text in [key.name, key.value, key.default, key.about] {
                assert!(!text.contains(['|', '\n']), "{}", key.name);
            }
            assert!(key.about.ends_with('.') || key.about.ends_with(')'), "{}", key.name);
        }
    }
}
