"""An engine process without a model: a program whose life a test plans. It imports nothing of imp, to start fast.

`python stand_in_engine.py PLAN LISTENING LINK`: the words of a plan, with commas between, are done in turn.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading

FACTS = {"grpc": ["127.0.0.1:1"], "health": None, "admin": None, "metrics": None, "model": "none"}
MESSAGE = {"facts": FACTS, "notes": [], "lines": [], "requires_tokens": False}


class StandIn:
    """What the words of a plan do."""

    def __init__(self, listening: int, link: int) -> None:
        self.link = socket.socket(fileno=link)
        self.listening = socket.socket(fileno=listening)
        self.status = "200 OK"
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.signal(signal.SIGHUP, lambda *_: self.note("reloaded"))

    def note(self, text: str) -> None:
        """Writes a line that the test reads."""
        os.write(2, f"{text}\n".encode())

    def report(self, **progress: object) -> None:
        """Tells the front of its progress."""
        self.link.sendall(json.dumps({"progress": progress}).encode() + b"\n")

    def do(self, word: str) -> None:
        """Does one word of the plan."""
        name, _, value = word.partition("=")
        match name:
            case "serve":
                threading.Thread(target=self.answer, daemon=True).start()
                self.link.sendall(json.dumps(MESSAGE).encode() + b"\n")
            case "stuck":
                self.status = "503 Service Unavailable"
            case "told":
                stream, n_told = value.split(":")
                self.report(stream=stream, told=int(n_told))
            case "answered":
                self.report(answered=True)
            case "sleep":
                threading.Event().wait(float(value))
            case "wait":
                self.link.recv(1)  # until its front has ended
            case "exit":
                os._exit(int(value))
            case "kill":
                os.kill(os.getpid(), int(value))

    def answer(self) -> None:
        """Answers every request with the status."""
        while True:
            connection, _ = self.listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(f"HTTP/1.1 {self.status}\r\ncontent-length: 2\r\n\r\n{{}}".encode())


def main() -> None:
    """Follows the plan of the command line."""
    stand_in = StandIn(int(sys.argv[2]), int(sys.argv[3]))
    for word in sys.argv[1].split(","):
        stand_in.do(word)


if __name__ == "__main__":
    main()
