"""The gRPC servers of one process: data, health and control."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.internal import api_implementation
from grpc_health.v1 import health_pb2

from imp_service.core.vision import may_read_images
from imp_service.pb import admin_pb2, inference_pb2, model_pb2, tokenizer_pb2
from imp_service.rpc.call_path import GrpcCallPath
from imp_service.rpc.compat import compat_servicers
from imp_service.rpc.health import Health
from imp_service.rpc.imp_v1.admin import AdminServicer
from imp_service.rpc.imp_v1.inference import InferenceServicer
from imp_service.rpc.imp_v1.model import ModelServicer
from imp_service.rpc.imp_v1.tokenizer import TokenizerServicer
from imp_service.rpc.interceptor import AuthenticationInterceptor
from imp_service.rpc.listeners import bind, channel_options
from imp_service.rpc.reflection import add_reflection
from imp_service.rpc.tls import TlsCredentials
from imp_service.rpc.tokenizer_archive import TokenizerArchive
from imp_service.serving.drain import cut_short
from imp_service.serving.listening import Addresses
from imp_service.serving.security.access import Access
from imp_service.serving.server_state import ServerState


def require_native_runtime() -> None:
    """Raises if protobuf runs in pure Python: there, a request with deep nesting overflows the stack."""
    found = api_implementation.Type()
    if found != "upb":
        raise RuntimeError(f"protobuf runs on {found!r}, expected its C runtime 'upb'; reinstall protobuf")


INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"]
TOKENIZER = tokenizer_pb2.DESCRIPTOR.services_by_name["TokenizerService"]
MODEL = model_pb2.DESCRIPTOR.services_by_name["ModelService"]
ADMIN = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]
ALL_SERVICES = (INFERENCE, TOKENIZER, MODEL, ADMIN)


def make_servicers(state: ServerState) -> Mapping[ServiceDescriptor, object]:
    """The servicers of the data listeners. Raises ConfigError if one lacks its package."""
    archive = TokenizerArchive(state)
    return {
        INFERENCE: InferenceServicer(state),
        TOKENIZER: TokenizerServicer(state, archive),
        MODEL: ModelServicer(state),
        **compat_servicers(state, archive),
    }


def make_admin_servicers(state: ServerState) -> Mapping[ServiceDescriptor, object]:
    """The servicers of the admin listener."""
    return {ADMIN: AdminServicer(state)}


HEALTH = cast(ServiceDescriptor, health_pb2.DESCRIPTOR.services_by_name["Health"])


class GrpcServer:
    """Listens from start() to stop(). On the event loop's thread."""

    def __init__(self, state: ServerState, access: Access) -> None:
        """Nothing is bound yet."""
        require_native_runtime()
        self._state = state
        # The bound addresses, with the ports that were chosen; start() sets them.
        self.addresses: list[str] = []
        self.health_address: str | None = None
        self.admin_address: str | None = None
        self._data = make_servicers(state)
        self.health = Health(
            state.lifecycle, (service.full_name for service in {**dict.fromkeys(ALL_SERVICES), **self._data})
        )
        state.watchdog.watch(self.health.set_alive)
        self._servers: list[grpc.aio.Server] = []
        self._access = access
        self._tls = None if access.identity is None else TlsCredentials(access.identity)
        self._path = GrpcCallPath(state, access.authentication)

    async def start(self, addresses: Addresses) -> None:
        """Binds every listener, or none if one of them fails. Health is bound first."""
        try:
            if addresses.health is not None:
                self.health_address = bind(self._make({}, is_bare=True), addresses.health)
            if addresses.admin is not None:
                admin = self._make(make_admin_servicers(self._state), is_admin=True)
                self.admin_address = bind(admin, addresses.admin)
            server = self._make(self._data)
            for address in addresses.grpc:
                credentials = self._tls.credentials if self._tls and address.socket_path is None else None
                self.addresses.append(bind(server, address, credentials))
            for server in self._servers:
                await server.start()
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, grace_seconds: float) -> None:
        """Takes no new calls. Running calls have `grace_seconds` to end."""
        self._state.calls.end_others(cut_short())
        servers, self._servers = self._servers, []
        await asyncio.gather(*(server.stop(grace_seconds) for server in servers))

    def _make(
        self, servicers: Mapping[ServiceDescriptor, object], *, is_admin: bool = False, is_bare: bool = False
    ) -> grpc.aio.Server:
        """A gRPC server of these services and health, with reflection if it is not bare."""
        settings = self._state.settings
        server = grpc.aio.server(
            options=channel_options(
                settings,
                has_channelz=settings.listen.admin is not None,
                takes_images=not (is_admin or is_bare) and may_read_images(self._state.config),
            ),
            interceptors=self._interceptors(),
            compression=grpc.Compression.Gzip if settings.connection.compression == "gzip" else None,
        )
        answered: dict[ServiceDescriptor, object] = {**servicers, HEALTH: self.health}
        for service, servicer in answered.items():
            self._path.register(server, service, servicer)
        names = [service.full_name for service in answered]
        if is_admin:
            names.append(_add_channelz(server))
        if settings.listen.reflection and not is_bare:
            add_reflection(server, names)
        self._servers.append(server)
        return server

    def _interceptors(self) -> Sequence[grpc.aio.ServerInterceptor]:
        if not self._access.requires_tokens:
            return ()
        return (AuthenticationInterceptor(self._access.authentication, self._path.handles, self._path.refusal_handler),)


def _add_channelz(server: grpc.aio.Server) -> str:
    from grpc_channelz.v1 import channelz, channelz_pb2

    channelz.add_channelz_servicer(server)
    return str(channelz_pb2.DESCRIPTOR.services_by_name["Channelz"].full_name)
