"""Reads and writes GGUF files, limited to the features that the scripts in this directory use."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, F32, Q8_0 = 8, 9, 0, 8


class Gguf:
    """`keys` maps a name to the bytes of its type and value; `tensors` a name to dimensions, type and bytes."""

    def __init__(self, path):
        self.data, self.at = open(path, "rb").read(), 8
        tensors, keys = self.take("QQ")
        self.keys, self.tensors = {}, {}
        for _ in range(keys):
            name, start = self.string(), self.at
            self.skip(self.take("I"))
            self.keys[name.decode()] = self.data[start : self.at]
        entries = []
        for _ in range(tensors):
            name, count = self.string(), self.take("I")
            dims = [self.take("Q") for _ in range(count)]
            entries.append((name.decode(), dims, *self.take("IQ")))
        base = self.at + -self.at % self.alignment()
        ends = [offset for *_, offset in entries[1:]] + [len(self.data) - base]
        for (name, dims, kind, offset), end in zip(entries, ends):
            self.tensors[name] = (dims, kind, self.data[base + offset : base + end])

    def take(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value[0] if len(value) == 1 else value

    def string(self):
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length : self.at]

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            element, count = self.take("IQ")
            for _ in range(count):
                self.skip(element)
        else:
            self.at += SIZES[kind]

    def number(self, key):
        return struct.unpack_from("<I", self.keys[key], 4)[0]

    def alignment(self):
        return self.number("general.alignment") if "general.alignment" in self.keys else 32

    def set_number(self, key, value):
        self.keys[key] = struct.pack("<II", 4, value)

    def write(self, path):
        front = self.data[:8] + struct.pack("<QQ", len(self.tensors), len(self.keys))
        for name, value in self.keys.items():
            front += struct.pack("<Q", len(name)) + name.encode() + value
        at, align = 0, self.alignment()
        for name, (dims, kind, raw) in self.tensors.items():
            front += struct.pack("<Q", len(name)) + name.encode()
            front += struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
            at += len(raw) + -len(raw) % align
        with open(path, "wb") as out:
            out.write(front + b"\0" * (-len(front) % align))
            for _, _, raw in self.tensors.values():
                out.write(raw + b"\0" * (-len(raw) % align))
