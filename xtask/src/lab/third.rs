//! Programs of other projects: libnfs as a client, tshark as a decoder of the captured packets.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::gateway::{Demands, Gateway, Guests};
use super::net::{FIRST_GUEST, Net, host_address};
use crate::sh::{Result, Tally, output};

/// A capture, and the frames that tshark must find in it.
#[derive(Debug)]
pub(super) struct Expected {
    /// The device of the capture, and tcpdump's filter.
    pub(super) device: &'static str,
    pub(super) filter: &'static str,
    /// Least number of iWARP frames, which tshark reads only when each segment contains one; 0: not iWARP.
    pub(super) fpdus: usize,
    /// Filters, and the least number of frames for each.
    pub(super) present: &'static [(&'static str, usize)],
    /// tshark's filter for frames that the gateway must not send.
    pub(super) wrong: &'static str,
}

/// The first guest's tap, on the host's side.
const FIRST_TAP: &str = "tap0";

/// A reply whose data went by RDMA Write does not contain that data (RFC 8166 section 3.4.4); this tshark expects it there
/// nevertheless and calls the NFS part of the frame malformed.
pub(super) const NFS_RDMA: Expected = Expected {
    device: FIRST_TAP,
    filter: "tcp port 20049",
    fpdus: 500,
    present: &[("rpcordma.msg_type == 0", 200), ("rpcordma.writes_count > 0", 5), ("nfs", 200)],
    wrong: "(_ws.malformed && !(rpcordma.writes_count > 0)) || iwarp_mpa.bad_length \
            || iwarp_mpa.res.not_set0 || rpcordma.fragment.error || rpcordma.errcode",
};

pub(super) const SMB_DIRECT: Expected = Expected {
    device: FIRST_TAP,
    filter: "tcp port 5445",
    fpdus: 300,
    present: &[
        ("smb_direct.negotiate_response", 1),
        ("smb_direct.data_message", 200),
        ("smb2", 200),
        ("iwarp_rdma.opcode == 0", 20),
        ("iwarp_rdma.opcode == 1", 5),
    ],
    // tshark decodes the token of an answer to NEGOTIATE (MS-SPNG section 2.2.1) correctly only over TCP.
    wrong: "(_ws.malformed && !(smb2.cmd == 0)) || iwarp_mpa.bad_length || iwarp_mpa.res.not_set0 \
            || smb_direct.fragment.error || smb_direct.fragment.overlap",
};

pub(super) const SMB_TCP: Expected = Expected {
    device: FIRST_TAP,
    filter: "tcp port 445",
    fpdus: 0,
    present: &[("smb2", 400), ("smb2.cmd == 8", 8), ("smb2.cmd == 9", 8)],
    wrong: "_ws.malformed",
};

/// A running capture.
#[derive(Debug)]
pub(super) struct Capture {
    expected: &'static Expected,
    tcpdump: Child,
    file: PathBuf,
    log: PathBuf,
}

impl Capture {
    /// Starts it and waits until it listens.
    pub(super) fn start(net: &Net, dir: &Path, expected: &'static Expected) -> Result<Capture> {
        let (file, log) = (dir.join("capture.pcap"), dir.join("tcpdump.log"));
        let out = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let tcpdump = net
            .command("tcpdump")
            .args(["-i", expected.device, "-s", "0", "-B", "65536", "-U", "-Z", "root", "-w"])
            .arg(&file)
            .arg(expected.filter)
            .stdout(Stdio::null())
            .stderr(out)
            .spawn()
            .map_err(|e| format!("cannot start tcpdump: {e}"))?;
        let capture = Capture { expected, tcpdump, file, log };
        let end = Instant::now() + Duration::from_secs(60);
        while !capture.said("listening on") {
            if Instant::now() > end {
                return Err("tcpdump does not listen".into());
            }
            sleep(Duration::from_millis(20));
        }
        Ok(capture)
    }

    fn said(&self, words: &str) -> bool {
        fs::read_to_string(&self.log).is_ok_and(|text| text.contains(words))
    }

    /// Ends it and checks its contents with tshark. Returns the file that tshark read.
    pub(super) fn judge(mut self, label: &str, tally: &mut Tally) -> Result<PathBuf> {
        output(&["kill", "-INT", &self.tcpdump.id().to_string()])?;
        self.tcpdump.wait().map_err(|e| format!("tcpdump: {e}"))?;
        let all_seen = self.said("\n0 packets dropped by kernel");
        let dropped = || "tcpdump missed packets: the capture proves nothing".to_owned();
        tally.count(&format!("{label}/captured"), all_seen.then_some(()).ok_or_else(dropped));
        let mut file = self.file.display().to_string();
        if self.expected.fpdus > 0 {
            let cut = format!("{file}.cut");
            output(&["python3", "tests/lab/one-fpdu-per-packet.py", &file, &cut])?;
            file = cut;
        }
        for &(filter, least) in self.expected.present {
            let n = decode(&file, filter)?.lines().count();
            let enough =
                if n >= least { Ok(()) } else { Err(format!("{n} frames, {least} wanted")) };
            tally.count(&format!("{label}/tshark {filter}"), enough);
        }
        let wrong = decode(&file, self.expected.wrong)?;
        let clean = if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.lines().take(5).collect::<Vec<_>>().join("\n"))
        };
        tally.count(&format!("{label}/tshark nothing malformed"), clean);
        if self.expected.fpdus > 0 {
            tally.count(&format!("{label}/tshark CRC"), crcs_are_good(&file, self.expected.fpdus));
        }
        Ok(file.into())
    }
}

/// Another dissector is registered for port 5445, so tshark recognizes iWARP by its content.
const BY_CONTENT: &str = "tcp.try_heuristic_first:TRUE";

fn decode(file: &str, filter: &str) -> Result<String> {
    output(&["tshark", "-o", BY_CONTENT, "-r", file, "-Y", filter])
}

/// Checks the result that tshark prints after every CRC.
fn crcs_are_good(file: &str, least: usize) -> Result<()> {
    let text = output(&[
        "tshark",
        "-o",
        BY_CONTENT,
        "-r",
        file,
        "-Y",
        "iwarp_mpa.fpdu",
        "-O",
        "iwarp_mpa",
    ])?;
    let with =
        |words: &str| text.lines().filter(|l| l.contains("CRC") && l.contains(words)).count();
    match (with("Good CRC32"), with("Bad CRC32")) {
        (good, 0) if good >= least => Ok(()),
        (good, bad) => Err(format!("{good} good, {bad} bad")),
    }
}

/// Runs libnfs: lists, copies both ways, and compares.
pub(super) fn libnfs(net: &Net, dir: &Path) -> Result<Tally> {
    let mut tally = Tally::default();
    let gateway = Gateway::start(net, dir, &FIRST_GUEST, Guests::Nfs, Demands::default())?;
    let share = gateway.share();
    let url = |path: &str| {
        format!("nfs://{}/data{path}?version=3&nfsport=2049&mountport=2049", host_address(0))
    };
    let nfs = |words: &[&str]| {
        let inside = [&["timeout", "60", "ip", "netns", "exec", &net.name], words].concat();
        output(&inside)
    };
    let listed = nfs(&["nfs-ls", "-R", &url("/")]);
    let all_there = listed.and_then(|text| {
        let missing =
            names(&share.join("made-by-host"))?.into_iter().find(|n| !text.contains(n.as_str()));
        missing.map_or(Ok(()), |n| Err(format!("{n} is not listed")))
    });
    tally.count("libnfs/list", all_there);
    for name in names(&share.join("made-by-host"))? {
        let local = dir.join("fetched");
        let fetched =
            nfs(&["nfs-cp", &url(&format!("/made-by-host/{name}")), &local.display().to_string()]);
        let same = fetched.and_then(|_| equal(&local, &share.join("made-by-host").join(&name)));
        tally.count(&format!("libnfs/read-{name}"), same);
        let stored =
            nfs(&["nfs-cp", &local.display().to_string(), &url(&format!("/stored-{name}"))]);
        let same = stored.and_then(|_| equal(&local, &share.join(format!("stored-{name}"))));
        tally.count(&format!("libnfs/write-{name}"), same);
        let _ = fs::remove_file(&local);
    }
    let cat = nfs(&["nfs-cat", &url("/made-by-host/size-1")]);
    tally.count("libnfs/cat", cat.map(drop));
    Ok(tally)
}

pub(super) fn names(folder: &Path) -> Result<Vec<String>> {
    let listing = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> =
        listing.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn equal(a: &Path, b: &Path) -> Result<()> {
    let read = |p: &Path| fs::read(p).map_err(|e| format!("{}: {e}", p.display()));
    if read(a)? == read(b)? { Ok(()) } else { Err("content differs".into()) }
}
