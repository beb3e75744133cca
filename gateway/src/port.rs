//! Finds the program that listens on an occupied port, as far as this user may see it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// Options that help if port 111 is not available.
pub(crate) const PORTMAP_OPTION: &str = "--portmap register or --portmap off";

/// Returns one line about an address that could not be opened. `option` selects the port, or includes the value that helps.
pub fn refused(what: &str, at: SocketAddr, error: &std::io::Error, option: &str) -> String {
    let option = if option.contains(' ') { option.to_owned() } else { format!("{option} PORT") };
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            let by = holder(at.port()).map(|h| format!(" by {h}")).unwrap_or_default();
            format!("{what}: {at} is in use{by}; stop it, or give {option}")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!(
                "{what}: {at}: {error}; ports below 1024 need root or CAP_NET_BIND_SERVICE; or give {option}"
            )
        }
        std::io::ErrorKind::AddrNotAvailable => format!(
            "{what}: {} is not an address of this host; give another one, or none to listen on all",
            at.ip()
        ),
        _ => format!("{what}: cannot listen on {at}: {error}"),
    }
}

/// Returns true if a process with this name listens on the port.
pub(crate) fn is_held_by(port: u16, name: &str) -> bool {
    let inode = inode_of(port);
    inode.and_then(process_with).is_some_and(|(process, _)| process == name)
}

fn inode_of(port: u16) -> Option<u64> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    tables.into_iter().find_map(|table| listener_inode(&read(table), port))
}

/// Returns the listener on this TCP port: `name (process 123)`, or the kernel service if no process holds the socket.
fn holder(port: u16) -> Option<String> {
    let inode = inode_of(port)?;
    if let Some((name, id)) = process_with(inode) {
        return Some(format!("{name} (process {id})"));
    }
    if let Some(server) = kernel_server(Path::new("/"), port) {
        return Some(server);
    }
    let hidden = "a process of another user, or the kernel (run this as root to see which)";
    Some(if sees_all() { "the kernel" } else { hidden }.to_owned())
}

/// Returns true if this user may read the open files of other users' processes.
fn sees_all() -> bool {
    fs::read_dir("/proc/1/fd").is_ok()
}

/// Returns the name and the id of a process that holds this socket.
fn process_with(inode: u64) -> Option<(String, String)> {
    let socket = format!("socket:[{inode}]");
    let numbered = |name: &std::ffi::OsStr| name.to_str().is_some_and(|n| n.parse::<u32>().is_ok());
    let all = fs::read_dir("/proc").ok()?.flatten();
    let processes = all.filter(|p| numbered(&p.file_name()));
    processes.map(|p| p.path()).find_map(|process| {
        let files = fs::read_dir(process.join("fd")).ok()?.flatten();
        let mut links = files.filter_map(|f| fs::read_link(f.path()).ok());
        links.find(|l| l.as_os_str() == socket.as_str())?;
        let name = fs::read_to_string(process.join("comm")).ok()?;
        Some((name.trim().to_owned(), process.file_name()?.to_str()?.to_owned()))
    })
}

/// Returns the kernel file server on the port, according to its files below `root`.
fn kernel_server(root: &Path, port: u16) -> Option<String> {
    let nfsd = fs::read_to_string(root.join("proc/fs/nfsd/portlist")).unwrap_or_default();
    let is_on_it = |l: &str| l.split_whitespace().nth(1).is_some_and(|p| p == port.to_string());
    if nfsd.lines().any(is_on_it) {
        return Some("the kernel's nfsd (`systemctl disable --now nfs-server`)".to_owned());
    }
    let ksmbd = root.join("sys/class/ksmbd-control").exists();
    let smb = matches!(port, 445 | 5445);
    (ksmbd && smb)
        .then(|| "the kernel's ksmbd (`ksmbd.control --shutdown`, `modprobe -r ksmbd`)".to_owned())
}

/// Returns the inode of the socket that listens on a port, from the text of `/proc/net/tcp`.
fn listener_inode(text: &str, port: u16) -> Option<u64> {
    const LISTEN: &str = "0A";
    text.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, hex) = fields.get(1)?.rsplit_once(':')?;
        let same = u16::from_str_radix(hex, 16) == Ok(port) && *fields.get(3)? == LISTEN;
        if same { fields.get(9)?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_said_with_who_took_it() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = taken.local_addr().unwrap();
        let error = std::net::TcpListener::bind(at).unwrap_err();
        let line = refused("NFS", at, &error, "--nfs-port");
        let me = format!("(process {})", std::process::id());
        assert!(line.contains("in use by") && line.contains(&me), "{line}");
        assert!(line.contains("--nfs-port PORT"), "{line}");
    }

    #[test]
    fn this_process_is_known_by_its_name() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let me = fs::read_to_string("/proc/self/comm").unwrap();
        assert!(is_held_by(port, me.trim()));
        assert!(!is_held_by(port, "somebody else"));
    }

    #[test]
    fn servers_of_the_kernel_are_named() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        assert_eq!(kernel_server(root.path(), 2049), None);
        fs::create_dir_all(at("proc/fs/nfsd")).unwrap();
        fs::write(at("proc/fs/nfsd/portlist"), "rdma 20049\ntcp 2049\nudp 2049\n").unwrap();
        for port in [2049, 20049] {
            assert!(kernel_server(root.path(), port).unwrap().contains("nfsd"), "{port}");
        }
        assert_eq!(kernel_server(root.path(), 204), None);
        assert_eq!(kernel_server(root.path(), 445), None);
        fs::create_dir_all(at("sys/class/ksmbd-control")).unwrap();
        assert!(kernel_server(root.path(), 445).unwrap().contains("ksmbd"));
        assert_eq!(kernel_server(root.path(), 2050), None);
    }

    #[test]
    fn only_listening_sockets_count() {
        let text = "  sl  local_address rem_address   st tx rx tr tm retr uid timeout inode\n\
            0: 0100007F:0801 0100007F:C000 01 0:0 00:0 0 0 0 77 1\n\
            1: 00000000:0801 00000000:0000 0A 0:0 00:0 0 0 0 78 1\n";
        assert_eq!(listener_inode(text, 2049), Some(78));
        assert_eq!(listener_inode(text, 2050), None);
    }
}
