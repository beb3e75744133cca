#!/usr/bin/env python3
"""Runs a program for which the system makes no pipes: `without-pipes.py PROGRAM ARGUMENT...`.

The gateway takes pages of files into pipes; without any it reads files into its own buffers, as for data that it signs. So both
ways can be measured with one program. pipe and pipe2 fail with EMFILE, by a filter of seccomp; x86-64 only."""

import ctypes
import os
import struct
import sys

NO_NEW_PRIVS, SET_SECCOMP, MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL_WITH = 0x7FFF0000, 0x00050000
EMFILE = 24
PIPE, PIPE2 = 22, 293


def step(code, value, if_so=0, if_not=0):
    return struct.pack("<HBBI", code, if_so, if_not, value)


program = b"".join([
    step(LOAD, 0),
    step(JUMP_IF_EQUAL, PIPE, 2),
    step(JUMP_IF_EQUAL, PIPE2, 1),
    step(RETURN, ALLOW),
    step(RETURN, FAIL_WITH | EMFILE),
])
libc = ctypes.CDLL(None, use_errno=True)
steps = ctypes.create_string_buffer(program, len(program))
head = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(steps)))
zero = ctypes.c_ulong(0)
for call in [
    (NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero),
    (SET_SECCOMP, ctypes.c_ulong(MODE_FILTER), ctypes.c_void_p(ctypes.addressof(head)), zero, zero),
]:
    if libc.prctl(*call) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
