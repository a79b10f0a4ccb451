"""An image as a caller sends it: the bytes of a file, or pixels."""

from __future__ import annotations

from dataclasses import dataclass

from imp_service.media.formats import Header, ImageFormat, NotAnImage, read_header


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """The bytes of a PNG, JPEG, WebP or GIF file."""

    data: bytes

    def header(self) -> Header:
        """Raises `NotAnImage`."""
        return read_header(self.data)


@dataclass(frozen=True, slots=True)
class RawImage:
    """Pixels in rows from the top left corner, three bytes each: red, green, blue."""

    width: int
    height: int
    data: bytes

    def header(self) -> Header:
        """Raises `NotAnImage`."""
        if self.width < 1 or self.height < 1:
            raise NotAnImage(f"is {self.width} x {self.height} pixels; both must be at least 1")
        if len(self.data) != 3 * self.width * self.height:
            expected = f"{self.width} x {self.height} pixels have {3 * self.width * self.height}"
            raise NotAnImage(f"has {len(self.data)} bytes; {expected}")
        return Header(ImageFormat.RAW, self.width, self.height)


ImageSource = EncodedImage | RawImage
