//! Writes the seeds of the fuzz targets as files: `fuzz-seeds DIR` makes `DIR/TARGET/seed-N`.

use std::path::PathBuf;
use std::{env, fs, io};

use headgate_tests::fuzz::{TARGETS, seeds};

fn main() -> io::Result<()> {
    let dir = PathBuf::from(
        env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: fuzz-seeds DIR"))?,
    );
    for (target, _) in TARGETS {
        fs::create_dir_all(dir.join(target))?;
        for (n, seed) in seeds::of(target).into_iter().enumerate() {
            fs::write(dir.join(target).join(format!("seed-{n}")), seed)?;
        }
    }
    Ok(())
}
