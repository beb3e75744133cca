"""A real source tree: extracted onto the mount by tar, compared by tar, and compared again on the server's side."""

import os
import subprocess

import lab
from lab import check, must_hold, run


def job(top):
    archive = "/scratch/source-tree.tar.gz"
    check("untar/extract", run, "tar", "xzf", archive, "-C", top)
    forget()
    check("untar/compare", compare, archive, top)
    lab.leave("untar", lab.TOP, os.path.basename(top))


def forget():
    """What is compared comes from the server."""
    if not lab.CIFS:
        return lab.drop_caches()
    # For closetimeo (a second) after a close Linux keeps the open, and with it an inode that no drop of caches drops; its mtime
    # there is the time of the close (cifs_close), whatever was set before, until the deferred CLOSE is answered.
    lab.umount(lab.TOP)
    lab.mount(lab.TOP)


def compare(archive, top):
    """tar compares content, mode, owner and time of every entry; modes and owners are not kept by SMB's own means."""
    done = subprocess.run(("tar", "dzf", archive, "-C", top), capture_output=True, text=True, timeout=120)
    found = (done.stdout + done.stderr).splitlines()
    if lab.CIFS:
        found = [line for line in found if not line.endswith(("Mode differs", "Uid differs", "Gid"))]
    must_hold(found, [], "the two trees")
