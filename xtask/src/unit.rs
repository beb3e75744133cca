//! Tests the systemd unit under its own restrictions: systemd-nspawn boots the clean root with a separate network, so that systemd
//! as process 1 starts the installed service as on any host.
//!
//! A second service, [`JOB`], examines the process and uses it by clients of other projects (smbclient, libnfs) and by RDMA,
//! reloads it, kills it, stops it, and turns the machine off. Its last line reports that it reached its end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::cleanroot::Root;
use crate::sh::{Result, Tally, command};

/// Packages that boot there and act as clients.
const WITH_THE_UNIT: &str = "systemd systemd-sysv dbus smbclient libnfs-utils";

const CONFIGURATION: &str = "\
shares:
  - {name: data, path: /srv/data, clients: [127.0.0.0/8]}
  - {name: office, path: /srv/office, protocols: smb}
users:
  - {name: alice, password_file: /etc/headgate/alice, uid: 1000, gid: 1000, groups: []}
bind: 127.0.0.1
";

const SERVICE: &str = "\
[Unit]
Wants=headgate.service
After=headgate.service
OnFailure=poweroff.target
[Service]
Type=oneshot
ExecStart=/bin/sh -ex /try/job
ExecStopPost=/bin/systemctl --no-block poweroff
StandardOutput=file:/try/log
StandardError=inherit
[Install]
WantedBy=multi-user.target
";

/// Every line has to succeed.
const JOB: &str = r#"
systemctl is-active headgate
pid=$(systemctl show --property MainPID --value headgate)
# Few capabilities, no way to more, and system calls are filtered.
grep 'NoNewPrivs:.*1' /proc/$pid/status
grep 'Seccomp:.*2' /proc/$pid/status
if grep 'CapBnd:.*1ffffffffff' /proc/$pid/status; then exit 1; fi
if nsenter --target $pid --mount touch /usr/x; then exit 1; fi
systemd-analyze security --no-pager headgate | tail -n 1
echo hello > /tmp/f
smbclient -L 127.0.0.1 -U alice%secret | grep office
smbclient //127.0.0.1/data -U alice%secret -c 'put /tmp/f f; get f /tmp/g'
cmp /tmp/f /tmp/g
test "$(stat --format %u:%g /srv/data/f)" = 1000:1000
nfs-cp /tmp/f 'nfs://127.0.0.1/data/n4?version=4&uid=1000&gid=1000'
nfs-cp /tmp/f 'nfs://127.0.0.1/data/n3?version=3&nfsport=2049&mountport=2049&uid=1000&gid=1000'
cmp /tmp/f /srv/data/n3
cmp /tmp/f /srv/data/n4
if nfs-ls 'nfs://127.0.0.1/office?version=3&nfsport=2049&mountport=2049'; then exit 1; fi
headgate bench 'nfs://127.0.0.1/data?version=4.2&transport=rdma' --size 4MiB --time 100ms --user 1000:1000
systemctl reload headgate
systemctl kill --signal KILL headgate
for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1; systemctl is-active headgate && break; done
systemctl is-active headgate
cmp /tmp/f /srv/data/n4
systemctl stop headgate
test "$(systemctl show --property Result --value headgate)" = success
echo the unit works
"#;

/// Process 1 needs a control group hierarchy of version 2; the rest of this machine keeps what it has.
const BOOT: &str = r#"
umount --recursive /sys/fs/cgroup || true
mount -t cgroup2 none /sys/fs/cgroup
exec timeout 300 systemd-nspawn --quiet --register=no --keep-unit --private-network --boot --directory "$ROOT"
"#;

/// Boots the root, in which the package is installed, and tests the service.
pub(crate) fn in_root(root: &Root, tally: &mut Tally) {
    tally.count("the unit starts, serves and comes back under its restrictions", tried(root));
}

fn tried(root: &Root) -> Result<()> {
    let install =
        "DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends";
    root.run(&format!("apt-get update -qq; {install} {WITH_THE_UNIT} > /dev/null"))?;
    root.run(
        "mkdir -p /try /srv/data /srv/office /etc/headgate; chmod 1777 /srv/data /srv/office; \
         printf 'secret\\n' > /etc/headgate/alice; chmod 600 /etc/headgate/alice",
    )?;
    write(&root.dir.join("etc/headgate/headgate.yaml"), CONFIGURATION)?;
    write(&root.dir.join("etc/systemd/system/try.service"), SERVICE)?;
    write(&root.dir.join("try/job"), JOB)?;
    root.run("ln -sf ../try.service /etc/systemd/system/multi-user.target.wants/try.service")?;
    let mut boot = command(&["unshare", "--mount", "sh", "-ec", BOOT]);
    boot.env("ROOT", &root.dir).stdin(std::process::Stdio::null());
    let shown = boot.output().map_err(|e| format!("unshare: {e}"))?;
    let log = fs::read_to_string(root.dir.join("try/log")).unwrap_or_default();
    println!("{log}");
    if log.trim_end().ends_with("\nthe unit works") {
        return Ok(());
    }
    let machine = String::from_utf8_lossy(&shown.stdout);
    Err(format!("it did not come to its end; the machine said:\n{machine}"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    let failed = |e| format!("{}: {e}", path.display());
    fs::write(path, text).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).map_err(failed)
}
