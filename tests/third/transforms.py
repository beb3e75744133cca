#!/usr/bin/env python3
"""Checks a transcript of SMB Direct with a library that is not ours: `transforms.py TRANSCRIPT PASSWORD MARKER`.

The transcript is what a client saw, `tests/examples/transcript.rs` writes it: `CONNECTION sent|received HEX`, and
`CONNECTION lent|taken-back TOKEN OFFSET HEX` for memory. From these bytes and the password this program derives the session's keys
(MS-NLMP, MS-SMB2 section 3.1.4.2), and with them it checks the signature or ciphertext of every message and of all data that went
by RDMA (MS-SMB2 sections 3.1.4.1, 3.1.4.3, 2.2.43). Decrypted data is encrypted again: the ciphertext must be the same. No nonce
may come twice under one key, but where the protocol itself wants that: requests that bind a connection are signed with the
session's key, and each connection counts its messages from 0. What was moved must be MARKER, over and over, from the offset in the
file on."""

import hashlib
import hmac
import struct
import sys

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC

NEGOTIATE, SESSION_SETUP, CANCEL, READ, WRITE = 0, 1, 12, 8, 9
SIGNED = 8
BINDING = 1
MORE_PROCESSING_REQUIRED = 0xC0000016
HMAC_SHA256, AES_CMAC, AES_GMAC = 0, 1, 2
CIPHERS = {1: (AESCCM, 16, 11), 2: (AESGCM, 16, 12), 3: (AESCCM, 32, 11), 4: (AESGCM, 32, 12)}
ENCRYPTION, SIGNING = 1, 2


class Wrong(Exception):
    """Something is not as the specification has it."""


def need(is_so, what):
    if not is_so:
        raise Wrong(what)


def u16(data, at):
    return struct.unpack_from("<H", data, at)[0]


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def md4(data):
    """RFC 1320; libraries leave it out."""
    mask = 0xFFFFFFFF
    a, b, c, d = 0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476
    bits = len(data) * 8
    data += b"\x80" + b"\0" * ((55 - len(data)) % 64) + struct.pack("<Q", bits)
    orders = [
        list(range(16)),
        [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15],
        [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15],
    ]
    rounds = [
        (lambda x, y, z: (x & y) | (~x & z), 0, (3, 7, 11, 19)),
        (lambda x, y, z: (x & y) | (x & z) | (y & z), 0x5A827999, (3, 5, 9, 13)),
        (lambda x, y, z: x ^ y ^ z, 0x6ED9EBA1, (3, 9, 11, 15)),
    ]
    for at in range(0, len(data), 64):
        words = struct.unpack_from("<16I", data, at)
        before = (a, b, c, d)
        for order, (mix, add, shifts) in zip(orders, rounds):
            for i, k in enumerate(order):
                t = (a + (mix(b, c, d) & mask) + words[k] + add) & mask
                s = shifts[i % 4]
                a, b, c, d = d, ((t << s) | (t >> (32 - s))) & mask, b, c
        a, b, c, d = ((x + y) & mask for x, y in zip((a, b, c, d), before))
    return struct.pack("<4I", a, b, c, d)


def rc4(key, data):
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def hmac_md5(key, data):
    return hmac.new(key, data, hashlib.md5).digest()


def session_key(password, challenge, authenticate):
    """NTLMv2's ExportedSessionKey (MS-NLMP sections 3.1.5.1.2 and 3.3.2)."""

    def field(at):
        length, offset = u16(authenticate, at), u32(authenticate, at + 4)
        return authenticate[offset : offset + length]

    response, domain, user, encrypted = field(20), field(28), field(36), field(52)
    need(u32(authenticate, 60) & 0x40000000, "NTLMSSP_NEGOTIATE_KEY_EXCH")
    name = user.decode("utf-16-le").upper().encode("utf-16-le") + domain
    key = hmac_md5(md4(password.encode("utf-16-le")), name)
    proof = hmac_md5(key, challenge[24:32] + response[16:])
    need(proof == response[:16], "NTProofStr: the password is another one, or the logon was changed")
    return rc4(hmac_md5(key, proof), encrypted)


def kdf(key, label, context, length):
    """NIST SP 800-108 in counter mode with HMAC-SHA256: one block is enough."""
    data = struct.pack(">I", 1) + label + b"\0" + context + struct.pack(">I", length * 8)
    return hmac.new(key, data, hashlib.sha256).digest()[:length]


class Nonces:
    """Those that a key has seen."""

    def __init__(self):
        self.seen = set()

    def use(self, key, nonce):
        need((key, nonce) not in self.seen, f"nonce {nonce.hex()} came twice")
        self.seen.add((key, nonce))


class Session:
    """What its connections share."""

    def __init__(self, password, marker):
        self.password, self.marker = password, marker
        self.nonces = Nonces()
        self.signing = None  # algorithm and key of the connection that made the session
        self.counts = {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def keys(self, key, preauth, cipher):
        if cipher:
            length = CIPHERS[cipher][1]
            self.cipher = cipher
            self.from_client = kdf(key, b"SMBC2SCipherKey\0", preauth, length)
            self.from_server = kdf(key, b"SMBS2CCipherKey\0", preauth, length)

    def open(self, from_server, nonce, aad, data, tag):
        """Decrypts, and compares with what encrypting gives."""
        make, _, nonce_len = CIPHERS[self.cipher]
        need(not any(nonce[nonce_len:]), "a nonce is longer than its cipher's")
        nonce = nonce[:nonce_len]
        key = self.from_server if from_server else self.from_client
        self.nonces.use(key, nonce)
        aead = make(key)
        try:
            plain = aead.decrypt(nonce, data + tag, aad)
        except InvalidTag:
            raise Wrong("a tag is not that of its ciphertext") from None
        need(aead.encrypt(nonce, plain, aad) == data + tag, "another ciphertext")
        return plain

    def mac(self, signing, nonce, data, binds=False):
        algorithm, key = signing
        if algorithm == HMAC_SHA256:
            return hmac.new(key, data, hashlib.sha256).digest()[:16]
        if algorithm == AES_CMAC:
            made = CMAC(AES(key))
            made.update(data)
            return made.finalize()
        if not binds:
            self.nonces.use(key, nonce)
        return AESGCM(key).encrypt(nonce, b"", data)


class Connection:
    """One connection of a session, fed with the lines of a transcript."""

    def __init__(self, session):
        self.session = session
        self.first = {"sent": True, "received": True}
        self.held = {"sent": b"", "received": b""}
        self.hash = b"\0" * 64
        self.logon = None
        self.signing, self.own = None, None
        self.cipher = self.algorithm = None
        self.requests, self.memory, self.reads = {}, {}, []

    def feed(self, words):
        if words[0] in self.held:
            return self.transfer(words[0], bytes.fromhex(words[1]))
        token, offset, data = int(words[1]), int(words[2]), bytes.fromhex(words[3])
        self.memory[token] = (offset, data)
        if words[0] == "taken-back":
            self.settle()

    def transfer(self, way, data):
        """MS-SMBD section 2.2.3: a Data Transfer Message; the first of each direction negotiates."""
        if self.first[way]:
            self.first[way] = False
            return
        if len(data) < 24:
            return
        left, at, length = struct.unpack_from("<III", data, 8)
        self.held[way] += data[at : at + length]
        if left == 0 and self.held[way]:
            message, self.held[way] = self.held[way], b""
            self.message(way == "received", message)

    def message(self, from_server, message):
        if message[:4] == b"\xfdSMB":
            need(u32(message, 36) == len(message) - 52, "OriginalMessageSize")
            tag, nonce, aad = message[4:20], message[20:36], message[20:52]
            message = self.session.open(from_server, nonce, aad, message[52:], tag)
            self.session.count("encrypted messages")
            return self.command(from_server, message, True)
        need(message[:4] == b"\xfeSMB" and u32(message, 20) == 0, "one message, not a chain")
        self.command(from_server, message, False)

    def command(self, from_server, message, sealed):
        command, flags, number = u16(message, 12), u32(message, 16), u64(message, 24)
        if command == NEGOTIATE:
            self.hash = hashlib.sha512(self.hash + message).digest()
            self.logon = self.hash
            if from_server:
                self.negotiated(message)
        elif command == SESSION_SETUP:
            self.setup(from_server, message)
        elif not from_server:
            self.requests[number] = message
        if flags & SIGNED and not sealed:
            self.check(from_server, message)
        if command == WRITE and not from_server:
            self.written(message, sealed)
        if command == READ and from_server and u32(message, 8) == 0:
            self.read(message, sealed)

    def negotiated(self, message):
        need(u16(message, 68) == 0x311, "dialect 3.1.1")
        at, self.ids = u32(message, 124), None
        for _ in range(u16(message, 70)):
            kind, length = u16(message, at), u16(message, at + 2)
            data = message[at + 8 : at + 8 + length]
            if kind == 2:
                self.cipher = u16(data, 2)
            elif kind == 8:
                self.algorithm = u16(data, 2)
            elif kind == 7:
                self.ids = [u16(data, 8 + 2 * i) for i in range(u16(data, 0))]
            at += (8 + length + 7) // 8 * 8
        need(self.ids is not None and self.algorithm is not None, "negotiate contexts 7 and 8")

    def setup(self, from_server, message):
        """MS-SMB2 section 3.2.5.3: the keys come with the client's second token, before the last answer."""
        if from_server:
            if u32(message, 8) == MORE_PROCESSING_REQUIRED:
                self.logon = hashlib.sha512(self.logon + message).digest()
                self.challenge = message[message.index(b"NTLMSSP\0\x02") :]
            elif u32(message, 8) == 0:
                self.signing = self.own
            return
        self.logon = hashlib.sha512(self.logon + message).digest()
        binding = message[66] & BINDING
        if binding:
            self.signing = self.session.signing
        at = message.find(b"NTLMSSP\0\x03")
        if at >= 0:
            key = session_key(self.session.password, self.challenge, message[at:])
            self.own = (self.algorithm, kdf(key, b"SMBSigningKey\0", self.logon, 16))
            if not binding:
                self.session.signing = self.own
                self.session.keys(key, self.logon, self.cipher)

    def check(self, from_server, message):
        signing = self.signing or self.own
        need(signing, "it is signed before there is a key")
        command = u16(message, 12)
        bits = (1 if from_server else 0) | (2 if not from_server and command == CANCEL else 0)
        nonce = message[24:32] + struct.pack("<I", bits)
        clear = message[:48] + b"\0" * 16 + message[64:]
        tag = self.session.mac(signing, nonce, clear, command == SESSION_SETUP)
        need(tag == message[48:64], f"the signature of command {command} is another one")
        self.session.count("signed messages")

    def gathered(self, descriptors, length):
        """What stands in the memory that these name; `None` while some of it was not taken back."""
        data = b""
        for at in range(0, len(descriptors), 16):
            offset, token, count = struct.unpack_from("<QII", descriptors, at)
            if token not in self.memory:
                return None
            base, bytes_ = self.memory[token]
            data += bytes_[offset - base : offset - base + count]
        need(len(data) >= length, "too little memory")
        return data[:length]

    def transform(self, info):
        """MS-SMB2 sections 2.2.43 and 2.2.43.1."""
        at, length, channel, count = struct.unpack_from("<HHIH", info, 0)
        need(count == 1 and not any(info[10:16]), "TransformCount and what is reserved")
        kind, tag_len, nonce_len, reserved = struct.unpack_from("<HHHH", info, 16)
        end = 24 + tag_len + nonce_len
        padded = (end + 7) // 8 * 8
        need(tag_len == 16 and reserved == 0 and not any(info[end:padded]), "lengths and padding")
        need(at == (padded if length else 0), "RdmaDescriptorOffset")
        need(len(info) == padded + length, "nothing stands behind it")
        tag, nonce = info[24 : 24 + tag_len], info[24 + tag_len : end]
        return kind, channel, tag, nonce, info[padded:]

    def payload(self, from_server, kind, tag, nonce, data, offset):
        """Data alone: nothing of a header is signed or authenticated with it."""
        if kind == ENCRYPTION:
            need(len(nonce) == CIPHERS[self.session.cipher][2], "NonceLength")
            data = self.session.open(from_server, nonce, None, data, tag)
        else:
            need(len(nonce) == (12 if self.algorithm == AES_GMAC else 0), "NonceLength")
            found = self.session.mac(self.signing, nonce, data)
            need(found == tag, "the signature of data is another one")
        marker = self.session.marker
        skip = offset % len(marker)
        whole = marker * ((skip + len(data)) // len(marker) + 1)
        need(data == whole[skip : skip + len(data)], "other data than was moved")
        what = {ENCRYPTION: "encrypted", SIGNING: "signed"}[kind]
        self.session.count(f"{what} payloads {'read' if from_server else 'written'}")

    def written(self, message, sealed):
        offset, channel, length = u64(message, 72), u32(message, 96), u32(message, 100)
        at, size = u16(message, 104), u16(message, 106)
        if channel == 0:
            return
        need(channel == 3 and at == 0x70, "a WRITE that names memory and has no transform")
        kind, inner, tag, nonce, descriptors = self.transform(message[at : at + size])
        need(kind == (ENCRYPTION if sealed else SIGNING) and inner in (1, 2), "TransformType, Channel")
        data = self.gathered(descriptors, length)
        need(data is not None, "memory that was not lent")
        self.payload(False, kind, tag, nonce, data, offset)
        self.forget(descriptors)

    def read(self, message, sealed):
        request = self.requests.pop(u64(message, 24))
        if u32(request, 100) == 0:
            return
        need(message[66] == 80 and u32(message, 76) == 1, "DataOffset, Flags")
        kind, inner, tag, nonce, none = self.transform(message[80 : 80 + u32(message, 68)])
        need(kind == (ENCRYPTION if sealed else SIGNING) and inner == 0 and not none, "of an answer")
        descriptors = request[u16(request, 108) :][: u16(request, 110)]
        self.reads.append((descriptors, u32(message, 72), kind, tag, nonce, u64(request, 72)))

    def settle(self):
        """Data that was read is seen when its memory was taken back, after the answer."""
        for one in list(self.reads):
            descriptors, length, kind, tag, nonce, offset = one
            data = self.gathered(descriptors, length)
            if data is not None:
                self.reads.remove(one)
                self.payload(True, kind, tag, nonce, data, offset)
                self.forget(descriptors)

    def forget(self, descriptors):
        for at in range(0, len(descriptors), 16):
            self.memory.pop(u32(descriptors, at + 8), None)


def main():
    path, password, marker = sys.argv[1:]
    session = Session(password, marker.encode())
    connections = {}
    with open(path, encoding="ascii") as lines:
        for line, text in enumerate(lines, 1):
            number, *words = text.split()
            connection = connections.setdefault(number, Connection(session))
            try:
                connection.feed(words)
            except Wrong as e:
                sys.exit(f"{path}: line {line}: {e}")
    if any(c.reads for c in connections.values()):
        sys.exit(f"{path}: data that was read is missing")
    counts = session.counts
    if not all(any(word in what for what in counts) for word in ("read", "written", "messages")):
        sys.exit(f"{path}: nothing to check: {counts}")
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))


if __name__ == "__main__":
    main()
