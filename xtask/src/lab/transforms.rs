//! Checks separately signed or encrypted SMB Direct data with foreign programs: tshark decodes the packets, and a program with
//! another library checks signatures and ciphertexts (tests/third/transforms.py).

use std::fs;
use std::path::{Path, PathBuf};

use super::net::Net;
use super::third::{Capture, Expected};
use crate::programs::example;
use crate::sh::{Result, Tally, output, target_dir};

/// Negotiate contexts of both sides contain transforms (MS-SMB2 sections 2.2.3.1.6 and 2.2.4.1.6).
const OFFERED: [(&str, usize); 3] = [
    ("smb2.negotiate_context.type == 7", 2),
    ("smb2.negotiate_context.rdma_transform_id == 1", 2),
    ("smb2.negotiate_context.rdma_transform_id == 2", 2),
];
const WRONG: &str = "(_ws.malformed && !(smb2.cmd == 0)) || iwarp_mpa.bad_length || iwarp_mpa.res.not_set0 \
                     || smb_direct.fragment.error || smb_direct.fragment.overlap";

/// Each connection writes and reads three files by RDMA.
const CLEAR: Expected = Expected {
    device: "lo",
    filter: "tcp",
    fpdus: 40,
    present: &[
        OFFERED[0],
        OFFERED[1],
        OFFERED[2],
        ("smb2.cmd == 9 && smb2.channel == 2 && smb2.flags.response == 0", 3),
        ("smb2.cmd == 8 && smb2.channel == 2 && smb2.flags.response == 0", 3),
    ],
    wrong: WRONG,
};

const SIGNED: Expected = Expected {
    present: &[
        OFFERED[0],
        OFFERED[1],
        OFFERED[2],
        ("smb2.cmd == 9 && smb2.channel == 3 && smb2.flags.signature == 1", 3),
        ("smb2.cmd == 8 && smb2.channel == 2 && smb2.flags.signature == 1", 3),
        ("iwarp_rdma.opcode == 0", 3),
        ("iwarp_rdma.opcode == 1", 3),
    ],
    ..CLEAR
};

const SEALED: Expected = Expected {
    present: &[
        OFFERED[0],
        OFFERED[1],
        OFFERED[2],
        ("smb2.header.transform.signature", 20),
        ("iwarp_rdma.opcode == 0", 3),
        ("iwarp_rdma.opcode == 1", 3),
    ],
    ..CLEAR
};

/// Bytes that every file repeats, and the user's password.
const MARKER: &str = "placed-by-headgate-";
const PASSWORD: &str = "correct horse";

/// A mode of the example `transcript`, and the expected contents of its capture.
struct Way<'a> {
    name: &'a str,
    expected: &'static Expected,
    is_encrypted: bool,
}

impl<'a> Way<'a> {
    fn of(name: &'a str) -> Result<Self> {
        let (expected, is_encrypted) = match name {
            "clear" => (&CLEAR, false),
            "aes-gmac" | "aes-cmac" | "hmac-sha256" | "signed-by-four" => (&SIGNED, false),
            _ if name.ends_with("cm") || name == "sealed-by-four" => (&SEALED, true),
            _ => return Err(format!("the example has a way {name} that nobody expects")),
        };
        Ok(Self { name, expected, is_encrypted })
    }
}

/// Runs every mode, each with a separate capture.
pub(super) fn all(net: &Net) -> Result<Tally> {
    let program = example("transcript")?.display().to_string();
    let ways = output(&[&program, "--ways"])?;
    let dir = target_dir().join(format!("lab/transforms-{}", std::process::id()));
    let mut tally = Tally::default();
    for name in ways.lines() {
        one(net, &program, &dir.join(name), &Way::of(name)?, &mut tally)?;
    }
    if tally.failures.is_empty() {
        // The folder of a failed mode is kept for examination.
        let _ = fs::remove_dir_all(dir);
    }
    Ok(tally)
}

fn one(net: &Net, program: &str, dir: &Path, way: &Way<'_>, tally: &mut Tally) -> Result<()> {
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let label = format!("transforms/{}", way.name);
    let file = dir.join("transcript");
    let capture = Capture::start(net, dir, way.expected)?;
    net.output(&[program, &file.display().to_string(), way.name])?;
    let cut = capture.judge(&label, tally)?;
    let wire = fs::read(&cut).map_err(|e| format!("{}: {e}", cut.display()))?;
    let in_clear = wire.windows(MARKER.len()).any(|bytes| bytes == MARKER.as_bytes());
    let as_expected = match (in_clear, way.is_encrypted) {
        (true, true) => Err("data is on the wire in clear".to_owned()),
        (false, false) => Err("data that is not encrypted was not found".to_owned()),
        _ => Ok(()),
    };
    tally.count(&format!("{label}/what the wire shows"), as_expected);
    if way.name == "clear" {
        return Ok(());
    }
    tally.count(&format!("{label}/another library agrees"), judged(&file).map(drop));
    for what in ["sent", "received", "lent", "taken-back"] {
        let noticed = spoilt(&file, what).and_then(|bad| match judged(&bad) {
            Ok(_) => Err("a wrong byte was not noticed".into()),
            Err(_) => Ok(()),
        });
        tally.count(&format!("{label}/a wrong byte in what was {what}"), noticed);
    }
    Ok(())
}

fn judged(transcript: &Path) -> Result<String> {
    let file = transcript.display().to_string();
    output(&["python3", "tests/third/transforms.py", &file, PASSWORD, MARKER])
}

/// Changes the last digit of the last line of this kind that contains more than a header of SMB Direct.
fn spoilt(transcript: &Path, what: &str) -> Result<PathBuf> {
    /// Digits of 24 bytes and of some payload.
    const LEAST: usize = 128;
    let read = fs::read_to_string(transcript);
    let text = read.map_err(|e| format!("{}: {e}", transcript.display()))?;
    let is_one = |line: &&str| {
        let words: Vec<&str> = line.split(' ').collect();
        words.get(1) == Some(&what) && words.last().is_some_and(|digits| digits.len() > LEAST)
    };
    let last = text.lines().rfind(is_one).ok_or_else(|| format!("nothing was {what}"))?;
    let (most, digit) = last.split_at(last.len() - 1);
    let other = format!("{most}{}", if digit == "0" { "1" } else { "0" });
    let bad = transcript.with_extension(what);
    fs::write(&bad, text.replace(last, &other)).map_err(|e| format!("{}: {e}", bad.display()))?;
    Ok(bad)
}
