#!/usr/bin/env python3
"""Takes the options of llama-server and starts imp with settings of the same meaning.

llama.cpp's test suite starts it in place of llama-server. It ignores the options that choose a model, because those
models are on a hub and imp serves its built-in one, and the options of features that imp does not have.
"""

import argparse
import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# With the value 1, the suites of other projects reach imp through a front: this one `imp serve --survive`.
THROUGH_FRONT = "IMP_THROUGH_FRONT"
# Names that the suite's calls of OpenAI's client send; llama-server does not look at them.
NAMES_OF_OPENAI = ["gpt-3.5-turbo", "gpt-3.5-turbo-instruct", "gpt-4.1", "davinci-002", "codellama70b"]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(allow_abbrev=False)
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", default="8080")
    made.add_argument("--alias")
    made.add_argument("--api-key")
    made.add_argument("--temp")
    made.add_argument("--threads")
    made.add_argument("--ctx-size", type=int)
    made.add_argument("--parallel", type=int)
    made.add_argument("--batch-size", type=int)
    made.add_argument("--chat-template-file")
    made.add_argument("--cors-origins")
    made.add_argument("--kv-unified", action="store_true")
    made.add_argument("--no-ui", action="store_true")
    return made


def settings(options: argparse.Namespace) -> list[str]:
    """Returns settings of imp.conf as KEY=VALUE."""
    # Exits without waiting for the streams that the suite leaves open.
    found = ["drain.grace=0s"]
    names = options.alias.split(",") if options.alias else []
    found += [f"model.name={name}" for name in names[:1]]
    found.append(f"model.aliases={[*names[1:], *NAMES_OF_OPENAI]}".replace("'", '"'))
    if options.temp:
        found.append(f"model.overrides.default_sampling.temperature={options.temp}")
    if options.threads:
        found.append(f"device.threads={options.threads}")
    if options.parallel:
        found.append(f"scheduler.max_running={options.parallel}")
    if options.batch_size:
        found.append(f"scheduler.prefill_chunk={options.batch_size}")
        found.append(f"scheduler.step_tokens={max(options.batch_size, 64)}")
    if options.chat_template_file:
        found.append(f"model.overrides.chat_template={Path(options.chat_template_file).resolve()}")
    if options.cors_origins != "localhost":  # imp always allows these
        found.append(f"http.origins={(options.cors_origins or '*').split(',')}".replace("'", '"'))
    if options.no_ui:
        found.append("http.playground=false")
    if options.api_key:
        found.append(f"auth.token_file={token_file(options.api_key)}")
    return found


def token_file(key: str) -> Path:
    """Writes a file with this token and all roles; each key has its own file."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    file = Path(tempfile.gettempdir()) / f"imp-tokens-{digest[:16]}"
    file.write_text(f"{digest} data,read,admin *\n")
    return file


def command(arguments: Sequence[str]) -> list[str]:
    """Returns the command of imp for these arguments of llama-server."""
    options, _ = parser().parse_known_args(arguments)
    made = ["imp", "serve", "--listen", "127.0.0.1:0"]
    if os.environ.get(THROUGH_FRONT) == "1":
        made.append("--survive")
    for host in options.host.split(","):
        made += ["--http", f"[{host}]:{options.port}" if ":" in host else f"{host}:{options.port}"]
    if options.ctx_size:
        # llama-server divides its context among the sequences that may run at the same time.
        sequences = 1 if options.kv_unified else options.parallel or 1
        made += ["-c", str(options.ctx_size // sequences)]
    for setting in settings(options):
        made += ["--set", setting]
    return made


if __name__ == "__main__":
    words = command(sys.argv[1:])
    os.execvp(words[0], words)
