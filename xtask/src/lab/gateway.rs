//! The gateway as a guest's server: started, killed, started again on the same state, its log read.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::net::{Net, TAPS, host_address};
use crate::sh::{Result, output, run, target_dir};

const READY_SECONDS_MAX: u64 = 20;

/// What it serves, and its state.
const FOLDERS: [(&str, u32); 8] = [
    ("share", 0o755),
    ("ro", 0o755),
    ("squashed", 0o755),
    ("squashed/open", 0o777),
    ("squashed/closed", 0o700),
    ("small", 0o755),
    ("vanishing", 0o755),
    ("state", 0o700),
];

/// What clients see, and how.
const SHARES: [(&str, &str); 5] = [
    ("data", ",squash=none"),
    ("ro", ",ro,squash=none"),
    ("squashed", ""),
    ("small", ",squash=none"),
    ("vanishing", ",squash=none"),
];

/// A gateway that serves `dir/share` as `/data`, and two more shares of other kinds.
#[derive(Debug)]
pub(crate) struct Gateway<'a> {
    net: &'a Net,
    dir: PathBuf,
    child: Option<Child>,
}

/// Builds the program; its path.
pub(crate) fn build() -> Result<PathBuf> {
    run(&["cargo", "build", "--release", "--quiet", "--package", "gateway", "--bin", "headgate"])?;
    Ok(target_dir().join("release/headgate"))
}

impl<'a> Gateway<'a> {
    /// Starts it on a fresh share and state below `dir`.
    pub(crate) fn start(net: &'a Net, dir: &Path) -> Result<Gateway<'a>> {
        for (folder, mode) in FOLDERS {
            let path = dir.join(folder);
            let failed = |e| format!("{}: {e}", path.display());
            fs::create_dir_all(&path).map_err(failed)?;
            fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(failed)?;
        }
        fs::write(dir.join("ro/readme"), "to be read\n").map_err(|e| format!("readme: {e}"))?;
        output(&[
            "python3",
            "tests/lab/share.py",
            "populate",
            &dir.join("share").display().to_string(),
        ])?;
        let mut gateway = Gateway { net, dir: dir.to_owned(), child: None };
        gateway.spawn()?;
        Ok(gateway)
    }

    /// The folder that is served.
    pub(crate) fn share(&self) -> PathBuf {
        self.dir.join("share")
    }

    /// Everything it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read(self.dir.join("headgate.log"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// It has not ended by itself.
    pub(crate) fn is_running(&mut self) -> Result<()> {
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some(status))) => Err(format!("it ended with {status}")),
            Some(Err(e)) => Err(e.to_string()),
            None => Err("it was not started".into()),
        }
    }

    /// kill -9, a moment of silence, and a start on the same state.
    fn kill_and_restart(&mut self) -> Result<()> {
        self.kill();
        sleep(Duration::from_secs(2));
        self.spawn()
    }

    /// Cuts every connection: both ends see a reset, nothing is told to the programs.
    fn cut_connections(&self) -> Result<()> {
        let filter = "( sport = :2049 or sport = :20049 )";
        output(&[
            "ip",
            "netns",
            "exec",
            &self.net.name,
            "ss",
            "-K",
            "-t",
            "state",
            "established",
            filter,
        ])?;
        Ok(())
    }

    /// Does what a guest asks for.
    pub(crate) fn obey(&mut self, words: &str) -> Result<()> {
        match words {
            "kill-gateway" => self.kill_and_restart(),
            "cut-connections" => self.cut_connections(),
            "remove vanishing" => fs::remove_dir_all(self.dir.join("vanishing"))
                .map_err(|e| format!("vanishing: {e}")),
            _ => Err("the host does not know how".into()),
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself; then there is nothing to kill.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn spawn(&mut self) -> Result<()> {
        let ready_before = self.ready_lines();
        let log = |e| format!("headgate.log: {e}");
        let file: File = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join("headgate.log"))
            .map_err(log)?;
        let mut command = self.net.command("sh");
        // Each start has mounts of its own, which end with it.
        let script = "mount -t tmpfs -o size=16M small \"$0/small\" && exec \"$@\"";
        command.args(["-c", script]).arg(&self.dir);
        command.arg(target_dir().join("release/headgate"));
        // Short times, so that a restart does not take the tier's time. The kernel's device asks for no CRC by itself; the
        // gateway in the guest shows that way.
        command
            .args(["serve", "--lease", "10s", "--grace", "10s", "--rdma-crc", "always", "--state"])
            .arg(self.dir.join("state"));
        for n in 0..TAPS {
            command.args(["--bind", &host_address(n)]);
        }
        for (share, options) in SHARES {
            let folder = self.dir.join(if share == "data" { "share" } else { share });
            command.arg("--share").arg(format!("{share}={}{options}", folder.display()));
        }
        command.stdout(file.try_clone().map_err(log)?).stderr(file);
        self.child = Some(command.spawn().map_err(|e| format!("cannot start headgate: {e}"))?);
        self.wait_until_ready(ready_before)
    }

    fn wait_until_ready(&mut self, before: usize) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
        while self.ready_lines() == before {
            let ended = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(format!("headgate ended with {status}:\n{}", self.log()));
            }
            if Instant::now() > end {
                return Err(format!(
                    "headgate is not ready after {READY_SECONDS_MAX} s:\n{}",
                    self.log()
                ));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn ready_lines(&self) -> usize {
        self.log().matches("headgate ready").count()
    }
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}
