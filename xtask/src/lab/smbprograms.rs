//! Other people's clients of SMB, each by its own program or library, on the gateway and on smbd: tests/third/smb_programs.py
//! drives them, in a network namespace where each server has port 445. What they are is fetched once, below `target`.

use std::fs;
use std::path::{Path, PathBuf};

use super::gateway;
use crate::sh::{Result, Tally, command, output, target_dir};
use crate::{packages, trixie};

/// Unpacked, not installed: their services are not wanted here.
const DEBIAN: [&str; 9] = [
    "rclone",
    "gvfs",
    "gvfs-daemons",
    "gvfs-backends",
    "gvfs-libs",
    "libsecret-1-0",
    "libgcr-base-3-1",
    "libgck-1-0",
    "gsettings-desktop-schemas",
];
/// Libraries that only the next Debian has, which bring their C library.
const TRIXIE: [&str; 2] = ["libsmb2-6", "libnfs14"];
/// Python clients and all that they import, as the registry has them.
const MODULES: [&str; 26] = [
    "smbprotocol==1.17.0",
    "pyspnego==0.12.4",
    "cryptography==50.0.2",
    "cffi==2.1.1",
    "pycparser==3.12",
    "pysmb==1.2.15",
    "pyasn1==0.6.5",
    "tqdm==4.70.1",
    "impacket==0.13.1",
    "pyasn1_modules==0.4.2",
    "pycryptodomex==3.24.2",
    "six==1.17.0",
    "pyNfsClient==0.1.5",
    "nfs4fs==0.3.11",
    "fsspec==2026.9.0",
    "vfsi-fsspec==0.1.10",
    "anfs==0.0.3",
    "asyauth==0.0.23",
    "asysocks==0.2.18",
    "asn1crypto==1.5.1",
    "unicrypto==0.0.12",
    "minikerberos==0.4.9",
    "h11==0.16.0",
    "colorama==0.4.6",
    "wcwidth==0.9.4",
    "prompt_toolkit==3.0.53",
];
const NODE: &str = "v9u-smb2@1.0.6";
/// Programs around crates, which have nothing to do with the workspace.
const CRATES: &str = "tests/third/crates";
/// Where the table of what came of it is.
const TABLE: &str = "docs/compatibility.md";

/// Runs all programs, and compares the table of their results with the documented one.
pub(crate) fn all() -> Result<Tally> {
    gateway::build()?;
    packages::install(&["third"])?;
    let root = prepare()?;
    let smbd = packages::unpack("samba", &target_dir().join("samba"), "usr/sbin/smbd")?;
    let said = alone(&root, "smb_programs.py", "work", &[&smbd])?;
    let mut tally = super::nfsprograms::read(&said)?;
    tally.count("smb-programs/table", documented("smb-programs", &said));
    Ok(tally)
}

/// Exchanges compressed messages with another implementation.
pub(crate) fn compression() -> Result<Tally> {
    gateway::build()?;
    let root = prepare()?;
    super::nfsprograms::read(&alone(&root, "smb_compression.py", "compression", &[])?)
}

/// Compares links of Samba on smbd and on the gateway, which serve one folder.
pub(crate) fn msdfs_links() -> Result<Tally> {
    gateway::build()?;
    packages::install(&["third"])?;
    let root = target_dir().join("third-programs");
    modules(&root)?;
    let smbd = packages::unpack("samba", &target_dir().join("samba"), "usr/sbin/smbd")?;
    super::nfsprograms::read(&alone(&root, "msdfs_links.py", "msdfs", &[&smbd])?)
}

/// Compares a joined smbd with the gateway as members of one domain. `controller` is the folder with Samba's programs.
pub(crate) fn domain_members(controller: &Path) -> Result<Tally> {
    gateway::build()?;
    let root = target_dir().join("third-programs");
    let said = alone(&root, "domain_members.py", "members", &[controller])?;
    let mut tally = super::nfsprograms::read(&said)?;
    tally.count("domain-members/table", documented("domain-members", &said));
    Ok(tally)
}

/// Compares both where their domain and a second one trust each other.
pub(crate) fn domain_trust(controller: &Path) -> Result<Tally> {
    gateway::build()?;
    let root = target_dir().join("third-programs");
    super::nfsprograms::read(&alone(&root, "domain_trust.py", "trust", &[controller])?)
}

/// Asks a gateway that SSSD has joined to a domain. The folders have Samba's programs, and those of SSSD.
pub(crate) fn domain_sssd(controller: &Path, sssd: &Path) -> Result<Tally> {
    gateway::build()?;
    let root = target_dir().join("third-programs");
    super::nfsprograms::read(&alone(&root, "domain_sssd.py", "sssd", &[controller, sssd])?)
}

/// Measures both. `client` is the program that loads them. Returns what the script prints.
pub(crate) fn domain_bench(controller: &Path, client: &Path) -> Result<String> {
    let root = target_dir().join("third-programs");
    alone(&root, "domain_bench.py", "bench", &[controller, client])
}

/// Lets the library of winbind's clients fail in all ways.
pub(crate) fn winbind_faults() -> Result<Tally> {
    gateway::build()?;
    let root = target_dir().join("third-programs");
    super::nfsprograms::read(&alone(&root, "winbind_faults.py", "faults", &[])?)
}

/// Runs a script of tests/third in namespaces of its own, with the gateway's program, an empty folder of this name, and `more`.
fn alone(root: &Path, script: &str, folder: &str, more: &[&Path]) -> Result<String> {
    let work = root.join(folder);
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let program = gateway::program();
    let paths = [program.as_path(), &work].into_iter().chain(more.iter().copied());
    let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    let root = format!("THIRD_ROOT={}", root.display());
    let script = format!("tests/third/{script}");
    let alone = ["timeout", "900", "unshare", "-n", "-m", "-p", "-f", "--kill-child", "env"];
    let words: Vec<&str> = alone.into_iter().chain([&*root, "python3", &*script]).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    output(&[words, paths].concat())
}

/// Fetches and builds what is not there yet. Returns the folder that has it.
pub(crate) fn prepare() -> Result<PathBuf> {
    let root = target_dir().join("third-programs");
    let debian = root.join("debian");
    packages::unpack_all(&DEBIAN, &debian, "usr/bin/rclone")?;
    compile_schemas(&debian.join("usr/share/glib-2.0/schemas"))?;
    modules(&root)?;
    once(&root.join("node"), |dir| {
        packages::install_program("npm", &["nodejs", "npm"])?;
        output(&["npm", "install", "--silent", "--prefix", dir, NODE]).map(drop)
    })?;
    once(&root.join("trixie"), |dir| {
        let files = trixie::download(&root.join("apt"), &TRIXIE)?;
        files.iter().try_for_each(|file| output(&["dpkg-deb", "-x", file, dir]).map(drop))
    })?;
    build_crates(&root.join("bin"))?;
    Ok(root)
}

/// Fetches the modules of Python.
fn modules(root: &Path) -> Result<()> {
    once(&root.join("python"), |dir| {
        let pip = ["python3", "-m", "pip", "install", "--quiet", "--no-deps", "--target", dir];
        output(&[&pip[..], &MODULES].concat()).map(drop)
    })
}

/// Makes a folder, unless an earlier run has made all of it.
fn once(dir: &Path, make: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    if dir.exists() {
        return Ok(());
    }
    let part = dir.with_extension("part");
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(&part).map_err(|e| format!("{}: {e}", part.display()))?;
    make(&part.display().to_string())?;
    fs::rename(&part, dir).map_err(|e| format!("{}: {e}", dir.display()))
}

/// gvfs reads its settings of SMB from schemas that have been compiled.
fn compile_schemas(dir: &Path) -> Result<()> {
    if dir.join("gschemas.compiled").exists() {
        return Ok(());
    }
    let compiler =
        format!("/usr/lib/{}-linux-gnu/glib-2.0/glib-compile-schemas", std::env::consts::ARCH);
    output(&[&compiler, &dir.display().to_string()]).map(drop)
}

/// Builds the programs around crates, in a target folder of their own.
fn build_crates(bin: &Path) -> Result<()> {
    let target = target_dir().join("third-crates");
    let build = ["cargo", "build", "--quiet", "--locked", "--bins"];
    let done = command(&build).current_dir(CRATES).env("CARGO_TARGET_DIR", &target).output();
    let done = done.map_err(|e| format!("cargo: {e}"))?;
    if !done.status.success() {
        return Err(format!("{CRATES}: {}", String::from_utf8_lossy(&done.stderr)));
    }
    let _ = fs::remove_file(bin);
    std::os::unix::fs::symlink(target.join("debug"), bin)
        .map_err(|e| format!("{}: {e}", bin.display()))
}

/// Compares the rows that a script prints with the lines of docs/compatibility.md between the marks of this name, or writes them
/// there where `HEADGATE_WRITE_DOCS` is set.
pub(super) fn documented(name: &str, said: &str) -> Result<()> {
    let rows = said.lines().filter_map(|line| line.strip_prefix("row "));
    let rows: String = rows.map(|row| format!("{row}\n")).collect();
    let text = fs::read_to_string(TABLE).map_err(|e| format!("{TABLE}: {e}"))?;
    let (from, to) =
        between(&text, name).ok_or_else(|| format!("{TABLE} has no marks of {name}"))?;
    if text[from..to] == rows {
        return Ok(());
    }
    if std::env::var_os("HEADGATE_WRITE_DOCS").is_none() {
        return Err(format!(
            "{TABLE} has other rows; write these with HEADGATE_WRITE_DOCS=1:\n{rows}"
        ));
    }
    let text = [&text[..from], &rows, &text[to..]].concat();
    fs::write(TABLE, text).map_err(|e| format!("{TABLE}: {e}"))
}

/// Finds the rows of a table: from the line after its rule to the mark of its end.
fn between(text: &str, name: &str) -> Option<(usize, usize)> {
    let mark = format!("<!-- {name} -->\n");
    let begin = text.find(&mark)? + mark.len();
    let rule = begin + text[begin..].find("\n|---")? + 1;
    let from = rule + text[rule..].find('\n')? + 1;
    let end = from + text[from..].find(&format!("\n<!-- end of {name} -->"))?;
    Some((from, end))
}

#[cfg(test)]
mod tests {
    use super::between;

    #[test]
    fn rows_lie_between_rule_and_end() {
        let text =
            "a\n<!-- x -->\n| p | q |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n<!-- end of x -->\nb\n";
        let (from, to) = between(text, "x").unwrap();
        assert_eq!(&text[from..to], "| 1 | 2 |\n| 3 | 4 |\n");
        assert_eq!(between(text, "y"), None);
    }
}
