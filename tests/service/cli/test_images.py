"""Images on the command line: `--image` of run, chat and call, `/image` in a conversation, and files that are none."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from imp_service import media
from imp_service.cli.conversation.dialogue import ChatAnswer, Dialogue, Turn, TurnFailed
from imp_service.cli.conversation.loop import Conversation
from imp_service.cli.conversation.saved import load, save
from imp_service.cli.failure import CommandError
from imp_service.pb import inference_pb2, model_pb2, types_pb2
from support.calls.generations import Output, in_one
from support.machine.command_line import error_lines
from support.models.tiny_vision_models import write_model_file, write_vision_files
from support.servers.scripted_server import scripted_server, story
from support.servers.served import Served, serve
from support.servers.served_models import from_file
from support.servers.vision_served import CELLS, QUESTION, asked, chat_of, encoded, file_of, images_of

# Sampled: a small difference between two images soon changes a token.
SAMPLED = ("--temperature", "2", "--seed", "7", "-n", "16")
HERE = ("--set", "device.threads=1")
MIB = 1024**2
CAT, DOG = "cat.png", "a dog.png"
SEEDS = {CAT: 0, DOG: 1}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a model with its projector."""
    return str(write_vision_files(tmp_path_factory.mktemp("vision"))[0])


@pytest.fixture(scope="module")
def served(model: str) -> Iterator[Served]:
    with serve(model=from_file(Path(model))) as served:
        yield served


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """Two images in the folder of the command."""
    for name, seed in SEEDS.items():
        (tmp_path / name).write_bytes(file_of(seed))


def with_text(*names: str, text: str = QUESTION) -> list[str | types_pb2.Image]:
    """Images, then a text, as a message of imp.v1 has them."""
    return [*(encoded(file_of(SEEDS[name])) for name in names), text]


def in_parts(*content: str | types_pb2.Image) -> types_pb2.PromptParts:
    parts = [
        types_pb2.PromptPart(text=each) if isinstance(each, str) else types_pb2.PromptPart(image=each)
        for each in content
    ]
    return types_pb2.PromptParts(parts=parts)


def answer_to(served: Served, prompt: types_pb2.ChatPrompt | types_pb2.PromptParts) -> Output:
    """What a request of imp.v1 gets, with the options of SAMPLED."""
    request = asked(prompt, 16)
    request.sampling.temperature, request.sampling.seed = 2, 7
    request.stop.ignore_eos = False
    return in_one(served, request).output


def image_options(*names: str) -> list[str]:
    return [word for name in names for word in ("--image", name)]


SETS = [(CAT,), (DOG,), (CAT, DOG), (DOG, CAT)]


@pytest.mark.parametrize("names", SETS, ids=" ".join)
def test_vis_9_every_command_puts_images_before_the_text(
    names: tuple[str, ...], call: Callable, model: str, served: Served
) -> None:
    chat = answer_to(served, chat_of(*with_text(*names)))
    text = answer_to(served, in_parts(*with_text(*names)))
    there = ("--target", served.address)
    for words, expected in (
        (("run", model, *HERE), chat),
        (("run", "--raw", model, *HERE), text),
        (("chat", model, *HERE), chat),
        (("call", "chat", *there), chat),
        (("call", *there), chat),
        (("call", "generate", *there), text),
    ):
        status, out, err = call(*words, *image_options(*names), QUESTION, *SAMPLED)
        assert status == 0, (words, err)
        assert out == expected.text + "\n" * (not expected.text.endswith("\n")), words
    status, out, err = call("run", model, *HERE, *image_options(*names), QUESTION, *SAMPLED, "--json")
    told = json.loads(out)
    assert (told["token_ids"], told["usage"]["prompt_media_tokens"]) == (chat.ids, CELLS * len(names))


def test_vis_9_a_command_says_where_only_a_chat_has_what_belongs_around_an_image(
    call: Callable, model: str, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, text = ("--target", served.address), (*image_options(CAT), QUESTION, *SAMPLED)
    for needs_chat in (False, True):
        monkeypatch.setattr(images_of(served), "needs_chat", needs_chat)
        monkeypatch.setattr(
            media.images, "needs_chat", lambda _, found=needs_chat: found
        )  # of a model that is loaded now
        for words, is_text in (
            (("run", "--raw", model, *HERE), True),
            (("run", model, *HERE), False),
            (("call", "generate", *there), True),
            (("call", "chat", *there), False),
        ):
            status, _, err = call(*words, *text)
            assert (status, "a text has nothing around them" in err) == (0, needs_chat and is_text), words


def test_vis_9_control_other_images_and_another_order_get_other_answers(served: Served) -> None:
    found = [answer_to(served, chat_of(*with_text(*names))).text for names in SETS]
    found += [answer_to(served, in_parts(*with_text(*names))).text for names in SETS]
    assert len(set(found)) == len(found)


def test_vis_9_an_image_comes_through_stdin(imp: Callable, model: str, served: Served) -> None:
    expected = answer_to(served, chat_of(*with_text(DOG))).text
    for words in (("run", model, *HERE), ("call", "chat", "--target", served.address)):
        done = imp(*words, "--image", "-", QUESTION, *SAMPLED, stdin=file_of(SEEDS[DOG]))
        assert (done.returncode, done.stdout.decode().rstrip("\n")) == (0, expected.rstrip("\n")), done.stderr


def test_vis_9_a_conversation_in_this_process_reads_images(imp: Callable, model: str, served: Served) -> None:
    words = ("chat", model, *HERE, *SAMPLED)
    expected = answer_to(served, chat_of(*with_text(CAT, DOG))).text
    done = imp(*words, "--image", CAT, stdin=f"/image '{DOG}'\n{QUESTION}\n".encode())
    assert (done.returncode, done.stdout.decode().rstrip("\n")) == (0, expected.rstrip("\n")), done.stderr
    for name, status, reason in (("missing.png", 66, "IMAGE_UNREADABLE"), (model, 65, "IMAGE_INVALID")):
        done = imp(*words, stdin=f"/image {name}\n".encode())
        [line] = error_lines(done.stderr.decode())
        assert (done.returncode, line.startswith(f"imp: error: {reason}: {name}: ")) == (status, True), line


def sent(request: inference_pb2.GenerateRequest) -> list[tuple[str, list[bytes], str]]:
    """The messages of a request: role, images, text."""
    return [
        (message.role, [part.image.encoded for part in message.parts if part.HasField("image")], _text(message))
        for message in request.chat.messages
    ]


def _text(message: types_pb2.ChatMessage) -> str:
    return message.content + "".join(part.text for part in message.parts)


CONVERSATION = f"""
/image {CAT}
/image "{DOG}"
What are these?
And now?
/image {CAT}
/image none
Still?
/image {DOG}
And this?
/save talk.json
/clear
/load talk.json
Once more?
"""


def test_vis_9_an_image_goes_with_the_next_message_and_stays_in_a_saved_conversation(imp: Callable) -> None:
    asked_for: list[inference_pb2.GenerateRequest] = []

    def generate(request: inference_pb2.GenerateRequest, context: object) -> Iterator[object]:
        asked_for.append(request)
        yield from story("Yes.")

    def info(request: object, context: object) -> Iterator[object]:
        yield model_pb2.GetModelInfoResponse(model="m", media=model_pb2.MediaSupport(request_bytes=MIB))

    with scripted_server(Generate=generate, GetModelInfo=info) as address:
        words = ("call", "chat", "--target", address, "--image", DOG)
        done = imp(*words, stdin=CONVERSATION.encode())
    assert done.returncode == 0, done.stderr
    cat, dog = file_of(SEEDS[CAT]), file_of(SEEDS[DOG])
    answer = ("assistant", [], "Yes.")
    turns = [("user", [dog, cat, dog], "What are these?"), ("user", [], "And now?"), ("user", [], "Still?")]
    turns += [("user", [dog], "And this?"), ("user", [], "Once more?")]
    for n, request in enumerate(asked_for, 1):
        assert sent(request) == [each for turn in turns[:n] for each in (turn, answer)][:-1]
    assert len(asked_for) == len(turns)
    assert [line for line in done.stderr.decode().splitlines() if "image" in line] == [
        "— the next message has 1 image.",
        "— the next message has 2 images.",
        "— the next message has 3 images.",
        "— the next message has 1 image.",
        "— the next message has no image.",
        "— the next message has 1 image.",
    ]


def test_vis_9_a_saved_conversation_has_images_as_base64(tmp_path: Path) -> None:
    turn = Turn("user", "What is this?", (file_of(0), b"GIF89a"))
    path = save(Dialogue(turns=[turn]), str(tmp_path / "talk.json"))
    [message] = json.loads(path.read_bytes())["messages"]
    assert [base64.standard_b64decode(image) for image in message.pop("images")] == list(turn.images)
    assert message == {"role": "user", "content": "What is this?"}
    assert load(str(path)).turns == [turn]
    for images in (["%"], [7], "abcd=", 7):
        path.write_text(json.dumps({"messages": [{**message, "images": images}]}))
        with pytest.raises(CommandError, match="images that are not base64"):
            load(str(path))


class Looking:
    """Reads an image of any name but one, and fails to answer the first message."""

    def __init__(self) -> None:
        self.seen: list[list[tuple[bytes, ...]]] = []

    def read_image(self, name: str) -> bytes:
        if name == "none.png":
            raise CommandError("IMAGE_UNREADABLE", f"{name}: No such file or directory")
        return name.encode()

    def answer(self, dialogue: Dialogue) -> ChatAnswer:
        self.seen.append([turn.images for turn in dialogue.turns if turn.role == "user"])
        if len(self.seen) == 1:
            raise TurnFailed(CommandError("QUEUE_FULL", "256 requests wait"), is_full=False)
        return ChatAnswer("Yes.")

    def check_options(self, options: dict[str, float]) -> None:
        """There are none."""

    def default_sampling(self) -> list[tuple[str, str, str]]:
        return []


def test_vis_9_a_message_that_is_asked_again_keeps_its_images(capfd: pytest.CaptureFixture[str]) -> None:
    responder = Looking()
    conversation = Conversation(
        responder, Dialogue(), drops_oldest=False, is_interactive=True, edit=lambda text: text + "!"
    )
    conversation.hold(["/image a", "x", "/regenerate", "/image b", "/edit", "/image c", "/clear", "y"])
    assert responder.seen == [[(b"a",)], [(b"a",)], [(b"a", b"b")], [()]]
    capfd.readouterr()
    # What is wrong with a file ends no conversation on a terminal, but one in a pipe.
    conversation.hold(["/image none.png", "/image"])
    assert capfd.readouterr().err == (
        "imp: error: IMAGE_UNREADABLE: none.png: No such file or directory\n— /image: expected /image FILE.\n"
    )
    with pytest.raises(CommandError, match="No such file"):
        Conversation(responder, Dialogue(), drops_oldest=False, is_interactive=False).hold(["/image none.png"])


@pytest.fixture
def no_images(tmp_path: Path) -> None:
    """Files that are no images, in the folder of the command."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large.png").write_bytes(file_of(0).ljust(30 * MIB, b"\0"))
    (tmp_path / "notes.pdf").write_bytes(b"%PDF-1.7")
    (tmp_path / "cut.png").write_bytes(file_of(0)[:-20])
    data = file_of(0)
    damage = data.index(b"IDAT") + 40
    (tmp_path / "damaged.png").write_bytes(data[:damage] + bytes(20) + data[damage + 20 :])


NO_FILE = "not a regular file, expected one, or - for stdin"
TOO_LARGE = "more than 16.0 MiB, which a request may have (media.request_bytes)"
# The words of `--image`, the status, and how the line goes on after the reason.
REFUSED = {
    "missing.png": (66, "IMAGE_UNREADABLE: missing.png: No such file or directory"),
    "folder": (66, f"IMAGE_UNREADABLE: folder: {NO_FILE}"),
    "fifo": (66, f"IMAGE_UNREADABLE: fifo: {NO_FILE}"),
    "large.png": (65, f"IMAGE_INVALID: large.png: {TOO_LARGE}"),
}
# A server says of these what is wrong, without the name of the file.
NOT_READ = {
    "notes.pdf": "is no PNG, JPEG, WebP or GIF",
    "cut.png": "is a damaged PNG",
    "damaged.png": "is damaged, or in a form of PNG that is not supported",
}


@pytest.mark.parametrize("name", [*REFUSED, *NOT_READ])
def test_vis_9_a_file_that_is_no_image_is_one_line(name: str, call: Callable, model: str, served: Served, no_images):
    there = ("--target", served.address)
    for words in (("run", model), ("chat", model), ("call", "chat", *there), ("call", "generate", *there)):
        status, out, err = call(*words, "--image", name, QUESTION, *SAMPLED)
        [line] = error_lines(err)
        assert out == ""
        if name in REFUSED:
            assert (status, line) == (REFUSED[name][0], f"imp: error: {REFUSED[name][1]}"), words
        elif words[0] == "call":
            assert (status, line.startswith("imp: error: FIELD_INVALID: ")) == (64, True), line
            assert f"parts[0].image: {NOT_READ[name]}" in line
        else:
            assert (status, line.startswith(f"imp: error: IMAGE_INVALID: {name}: {NOT_READ[name]}")) == (65, True), line


def test_vis_9_stdin_that_is_no_image_is_one_line(imp: Callable, model: str) -> None:
    for words, stdin, status, line in (
        ((QUESTION,), b"", 65, "IMAGE_INVALID: stdin: is no PNG, JPEG, WebP or GIF"),
        ((QUESTION,), bytes(17 * MIB), 65, f"IMAGE_INVALID: stdin: {TOO_LARGE}"),
        ((), file_of(0), 64, "USAGE: --image -: stdin is one image, expected the text"),
        (("-",), file_of(0), 64, "USAGE: --image -: stdin is one image, expected the text"),
        (("--image", "-", QUESTION), file_of(0), 64, "USAGE: --image -: stdin is one image, expected the text"),
    ):
        for command in ("run", "chat"):
            done = imp(command, "-m", model, "--image", "-", *words, stdin=stdin)
            [found] = error_lines(done.stderr.decode())
            assert (done.returncode, done.stdout) == (status, b"")
            assert found.startswith(f"imp: error: {line}"), found


def test_vis_9_a_model_without_a_tower_says_how_to_load_one(call: Callable, model: str, tmp_path: Path) -> None:
    text = str(write_model_file(tmp_path / "text.gguf"))
    way_on = "model.projector names the projector of a model that does, and imp pull ggml-org/SmolVLM2"
    for words, name in (((text,), "text"), ((), "the built-in demo")):
        status, out, err = call("run", *words, "--image", CAT, QUESTION)
        assert (status, out) == (64, "")
        assert error_lines(err)[-1].startswith(f"imp: error: NOT_SUPPORTED_BY_MODEL: {name} reads no images; {way_on}")
    with serve() as served:
        for method in ("chat", "generate"):
            status, out, err = call("call", method, "--image", CAT, QUESTION, "--target", served.address)
            assert (status, out) == (64, "")
            said = f"imp: error: NOT_SUPPORTED_BY_MODEL: {served.state.model.name} reads no images; {way_on}"
            assert error_lines(err)[-1].startswith(said)
    status, out, err = call("run", model, "--image", CAT, QUESTION, "--set", "model.vision=false")
    assert (status, out) == (64, "")
    assert error_lines(err)[-1] == "imp: error: FEATURE_DISABLED: model.vision is off, so the model reads no images"


def test_vis_9_the_images_of_a_call_need_a_text_as_an_argument(call: Callable) -> None:
    status, out, err = call("call", "generate", "--image", CAT, "--fields", '{"text": "Once"}')
    assert (status, out) == (64, "")
    assert error_lines(err) == ["imp: error: USAGE: --image: expected PROMPT too, as an argument"]
