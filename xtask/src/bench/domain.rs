//! Measures a gateway beside Samba's smbd as members of one domain: tests/third/domain_bench.py makes the domain and drives both.

use std::fmt::Write as _;

use super::{DOMAIN_PART, table_of_the_machine};
use crate::lab::smbprograms;
use crate::packages;
use crate::sh::{Result, output, run, target_dir};
use crate::tiers::domain_controller;

const HEAD: &str = "| load | smbd | headgate | ratio | CPU s of 1,000: smbd | headgate | ratio | of winbindd and \
                    controller: by smbd | by headgate |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";

/// Measures, and returns the part of the document.
pub(super) fn measure() -> Result<String> {
    packages::install(&["bench", "smbtorture"])?;
    let controller = domain_controller()?;
    run(&["cargo", "build", "--release", "--locked", "-p", "client", "--example", "members"])?;
    let client = target_dir().join("release/examples/members");
    let said = smbprograms::domain_bench(&controller, &client)?;
    let version = output(&["dpkg-query", "-W", "-f", "${Version}", "samba-libs"])?;
    let mut text = format!(
        "{DOMAIN_PART}\nWritten by `cargo xtask bench domain`. Samba's controller, one winbindd, and smbd and the gateway as \
         the same member; both serve\none folder of the disk, and this project's client loads them in turns, the median of \
         5 rounds. Logons are connections with NTLM\nversion 2 of one user of the domain, four at once. Descriptors are those \
         of 10,000 files of 500 owners, each with an open, a query\nand a close, 16 at once, after a listing. CPU seconds are \
         for a thousand operations.\n\n{}\n{HEAD}",
        table_of_the_machine(&format!("Samba {version}, smbd, winbindd and controller"))?
    );
    let mut rows = 0;
    for line in said.lines().filter_map(|line| line.strip_prefix("figure ")) {
        let Some((name, figures)) = line.split_once(" | ") else { continue };
        let numbers: Vec<f64> = figures.split(' ').flat_map(str::parse).collect();
        let [smbd, smbd_cpu, by_smbd, ours, our_cpu, by_us] = numbers[..] else {
            return Err(format!("domain_bench.py: {line}"));
        };
        rows += 1;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {name} | {smbd:.0}/s | {ours:.0}/s | **{:.2}** | {smbd_cpu:.2} | {our_cpu:.2} | **{:.2}** | {by_smbd:.2} | \
             {by_us:.2} |",
            ours / smbd,
            our_cpu / smbd_cpu
        );
    }
    if rows == 0 {
        return Err(format!("domain_bench.py measured nothing: {said}"));
    }
    Ok(text)
}
