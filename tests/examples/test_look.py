"""The example that asks about pictures."""

from __future__ import annotations

from pathlib import Path

import imp_service
from imp_service import Image
from support.models.tiny_vision_models import write_vision_files
from support.servers.server_process import server_process
from support.servers.vision_served import CELLS, QUESTION, file_of


def test_vis_9_a_model_is_asked_about_pictures(tmp_path: Path, run):
    model, _ = write_vision_files(tmp_path / "vision")
    paths = [tmp_path / f"{seed}.png" for seed in (0, 1)]
    for seed, path in enumerate(paths):
        path.write_bytes(file_of(seed))
    with server_process(tmp_path, "--listen", "127.0.0.1:0", "-m", str(model), is_traced=False) as server:
        server.wait_until_ready()
        answers = []
        for shown in (paths, paths[::-1]):
            result = run("node", "look", server.address, QUESTION, *map(str, shown))
            assert (result.returncode, result.stderr) == (0, f"[{2 * CELLS} tokens of pictures]\n")
            message = {"role": "user", "content": [*map(Image.open, shown), QUESTION]}
            with imp_service.connect(server.address) as client:
                expected = client.chat([message], temperature=0, max_tokens=256).result()
            assert result.stdout.splitlines() == expected.text.splitlines()
            answers.append(expected.text)
        assert answers[0] != answers[1]
        # What is no picture is refused where it is.
        result = run("node", "look", server.address, QUESTION, str(model))
        assert result.returncode == 1 and "  chat.messages[0].parts[0].image: is no PNG" in result.stderr
