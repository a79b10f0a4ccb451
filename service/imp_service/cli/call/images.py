"""The images of imp call, which must be within the limits of the server."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from imp_service.cli.options.images import reads_no_images

if TYPE_CHECKING:
    from imp_service.client.connection import Connection
    from imp_service.pb.model_pb2 import MediaSupport


def media_of(connection: "Connection") -> "MediaSupport":
    """The images that the served model reads. Raises CommandError if it reads none."""
    from imp_service.pb.model_pb2 import GetModelInfoRequest
    from imp_service.pb.model_pb2_grpc import ModelServiceStub

    info = connection.unary(ModelServiceStub(connection.channel).GetModelInfo, GetModelInfoRequest())
    if not info.HasField("media"):
        raise reads_no_images(info.model)
    return info.media


def add_parts(parts: Any, images: Sequence[bytes], text: str) -> None:
    """Adds images, then the text, to the parts of a prompt or of a message."""
    for image in images:
        parts.add().image.encoded = image
    parts.add(text=text)
