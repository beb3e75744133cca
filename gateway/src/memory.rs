//! Finds how much memory this process can use.
//!
//! *Operation.* The smallest of the machine's memory (`/proc/meminfo`) and the limits of the process's control groups and
//! their parents: `memory.max` of cgroup v2, `memory.limit_in_bytes` of v1 (cgroups(7)). In a container the root of the
//! mounted hierarchy is the container's own group.
//!
//! *Errors.* A file that cannot be read sets no limit.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the number of bytes, and the name of the limit.
pub(crate) fn most() -> Option<(u64, &'static str)> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let of_group = group_limit(&groups, Path::new("/sys/fs/cgroup"));
    least(of_machine, of_group)
}

fn least(machine: Option<u64>, group: Option<u64>) -> Option<(u64, &'static str)> {
    let machine = machine.map(|bytes| (bytes, "this machine"));
    let group = group.map(|bytes| (bytes, "the control group (cgroup) of this process"));
    machine.into_iter().chain(group).min_by_key(|(bytes, _)| *bytes)
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the lowest limit of the groups in `/proc/self/cgroup`, with the hierarchy mounted at `mounted`.
fn group_limit(groups: &str, mounted: &Path) -> Option<u64> {
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let (root, file): (PathBuf, _) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            v1 if v1.split(',').any(|c| c == "memory") => {
                (mounted.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let limit = |folder: &Path| -> Option<u64> {
            // `max` does not parse and means no limit.
            fs::read_to_string(root.join(folder).join(file)).ok()?.trim().parse().ok()
        };
        Path::new(path).ancestors().filter_map(limit).min()
    };
    groups.lines().filter_map(of_line).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_lowest_limit_of_all_groups_above_counts() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let limit = |groups: &str| group_limit(groups, root);
        assert_eq!(limit("0::/a/b\n"), None, "nothing is mounted");
        write(root, "a/b/memory.max", "max\n");
        write(root, "a/memory.max", "1073741824\n");
        assert_eq!(limit("0::/a/b\n"), Some(1 << 30), "of the group above");
        write(root, "a/b/memory.max", "4096\n");
        assert_eq!(limit("0::/a/b\n"), Some(4096));
        // A container sees its own group as the root, whatever its path is.
        write(root, "memory.max", "8192\n");
        assert_eq!(limit("0::/\n"), Some(8192));
        assert_eq!(limit("0::/../elsewhere/x\n"), Some(8192));
        write(root, "memory/docker/x/memory.limit_in_bytes", "2048\n");
        assert_eq!(limit("7:cpu,cpuacct:/docker/x\n6:memory:/docker/x\n"), Some(2048));
        assert_eq!(limit("7:cpu,cpuacct:/docker/x\n"), None);
    }

    #[test]
    fn the_machine_or_its_group_has_least() {
        assert_eq!(total("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(least(Some(5), Some(7)), Some((5, "this machine")));
        assert!(
            least(Some(7), Some(5)).is_some_and(|(n, whose)| n == 5 && whose.contains("cgroup"))
        );
        assert_eq!(least(None, None), None);
        assert!(most().is_some_and(|(bytes, _)| bytes > 16 << 20), "this machine has some");
    }
}
