//! `pjdfstest`, a suite of system calls on files, by the kernel's clients.

use std::path::PathBuf;

use crate::sh::{Result, run, target_dir};

/// The job that runs it.
pub(super) const JOB: &str = "pjdfstest";
const VERSION: &str = "0.2.2";

/// Returns the program, built once below the target folder.
pub(super) fn pjdfstest() -> Result<PathBuf> {
    let root = target_dir().join("tools");
    let program = root.join("bin").join(JOB);
    if !program.exists() {
        let root = root.display().to_string();
        run(&[
            "cargo",
            "install",
            "--quiet",
            "--locked",
            "--root",
            &root,
            "--version",
            VERSION,
            JOB,
        ])?;
    }
    Ok(program)
}
