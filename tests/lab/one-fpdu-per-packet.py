#!/usr/bin/env python3
"""Rewrites a capture of iWARP so that each TCP segment holds one FPDU: `one-fpdu-per-packet.py IN.pcap OUT.pcap`.

tshark's iWARP dissector wants each FPDU whole in a segment, and one RDMA Write or Send in each. TCP promises neither, and
a capture on a device with segmentation offload shows segments of 64 KiB. The bytes of the stream stay as they are;
only the cuts between packets move. Ethernet and IPv4 only; the first packets of each direction are the MPA start frames."""

import struct
import sys


class Direction:
    """One direction of one connection: bytes in order, and where they were last cut."""

    def __init__(self):
        self.next = None      # sequence number after the bytes held
        self.held = b""
        self.early = {}       # segments that came before their turn
        self.started = False  # the MPA start frame has gone by

    def take(self, seq, data):
        if self.next is None:
            self.next = seq
        self.early[seq] = max(self.early.get(seq, b""), data, key=len)
        moved = True
        while moved:
            moved = False
            for at in sorted(self.early):
                behind = (self.next - at) & 0xFFFFFFFF
                if behind < 1 << 31:  # at or before what is expected: keep what is new
                    piece = self.early.pop(at)[behind:]
                    self.held += piece
                    self.next = (self.next + len(piece)) & 0xFFFFFFFF
                    moved = True
                    break

    def frames(self):
        """The whole frames that are held."""
        while True:
            if not self.started:
                if len(self.held) < 20:
                    return
                length = 20 + struct.unpack(">H", self.held[18:20])[0]
            else:
                if len(self.held) < 2:
                    return
                length = (2 + struct.unpack(">H", self.held[:2])[0] + 3) // 4 * 4 + 4
            if len(self.held) < length:
                return
            self.started = True
            frame, self.held = self.held[:length], self.held[length:]
            yield (self.next - len(self.held) - length) & 0xFFFFFFFF, frame


def packets(data):
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    while at + 16 <= len(data):
        seconds, fraction, length, _ = struct.unpack(order + "IIII", data[at : at + 16])
        yield order, seconds, fraction, data[at + 16 : at + 16 + length]
        at += 16 + length


def rewrite(data, out):
    out.write(data[:24])
    directions = {}
    for order, seconds, fraction, packet in packets(data):
        ip = packet[14 : 14 + (packet[14] & 15) * 4]
        tcp_at = 14 + len(ip)
        seq, = struct.unpack(">I", packet[tcp_at + 4 : tcp_at + 8])
        header = tcp_at + (packet[tcp_at + 12] >> 4) * 4
        payload = packet[header : 14 + struct.unpack(">H", ip[2:4])[0]]
        key = ip[12:20] + packet[tcp_at : tcp_at + 4]
        direction = directions.setdefault(key, Direction())
        if packet[tcp_at + 13] & 2:  # SYN takes a number
            direction.__init__()
            direction.next = (seq + 1) & 0xFFFFFFFF
        if not payload:
            pieces = [(seq, b"")]
        else:
            direction.take(seq, payload)
            pieces = list(direction.frames())
        for seq, piece in pieces:
            head = bytearray(packet[:header])
            head[16:18] = struct.pack(">H", header - 14 + len(piece))
            head[tcp_at + 4 : tcp_at + 8] = struct.pack(">I", seq)
            length = len(head) + len(piece)
            out.write(struct.pack(order + "IIII", seconds, fraction, length, length) + head + piece)


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as f, open(sys.argv[2], "wb") as out:
        rewrite(f.read(), out)
