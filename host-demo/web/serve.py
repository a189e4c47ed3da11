#!/usr/bin/env python3
"""Serves the page isolated, which browsers require for threads that share memory:

    host-demo/web/serve.py DIRECTORY [PORT]
"""

import functools, http.server, sys


class Isolated(http.server.SimpleHTTPRequestHandler):
    def end_headers(self):
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    directory, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Isolated, directory=directory)) as server:
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()
