"""A server and clients for the tests in this directory, using only the standard library."""

import atexit
import http.client
import json
import re
import signal
import subprocess

# "secret" is the key of servers that are started with `--api-key secret`. Servers without a key ignore it.
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer secret"}


class Server:
    def __init__(self, binary, *flags):
        self.process = subprocess.Popen([binary, "serve", "--port", "0", *flags], stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # even if a check fails
        line = self.process.stdout.readline()
        self.url = line.split()[-1]
        self.port = int(re.match(r"listening on http://127.0.0.1:(\d+)$", line).group(1))

    def connect(self, timeout=300):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def post(self, path, body):
        """Returns status and answer; bytes are sent unchanged."""
        connection = self.connect()
        try:
            body = body if isinstance(body, bytes) else json.dumps(body)
            connection.request("POST", path, body, HEADERS)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def answer(self, body, path="/v1/completions"):
        status, answer = self.post(path, body)
        assert status == 200, answer
        return answer

    def text(self, body):
        return self.answer(body)["choices"][0]["text"]

    def stream(self, body, path="/v1/completions"):
        """Yields the events of a streamed answer; ending the loop disconnects."""
        connection = self.connect()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}), HEADERS)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            for line in response:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])
        finally:
            connection.close()

    def metric(self, name):
        connection = self.connect()
        connection.request("GET", "/metrics", headers=HEADERS)
        text = connection.getresponse().read().decode()
        connection.close()
        return int(re.search(rf"^arenite_{name} (\d+)$", text, re.M).group(1))

    def memory(self):
        """Resident memory in kilobytes."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0
