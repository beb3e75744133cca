//! Who listens on a port that is taken, as far as this user may know.

use std::net::SocketAddr;

/// One line about an address that could not be listened on. `option` chooses the port, or stands with the value that helps.
pub fn refused(what: &str, at: SocketAddr, error: &std::io::Error, option: &str) -> String {
    let option = if option.contains(' ') { option.to_owned() } else { format!("{option} PORT") };
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            let by = holder(at.port()).map(|h| format!(" by {h}")).unwrap_or_default();
            format!("{what}: {at} is in use{by}; stop it, or give {option}")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("{what}: {at}: {error}; ports below 1024 need a privilege, or give {option}")
        }
        _ => format!("{what}: cannot listen on {at}: {error}"),
    }
}

/// The program that listens on this TCP port: `name (process 123)`, or `the kernel` where no process holds the socket.
fn holder(port: u16) -> Option<String> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let inode = ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .into_iter()
        .find_map(|table| listener_inode(&read(table), port))?;
    if inode == 0 {
        return Some("the kernel".into());
    }
    let socket = format!("socket:[{inode}]");
    let numbered = |name: &std::ffi::OsStr| name.to_str().is_some_and(|n| n.parse::<u32>().is_ok());
    let all = std::fs::read_dir("/proc").ok()?.flatten();
    let processes = all.filter(|p| numbered(&p.file_name()));
    processes.map(|p| p.path()).find_map(|process| {
        let files = std::fs::read_dir(process.join("fd")).ok()?.flatten();
        let mut links = files.filter_map(|f| std::fs::read_link(f.path()).ok());
        links.find(|l| l.as_os_str() == socket.as_str())?;
        let name = std::fs::read_to_string(process.join("comm")).ok()?;
        let id = process.file_name()?.to_str()?.to_owned();
        Some(format!("{} (process {id})", name.trim()))
    })
}

/// The socket that listens on a port, from the text of `/proc/net/tcp`.
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
    fn only_listening_sockets_count() {
        let text = "  sl  local_address rem_address   st tx rx tr tm retr uid timeout inode\n\
            0: 0100007F:0801 0100007F:C000 01 0:0 00:0 0 0 0 77 1\n\
            1: 00000000:0801 00000000:0000 0A 0:0 00:0 0 0 0 78 1\n";
        assert_eq!(listener_inode(text, 2049), Some(78));
        assert_eq!(listener_inode(text, 2050), None);
    }
}
