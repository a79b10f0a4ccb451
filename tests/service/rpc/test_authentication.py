"""Authorization of every method of every service by token, role and tenant; token changes while the server runs."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from imp_service.serving.security import reloaded_files
from support.calls.raw_calls import ADMIN, CHANNELZ, HEALTH, INFERENCE, REFLECTION, Ended, call, methods_of
from support.run.patience import HANGS_AFTER
from support.servers.served import Served, serve
from support.servers.server_process import server_process

GET_MODEL_INFO = "/imp.v1.ModelService/GetModelInfo"  # what a client asks before it generates
WORDS = ("all-roles", "data-only", "read-only", "admin-only", "of-acme", "of-two")
LINES = {
    "all-roles": "data,read,admin *",
    "data-only": "data *",
    "read-only": "read *",
    "admin-only": "admin *",
    "of-acme": "data,read acme",
    "of-two": "data,read acme,beta",
}
READS = ("imp.v1.ModelService", "imp.v1.TokenizerService")
GENERATE = f"/{INFERENCE}/Generate"


def bearer(word: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {word}"),)


def digest_of(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()


def token_file(folder: Path, lines: dict[str, str] = LINES) -> Path:
    path = folder / "tokens"
    path.write_text("".join(f"{digest_of(word)} {rest}\n" for word, rest in lines.items()))
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tokens")
    settings = (f"auth.token_file={token_file(folder)}", "auth.public_health=false")
    with serve(*settings, f"listen.admin=unix://{folder}/admin.sock", metadata=bearer("all-roles")) as it:
        yield it


@pytest.fixture(scope="module")
def data(served: Served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.address) as channel:
        yield channel


@pytest.fixture(scope="module")
def admin(served: Served) -> Iterator[grpc.Channel]:
    assert served.server.admin_address is not None  # narrows the type
    with grpc.insecure_channel(served.server.admin_address) as channel:
        yield channel


def with_token(channel: grpc.Channel, method: str, word: str, *more: tuple[str, str]) -> Ended:
    # These bytes are no message of any method: an authorized call fails to parse, and nothing runs.
    return call(channel, method, b"\xff\xff", (("authorization", f"Bearer {word}"), *more), n_replies=1)


@pytest.mark.long
def test_rpc_24_w19_no_method_answers_without_a_token_or_with_a_wrong_one(
    data: grpc.Channel, admin: grpc.Channel
) -> None:
    methods = methods_of()
    assert {GENERATE, f"/{HEALTH}/Check", f"/{CHANNELZ}/GetServers", f"/{ADMIN}/Drain"} < set(methods)
    for channel in (data, admin):
        for method in (*methods, "/imp.v1.InferenceService/Unheard", "/of.nobody/AtAll"):
            ended = call(channel, method)
            assert (ended.code, ended.reason) == ("UNAUTHENTICATED", "TOKEN_MISSING"), method
            assert ended.initial == {} and ended.replies == []
            ended = with_token(channel, method, "wrong")
            assert (ended.code, ended.reason) == ("UNAUTHENTICATED", "TOKEN_INVALID"), method


def test_rpc_24_w19_the_right_token_reaches_every_method_that_is_served(data: grpc.Channel) -> None:
    for method in methods_of(INFERENCE, HEALTH):
        assert with_token(data, method, "all-roles").code not in ("UNAUTHENTICATED", "PERMISSION_DENIED"), method
    assert with_token(data, "/of.nobody/AtAll", "all-roles").code == "UNIMPLEMENTED"


@pytest.mark.long
@pytest.mark.parametrize(
    ("word", "services"),
    [("data-only", (INFERENCE,)), ("read-only", READS), ("admin-only", (ADMIN, CHANNELZ))],
)
def test_rpc_24_w24_a_role_opens_its_services_and_no_others(
    data: grpc.Channel, admin: grpc.Channel, word: str, services: tuple[str, ...]
) -> None:
    n_served = 0
    for method in methods_of(INFERENCE, *READS, ADMIN, CHANNELZ):
        service = method.split("/")[1]
        channel = admin if service in (ADMIN, CHANNELZ) else data
        ended = with_token(channel, method, word)
        if ended.code == "UNIMPLEMENTED" and not ended.reason:
            continue
        n_served += 1
        is_refused = (ended.code, ended.reason) == ("PERMISSION_DENIED", "NOT_ALLOWED")
        is_open = service in services or (method == GET_MODEL_INFO and word == "data-only")
        assert is_refused != is_open, (method, ended)
    assert n_served >= len(methods_of(INFERENCE, CHANNELZ))
    # Every known caller may call health and reflection.
    check = health_pb2.HealthCheckRequest().SerializeToString()
    assert call(data, f"/{HEALTH}/Check", check, bearer(word)).code == "OK"
    assert call(data, f"/{REFLECTION}/ServerReflectionInfo", b"\x3a\x00", bearer(word)).code == "OK"


def test_w24_control_does_not_exist_on_the_data_listener(data: grpc.Channel) -> None:
    for method in methods_of(ADMIN, CHANNELZ):
        for word in ("admin-only", "data-only"):
            assert with_token(data, method, word).code == "UNIMPLEMENTED", (method, word)


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (("Basic all-roles",), "TOKEN_INVALID"),
        (("Bearer all-roles ",), "TOKEN_INVALID"),
        (("Bearer  all-roles",), "TOKEN_INVALID"),
        (("Bearer",), "TOKEN_INVALID"),
        (("all-roles",), "TOKEN_INVALID"),
        (("",), "TOKEN_INVALID"),
        (("Bearer all-roles", "Bearer all-roles"), "TOKEN_INVALID"),
        (("Bearer all-roles", "Bearer other"), "TOKEN_INVALID"),
        (("Bearer " + "x" * 8000,), "TOKEN_INVALID"),
        ((), "TOKEN_MISSING"),
    ],
)
def test_rpc_24_w20_headers_without_a_valid_token_are_refused(
    data: grpc.Channel, values: tuple[str, ...], reason: str
) -> None:
    ended = call(data, GENERATE, b"", tuple(("authorization", value) for value in values))
    assert (ended.code, ended.reason) == ("UNAUTHENTICATED", reason)
    assert "all-roles" not in ended.message


def test_w20_a_scheme_in_small_letters_passes_and_a_huge_header_is_grpcs_to_refuse(data: grpc.Channel) -> None:
    assert call(data, GENERATE, b"\xff", (("authorization", "bearer all-roles"),)).reason == "FIELD_INVALID"
    assert call(data, GENERATE, b"", (("authorization", "Bearer " + "x" * 65536),)).code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize(
    ("word", "tenants", "is_allowed"),
    [
        ("of-two", ("acme",), True),
        ("of-two", ("beta",), True),
        ("of-two", ("gamma",), False),
        ("of-two", ("acme", "gamma"), False),
        ("of-two", (), False),
        ("of-acme", (), True),
        ("of-acme", ("acme",), True),
        ("of-acme", ("beta",), False),
        ("data-only", ("anything",), True),
        ("data-only", (), True),
    ],
)
def test_n09_w24_a_token_may_name_only_its_own_tenants(
    data: grpc.Channel, word: str, tenants: tuple[str, ...], is_allowed: bool
) -> None:
    ended = with_token(data, GENERATE, word, *(("imp-tenant", tenant) for tenant in tenants))
    assert (ended.reason != "NOT_ALLOWED") == is_allowed, ended
    assert ended.code == ("INVALID_ARGUMENT" if is_allowed else "PERMISSION_DENIED")


def test_a_refused_call_names_itself_in_its_trailers_and_is_recorded_once(data: grpc.Channel, served: Served) -> None:
    handled = served.state.telemetry.metrics.grpc_handled

    def count() -> float:
        return handled.labels("server_stream", INFERENCE, "Generate", "UNAUTHENTICATED")._value.get()

    before = count()
    ended = call(data, GENERATE)
    assert {"grpc-status-details-bin", "imp-request-id", "imp-instance-id"} <= set(ended.trailing)
    assert count() == before + 1


def test_w30_reflection_asks_for_the_same_token(data: grpc.Channel) -> None:
    method = f"/{REFLECTION}/ServerReflectionInfo"
    assert call(data, method, b"\x3a\x00").reason == "TOKEN_MISSING"
    assert with_token(data, method, "wrong").reason == "TOKEN_INVALID"


def test_rpc_24_health_is_public_where_the_settings_say_so(tmp_path: Path) -> None:
    with (
        serve(f"auth.token_file={token_file(tmp_path)}", metadata=bearer("all-roles")) as served,
        grpc.insecure_channel(served.address) as channel,
    ):
        assert call(channel, f"/{HEALTH}/Check").code == "OK"
        assert call(channel, f"/{HEALTH}/Watch", n_replies=1).replies == [b"\x08\x01"]
        assert call(channel, GENERATE).reason == "TOKEN_MISSING"
        for version in ("v1", "v1alpha"):
            method = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
            assert call(channel, method, b"\x3a\x00").reason == "TOKEN_MISSING"


@pytest.mark.long
@pytest.mark.parametrize("way", ["written anew", "replaced", "link swapped"])
def test_rpc_24_cfg_11_w23_tokens_that_change_take_effect_and_a_bad_file_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(reloaded_files, "CHECK_SECONDS", 0.01)
    folders = [tmp_path / name for name in ("first", "second", "third")]
    for folder, word in zip(folders, ("old", "new", "third"), strict=True):
        folder.mkdir()
        token_file(folder, {word: "data *"})
    current = tmp_path / "current"
    current.symlink_to(folders[0])
    path = current / "tokens"

    def change(folder: Path) -> None:
        if way == "written anew":
            path.write_text((folder / "tokens").read_text())
        elif way == "replaced":
            (folder / "tokens").replace(path.resolve())
        else:
            swapped = tmp_path / "swapped"
            swapped.symlink_to(folder)
            swapped.replace(current)

    with (
        serve(f"auth.token_file={path}", metadata=bearer("new")) as served,
        grpc.insecure_channel(served.address) as channel,
    ):
        (secret,) = served.access._files
        assert with_token(channel, GENERATE, "old").reason == "FIELD_INVALID"
        change(folders[1])
        served.wait_until(lambda: secret.value.find("new") is not None, "the new tokens in force")
        assert with_token(channel, GENERATE, "new").reason == "FIELD_INVALID"
        assert with_token(channel, GENERATE, "old").reason == "TOKEN_INVALID"
        (folders[2] / "tokens").write_text("no digest at all\n")
        before = secret._seen
        change(folders[2])
        served.wait_until(lambda: secret._seen != before, "the bad file was looked at")
        assert with_token(channel, GENERATE, "new").reason == "FIELD_INVALID"


@pytest.mark.long
def test_rpc_24_cfg_11_w23_a_server_process_watches_its_files(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("the-old-key\n")
    with (
        server_process(tmp_path, settings=(f"auth.api_key_file={keys}",)) as server,
        server.connection() as channel,
    ):
        assert with_token(channel, GENERATE, "the-old-key").reason == "FIELD_INVALID"
        keys.write_text("the-new-key\n")
        give_up = time.monotonic() + HANGS_AFTER
        while with_token(channel, GENERATE, "the-new-key").reason != "FIELD_INVALID":
            assert time.monotonic() < give_up, "the new key never came into force"
            with pytest.raises(subprocess.TimeoutExpired):
                server.process.wait(0.2)
        assert with_token(channel, GENERATE, "the-old-key").reason == "TOKEN_INVALID"
