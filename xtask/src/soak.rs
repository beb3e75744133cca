//! `cargo xtask soak`: runs the gateway's test `soak` (gateway/tests/soak) with the release build and for a long time.

use crate::sh::{Outcome, Result, command};

const USAGE: &str = "usage: cargo xtask soak [--minutes N] [--seed N]";
const MINUTES: u64 = 30;

pub(crate) fn main(args: &[String]) -> Result<Outcome> {
    let (mut minutes, mut seed) = (MINUTES, 1);
    for pair in args.chunks(2) {
        let number = || pair.get(1).and_then(|v| v.parse::<u64>().ok()).ok_or(USAGE);
        match pair[0].as_str() {
            "--minutes" => minutes = number()?,
            "--seed" => seed = number()?,
            _ => return Err(USAGE.into()),
        }
    }
    let words = [
        "cargo",
        "test",
        "--release",
        "--package",
        "gateway",
        "--test",
        "soak",
        "--",
        "--nocapture",
    ];
    let status = command(&words)
        .env("HEADGATE_SOAK_SECONDS", (60 * minutes).to_string())
        .env("HEADGATE_SOAK_SEED", seed.to_string())
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed })
}
