"""The images of a prompt: their layouts in place of placeholders, then their cells in place of single tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from imp_service.api.chat_prompt import images_of
from imp_service.api.errors import Violation, refuse
from imp_service.api.image import Image
from imp_service.api.options import Prompt
from imp_service.api.replies import MediaSpan
from imp_service.core import CoreMedia, CoreMediaSpan
from imp_service.generation.images import ModelImages
from imp_service.media import CellBounds, CellSpan, EncodedImage, ImagePlan, Images, RawImage, Tiles
from imp_service.text import FieldInvalid, TemplateFailed, TextSpan

# The reason and the words of a refusal where the model has no tower, and where the settings leave it out.
NOT_IN_MODEL = ("NOT_SUPPORTED_BY_MODEL", "this model reads no images: load one with its projector (model.projector)")
LEFT_OUT = ("FEATURE_DISABLED", "model.vision is off")


class PromptImages:
    """The images of one prompt: planned, then decoded. For one thread at a time."""

    def __init__(self, model: ModelImages | None = None, plans: Sequence[ImagePlan] = ()) -> None:
        """`model` planned them; None: there are none."""
        self._model = model
        self.plans = plans
        # Where their cells are in the prompt.
        self.spans: Sequence[MediaSpan] = ()
        # What the engine gets.
        self.media: Sequence[CoreMediaSpan] = ()

    @property
    def model(self) -> ModelImages:
        """How the model takes them."""
        assert self._model is not None  # narrows: there are images
        return self._model

    @property
    def n_tokens(self) -> int:
        """The tokens of the prompt that are images."""
        return sum(span.tokens for span in self.spans)

    @property
    def n_extra_tokens(self) -> int:
        """How many more tokens the images take than their layouts have, where each span is one token."""
        return sum(span.n_cells - 1 for plan in self.plans for span in cell_spans(plan))

    @property
    def decoded_bytes(self) -> int:
        """The bytes of all pixels, once they are decoded."""
        return sum(plan.reading.cut.n_bytes for plan in self.plans)

    def layout_texts(self) -> Iterator[TextSpan]:
        """What is written for each image, with one placeholder for each span."""
        cell = self.model.reader.words.cell
        for plan in self.plans:
            pieces = (piece if isinstance(piece, str) else cell for piece in plan.layout)
            yield TextSpan("".join(pieces), parses_special_tokens=True)

    async def decode(self) -> list[Tiles]:
        """The pixels of each image, for take(). Raises FieldsInvalid with every image that cannot be decoded."""
        decoding = _Decoding()
        for plan in self.plans:
            with decoding:
                decoding.tiles.append(await self.model.reader.decode(plan))
        return decoding.result()

    def decode_here(self) -> None:
        """Decodes on a thread that may wait, and takes the pixels."""
        decoding = _Decoding()
        for plan in self.plans:
            with decoding:
                decoding.tiles.append(self.model.reader.decode_here(plan))
        self.take(decoding.result())

    def take(self, tiles: Sequence[Tiles]) -> None:
        """Makes of the pixels what the engine gets. It copies them: keep it off an event loop."""
        found: list[CoreMediaSpan] = []
        for number, (plan, each) in enumerate(zip(self.plans, tiles, strict=True)):
            media, spans = _core_media(plan, each), [span for span in self.spans if span.image == number]
            for part, (cells, span) in enumerate(zip(cell_spans(plan), spans, strict=True)):
                found.append(self._core_span(media, part, cells, span))
        self.media = found

    def _core_span(self, media: CoreMedia, part: int, cells: CellSpan, span: MediaSpan) -> CoreMediaSpan:
        return CoreMediaSpan(
            media,
            part,
            span.first_token,
            n_positions=span.positions,
            grid=cells.grid if self.model.has_grids else (0, 0),
            is_atomic=self.model.is_atomic,
        )


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """The tokens of a prompt. In the cells of images they are the family's placeholder."""

    ids: list[int]
    images: PromptImages = field(default_factory=PromptImages)
    # Further tokens that end a text after such a prompt.
    ends: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A conversation as its template writes it. In the text, each span of an image is one placeholder."""

    text: str
    id_parts: Iterator[list[int]]
    media: Sequence[MediaSpan] = ()


@dataclass(frozen=True, slots=True)
class TokenPiece:
    """Tokens of a prompt. In a piece of a caller's ids, the id of a cell is an id like any other."""

    ids: list[int]
    has_images: bool = False


class _Decoding:
    """Images that are decoded one after the other. A `with` block keeps what is wrong with one for result()."""

    def __init__(self) -> None:
        self.tiles: list[Tiles] = []
        self._wrong: list[Violation] = []

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> bool:
        if not isinstance(error, FieldInvalid):
            return False
        self._wrong.append(Violation(error.path, error.message))
        return True

    def result(self) -> list[Tiles]:
        """The pixels. Raises FieldsInvalid."""
        refuse(self._wrong)
        return self.tiles


def plan_images(model: ModelImages, prompt: Prompt) -> PromptImages:
    """Reads the headers of a prompt's images. Raises FieldsInvalid with everything that is wrong with them."""
    plans, wrong = [], []
    for path, image in images_of(prompt):
        try:
            bounds = CellBounds(image.max_tokens, f"{path}.max_tokens", image.numbers)
            plans.append(model.reader.plan(_source(image), path, bounds))
        except FieldInvalid as error:
            wrong.append(Violation(error.path, error.message))
    refuse(wrong)
    return PromptImages(model, plans)


def number_violations(paths: Sequence[str], images: Images) -> Iterator[Violation]:
    """Whether a prompt has more images than a request may; at the first that is too many."""
    most = images.limits.images
    if len(paths) > most:
        yield Violation(paths[most], f"image {most + 1} of {len(paths)}, expected at most {most} (media.images)")


def _source(image: Image) -> EncodedImage | RawImage:
    return EncodedImage(image.data) if image.size is None else RawImage(*image.size, image.data)


def cell_spans(plan: ImagePlan) -> list[CellSpan]:
    """The spans of an image's layout, one for each part."""
    return [piece for piece in plan.layout if isinstance(piece, CellSpan)]


def with_layouts(spans: Sequence[TextSpan], images: PromptImages) -> list[TextSpan]:
    """A rendered conversation with the layout of each image in place of its placeholder.

    Only a placeholder that the template wrote stands for an image. Raises TemplateFailed if there are more or fewer.
    """
    placeholder = images.model.reader.words.placeholder
    n_written = sum(span.text.count(placeholder) for span in spans if span.parses_special_tokens)
    if n_written != len(images.plans):
        found = f"the chat template writes {n_written} placeholders for {len(images.plans)} images"
        raise TemplateFailed("chat", found)
    layouts, placed = images.layout_texts(), []
    for span in spans:
        if not span.parses_special_tokens:
            placed.append(span)
            continue
        first, *rest = span.text.split(placeholder)
        texts = [first, *(next(layouts).text + text for text in rest)]
        placed.append(TextSpan("".join(texts), parses_special_tokens=True))
    return placed


def grow_spans(pieces: Iterable[TokenPiece], images: PromptImages) -> list[int]:
    """The tokens of a prompt whose spans have all their cells. `images` then knows where they are."""
    cell_id = images.model.cell_token
    left = [(number, span) for number, plan in enumerate(images.plans) for span in cell_spans(plan)]
    ids: list[int] = []
    found: list[MediaSpan] = []
    for piece in pieces:
        n_written = piece.ids.count(cell_id) if piece.has_images else 0
        if len(found) + n_written > len(left):
            break
        at = 0
        for number, span in left[len(found) : len(found) + n_written]:
            end = piece.ids.index(cell_id, at)
            ids += piece.ids[at:end]
            found.append(MediaSpan(len(ids), span.n_cells, images.model.n_positions(span), number))
            ids += [cell_id] * span.n_cells
            at = end + 1
        ids += piece.ids[at:]
    if len(found) != len(left):
        raise TemplateFailed("chat", f"the chat template hides an image, or writes {cell_id}, the id of its tokens")
    images.spans = found
    return ids


def _core_media(plan: ImagePlan, tiles: Tiles) -> CoreMedia:
    n_bytes = len(tiles.data) // tiles.n_tiles
    parts = [tiles.data[i * n_bytes : (i + 1) * n_bytes] for i in range(tiles.n_tiles)]
    cells = [span.n_cells for span in cell_spans(plan)]
    return CoreMedia(plan.digest, [(tiles.height, tiles.width, part, n) for part, n in zip(parts, cells, strict=True)])
