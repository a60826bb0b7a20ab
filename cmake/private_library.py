"""private_library.py SOURCE COPY: a copy of a shared library that shares nothing with other copies in its process.

Static variables of C++ templates and inline functions are "unique" symbols (STB_GNU_UNIQUE): the dynamic linker keeps one for the whole
process, however the libraries were loaded. Where two versions of a library meet, one works on the other's variables. In the copy they are
weak symbols, which stay within the library and what was loaded with it.
"""
import struct
import sys

DYNAMIC_SYMBOLS, UNIQUE, WEAK = 11, 10, 2


def private(elf):
    if elf[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("private_library.py: not a 64-bit little-endian ELF file")
    sections, = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    changed = bytearray(elf)
    for i in range(count):
        _, kind, _, _, begin, length, _, _, _, width = struct.unpack_from("<IIQQQQIIQQ", elf, sections + i * size)
        for info in range(begin + 4, begin + length, width) if kind == DYNAMIC_SYMBOLS else ():
            if elf[info] >> 4 == UNIQUE:
                changed[info] = WEAK << 4 | elf[info] & 15
    return changed


with open(sys.argv[1], "rb") as source:
    copy = private(source.read())
with open(sys.argv[2], "wb") as destination:
    destination.write(copy)
