//! Runs Samba's smbtorture from the suite that `cargo xtask smbtorture` unpacks.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Tests of smbtorture that pass with other programs of the tier `third`, each with its program.
const LIST: &str = include_str!("../../../tests/smbtorture/elsewhere.txt");

/// Private mounts, as in the part `smbtorture` of the tier `third`. A file with names of hosts is mounted over its `etc`, if
/// it exists.
const ENTER: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && \
    mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && mount --bind . \"$0/tmp\" && \
    if [ -e etc ]; then mount --bind etc \"$0/etc\"; fi && exec chroot \"$0\" smbtorture \"$@\"";

/// Returns the tests that this program must run.
pub(crate) fn of(program: &str) -> Vec<&'static str> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    let its = lines.filter_map(|line| line.split_once("  ")).filter(|line| line.1 == program);
    let its: Vec<_> = its.map(|line| line.0).collect();
    assert!(!its.is_empty(), "nothing is left to run");
    its
}

/// Returns the folder of the suite.
pub(crate) fn suite() -> PathBuf {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    let home = || var("HOME").unwrap_or_default().join(".cache");
    let lab = || var("XDG_CACHE_HOME").unwrap_or_else(home).join("headgate-lab");
    let cache = var("LAB_CACHE").unwrap_or_else(lab);
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("smbtorture-") && path.join("version").exists()
    };
    let found =
        std::fs::read_dir(&cache).into_iter().flatten().flatten().map(|e| e.path()).filter(named);
    found.max().unwrap_or_else(|| {
        panic!(
            "no smbtorture in {}: `cargo xtask smbtorture smb2.session` unpacks it",
            cache.display()
        )
    })
}

/// Returns a command that runs it in this folder, which is its `/tmp`; the caller adds the server and the user.
pub(crate) fn command(suite: &Path, dir: &Path) -> Command {
    let folders = [
        "lock directory",
        "state directory",
        "cache directory",
        "private dir",
        "pid directory",
        "ncalrpc dir",
    ];
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", "unshare", "--mount", "sh", "-ec", ENTER]).arg(suite);
    command.args(["--configfile=/dev/null", "--basedir=/tmp", "--option=log file=/tmp/log"]);
    command.args(folders.map(|folder| format!("--option={folder}=/tmp")));
    command.args(["--format=subunit", "--option=torture:smbd=no"]).current_dir(dir);
    command
}

/// Runs the test and returns its output if it failed.
pub(crate) fn failure(mut command: Command, test: &str) -> Option<String> {
    let done = command.arg(test).output().unwrap();
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    let passed = said.lines().any(|l| l.starts_with("success: "));
    (!passed).then(|| format!("{test}: {said}"))
}
