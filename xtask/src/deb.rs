//! `cargo xtask deb`: builds the Debian package from a release build with its man pages and completions.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cleanroot::Root;
use crate::sh::{Outcome, Result, Tally, command, output, run, target_dir};
use crate::unit;

/// File extension of the package.
const EXTENSION: &str = "deb";

/// Builds the package and prints its path.
pub(crate) fn main() -> Result<Outcome> {
    let tool = tool()?;
    run(&["cargo", "build", "--release", "--quiet", "--package", "gateway", "--bin", "headgate"])?;
    let target = target_dir();
    let program = target.join("release/headgate").display().to_string();
    run(&[&program, "generate", &target.join("packaging").display().to_string()])?;
    let mut deb = command(&[&tool.display().to_string()]);
    deb.args(["--package", "gateway", "--no-build", "--quiet"]);
    let status = deb.status().map_err(|e| format!("cargo-deb: {e}"))?;
    if !status.success() {
        return Err(format!("cargo-deb: {status}"));
    }
    println!("{}", package(&target)?.display());
    Ok(Outcome::Passed)
}

/// Returns the path of cargo-deb, installed already or below the target folder.
fn tool() -> Result<PathBuf> {
    let installed = output(&["sh", "-c", "command -v cargo-deb"]);
    if let Ok(path) = installed {
        return Ok(PathBuf::from(path.trim()));
    }
    let root = target_dir().join("tools");
    let tool = root.join("bin/cargo-deb");
    if !tool.exists() {
        run(&["cargo", "install", "--quiet", "--root", &root.display().to_string(), "cargo-deb"])?;
    }
    Ok(tool)
}

/// Returns the package that was built last.
fn package(target: &Path) -> Result<PathBuf> {
    let dir = target.join("debian");
    let listing = fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let packages = listing.flatten().map(|e| e.path());
    packages
        .filter(|p| p.extension().is_some_and(|e| e == EXTENSION))
        .max_by_key(|p| p.metadata().and_then(|m| m.modified()).ok())
        .ok_or_else(|| format!("there is no package in {}", dir.display()))
}

/// Script that tests the package: installs it by dpkg only, so that it needs no package that the root lacks, prints its version and
/// pages, starts it with the command of its unit, and moves files.
const TRY: &str = r#"
dpkg --install /package/*.deb
headgate --version
test -s /usr/share/man/man5/headgate.yaml.5.gz
test -s /usr/share/bash-completion/completions/headgate
test -s /lib/systemd/system/headgate.service || test -s /usr/lib/systemd/system/headgate.service
mkdir -p /etc/headgate /srv/data
sed 's,10.0.0.0/8,127.0.0.0/8,' /usr/share/doc/headgate/examples/headgate.yaml > /etc/headgate/headgate.yaml
headgate check --config /etc/headgate/headgate.yaml
printf 'bind: 127.0.0.1\nnfs: {port: 12049, rdma_port: 12050}\n' >> /etc/headgate/headgate.yaml
/usr/bin/headgate serve --admin off --config /etc/headgate/headgate.yaml > /tmp/log 2>&1 &
for i in 1 2 3 4 5 6 7 8 9 10; do grep -q 'headgate ready' /tmp/log && break; sleep 1; done
grep 'headgate ready' /tmp/log || { cat /tmp/log; exit 1; }
chmod 1777 /srv/data
headgate bench 'nfs://127.0.0.1:12049/data?version=4.2' --size 4MiB --time 100ms --rounds 1
headgate bench 'nfs://127.0.0.1:12050/data?version=4.2&transport=rdma' --size 4MiB --time 100ms --rounds 1
kill -TERM $!
wait $!
"#;

const GONE: &str = r#"
dpkg --remove headgate
test ! -e /usr/bin/headgate
"#;

/// Builds the package in the clean root, after a release build there, and tests it in that root.
pub(crate) fn in_root(root: &Root, tally: &mut Tally) -> Result<()> {
    let place = root.dir.join("usr/local/bin/cargo-deb");
    fs::copy(tool()?, &place).map_err(|e| format!("{}: {e}", place.display()))?;
    let built = root.run("cd /headgate; PATH=$PATH:/usr/local/bin cargo xtask deb");
    let is_built = built.is_ok();
    tally.count("cargo xtask deb", built);
    if is_built {
        let package = package(&root.dir.join("headgate/target"))?;
        try_in_root(root, &package, tally)?;
    }
    Ok(())
}

/// Tests a finished package in a root without any of its build dependencies.
pub(crate) fn try_in_root(root: &Root, package: &Path, tally: &mut Tally) -> Result<()> {
    let failed = |e: std::io::Error| format!("{}: {e}", package.display());
    let place = root.dir.join("package");
    fs::create_dir_all(&place).map_err(failed)?;
    fs::copy(package, place.join("headgate.deb")).map_err(failed)?;
    tally.count("the package installs and serves", root.run(TRY));
    unit::in_root(root, tally);
    tally.count("the package goes", root.run(GONE));
    Ok(())
}
