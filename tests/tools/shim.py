"""Runs a command with fewer rights: `shim.py container COMMAND` or `shim.py user COMMAND`.

Both deny making and entering namespaces and mounting, as the usual profiles of containers do.
`container` keeps root, with the capabilities that containers usually have; `user` is nobody.
"""

import ctypes
import os
import struct
import sys

NOBODY = 65_534
KEPT = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}  # what a container's root may usually do
DENIED = (155, 165, 166, 272, 308, 428, 429, 430, 431, 432, 433, 442)
CLONE, CLONE3, NAMESPACES = 56, 435, 0x7E020080
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026

libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def deny_namespaces():
    code = [(LOAD, 0, 0, 0)]
    for number in DENIED:
        code += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    code += [(EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, UNKNOWN)]
    code += [(EQUAL, 0, 3, CLONE), (LOAD, 0, 0, 16)]
    code += [(ANY_BIT, 0, 1, NAMESPACES), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(packed))
    checked(libc.prctl(38, 1, 0, 0, 0))
    checked(libc.syscall(317, 1, 0, ctypes.create_string_buffer(program)))


def main():
    mode, *command = sys.argv[1:]
    if mode == "user":
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    else:
        for capability in set(range(41)) - KEPT:
            libc.prctl(24, capability, 0, 0, 0)
    deny_namespaces()
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
