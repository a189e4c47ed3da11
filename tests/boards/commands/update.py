"""Sends updates of the model to a board under qemu, also with a power failure in the middle.

    update.py UPDATE.gguf[:PERCENT[stop]]... -- QEMU...

QEMU is the command that starts the board, with its UART on standard input and output. With `:PERCENT` the power fails after
this share of the file; with `:PERCENTstop` the sender stops, in the middle of a block. After the start and after each
update, sends a command. Prints the board's answers.
"""
import socket
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

    def wait(self, start, show=True):
        """Reads lines up to one that starts with `start`, and prints them, except those with the times of commands."""
        while line := self.qemu.stdout.readline().decode():
            if show and not line.startswith("#"):
                print(line, end="", flush=True)
            if line.startswith(start):
                return
        sys.exit(f"error: the board ended before it printed {start!r}")

    def command(self):
        self.wait("ready")
        print(f"> {COMMAND}", flush=True)
        self.send(f"{COMMAND}\n".encode())
        self.wait("#")

    def update(self, path, percent, stops):
        data = open(path, "rb").read()
        most = len(data) if percent == 100 else len(data) * percent // 100 // BLOCK * BLOCK
        end = "" if percent == 100 else f", {'the sender stops' if stops else 'power failure'} after {percent} %"
        print(f"> update with {len(data)} bytes{end}", flush=True)
        self.send(f"update {len(data)}\n".encode())
        for at in range(0, most, BLOCK):
            self.wait(f"# {at} of", show=False)
            self.send(data[at:min(at + BLOCK, most)])
        self.wait(f"# {most} of", show=False)
        if stops:
            self.send(data[most:most + BLOCK // 2])
            self.wait("error: no byte")
        elif percent < 100:
            self.fail()

    def fail(self):
        """Resets the machine. The RAM that is used as flash keeps its bytes."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(self.monitor)
            monitor.sendall(b'{"execute": "qmp_capabilities"} {"execute": "system_reset"}')
            said = b""
            while b'"RESET"' not in said:
                said += monitor.recv(4096)


def main():
    split = sys.argv.index("--")
    with tempfile.TemporaryDirectory() as directory:
        board = Board(["timeout", str(SECONDS), *sys.argv[split + 1:]], f"{directory}/monitor")
        board.command()
        for each in sys.argv[1:split]:
            path, _, percent = each.partition(":")
            board.update(path, int(percent.removesuffix("stop") or 100), percent.endswith("stop"))
            board.command()
        board.send(b"\4")
        sys.exit(board.qemu.wait())


main()
