"""Messages of the API as lines of JSON, with the names of the protos."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.message import Message


def write_message(message: "Message") -> None:
    """One line. Fields without presence are there even where they are zero, so that a script finds them."""
    from google.protobuf.json_format import MessageToJson

    text = MessageToJson(
        message,
        indent=None,
        ensure_ascii=False,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
