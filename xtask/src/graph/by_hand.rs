//! Refuses files that parse messages of a peer by hand. The parsers of the format crates do that, and their errors name field, rule
//! and offset. Other files may only build numbers from bytes that this program or the kernel wrote, or that are in a frame whose
//! length was checked before.

use std::fs;
use std::path::Path;

use crate::sh::Result;

/// The crates with parsers.
const FORMATS: [&str; 3] = ["crates/wire", "crates/nfs-proto", "crates/smb-proto"];

/// Other files that build numbers from bytes, and the source of those bytes.
const KNOWN: [(&str, &str); 44] = [
    ("crates/cluster/src/announce.rs", "the checksum of a frame that it made"),
    ("crates/cluster/src/lifetime.rs", "an answer of the kernel"),
    ("crates/discovery/src/unread.rs", "lengths of records, by a walk that ends with the packet"),
    ("gateway/src/boot.rs", "a record of the store"),
    ("gateway/src/networks.rs", "a mask of the host's"),
    ("crates/gss-krb5/src/enctype.rs", "the n-fold of a constant"),
    ("crates/gss-krb5/src/token.rs", "a token's header of 16 bytes"),
    ("crates/sys/gss-sys/src/keytab.rs", "a keytab, a file of the host"),
    ("crates/sys/domain-sys/src/winbind/context.rs", "a SID of winbindd, a service of the host"),
    ("nfsrdma/src/fh.rs", "file handles, which this server made"),
    ("nfsrdma/src/rpc/gss/protect.rs", "the head of a reply, which this server made"),
    ("nfsrdma/src/v4/recovery.rs", "random bytes"),
    ("nfsrdma/src/v4/slots.rs", "words of a hash"),
    ("nfsrdma/src/v4/stateid.rs", "stateids, which this server made"),
    ("rdma-transport/src/caller.rs", "the xid of a call that this client made"),
    (
        "rdma-transport/src/calls.rs",
        "xid and direction, ahead of the parser, to whom the message belongs",
    ),
    ("rdma-transport/src/iwarp/", "fields of fixed place in a frame whose length was checked"),
    ("rdma-transport/src/rpcrdma/caller.rs", "the xid of a reply, ahead of the parser"),
    (
        "rdma-transport/src/rpcrdma/fetch.rs",
        "a length in the read data of a peer, compared with the chunk",
    ),
    ("rdma-transport/src/tcp/direct.rs", "the four bytes in front of a message"),
    ("rdma-transport/src/tcp/record.rs", "a record mark"),
    ("rdma-transport/src/xdr.rs", "a word that this writer wrote"),
    ("crates/recovery/src/header.rs", "the header of the store"),
    ("crates/smb-auth/src/ntlm/initiator.rs", "a time stamp whose length was checked"),
    ("crates/smb-auth/src/version.rs", "the eight bytes of a version"),
    (
        "crates/smb-compress/src/matches.rs",
        "streams of codecs, by readers that end with the stream",
    ),
    ("crates/smb-compress/src/pattern.rs", "equal bytes, eight at once"),
    ("crates/smb-crypto/src/sign.rs", "the command in a header of 64 bytes"),
    ("smbd-core/src/answer.rs", "the header that this server wrote"),
    (
        "smbd-core/src/request_context.rs",
        "a field of the header that has another meaning by dialect",
    ),
    ("smbd-core/src/random_ids.rs", "random bytes"),
    ("smbd-core/src/persist/record.rs", "a record of the store"),
    ("smbd-core/src/ops/pipe_host.rs", "a number that is made of the host's name"),
    ("vfs/examples/", "a handle of the example"),
    ("vfs/src/acl/", "records and lists that are kept with files"),
    ("vfs/src/ceph/", "handles and records of a volume"),
    ("vfs/src/creation.rs", "the verifier of a create, as times"),
    ("vfs/src/dos.rs", "a record that is kept with a file"),
    ("vfs/src/hosts.rs", "an address for the kernel"),
    ("vfs/src/local/", "handles, and what the kernel tells"),
    ("vfs/src/mem/", "handles"),
    ("vfs/src/reparse.rs", "a record that is kept with a file"),
    ("vfs/src/waste_record.rs", "a record that is kept with a file"),
    ("xtask/", "no program of the product"),
];

/// The calls that build numbers from bytes.
const CALLS: [&str; 3] = ["from_le_bytes", "from_be_bytes", "from_ne_bytes"];

/// Refuses a file of this crate that reads numbers from bytes and is not in the table.
pub(super) fn check(folder: &str) -> Result<()> {
    if FORMATS.contains(&folder) || folder == "tests" {
        return Ok(());
    }
    let mut unknown = Vec::new();
    let mut left = vec![Path::new(folder).join("src")];
    while let Some(path) = left.pop() {
        let told = |e| format!("{}: {e}", path.display());
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if stem == "tests" || stem.ends_with("_tests") || stem.ends_with("harness") {
            continue;
        }
        if path.is_dir() {
            for entry in fs::read_dir(&path).map_err(told)? {
                left.push(entry.map_err(told)?.path());
            }
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let name = path.to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).map_err(told)?;
            if reads(&text) && !KNOWN.iter().any(|(known, _)| name.starts_with(known)) {
                unknown.push(name);
            }
        }
    }
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(format!("reads numbers from bytes: {}", unknown.join(", ")))
    }
}

/// Checks whether code outside tests reads numbers from bytes.
fn reads(text: &str) -> bool {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.into_iter().any(|line| CALLS.iter().any(|call| line.contains(call)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_from_bytes_found_outside_tests() {
        assert!(reads("let n = u32::from_be_bytes(*first);\n"));
        assert!(!reads("// u32::from_be_bytes\nlet n = n.to_be_bytes();\n"));
        assert!(!reads("#[cfg(test)]\nmod tests {\n    let n = u16::from_le_bytes([1, 2]);\n}\n"));
    }
}
