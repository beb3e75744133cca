//! `cargo xtask clean-root`: runs the README's two commands in a Debian root that has only a Rust toolchain.
//!
//! Each run makes a new root. It contains the toolchain of this machine, read-only; crates are downloaded as on a new machine. The
//! sources are the tracked files as in an archive, without git. The command needs root, the Debian mirror, and the time of two full
//! builds, so `cargo xtask test` does not include it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::sh::{Outcome, Result, Tally, command, output, run, target_dir, tracked_files};
use crate::{deb, packages};

/// Packages that a Rust toolchain needs: a linker and the C library, and certificates to download crates.
const WITH_THE_TOOLCHAIN: &str = "gcc,libc6-dev,ca-certificates";
const SUITE: &str = "bookworm";

/// Isolates a shell of this root from the machine: it has separate mounts and processes; the network is shared.
const ENTER: &str = r#"
set -e
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /sys "$ROOT/sys"
mount --rbind /dev "$ROOT/dev"
mkdir -p "$ROOT/opt/rust"
mount --bind "$TOOLCHAIN" "$ROOT/opt/rust"
mount -o remount,bind,ro "$ROOT/opt/rust"
# What this machine's network takes: its name servers, and whom it trusts.
cp -L /etc/resolv.conf "$ROOT/etc/resolv.conf"
cp -L /etc/ssl/certs/ca-certificates.crt "$ROOT/etc/ssl/certs/ca-certificates.crt"
# The root of this namespace, not of the process alone: in a chroot nobody may make a user namespace, as containers do.
cd "$ROOT"
mount --move "$ROOT" /
exec chroot . /usr/bin/env -i HOME=/tmp PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -ec "$WORDS"
"#;

/// The options of the command line.
#[derive(Debug, Default)]
struct Asked {
    full: bool,
    keep: bool,
    package: Option<PathBuf>,
}

impl Asked {
    fn parse(args: &[String]) -> Result<Self> {
        let mut asked = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--full" => asked.full = true,
                "--keep" => asked.keep = true,
                "--package" => {
                    asked.package = Some(args.next().ok_or("--package needs a file")?.into());
                }
                _ => {
                    let there_are = "there are --full, --keep and --package FILE";
                    return Err(format!("unknown option {arg}; {there_are}"));
                }
            }
        }
        Ok(asked)
    }
}

/// `cargo xtask clean-root [--full] [--keep] [--package FILE]`.
pub(crate) fn main(args: &[String]) -> Result<Outcome> {
    let asked = Asked::parse(args)?;
    packages::install(&["clean-root"])?;
    let root = Root::make()?;
    let mut tally = Tally::default();
    match &asked.package {
        Some(package) => deb::try_in_root(&root, package, &mut tally)?,
        None => whole(&root, asked.full, &mut tally)?,
    }
    if asked.keep {
        println!("   {} stays", root.dir.display());
    } else {
        root.remove();
    }
    Ok(tally.report(Some("clean-root")))
}

/// Runs the README's commands, and builds the package there.
fn whole(root: &Root, full: bool, tally: &mut Tally) -> Result<()> {
    let readme = fs::read_to_string("README.md").map_err(|e| format!("README.md: {e}"))?;
    let [demo, mut test] = readme_commands(&readme)?;
    if !full {
        test.push_str(" --tier style --tier unit --tier e2e");
    }
    for words in [demo, test] {
        let began = Instant::now();
        tally.count(&words, root.run(&format!("cd /headgate; {words}")));
        println!("   `{words}` took {:.0} s", began.elapsed().as_secs_f64());
    }
    deb::in_root(root, tally)
}

/// A root file system.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) dir: PathBuf,
    toolchain: String,
}

impl Root {
    fn make() -> Result<Root> {
        let dir = target_dir().join("clean-root");
        let shown = dir.display().to_string();
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(|e| format!("{shown}: {e}"))?;
        }
        fs::create_dir_all(&dir).map_err(|e| format!("{shown}: {e}"))?;
        let include = format!("--include={WITH_THE_TOOLCHAIN}");
        run(&["mmdebstrap", "--quiet", "--variant=apt", &include, SUITE, &shown])?;
        copy_sources(&dir.join("headgate"))?;
        let toolchain = output(&["rustc", "--print", "sysroot"])?.trim().to_owned();
        Ok(Root { dir, toolchain })
    }

    /// Runs a shell command in it and shows its output.
    pub(crate) fn run(&self, words: &str) -> Result<()> {
        let mut unshare = command(&["unshare", "--mount", "--pid", "--fork", "--kill-child"]);
        unshare.args(["sh", "-c", ENTER]).env("WORDS", words);
        unshare.env("ROOT", &self.dir).env("TOOLCHAIN", &self.toolchain);
        let status = unshare.status().map_err(|e| format!("unshare: {e}"))?;
        if status.success() { Ok(()) } else { Err(status.to_string()) }
    }

    fn remove(&self) {
        if let Err(e) = fs::remove_dir_all(&self.dir) {
            println!("   {} stays: {e}", self.dir.display());
        }
    }
}

/// Copies the tracked files, as if an archive of them was unpacked.
fn copy_sources(to: &Path) -> Result<()> {
    for file in tracked_files()? {
        let place = to.join(&file);
        let failed = |e| format!("{}: {e}", place.display());
        fs::create_dir_all(place.parent().unwrap_or(to)).map_err(failed)?;
        fs::copy(&file, &place).map_err(failed)?;
    }
    Ok(())
}

/// Returns the two commands of the README's section "Try it", as written there.
fn readme_commands(readme: &str) -> Result<[String; 2]> {
    let section = readme.split("\n## ").find(|s| s.starts_with("Try it\n"));
    let fenced = section.unwrap_or_default().split("```").skip(1).step_by(2);
    let commands: Vec<String> = fenced.map(|block| block.trim().to_owned()).collect();
    commands.try_into().map_err(|c: Vec<String>| {
        format!("the README's section `Try it` shows {} commands and should show two", c.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_checked() {
        let parse = |words: &[&str]| {
            Asked::parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
        };
        assert!(parse(&["--packages"]).is_err());
        assert!(parse(&["--package"]).is_err());
        let asked = parse(&["--keep", "--package", "x.deb"]).unwrap();
        assert_eq!((asked.keep, asked.full, asked.package), (true, false, Some("x.deb".into())));
    }

    #[test]
    fn two_commands_read_from_readme() {
        let readme = fs::read_to_string(crate::sh::workspace().join("README.md")).unwrap();
        let expected = ["cargo run --release -- demo", "cargo xtask test"];
        assert_eq!(readme_commands(&readme).unwrap(), expected);
        assert!(readme_commands("# X\n\n## Try it\n\n```\none\n```\n\n## Else\n").is_err());
    }
}
