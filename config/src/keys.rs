//! Every key of the file: what may stand there, what holds when it does not, and what it means. The reader takes its names from
//! here, and so does the documentation, so that neither knows a key that the other does not.

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
        key("users", "list of groups", "", "Who may log on by SMB. See [users](#users)."),
        key(
            "bind",
            "address, or list of addresses",
            "",
            "Addresses of this host to listen on. Not said: all of them, IPv4 and IPv6.",
        ),
        key(
            "rdma",
            "`auto`, `iwarp`, `verbs` or `off`",
            "auto",
            "What carries RDMA. `iwarp` is in user space and needs no device on this side; `verbs` uses an RDMA device \
             by libibverbs; `auto` takes a device where one serves the address, and iWARP elsewhere.",
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
            "How long a connection over an RDMA device looks for completions before it sleeps, at most: shorter waits for the \
             price of processor time. Each connection looks less where it finds nothing. `0us`: never; `auto`: `20us`, and \
             never with 4 processors or fewer.",
        ),
        key(
            "state",
            "absolute path",
            "/var/lib/headgate",
            "What must survive a restart: the key of file handles, the SMB users, who holds locks. Outside of every share, and for \
             one gateway only.",
        ),
        key(
            "records",
            "name of a share",
            "",
            "A share in CephFS, in whose hidden folder `.headgate/records` that is kept of `state` which moves with the service \
             from node to node: the key of file handles, the SMB users, who holds locks. In `state` stays what is of this host. \
             Whoever opens the records cuts the gateway before off. Not said: all is in `state`. See [cluster](cluster.md).",
        ),
        key(
            "recall",
            "time, like `35s`",
            "35s",
            "How long a client of any protocol has for giving back a delegation, an oplock or a lease that another wants. \
             Then it is \
             taken away, and the others go on.",
        ),
        key(
            "memory",
            "size, like `512MiB` or `2GiB`",
            "256MiB",
            "Payload memory of all connections together, of which an eighth is set aside for the replies that NFS keeps for \
             repetitions, and an eighth for large requests whose bytes are no payload. Requests wait for their turn when \
             it is used up. Not more than the machine has, or the control group (cgroup) of the process allows.",
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
            "Where health, metrics and the status page are.",
        ),
        key(
            "admin_clients",
            "range of addresses, or list of them",
            "",
            "Who may read metrics and status besides root and the gateway's own user on this host. `127.0.0.1`: every user of this \
             host. Others are told by `/livez` and `/readyz` that the gateway is there, or why it is not ready, and nothing more.",
        ),
        key(
            "privileged_ports",
            "`local`, `required` or `off`",
            "local",
            "NFS, NLM and MOUNT over TCP and UDP: who must call from a port below 1024, which only root of the calling host can \
             take. `local`: this host's own addresses, so that its users cannot claim to be others; `required`: everybody; \
             `off`: nobody. RDMA has no such ports.",
        ),
        key(
            "drain",
            "time, like `8s`",
            "8s",
            "How long requests in work may take when the gateway is told to stop. `docker stop` kills after 10s.",
        ),
        key(
            "names",
            "`host` or `own`",
            "host",
            "Whose users and groups have names, for NFSv4 and for SMB: those of `users` and of this host, or those of `users` \
             alone.",
        ),
        key("limits", "group", "", "What one client may have. See [limits](#limits)."),
        key("log", "group", "", "What is logged. See [log](#log)."),
        key("nfs", "group", "", "How NFS is served. See [nfs](#nfs)."),
        key("smb", "group", "", "How SMB is served. See [smb](#smb)."),
        key("tls", "group", "", "TLS for NFS over TCP and for the admin address. See [tls](#tls)."),
        key("kerberos", "group", "", "Who may log on by tickets. See [kerberos](#kerberos)."),
        key(
            "audit",
            "group",
            "",
            "Where it is recorded who did what. Not said: nowhere. See [audit](#audit).",
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
            "NFS clients see `/NAME`, SMB clients `\\\\host\\NAME`. Letters of any language, digits, spaces inside and \
             signs, but no control characters and none of `/ \\ : * ? \" < > , =` or a vertical bar; not `.`, `..` or `IPC$`. \
             SMB does not tell case apart.",
        ),
        key(
            "path",
            "absolute path of a folder",
            "",
            "The folder that is served, by no other share: of folders that overlap `check` and the log warn. With `{user}` \
             as its last part, as in `/home/{user}`, each user of SMB sees the folder of its name alone, which is made when \
             the user comes first; NFS clients see the folder above. See [homes](permissions.md#homes).",
        ),
        key("ceph", "group", "", "A folder of CephFS, in place of `path`. See [ceph](#ceph)."),
        key("memory", "`true` or `false`", "false", "A volume in memory, gone at exit."),
        key(
            "refer",
            "server with path like `gw2.example.org:/archive`, group, or list of them",
            "",
            "In place of a folder: the share is on another server, and clients are sent there, by NFSv4 referrals and by DFS. \
             Beside it stand `protocols`, `clients`, `hidden`, `export` and `comment` alone. See [refer](#refer).",
        ),
        key(
            "protocols",
            "`nfs`, `smb` or `both`",
            "both",
            "By what the share is served. To clients of the other protocol it does not exist.",
        ),
        key(
            "read_only",
            "`true` or `false`",
            "false",
            "Nothing can be changed through this share.",
        ),
        key(
            "squash",
            "`root`, `all` or `none`",
            "root",
            "NFS: whose calls are made as the anonymous user (65534): the superuser's, everybody's, nobody's.",
        ),
        key(
            "sec",
            "list of `sys`, `krb5`, `krb5i`, `krb5p`",
            "sys",
            "NFS: how callers show who they are. `sys`: by numbers that their machine says. The others take a keytab (`kerberos`): \
             `krb5` proves who calls, `krb5i` also signs what travels, `krb5p` also encrypts it. By RDMA only `sys` and `krb5` \
             have data placed directly. Who mounts by another flavor is refused.",
        ),
        key(
            "nfs_locks",
            "`enforced` or `advisory`",
            "enforced",
            "Whom a byte-range lock of an NFS client binds. Among NFS clients it is advice and it always excludes locks of SMB \
             clients; `enforced`: SMB clients cannot read or write what it excludes either, which is how they know locks; \
             `advisory`: they can. Counts for locks that are taken from then on.",
        ),
        key(
            "durability",
            "`strict` or `relaxed`",
            "strict",
            "When a change of names or attributes is on stable storage. `strict`: before it is answered, by NFS, and by SMB where \
             `continuous_availability` is set; `relaxed`, for scratch data: when the host's file system writes it, so that a power \
             cut loses the last seconds of what was answered. Data follows the client's wish (stable writes, COMMIT, FLUSH) in \
             both.",
        ),
        key(
            "clients",
            "range of addresses like `10.0.0.0/8`, host like `ws1.example.org`, pattern like `\"*.example.org\"`, netgroup like \
             `\"@hosts\"`, group, or list of them",
            "",
            "Who may come, by NFS and by SMB. Not said: by NFS directly attached networks and this host, by SMB whoever can \
             log on. See [clients](#clients).",
        ),
        key(
            "hidden",
            "`true` or `false`",
            "false",
            "In no list: not in the browser of Windows, `smbclient -L`, `showmount -e` or the root of NFSv4. Who knows the name \
             uses it like any other.",
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
            "Which operations on its files are recorded, by NFS and by SMB: what changes names and permissions; opens to read; \
             opens to write. Needs the group [audit](#audit).",
        ),
        key("force", "group", "", "As whom they act. See [force](#force)."),
        key("masks", "group", "", "Most that something new gets of its mode. See [masks](#masks)."),
        key(
            "list",
            "`all` or `visible`",
            "all",
            "What listings of folders show. `visible`: names of files that the user can read and of folders that it can read or \
             enter. Whoever knows another name is still told that it is there.",
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
            "NFS: how clients must be protected. `offered`: as they like; `required`: by TLS; `mutual`: by TLS with a certificate \
             that `tls.ca` has signed. RDMA has no TLS. Needs the group \
             [tls](#tls).",
        ),
        key(
            "guest",
            "`true` or `false`",
            "false",
            "SMB: whoever has no account may come, as the anonymous user.",
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
            "What SMB clients use there. Not said: `path`, its first name being the share.",
        ),
        key(
            "rdma",
            "`true` or `false`",
            "false",
            "NFS: it serves RDMA, too. Clients of NFS 4.1 that ask for it are told so (`fs_locations_info`); Linux tries RDMA \
             anyway.",
        ),
    ],
};

pub(crate) const CLIENT: Group = Group {
    name: "clients",
    is_list: true,
    about: "From where a share may be used, and how. Where several entries have a client, one counts alone, as in exports(5): a \
            host by name or whole address, then ranges, the longest prefix first, then patterns, then netgroups, then `0.0.0.0/0` \
            and `::/0`; of equals the first. See [names of clients](permissions.md#clients-by-name).",
    keys: &[
        key("from", "range of addresses, host, pattern or netgroup", "", "Who is meant."),
        key(
            "protocols",
            "`nfs`, `smb` or `both`",
            "both",
            "By which protocol. To clients of the other one the entry does not exist.",
        ),
        key(
            "read_only",
            "`true` or `false`",
            "false",
            "NFS and SMB: nothing can be changed from there.",
        ),
        key(
            "squash",
            "`root`, `all` or `none`",
            "",
            "NFS: as `squash` of the share, for these. Not said: as there.",
        ),
        key(
            "anonuid",
            "number of a user",
            "65534",
            "NFS: the user as which squashed calls are made.",
        ),
        key("anongid", "number of a group", "65534", "NFS: its group."),
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
            "The certificate of this gateway in PEM, with the intermediate ones behind it. It names what clients type as server.",
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
            "Authorities in PEM that sign certificates of clients. Not said: clients are asked for none, and `mutual` is not \
             to be had.",
        ),
        key(
            "admin_ca",
            "absolute path, or `credential:NAME`",
            "",
            "Authorities in PEM that sign certificates of those who may read metrics and status from other hosts. With it or \
             `admin_token` the admin address answers other hosts by TLS (`https`) alone.",
        ),
        key(
            "admin_token",
            "absolute path, or `credential:NAME`",
            "",
            "A file whose first line, of 16 characters or more, such a reader may give instead (`Authorization: Bearer ...`). \
             Readable by the gateway's user alone.",
        ),
    ],
};

pub(crate) const ACCESS: Group = Group {
    name: "access",
    is_list: false,
    about: "Who may use a share, by NFS and by SMB, beside what its files allow. Users and groups are those of this host, of \
            `users` and of `headgate user add`, by name or number; they are looked up at the start and at each reload. Without it \
            all users may do what the files allow. See [permissions](permissions.md#rights-of-a-share).",
    keys: &[
        key(
            "read",
            "user like `alice`, group like `\"@staff\"`, `\"*\"` for everyone, or list of them",
            "",
            "Who may read, and change nothing.",
        ),
        key("write", "the same", "", "Who may write, and read."),
        key(
            "deny",
            "the same",
            "",
            "Who may do neither, whatever the others say. Where nobody else is named, all others may read and write.",
        ),
    ],
};

pub(crate) const FORCE: Group = Group {
    name: "force",
    is_list: false,
    about: "As whom everything in a share is done, by NFS and by SMB, by all whom `access` lets in: new files belong to that user, \
            and its rights are asked for. Names are those of [access](#access).",
    keys: &[
        key("user", "user", "", "This user, with its groups. Not said: each user is itself."),
        key("group", "group", "", "With this group as the first. Not said: the user's."),
    ],
};

pub(crate) const MASKS: Group = Group {
    name: "masks",
    is_list: false,
    about: "Most that something new gets of its mode. What a client of NFS asks for beyond that is taken away; SMB asks for all of \
            it. Modes that are set later are not limited.",
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
        key("user", "name, without `client.`", "admin", "As whom the cluster knows the gateway."),
        key("config", "absolute path", "/etc/ceph/ceph.conf", "Where the monitors are."),
        key(
            "keyring",
            "absolute path",
            "",
            "The user's key; if nothing is said, where `config` says.",
        ),
        key(
            "exclusive",
            "`true` or `false`",
            "true",
            "No other client of the cluster changes anything in the folder: clients of the gateway may cache what is there. Say \
             `false` where others write.",
        ),
    ],
};

pub(crate) const USER: Group = Group {
    name: "users",
    is_list: true,
    about: "Who may log on by SMB, beside the users of `headgate user add`. It needs `name`.",
    keys: &[
        key("name", "word", "", "As clients type it; the case of its letters does not matter."),
        key(
            "password_file",
            "absolute path of a file, or `credential:NAME`",
            "",
            "Its first line is the password. Not said: the password is the one of `headgate user add NAME`.",
        ),
        key(
            "uid",
            "number of a user",
            "",
            "Who it is to the file system. Not said: the host's user of the same name.",
        ),
        key("gid", "number of a group", "", "Its primary group. Not said: as the host has it."),
        key(
            "groups",
            "list of numbers of groups",
            "",
            "Its further groups. Not said: as the host has them.",
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
            "15s",
            "How long an NFSv4 client that is silent keeps its opens and locks.",
        ),
        key(
            "grace",
            "time, like `90s` or `2m`",
            "15s",
            "How long after a restart clients may reclaim what they held, and nobody else can take it; at least the lease. \
             Not said: as long as the lease.",
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
             host's rpcbind, if there is one; `own` answers there without rpcbind; `auto` does the one where rpcbind runs, else \
             the other where port 111 is free and may be had; with `off` clients name the ports and mount with `nolock`.",
        ),
        key(
            "domain",
            "word, like `example.org`",
            "",
            "NFSv4: users and groups are shown and taken as `NAME@DOMAIN`, by the names in `users` and, with `names: host`, those \
             of this host. Clients must have the same domain (`Domain` in idmapd.conf). Not said: as numbers, which are taken \
             always.",
        ),
    ],
};

pub(crate) const SMB: Group = Group {
    name: "smb",
    is_list: false,
    about: "How SMB is served. It listens as soon as there is a user, a keytab, a share for guests, or a port named here.",
    keys: &[
        key("port", "port", "445", "SMB over TCP; 0: any free port."),
        key("direct_port", "port", "5445", "SMB Direct over iWARP; 0: any free port."),
        key(
            "signing",
            "`required` or `offered`",
            "required",
            "Must messages be signed. A client that signs and has no RDMA transforms, as every Linux client, does no direct RDMA: \
             it moves everything by Send.",
        ),
        key(
            "encryption",
            "`off`, `offered` or `required`",
            "offered",
            "`offered`: for clients that ask for it and shares that say `encrypt`; `required`: clients that cannot are refused.",
        ),
        key(
            "rdma_transforms",
            "`on` or `off`",
            "on",
            "Data that travels by RDMA is signed or encrypted by itself for clients of dialect 3.1.1 that can do that (Windows 11, \
             Windows Server 2022 and later), so that it is placed directly although the session signs or encrypts. `off`: it \
             travels inside the messages.",
        ),
        key(
            "ntlm",
            "`on` or `off`",
            "on",
            "Log on by passwords (NTLM version 2). `off`: by tickets of [kerberos](#kerberos) alone, and no guests.",
        ),
    ],
};

pub(crate) const KERBEROS: Group = Group {
    name: "kerberos",
    is_list: false,
    about: "With which keys clients prove by tickets who they are, beside passwords. It needs `keytab`. The library of MIT krb5 \
            (`libgssapi_krb5.so.2`) and its krb5.conf are this host's. See [Kerberos](kerberos.md).",
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
            "Principals like `alice@EXAMPLE.ORG` are the user `alice` also where krb5.conf does not say so. Not said: what \
             krb5.conf makes of them (`default_realm`, `auth_to_local`).",
        ),
        key(
            "names",
            "name of this host as clients type it, or list of them",
            "",
            "What `headgate check` looks for in the keytab. Not said: the name of the host.",
        ),
        key(
            "map",
            "`names` or `rid`",
            "names",
            "Who principals are to the file system. `names`: the users of their names, of `users` and of this host, which SSSD or \
             winbind knows for a domain; `rid`: principals of `realm` are numbers made of those that tickets of Active Directory \
             hold for the user and its groups, and this host need not know them.",
        ),
        key(
            "rid_base",
            "number of a user",
            "100000",
            "With `map: rid`: what is added to the last number of a user's and a group's SID, from 1000 on. All gateways on the \
             same files need the same.",
        ),
    ],
};

pub(crate) const CLUSTER_FILE: Group = Group {
    name: "The file of a cluster",
    is_list: false,
    about: "A file for `headgate cluster`, beside those that its services have. It holds nothing else. See [cluster](cluster.md).",
    keys: &[key("cluster", "group", "", "Which node serves what. See [cluster](#cluster).")],
};

pub(crate) const CLUSTER: Group = Group {
    name: "cluster",
    is_list: false,
    about: "Several nodes, each of which runs `headgate cluster run` with this file, and an etcd that says which of them serves \
            what. It needs `etcd` and `services`.",
    keys: &[
        key(
            "etcd",
            "endpoint like `https://10.0.0.5:2379`, or list of them",
            "",
            "The members of etcd, version 3.4 or later.",
        ),
        key("name", "word", "headgate", "Of the cluster: what its keys in etcd begin with."),
        key(
            "node",
            "word",
            "",
            "Name of this node, which no other has. Not said: the name of the host.",
        ),
        key(
            "ttl",
            "time, from `2s` to `1m`",
            "5s",
            "How long etcd keeps an owner that does not renew. Another serves a second or two later.",
        ),
        key(
            "ca",
            "absolute path",
            "",
            "Authorities in PEM that sign the certificates of etcd. Needed for `https`.",
        ),
        key(
            "certificate",
            "absolute path",
            "",
            "The certificate of this node in PEM, where etcd asks clients for one.",
        ),
        key("key", "absolute path", "", "Its private key in PEM."),
        key("user", "word", "", "The user of etcd, where it asks for one."),
        key(
            "password_file",
            "absolute path of a file",
            "",
            "Its first line is that user's password.",
        ),
        key(
            "metrics",
            "address with port, or `off`",
            "off",
            "Where `headgate cluster run` answers `GET /metrics`, to whoever can reach it, with what this node does for each \
             service.",
        ),
        key("services", "list of groups", "", "What is served. See [services](#services)."),
    ],
};

pub(crate) const SERVICE: Group = Group {
    name: "services",
    is_list: true,
    about: "What moves between nodes as one: a configuration with its shares, users and records, and addresses. It needs `name`, \
            `config`, `addresses` and `fence`.",
    keys: &[
        key("name", "word", "", "Its name in the cluster."),
        key(
            "config",
            "absolute path of a file",
            "",
            "The configuration of its gateway, the same on each node. Its `state` lies on storage that moves with the service.",
        ),
        key(
            "addresses",
            "address with network and device, like `192.0.2.10/24@eth0`, or list of them",
            "",
            "What clients mount. They are on the node that serves, and on no other.",
        ),
        key(
            "host",
            "name in DNS",
            "",
            "A name of these addresses. Gateways of the other services refer clients to it first, as Kerberos needs it, and to the \
             addresses then.",
        ),
        key("nodes", "word, or list of them", "", "Which nodes may serve it. Not said: all."),
        key(
            "fence",
            "word, or list of a program and its arguments",
            "",
            "Keeps the node before from the storage, for ever: a power switch, a reservation. It is told in its environment \
             `HEADGATE_FENCED_NODE`, `HEADGATE_SERVICE` and `HEADGATE_EPOCH`; exit code 0 says that it is done. Without that, \
             nobody serves.",
        ),
        key(
            "attach",
            "word, or list of a program and its arguments",
            "",
            "Makes the storage usable on this node, like `[mount, /srv/files]`, before the gateway starts.",
        ),
        key(
            "detach",
            "word, or list of a program and its arguments",
            "",
            "Undoes `attach` when the service leaves.",
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
            "Where it goes. The file is made for the gateway's user alone, is only ever appended to, and is opened anew at each \
             reload, so that it can be renamed before.",
        ),
        key(
            "required",
            "`true` or `false`",
            "false",
            "What must be recorded and cannot be is refused: logons, mounts, and operations on shares with `audit`. `/readyz` says \
             so. `false`: service goes on, and what finds no room in memory meanwhile is counted and lost.",
        ),
    ],
};

pub(crate) const LIMITS: Group = Group {
    name: "limits",
    is_list: false,
    about: "What one client may have, so that it cannot take everything from the others. Beside `connections` and `memory`, which \
            are for all together. Who meets a limit is refused that one thing, named in the log, and counted by the metric \
            `headgate_limits_met_total`.",
    keys: &[
        key(
            "client_connections",
            "whole number",
            "",
            "Connections from one address. Not said: three quarters of `connections`.",
        ),
        key(
            "client_memory",
            "size, like `64MiB`",
            "",
            "Payload memory of all connections from one address. Its requests wait when that is used up, and nobody else's. Not \
             said: three quarters of `memory`. For large requests whose bytes are no payload it may have an eighth as much beside.",
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
            "How long a connection may take until somebody has logged on (SMB) or done what a share admits (NFS), the set-up of \
             RDMA included. Until then it counts as a newcomer, who together may have half of `connections`, and from one address \
             a quarter.",
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
            "Which lines. Parts of the program may have another level: `info,nfsrdma=debug`. `headgate log` changes it until \
             the next \
             reload.",
        ),
        key("format", "`text` or `json`", "text", "How they are written."),
    ],
};

/// All of them, the top first.
pub const GROUPS: [Group; 19] = [
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

`headgate serve --config FILE` reads one YAML file. Options of the command line stand before what the file says; shares, users and
addresses given there are added to it. `headgate check --config FILE` tells every fault with line and column and serves nothing.

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
