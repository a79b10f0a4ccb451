"""Server reflection in the current protocol (v1) and the older one (v1alpha): clients use one of the two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import grpc
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default, DescriptorPool

METHOD = "ServerReflectionInfo"
OLD, CURRENT = "grpc.reflection.v1alpha", "grpc.reflection.v1"


def add_reflection(server: grpc.aio.Server, names: Sequence[str]) -> None:
    """Adds reflection of the named services and of itself.

    The library has only the older protocol. The two have equal messages; only the name of the package differs.
    """
    from grpc_reflection.v1alpha import reflection, reflection_pb2

    served = [f"{package}.ServerReflection" for package in (CURRENT, OLD)]
    pool = DescriptorPool()
    _add_files(pool, [Default().FindFileContainingSymbol(name) for name in (*names, served[1])])
    pool.Add(_renamed(Default().FindFileContainingSymbol(served[1])))
    servicer = reflection.aio.ReflectionServicer([*names, *served], pool=pool)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {METHOD: handler}) for service in served]
    )


def _renamed(old: FileDescriptor) -> FileDescriptorProto:
    """The older protocol's file under the name and package of the current one."""
    file = FileDescriptorProto()
    old.CopyToProto(file)
    file.name, file.package = "grpc/reflection/v1/reflection.proto", CURRENT
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(OLD, CURRENT)
    for method in file.service[0].method:
        method.input_type = method.input_type.replace(OLD, CURRENT)
        method.output_type = method.output_type.replace(OLD, CURRENT)
    return file


def _add_files(pool: DescriptorPool, files: Iterable[FileDescriptor]) -> None:
    """Adds each file after the files that it imports."""
    for file in files:
        try:
            pool.FindFileByName(file.name)
        except KeyError:
            _add_files(pool, file.dependencies)
            pool.AddSerializedFile(file.serialized_pb)
