"""A server listens on exactly the configured addresses, replaces no live socket or other file, binds all or none."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from imp_service.cli.failure import exit_status
from imp_service.config.address import Address
from imp_service.serving.listening import ListenError, bind_socket, check_all
from support.calls.raw_calls import (
    ADMIN,
    CHANNELZ,
    HEALTH,
    INFERENCE,
    REFLECTION,
    call,
    is_served,
    methods_of,
    served_names,
)
from support.machine.listening import listening_addresses
from support.servers.running_service import failed_start
from support.servers.served import serve


def refusal(address: str) -> ListenError:
    with pytest.raises(ListenError) as refused:
        check_all([Address(address)])
    return refused.value


@contextmanager
def socket_at(path: Path, *, is_live: bool) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        if is_live:
            bound.listen(1)
            yield
    if not is_live:
        yield


def regular_file(path: Path) -> None:
    path.write_text("precious")


def link_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (regular_file, "found a regular file"),
        (Path.mkdir, "found a directory"),
        (link_to_nothing, "found a symbolic link"),
        (os.mkfifo, "found a special file"),
    ],
)
def test_rpc_26_w15_what_is_no_socket_is_left_alone(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    path = tmp_path / "imp.sock"
    make(path)
    before = path.lstat()
    error = refusal(f"unix://{path}")
    assert (exit_status(error.reason), words in error.message) == (73, True), error
    assert path.lstat() == before


def test_rpc_26_w15_a_socket_behind_a_link_is_not_taken(tmp_path: Path) -> None:
    with socket_at(tmp_path / "target", is_live=False):
        (tmp_path / "imp.sock").symlink_to(tmp_path / "target")
        assert exit_status(refusal(f"unix://{tmp_path}/imp.sock").reason) == 73
        assert (tmp_path / "target").is_socket()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("{folder}/none/imp.sock", "its directory does not exist"),
        ("{folder}/file/imp.sock", "its directory"),
        ("{folder}/" + "x" * 120, "at most 107 fit"),
    ],
)
def test_rpc_26_w15_a_path_that_cannot_hold_a_socket(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "file").write_text("")
    error = refusal("unix://" + path.format(folder=tmp_path))
    assert (exit_status(error.reason), words in error.message) == (73, True), error


def test_rpc_26_w16_a_live_socket_is_in_use_and_undisturbed(tmp_path: Path) -> None:
    path = tmp_path / "imp.sock"
    with socket_at(path, is_live=True):
        inode = path.lstat().st_ino
        error = refusal(f"unix://{path}")
        assert (exit_status(error.reason), path.lstat().st_ino) == (75, inode)


@pytest.mark.few(2)
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_rpc_26_w16_w17_a_dead_socket_is_replaced_by_one_of_mode_0660_under_any_umask(
    tmp_path: Path, umask: int
) -> None:
    path = tmp_path / "imp.sock"
    with socket_at(path, is_live=False):
        before = path.lstat()
        folder_mode = stat.S_IMODE(tmp_path.stat().st_mode)
        restored = os.umask(umask)
        try:
            with serve(socket=path) as served, grpc.insecure_channel(served.address) as channel:
                assert stat.S_IMODE(path.lstat().st_mode) == 0o660
                assert (path.lstat().st_ino, path.lstat().st_mtime_ns) != (before.st_ino, before.st_mtime_ns)
                assert os.umask(umask) == umask
                assert call(channel, f"/{HEALTH}/Check").code == "OK"
        finally:
            os.umask(restored)
    assert not path.exists()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == folder_mode


@pytest.mark.parametrize(("mode", "status"), [(0o777, 77), (0o1777, None), (0o770, None), (0o775, None)])
def test_rpc_26_w17_a_folder_where_anyone_could_put_another_socket_is_refused(
    tmp_path: Path, mode: int, status: int | None
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(mode)
    address = f"unix://{folder}/imp.sock"
    if status is None:
        check_all([Address(address)])
    else:
        assert exit_status(refusal(address).reason) == status


def test_rpc_26_w18_a_port_in_use_is_reported_at_once_and_its_owner_goes_on() -> None:
    with serve() as first, grpc.insecure_channel(first.address) as channel:
        port = first.address.rpartition(":")[2]
        for address in (first.address, f"0.0.0.0:{port}", f"[::]:{port}", f"localhost:{port}"):
            error = refusal(address)
            assert (exit_status(error.reason), error.message.startswith(address)) == (75, True), address
            assert isinstance(failed_start(f'listen.grpc=["{address}"]'), ListenError)
        assert call(channel, f"/{HEALTH}/Check").code == "OK"


@pytest.mark.parametrize(
    ("address", "status"), [("no.such.host.invalid:1", 73), ("203.0.113.7:50051", 73), ("[2001:db8::7]:50051", 73)]
)
def test_an_address_of_another_machine_is_refused(address: str, status: int) -> None:
    assert exit_status(refusal(address).reason) == status


def test_l07_one_address_that_cannot_be_bound_leaves_none_bound(tmp_path: Path) -> None:
    path = tmp_path / "imp.sock"
    with serve() as other:
        port = other.address.rpartition(":")[2]
        before = listening_addresses()
        for more in (f"listen.health=127.0.0.1:{port}", f"listen.metrics=127.0.0.1:{port}", "tls.cert=x"):
            settings = (more, "tls.key=y") if more.startswith("tls") else (more,)
            error = failed_start(f'listen.grpc=["unix://{path}"]', *settings)
            assert getattr(error, "reason", None) == ("CONFIG_INVALID" if more.startswith("tls") else "ADDRESS_IN_USE")
            assert not path.exists()
            assert listening_addresses() == before


def test_rpc_27_w26_exactly_what_is_configured_listens(tmp_path: Path) -> None:
    before = listening_addresses()
    with serve():
        (new,) = listening_addresses() - before
        assert new.startswith("tcp [::ffff:127.0.0.1]:") or new.startswith("tcp 127.0.0.1:")
    with serve(
        "listen.health=127.0.0.1:0",
        f"listen.admin=unix://{tmp_path}/admin.sock",
        "listen.metrics=127.0.0.1:0",
        socket=tmp_path / "data.sock",
    ) as served:
        server = served.server
        assert [server.addresses, server.admin_address] == [
            [f"unix://{tmp_path}/data.sock"],
            f"unix://{tmp_path}/admin.sock",
        ]
        ports = {str(address).rpartition(":")[2] for address in (server.health_address, served.http.metrics_address)}
        new = {address.replace("[::ffff:127.0.0.1]", "127.0.0.1") for address in listening_addresses() - before}
        assert new == {f"unix {tmp_path}/{name}.sock" for name in ("data", "admin")} | {
            f"tcp 127.0.0.1:{port}" for port in ports
        }
    assert listening_addresses() == before


def test_several_addresses_serve_the_same(tmp_path: Path) -> None:
    with serve(f'listen.grpc=["127.0.0.1:0", "unix://{tmp_path}/a.sock", "localhost:0"]') as served:
        assert len(served.server.addresses) == 3
        for address in served.server.addresses:
            with grpc.insecure_channel(address) as channel:
                assert call(channel, f"/{HEALTH}/Check").replies == [b"\x08\x01"], address


@pytest.mark.long
def test_rpc_21_w28_w30_each_listener_serves_its_own_services_and_no_others(tmp_path: Path) -> None:
    admin, health = (f"unix://{tmp_path}/{name}.sock" for name in ("admin", "health"))
    with serve(f"listen.admin={admin}", f"listen.health={health}") as served, ExitStack() as stack:
        data, control, probe = (
            stack.enter_context(grpc.insecure_channel(address)) for address in (served.address, admin, health)
        )
        assert {INFERENCE, HEALTH, REFLECTION} <= set(served_names(data))
        assert {CHANNELZ, HEALTH, REFLECTION} <= set(served_names(control))
        assert not {ADMIN, CHANNELZ} & set(served_names(data)) and INFERENCE not in served_names(control)
        for method in methods_of():
            service = method.split("/")[1]
            if service in (ADMIN, CHANNELZ):
                assert not is_served(data, method), method
            if service not in (ADMIN, CHANNELZ, HEALTH, REFLECTION):
                assert not is_served(control, method), method
            assert is_served(probe, method) == (service == HEALTH), method
        assert is_served(control, f"/{CHANNELZ}/GetServers") and is_served(data, f"/{INFERENCE}/Generate")
    with serve("listen.reflection=false") as served, grpc.insecure_channel(served.address) as data:
        assert not is_served(data, f"/{REFLECTION}/ServerReflectionInfo")


def test_the_metrics_socket_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    with serve(f"listen.metrics=unix://{path}"), socket.socket(socket.AF_UNIX) as scraper:
        assert stat.S_IMODE(path.lstat().st_mode) == 0o660
        scraper.connect(str(path))
        scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert scraper.recv(15) == b"HTTP/1.1 200 OK"
    assert not path.exists()


def test_a_socket_for_another_listener_reports_its_port() -> None:
    listening, address = bind_socket(Address("127.0.0.1:0"))
    with listening:
        assert address == f"127.0.0.1:{listening.getsockname()[1]}"
        assert exit_status(refusal(address).reason) == 75
