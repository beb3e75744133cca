"""A real source tree: extracted onto the mount by tar, compared by tar, and compared again on the server's side."""

import os

import lab
from lab import check, must_equal, run


def job(top):
    archive = "/scratch/source-tree.tar.gz"
    check("untar/extract", run, "tar", "xzf", archive, "-C", top)
    lab.drop_caches()
    check("untar/compare", compare, archive, top)
    lab.leave("untar", lab.TOP, os.path.basename(top))


def compare(archive, top):
    """tar compares content, mode, owner and time of every entry."""
    must_equal(run("tar", "dzf", archive, "-C", top, timeout=120), "", "differences")
