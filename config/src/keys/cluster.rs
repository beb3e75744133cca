//! The keys of a cluster file and of the services in it.

use super::{Group, key};

pub(crate) const CLUSTER_FILE: Group = Group {
    name: "The file of a cluster",
    is_list: false,
    about: "A file for `headgate cluster`, in addition to the files of its services. It has no other keys. See \
            [cluster](cluster.md).",
    keys: &[key("cluster", "group", "", "The services and their nodes. See [cluster](#cluster).")],
};

pub(crate) const CLUSTER: Group = Group {
    name: "cluster",
    is_list: false,
    about: "Several nodes, each of which runs `headgate cluster run` with this file, and an etcd that records which node runs \
            which service. It needs `etcd` and `services`.",
    keys: &[
        key(
            "etcd",
            "endpoint like `https://10.0.0.5:2379`, or list of them",
            "",
            "The members of etcd, version 3.4 or later.",
        ),
        key("name", "word", "headgate", "Name of the cluster, the prefix of its keys in etcd."),
        key(
            "node",
            "word",
            "",
            "Name of this node, unique in the cluster. If not set: the name of the host.",
        ),
        key(
            "ttl",
            "time, from `2s` to `1m`",
            "5s",
            "How long a node stays owner without renewing its lease in etcd. Another node takes over a second or two later.",
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
            "The certificate of this node in PEM, if etcd requires client certificates.",
        ),
        key("key", "absolute path", "", "Its private key in PEM."),
        key("user", "word", "", "The etcd user, if etcd requires authentication."),
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
            "The address at which `headgate cluster run` serves `GET /metrics`, without authentication, with this node's state \
             of each service.",
        ),
        key("services", "list of groups", "", "The services. See [services](#services)."),
    ],
};

pub(crate) const SERVICE: Group = Group {
    name: "services",
    is_list: true,
    about: "A unit that moves between nodes: a configuration with its shares, users and records, and addresses. It needs \
            `name`, `config`, `addresses` and `fence`.",
    keys: &[
        key("name", "word", "", "Its name in the cluster."),
        key(
            "config",
            "absolute path of a file",
            "",
            "The configuration of its gateway, the same on each node. Its `state` must be on storage that moves with the \
             service.",
        ),
        key(
            "addresses",
            "address with network and device, like `192.0.2.10/24@eth0`, or list of them",
            "",
            "The addresses that clients use. Only the node that runs the service has them.",
        ),
        key(
            "host",
            "name in DNS",
            "",
            "A DNS name of these addresses. Gateways of the other services refer clients to this name first, which Kerberos \
             needs, and then to the addresses.",
        ),
        key("nodes", "word, or list of them", "", "The nodes that may run it. If not set: all."),
        key(
            "fence",
            "word, or list of a program and its arguments",
            "",
            "Permanently cuts the previous node off from the storage: a power switch, a reservation. Its environment \
             has `HEADGATE_FENCED_NODE`, `HEADGATE_SERVICE` and `HEADGATE_EPOCH`; exit code 0 means that the node is cut \
             off. Otherwise no node runs the service.",
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
