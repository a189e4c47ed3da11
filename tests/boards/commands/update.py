"""Sends updates of the model to a board under qemu, also with a power failure in the middle.

    update.py [--key KEY.pem] UPDATE.gguf[@VERSION][:PERCENT[stop]]... -- QEMU...

QEMU is the command that starts the board, with its UART on standard input and output. VERSION is one more than that of the
update before, from 1 on. With `:PERCENT` the power fails after this share of the file; with `:PERCENTstop` the sender stops,
in the middle of a block. After the start and after each update, sends a command. Prints the board's answers. KEY.pem is the
private ed25519 key with which openssl signs.
"""
import hashlib
import re
import socket
import struct
import subprocess
import sys
import tempfile

COMMAND = "turn off the heating in the hall"
SECONDS = 900
# Bytes that the board confirms with one line.
BLOCK = 4096


class Board:
    def __init__(self, command, monitor):
        self.monitor = monitor
        self.qemu = subprocess.Popen([*command, "-qmp", f"unix:{monitor},server=on,wait=off"],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, data):
        self.qemu.stdin.write(data)
        self.qemu.stdin.flush()

    def wait(self, *starts):
        """Reads lines up to one that starts with one of `starts`, and prints them, except those with times and sizes."""
        while line := self.qemu.stdout.readline().decode():
            if not line.startswith("#"):
                print(line, end="", flush=True)
            if line.startswith(starts):
                return line
        sys.exit(f"error: the board ended before it printed {starts}")

    def command(self, starts):
        if starts:
            self.wait("ready")
        print(f"> {COMMAND}", flush=True)
        self.send(f"{COMMAND}\n".encode())
        self.wait("#")

    def update(self, path, version, percent, stops, key):
        """Returns false if the board refuses the update, and does not start again."""
        data = open(path, "rb").read()
        most = len(data) if percent == 100 else len(data) * percent // 100 // BLOCK * BLOCK
        end = "" if percent == 100 else f", {'the sender stops' if stops else 'power failure'} after {percent} %"
        print(f"> update {version} with {len(data)} bytes{end}", flush=True)
        self.send(f"update {len(data)} {version} {signature(data, version, key) if key else ''}\n".encode())
        if self.wait("# 0 of", "error: update").startswith("error"):
            return False
        for at in range(0, most, BLOCK):
            part = data[at:min(at + BLOCK, most)]
            self.send(part)
            self.wait(f"# {at + len(part)} of")
        if stops:
            self.send(data[most:most + BLOCK // 2])
            self.wait("error: no byte")
        elif percent < 100:
            self.fail()
        return True

    def fail(self):
        """Resets the machine. The RAM that is used as flash keeps its bytes."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(self.monitor)
            monitor.sendall(b'{"execute": "qmp_capabilities"} {"execute": "system_reset"}')
            said = b""
            while b'"RESET"' not in said:
                said += monitor.recv(4096)


def signature(data, version, key):
    """The signature of a model and its version, in hexadecimal digits."""
    message = struct.pack("<II", version, len(data)) + hashlib.sha512(data).digest()
    with tempfile.NamedTemporaryFile() as file:
        file.write(message)
        file.flush()
        sign = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", file.name]
        return subprocess.run(sign, check=True, stdout=subprocess.PIPE).stdout.hex()


def main():
    split = sys.argv.index("--")
    updates, version = sys.argv[1:split], 0
    key = updates[1] if updates[0] == "--key" else None
    with tempfile.TemporaryDirectory() as directory:
        board = Board(["timeout", str(SECONDS), *sys.argv[split + 1:]], f"{directory}/monitor")
        board.command(starts=True)
        for each in updates[2 if key else 0:]:
            path, chosen, percent, stops = re.fullmatch(r"(.*?)(?:@(\d+))?(?::(\d+)(stop)?)?", each).groups()
            version = int(chosen or version + 1)
            board.command(starts=board.update(path, version, int(percent or 100), stops, key))
        board.send(b"\4")
        sys.exit(board.qemu.wait())


main()
