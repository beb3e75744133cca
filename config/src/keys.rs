//! Every key of the file: what may stand there, what holds when it does not, and what it means. The reader takes its names from
//! here, and so does the documentation, so that neither knows a key that the other does not.

mod cluster;

pub(crate) use cluster::{CLUSTER, CLUSTER_FILE, SERVICE};

/// A key of a group.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As it is written.
    pub name: &'static str,
    /// What may stand there.
    pub value: &'static str,
    /// What holds where it is not said, as one would write it; empty: nothing.
    pub default: &'static str,
    /// What it means.
    pub about: &'static str,
}

/// Keys that stand together.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The key that the group stands under; empty for the top of the file.
    pub name: &'static str,
    /// The group is repeated, as a list.
    pub is_list: bool,
    /// One sentence.
    pub about: &'static str,
    /// In the order of the documentation.
    pub keys: &'static [Key],
}

impl Group {
    /// The names of its keys.
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
        key("shares", "list of groups", "", "What is served. See [shares](#shares)."),
        key(
            "users",
            "list of groups",
            "",
            "The users that may log on by SMB. See [users](#users).",
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
            "What carries RDMA; a group has more, see [rdma](#rdma). `iwarp` is in user space and needs no device \
             on this side; `verbs` uses an RDMA device by libibverbs; `auto` takes a device where one serves the \
             address, and iWARP elsewhere.",
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
            "How long a connection over an RDMA device polls for completions before it sleeps, at most: lower latency at the \
             price of processor time. A connection that finds nothing polls for less. `0us`: never; `auto`: `20us`, and never \
             with 4 processors or fewer.",
        ),
        key(
            "state",
            "absolute path",
            "/var/lib/headgate",
            "The folder for what must survive a restart: the key of file handles, the SMB users, the records of lock holders. \
             It lies outside of every share, and belongs to one gateway only.",
        ),
        key(
            "records",
            "name of a share",
            "",
            "A share in CephFS. Its hidden folder `.headgate/records` then holds what moves with the service from node to node: \
             the key of file handles, the SMB users, the records of lock holders. `state` holds only what belongs to this host. \
             A gateway that opens the records cuts off the one that had them open. If not set: all is in `state`. See \
             [cluster](cluster.md).",
        ),
        key(
            "recall",
            "time, like `35s`",
            "35s",
            "How long a client of any protocol has to return a delegation, an oplock or a lease that conflicts with another \
             client. Then the gateway revokes it, and the others go on.",
        ),
        key(
            "memory",
            "size, like `512MiB` or `2GiB`",
            "256MiB",
            "Payload memory of all connections together, of which an eighth is reserved for the replies that NFS keeps for \
             retransmitted requests, an eighth for large requests that carry no payload, a sixteenth for names of folders in \
             which SMB clients look in another case, and, unless `rdma: off`, an eighth for RDMA receives. When it is used \
             up, requests wait for their turn. At most what the machine has, or what the control group (cgroup) of the \
             process allows.",
        ),
        key(
            "connections",
            "whole number",
            "2048",
            "Connections held at once; more are closed on accept.",
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
            "Addresses that may read metrics and status, besides root and the gateway's own user on this host. `127.0.0.1`: \
             every user of this host. Others may read `/livez` and `/readyz` only: that the gateway runs, and why it is not \
             ready.",
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
            "drain",
            "time, like `8s`",
            "8s",
            "How long requests in progress may take when the gateway is told to stop. `docker stop` kills after 10s.",
        ),
        key(
            "names",
            "`host` or `own`",
            "host",
            "Where NFSv4 and SMB find the names of users and groups. `host`: in `users` and on this host; `own`: in `users` alone.",
        ),
        key("limits", "group", "", "Limits of one client. See [limits](#limits)."),
        key("log", "group", "", "What is logged. See [log](#log)."),
        key("nfs", "group", "", "How NFS is served. See [nfs](#nfs)."),
        key("smb", "group", "", "How SMB is served. See [smb](#smb)."),
        key("tls", "group", "", "TLS for NFS over TCP and for the admin address. See [tls](#tls)."),
        key("kerberos", "group", "", "Logons by Kerberos tickets. See [kerberos](#kerberos)."),
        key(
            "audit",
            "group",
            "",
            "The audit trail: a record of who did what. If not set: none. See [audit](#audit).",
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
            "The folder that is served. No two shares should serve the same files: `check` and the log warn of folders that \
             overlap. With `{user}` as its last part, as in `/home/{user}`, each SMB user sees the folder of its name alone, \
             which the gateway creates when the user first connects; NFS clients see the folder above. See \
             [homes](permissions.md#homes).",
        ),
        key("ceph", "group", "", "A folder of CephFS, in place of `path`. See [ceph](#ceph)."),
        key("memory", "`true` or `false`", "false", "A volume in memory, gone at exit."),
        key(
            "refer",
            "server with path like `gw2.example.org:/archive`, group, or list of them",
            "",
            "In place of a folder: the share is on another server, to which the gateway sends clients by NFSv4 referrals and by \
             DFS. Such a share can have `protocols`, `clients`, `hidden`, `export` and `comment` only. See [refer](#refer).",
        ),
        key(
            "protocols",
            "`nfs`, `smb` or `both`",
            "both",
            "The protocols that serve the share. For clients of the other protocol it does not exist.",
        ),
        key(
            "read_only",
            "`true` or `false`",
            "false",
            "Nothing can be changed through this share.",
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
            "NFS: which calls run as the anonymous user (65534). `root`: those of the superuser; `all`: those of every user; \
             `none`: no calls.",
        ),
        key(
            "sec",
            "list of `sys`, `krb5`, `krb5i`, `krb5p`",
            "sys",
            "NFS: how callers authenticate. `sys`: by the user number that the client claims. The others need a keytab \
             (`kerberos`): `krb5` authenticates the user, `krb5i` also signs messages, `krb5p` also encrypts them. By RDMA only \
             `sys` and `krb5` have data placed directly. Mounts by another flavor are refused.",
        ),
        key(
            "nfs_locks",
            "`enforced` or `advisory`",
            "enforced",
            "What a byte-range lock of an NFS client means to SMB clients. It always conflicts with their locks. `enforced`: it \
             also blocks their reads and writes, as a lock of SMB does; `advisory`: it does not. Among NFS clients such locks \
             are advisory. A change applies to locks taken from then on.",
        ),
        key(
            "durability",
            "`strict` or `relaxed`",
            "strict",
            "When a change of names or attributes is on stable storage. `strict`: before it is answered, by NFS, and by SMB \
             where `continuous_availability` is set; `relaxed`, for scratch data: when the host's file system writes it, so \
             that a power cut loses the last seconds of answered changes. In both, data is stable when the client asks for it \
             (stable writes, COMMIT, FLUSH).",
        ),
        key(
            "clients",
            "range of addresses like `10.0.0.0/8`, host like `ws1.example.org`, pattern like `\"*.example.org\"`, netgroup like \
             `\"@hosts\"`, group, or list of them",
            "",
            "The clients that may use the share, by NFS and by SMB. If not set: by NFS directly attached networks and this \
             host, by SMB every client whose user can log on. See [clients](#clients).",
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
            "The path that NFS clients mount, like `/srv/nfs/public`, in place of `/NAME`; the folder that is served may lie \
             elsewhere. NFSv4 shows the folders on the way. No share lies below another's path.",
        ),
        key("access", "group", "", "Which users may do what. See [access](#access)."),
        key(
            "audit",
            "list of `changes`, `reads`, `writes`",
            "",
            "Which operations on its files are recorded, by NFS and by SMB. `changes`: changes of names, permissions and \
             attributes; `reads`: opens to read; `writes`: opens to write. Needs the group [audit](#audit).",
        ),
        key("force", "group", "", "The user and group that they act as. See [force](#force)."),
        key(
            "masks",
            "group",
            "",
            "Upper limit of the mode of new files and folders. See [masks](#masks).",
        ),
        key(
            "list",
            "`all` or `visible`",
            "all",
            "What listings of folders show. `visible`: names of files that the user can read and of folders that it can read or \
             enter. A user that knows another name can still see that it exists.",
        ),
        key(
            "symlinks",
            "`server` or `client`",
            "server",
            "SMB: who follows symbolic links. `server`: the gateway, as smbd does; a link that leads out of the share, or to \
             no file, is in no listing and does not open. `client`: clients read the target and follow it themselves, which \
             most programs beside Linux' mount do not. A client that negotiates the POSIX extensions of SMB 3.1.1, as Linux does \
             with each mount, follows links itself in both, as clients of NFS do. See [Windows](windows.md#symbolic-links).",
        ),
        key(
            "encrypt",
            "`true` or `false`",
            "false",
            "SMB: clients must encrypt, and data of this share never travels in clear. For NFS see `tls`.",
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
            "SMB: users without an account are let in, as the anonymous user.",
        ),
        key(
            "continuous_availability",
            "`true` or `false`",
            "false",
            "SMB: clients may ask for handles that survive a restart of the gateway.",
        ),
        key(
            "comment",
            "one line of at most 255 characters",
            "",
            "SMB: what browsers show beside the name.",
        ),
    ],
};

pub(crate) const REFER: Group = Group {
    name: "refer",
    is_list: true,
    about: "A server to which a share refers its clients. They try several in this order, and connect by the usual ports. See \
            [referrals](cluster.md#one-tree-of-several-gateways).",
    keys: &[
        key(
            "host",
            "name in DNS, or address",
            "",
            "The server. Clients look the name up; Linux needs the program `key.dns_resolver` (package keyutils) for that, and \
             nothing for an address.",
        ),
        key("path", "absolute path", "", "What NFS clients mount there, like `/archive`."),
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
            "NFS: the server offers RDMA, too. NFS 4.1 clients that ask learn it (`fs_locations_info`); Linux tries RDMA anyway.",
        ),
    ],
};

pub(crate) const CLIENT: Group = Group {
    name: "clients",
    is_list: true,
    about: "The clients that may use a share, and how. Where several entries match a client, only one applies, as in \
            exports(5): a host by name or whole address, then ranges, the longest prefix first, then patterns, then netgroups, \
            then `0.0.0.0/0` and `::/0`; of equals the first. See [names of clients](permissions.md#clients-by-name).",
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
            "NFS and SMB: these clients can change nothing.",
        ),
        key(
            "squash",
            "`root`, `all` or `none`",
            "",
            "NFS: `squash` for these clients. If not set: that of the share.",
        ),
        key("anonuid", "number of a user", "65534", "NFS: the user that squashed calls run as."),
        key("anongid", "number of a group", "65534", "NFS: the group that squashed calls run as."),
    ],
};

pub(crate) const TLS: Group = Group {
    name: "tls",
    is_list: false,
    about: "TLS 1.3 for NFS over TCP (RFC 9289), for clients that ask for it by `xprtsec=tls` or `xprtsec=mtls`, and for the admin \
            address. The files are read at the start and at each reload. See [TLS](tls.md).",
    keys: &[
        key(
            "certificate",
            "absolute path, or `credential:NAME`",
            "",
            "The certificate of this gateway in PEM, with the intermediate ones behind it. It holds the names that clients type \
             as server.",
        ),
        key(
            "key",
            "absolute path, or `credential:NAME`",
            "",
            "Its private key in PEM, readable by the gateway's user alone.",
        ),
        key(
            "ca",
            "absolute path, or `credential:NAME`",
            "",
            "Authorities in PEM that sign certificates of clients. If not set: the gateway asks clients for none, and `mutual` \
             is not available.",
        ),
        key(
            "admin_ca",
            "absolute path, or `credential:NAME`",
            "",
            "Authorities in PEM that sign the certificates of other hosts that may read metrics and status. With it or \
             `admin_token` the admin address answers other hosts by TLS (`https`) alone.",
        ),
        key(
            "admin_token",
            "absolute path, or `credential:NAME`",
            "",
            "A file whose first line is a token of 16 characters or more, which other hosts may send instead (`Authorization: \
             Bearer ...`). Readable by the gateway's user alone.",
        ),
    ],
};

pub(crate) const ACCESS: Group = Group {
    name: "access",
    is_list: false,
    about: "Which users may use a share, by NFS and by SMB; the permissions of its files apply as well. Users and groups are \
            those of this host, of `users` and of `headgate user add`, by name or number; they are looked up at the start and \
            at each reload. Without it all users may do what the files allow. See \
            [permissions](permissions.md#rights-of-a-share).",
    keys: &[
        key(
            "read",
            "user like `alice`, group like `\"@staff\"`, `\"*\"` for everyone, or list of them",
            "",
            "These may read only.",
        ),
        key("write", "the same", "", "These may read and write."),
        key(
            "deny",
            "the same",
            "",
            "These may do neither, whatever the other lists say. Where the other lists are empty, all other users may read and \
             write.",
        ),
    ],
};

pub(crate) const FORCE: Group = Group {
    name: "force",
    is_list: false,
    about: "The user and group that all users of a share act as, by NFS and by SMB, once `access` lets them in: new files \
            belong to that user, and its rights are checked. Names are those of [access](#access).",
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
    about: "Upper limit of the mode of new files and folders. The gateway clears what an NFS client asks for beyond it; a file \
            of an SMB client gets all of it. Modes that are set later are not limited.",
    keys: &[
        key("file", "octal mode, like `0660`", "", "Of a file. By SMB no file becomes executable."),
        key(
            "folder",
            "octal mode, like `2770`",
            "",
            "Of a folder. Set-group-id (2000) and sticky (1000) are set where they are in the number.",
        ),
    ],
};

pub(crate) const CEPH: Group = Group {
    name: "ceph",
    is_list: false,
    about: "A folder of CephFS, reached by the cluster's own library (`libcephfs2`). It needs `filesystem`. See [CephFS](ceph.md).",
    keys: &[
        key("filesystem", "name", "", "The file system, as `ceph fs ls` names it."),
        key("path", "absolute path", "/", "The folder in it."),
        key("user", "name, without `client.`", "admin", "The user of Ceph that the gateway is."),
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
            "No other client of the cluster changes anything in the folder, so clients of the gateway may cache what is in it. \
             Set `false` where others write.",
        ),
    ],
};

pub(crate) const USER: Group = Group {
    name: "users",
    is_list: true,
    about: "Users that may log on by SMB, beside those of `headgate user add`. It needs `name`.",
    keys: &[
        key("name", "word", "", "As clients type it; the case of its letters does not matter."),
        key(
            "password_file",
            "absolute path of a file, or `credential:NAME`",
            "",
            "Its first line is the password. If not set: the password is the one of `headgate user add NAME`.",
        ),
        key(
            "uid",
            "number of a user",
            "",
            "Its number in the file system, which must not be 65534. If not set: that of the host's user of the same name; without \
             one, a number that a gateway of root makes of the name.",
        ),
        key("gid", "number of a group", "", "Its primary group. If not set: as the host has it."),
        key(
            "groups",
            "list of numbers of groups",
            "",
            "Its further groups. If not set: as the host has them.",
        ),
    ],
};

pub(crate) const NFS: Group = Group {
    name: "nfs",
    is_list: false,
    about: "How NFS is served.",
    keys: &[
        key("port", "port", "2049", "NFS and MOUNT over TCP; 0: any free port."),
        key("rdma_port", "port", "20049", "NFS over RDMA; 0: any free port."),
        key(
            "lease",
            "time, like `90s` or `2m`",
            "90s",
            "How long an NFSv4 client that is silent keeps its opens and locks. Linux gives a delegation back when two thirds of \
             it pass without use.",
        ),
        key(
            "grace",
            "time, like `90s` or `2m`",
            "90s",
            "How long after a restart clients may reclaim what they held, and nobody else can take it; at least the lease. It \
             ends as soon as all of them are back. If not set: as long as the lease.",
        ),
        key(
            "courtesy",
            "time, like `24h` or `0s`",
            "24h",
            "How long an NFSv4 client that is silent keeps its opens and locks, after its lease, while nobody else wants what it \
             holds. It ends sooner for one that holds a removed file, whose space it keeps, and where clients, memory or open \
             files are scarce; one that holds nothing has none.",
        ),
        key(
            "portmap",
            "`auto`, `register`, `own` or `off`",
            "auto",
            "How clients of NFS version 3 find MOUNT and the lock manager: they ask port 111 of the host. `register` tells the \
             host's rpcbind, if there is one; `own` answers there without rpcbind; `auto` is `register` where rpcbind runs, \
             else `own` where port 111 is free and the gateway may bind it; with `off` clients name the ports and mount with \
             `nolock`.",
        ),
        key(
            "domain",
            "word, like `example.org`",
            "",
            "NFSv4: users and groups appear as `NAME@DOMAIN`, by the names in `users` and, with `names: host`, those of this \
             host. Clients must have the same domain (`Domain` in idmapd.conf). If not set: as numbers, which are always \
             accepted.",
        ),
    ],
};

pub(crate) const RDMA: Group = Group {
    name: "rdma",
    is_list: false,
    about: "How RDMA is served, where a word does not say enough.",
    keys: &[
        key(
            "by",
            "`auto`, `iwarp`, `verbs` or `off`",
            "auto",
            "What carries RDMA, as the word in place of this group says it.",
        ),
        key(
            "relaxed_ordering",
            "`on` or `off`",
            "on",
            "Whether an RDMA device may write to memory in any order before it tells of the end (PCI Express: relaxed ordering), \
             where it can: on machines with several memory controllers that is faster. `off` is for devices with a fault in it.",
        ),
    ],
};

pub(crate) const SMB: Group = Group {
    name: "smb",
    is_list: false,
    about: "How SMB is served. It listens as soon as there is a user, a keytab, a share for guests, or a port named here.",
    keys: &[
        key(
            "port",
            "port",
            "445",
            "SMB over TCP, and SMB Direct by RoCE and InfiniBand devices, whose ports are not TCP's; 0: any free port.",
        ),
        key(
            "direct_port",
            "port",
            "5445",
            "SMB Direct over iWARP, and for Linux clients before 7.0 over RoCE and InfiniBand as well; 0: any free port. Clients \
             dial 5445 and 445 and cannot be told others.",
        ),
        key(
            "signing",
            "`required` or `offered`",
            "required",
            "Whether clients must sign messages. A client that signs and has no RDMA transforms, like every Linux client, has \
             no data placed directly: all of it travels in Sends.",
        ),
        key(
            "encryption",
            "`off`, `offered` or `required`",
            "offered",
            "`offered`: for clients that ask for it and shares with `encrypt`; `required`: clients that cannot are refused.",
        ),
        key(
            "rdma_transforms",
            "`on` or `off`",
            "on",
            "Data that travels by RDMA is signed or encrypted apart from the messages, for clients of dialect 3.1.1 that \
             support it (Windows 11, Windows Server 2022 and later), so that it is placed directly although the session signs \
             or encrypts. `off`: it travels inside the messages.",
        ),
        key(
            "ntlm",
            "`on` or `off`",
            "on",
            "Logons by password (NTLM version 2). `off`: only by tickets of [kerberos](#kerberos), and no guests.",
        ),
    ],
};

pub(crate) const KERBEROS: Group = Group {
    name: "kerberos",
    is_list: false,
    about: "Logons by Kerberos tickets, beside passwords. It needs `keytab`. The library of MIT krb5 (`libgssapi_krb5.so.2`) \
            and its krb5.conf are this host's. See [Kerberos](kerberos.md).",
    keys: &[
        key(
            "keytab",
            "absolute path of a file, or `credential:NAME`",
            "",
            "The keys of this server, of `cifs/NAME` or `host/NAME` for SMB, `nfs/NAME` for NFS. Only its owner may read it. It is \
             read at each logon: new keys need no restart.",
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
            "`names` or `rid`",
            "names",
            "Which users principals are to the file system. `names`: the users of their names, of `users` and of this host, \
             which SSSD or winbind knows for a domain; `rid`: principals of `realm` are numbers made of those that tickets of \
             Active Directory hold for the user and its groups, and this host need not know them.",
        ),
        key(
            "rid_base",
            "number of a user",
            "100000",
            "With `map: rid`: the number, from 1000 on, that is added to the last number of a user's or a group's SID. All \
             gateways on the same files need the same.",
        ),
    ],
};

pub(crate) const AUDIT: Group = Group {
    name: "audit",
    is_list: false,
    about: "The audit trail: logons, refusals, mounts, what administrators did, and what shares ask for by their own `audit`, as \
            lines of JSON. It needs `to`. See [audit](audit.md).",
    keys: &[
        key(
            "to",
            "absolute path of a file, or `journald`",
            "",
            "Where records go. The gateway creates the file for its own user alone, only appends to it, and reopens it at each \
             reload, so that it can be rotated.",
        ),
        key(
            "required",
            "`true` or `false`",
            "false",
            "`true`: while the trail cannot be written, the gateway refuses what it must record (logons, mounts, and operations \
             on shares with `audit`), and `/readyz` says so. `false`: service goes on, and records that find no room in memory \
             are lost and counted.",
        ),
    ],
};

pub(crate) const LIMITS: Group = Group {
    name: "limits",
    is_list: false,
    about: "Limits of one client, so that it leaves enough for the others; `connections` and `memory` limit all clients \
            together. A client that reaches a limit is refused that one request; the log names the limit, and the metric \
            `headgate_limits_met_total` counts it.",
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
             three quarters of `memory`. For large requests that carry no payload it may have an eighth as much in addition.",
        ),
        key(
            "client_opens",
            "whole number",
            "65536",
            "Files that one client may hold open: by SMB each session, by NFSv4 each client, of which an open may have three \
             states more (locks, a delegation).",
        ),
        key(
            "nfs_clients",
            "whole number",
            "16384",
            "Clients of NFSv4 that may be known, in all; an eighth of them may come from one address (of IPv6 from one /64). \
             Silent ones make room.",
        ),
        key(
            "introduction",
            "time, like `45s`",
            "45s",
            "How long a connection may take until a user has logged on (SMB) or a share has admitted a call (NFS), the set-up \
             of RDMA included. Until then it is a newcomer: all newcomers together may have half of `connections`, and those \
             from one address a quarter.",
        ),
    ],
};

pub(crate) const LOG: Group = Group {
    name: "log",
    is_list: false,
    about: "What goes to standard error.",
    keys: &[
        key(
            "level",
            "`error`, `warn`, `info`, `debug` or `trace`",
            "info",
            "Which lines are written. Parts of the program may have another level: `info,nfsrdma=debug`. `headgate log` changes \
             it until the next reload.",
        ),
        key("format", "`text` or `json`", "text", "How they are written."),
    ],
};

/// All of them, the top first.
pub const GROUPS: [Group; 20] = [
    TOP,
    SHARE,
    REFER,
    CLIENT,
    ACCESS,
    FORCE,
    MASKS,
    CEPH,
    USER,
    NFS,
    RDMA,
    SMB,
    TLS,
    KERBEROS,
    AUDIT,
    LIMITS,
    LOG,
    CLUSTER_FILE,
    CLUSTER,
    SERVICE,
];

/// The page of the documentation, as Markdown.
pub fn reference() -> String {
    let mut out = String::from(INTRODUCTION);
    for group in &GROUPS {
        let title = if group.name.is_empty() { "The top of the file" } else { group.name };
        let list = match group.name {
            "clients" => {
                " A list: each entry is a range or a name, or begins with `- from: CLIENT`."
            }
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
* Sizes are bytes, or have a unit: `KiB`, `MiB`, `GiB`. Times have a unit: `s`, `m`, `h`.
* A list of one may be written as a single value.
* Paths are absolute. A key or a password may be a credential that systemd gives: `credential:NAME`
  ([security](security.md#credentials)).
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_documentation_is_this_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
        let told = std::fs::read_to_string(page).unwrap_or_default();
        assert!(
            told == reference(),
            "docs/configuration.md is not what the tables say; make it anew: \
             cargo run --package config --example reference > docs/configuration.md"
        );
    }

    #[test]
    fn no_text_breaks_its_table() {
        for key in GROUPS.iter().flat_map(|g| g.keys) {
            for text in [key.name, key.value, key.default, key.about] {
                assert!(!text.contains(['|', '\n']), "{}", key.name);
            }
            assert!(key.about.ends_with('.') || key.about.ends_with(')'), "{}", key.name);
        }
    }
}
