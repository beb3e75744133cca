"""What a mount by TLS says when something is wrong, as docs/tls.md tells it: the first share wants certificates of its clients."""

import os
import signal
import subprocess

import lab
import servers
from lab import check, must, run

AT = "/mnt/tls"
CONF = "/scratch/tls/tlshd.conf"
ELSEWHERE = "10.77.1.1"


def said(xprtsec, server=lab.SERVER, path="/data"):
    """What a mount says that has to fail."""
    os.makedirs(AT, exist_ok=True)
    extra = f"xprtsec={xprtsec}" if xprtsec else ""
    command = lab.mount_command(AT, path, server=server, extra=extra)
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    if done.returncode == 0:
        lab.umount(AT)
    must(done.returncode != 0, "it was mounted")
    return done.stderr.strip()


def tlshd_ends():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = lab.pread_all(f"/proc/{pid}/cmdline")
        except OSError:
            continue
        if b"sbin/tlshd\0" in words:
            os.kill(int(pid), signal.SIGKILL)
    lab.wait_until(lambda: not servers.hears_the_kernel(), "tlshd ends", 20)


def with_tlshd(truststore="ca.crt", name="client"):
    """tlshd that trusts this authority and has this certificate."""
    tlshd_ends()
    at = "/scratch/tls"
    with open(CONF, "w") as f:
        f.write(f"[authenticate.client]\nx509.truststore = {at}/{truststore}\n"
                f"x509.certificate = {at}/{name}.crt\nx509.private_key = {at}/{name}.key\n")
    servers.handshakes()


def told(message, part):
    must(part in message, f"it said `{message}`, not `{part}`")


def tlshd_said(part):
    told(lab.pread_all("/tmp/tlshd.log").decode(), part)


def without_tlshd():
    tlshd_ends()
    told(said("mtls"), "No such process")


def another_authority():
    with_tlshd(truststore="other.crt")
    told(said("mtls"), "access denied by server")
    tlshd_said("unhandled error -43")


def another_name():
    with_tlshd()
    told(said("mtls", server=ELSEWHERE), "access denied by server")
    tlshd_said("unhandled error -43")


def a_certificate_of_another_authority():
    with_tlshd(name="stranger")
    told(said("mtls"), "access denied by server")
    # With TLS 1.3 the client has finished when the server looks at its certificate: tlshd hears of the refusal, or does not.
    log = lab.pread_all("/tmp/tlshd.log").decode()
    must("Handshake with" in log or "setsockopt(TLS_ULP)" in log, f"it said `{log}`")


def no_certificate():
    with_tlshd()
    told(said("tls"), "Operation not permitted")


def no_tls():
    told(said(""), "Operation not permitted")


def job(top):
    run("ip", "addr", "add", "10.77.1.2/24", "dev", "vec1")
    run("ip", "link", "set", "vec1", "up")
    # A mount of the same share beside it would go by its connection.
    lab.umount(lab.TOP)
    for call in (no_tls, no_certificate, another_name, another_authority, a_certificate_of_another_authority, without_tlshd):
        check(f"tlsfaults/{call.__name__.replace('_', '-')}", call)
    with_tlshd()
    lab.mount(lab.TOP)
