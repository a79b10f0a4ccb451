"""What a server tells about images: metrics, times, the fingerprint, and a log that has nothing of them."""

from __future__ import annotations

import base64
import hashlib
import io
import json

import PIL.features
import PIL.Image

from imp_service.media import EncodedImage, RawImage
from imp_service.pb import inference_pb2 as pb
from support.calls.generations import in_one
from support.models.tiny_vision_models import TOWER
from support.servers.http_served import HttpServed
from support.servers.served import Served
from support.servers.vision_served import (
    QUESTION,
    answer_of,
    asked,
    chat_of,
    encoded,
    file_of,
    images_of,
    picture,
    raw,
    refused_by,
    shown,
)

# Of a picture: four tiles and an overview.
PARTS = 5
PART_BYTES = 4 * TOWER.width * TOWER.n_cells
SECRET = "The harbour of Husum, 54.4747 N"


def anew(seed: int) -> pb.GenerateRequest:
    """A request whose prompt is evaluated as a whole, so that it needs its image's encodings."""
    request = asked(chat_of(raw(seed), QUESTION), n=2)
    request.cache.bypass_prefix = True
    return request


def values_of(served: Served, *names: str) -> list[float]:
    registry = served.state.telemetry.metrics.registry
    return [registry.get_sample_value(name) or 0 for name in names]


def test_vis_10_metrics_count_encodings_their_time_and_those_that_were_kept(served: Served) -> None:
    names = ("imp_media_encoded_total", "imp_media_encode_seconds_total", "imp_media_cache_hits_total")
    before, n_bytes = values_of(served, *names), values_of(served, "imp_media_cache_bytes")[0]
    in_one(served, anew(101))
    first = values_of(served, *names)
    assert first[0] == before[0] + PARTS and first[1] > before[1] and first[2] == before[2]
    assert values_of(served, "imp_media_cache_bytes") == [n_bytes + PARTS * PART_BYTES]
    in_one(served, anew(101))
    assert values_of(served, *names) == [first[0], first[1], before[2] + PARTS]
    assert values_of(served, "imp_media_cache_bytes") == [n_bytes + PARTS * PART_BYTES]
    # Cells of the prefix cache need no encoding: they are no hit.
    for _ in range(2):
        answer_of(served, chat_of(raw(101), QUESTION), n=2)
    n_hits = values_of(served, *names)[2]
    answer_of(served, chat_of(raw(101), QUESTION), n=2)
    assert values_of(served, *names)[2] == n_hits


def encode_fields(served: Served, begin: int) -> list[float | None]:
    """The time of encoding in the access lines behind a place of the log."""
    lines = [json.loads(line) for line in served.log_lines(begin)]
    return [line.get("encode") for line in lines if "prompt_tokens" in line]


def test_vis_10_both_doors_tell_the_time_of_encoding(http: HttpServed, served: Served) -> None:
    begin = served.log_bytes
    first, again = (in_one(served, anew(103)).timings for _ in range(2))
    spent = first.encode.ToNanoseconds()
    assert 0 < spent <= first.queue.ToNanoseconds() + first.prefill.ToNanoseconds()
    assert not again.encode.ToNanoseconds()
    for _ in range(2):
        reply = http.chat(shown(file_of(104)), cache_prompt=False, max_tokens=2)
        assert reply.status == 200
    served.wait_until(lambda: len(encode_fields(served, begin)) == 4, "each request has its line")
    by_grpc, none, by_http, none_again = encode_fields(served, begin)
    assert by_grpc == round(spent * 1e-9, 6) and by_http
    assert none is none_again is None


def test_vis_10_each_of_several_outputs_may_be_the_last_with_the_time_of_encoding(served: Served) -> None:
    for seed in (106, 107, 108):
        request = anew(seed)
        request.num_sequences = 3
        request.sampling.temperature = 2
        request.stop.ignore_eos = False
        assert in_one(served, request).timings.encode.ToNanoseconds() > 0


def test_vis_10_the_log_has_no_pixel_no_digest_and_no_text_of_an_image(http: HttpServed, served: Served) -> None:
    begin = served.log_bytes
    exif = PIL.Image.Exif()
    exif[0x010E] = SECRET
    file = io.BytesIO()
    PIL.Image.fromarray(picture(105)).save(file, "JPEG", exif=exif)
    data = file.getvalue()
    damaged = data[:-200]
    assert SECRET.encode() in data
    answer_of(served, chat_of(encoded(data), QUESTION))
    answer_of(served, chat_of(raw(105), QUESTION))
    assert http.chat(shown(data), max_tokens=2).status == 200
    assert http.chat(shown(damaged)).status == 400
    assert refused_by(served, chat_of(encoded(damaged))).reason == "FIELD_INVALID"
    served.wait_for_calls()
    log = "".join(served.log_lines(begin))
    assert log.count("method") >= 5
    pixels = picture(105).tobytes()
    height, width, _ = picture(105).shape
    sources = EncodedImage(data), RawImage(width, height, pixels)
    digests = [images_of(served).plan(source, "image").digest for source in sources]
    digests += [hashlib.sha256(each).digest() for each in (data, pixels)]
    for secret in (SECRET.encode(), data[:24], data[200:224], pixels[:24], pixels[3000:3024], *digests):
        for spelled in (secret.hex(), base64.b64encode(secret).decode()[:30], repr(secret)[2:-1], str(list(secret))):
            assert spelled not in log


def test_oai_2_vis_10_the_fingerprint_names_what_decodes_images(http: HttpServed, served: Served) -> None:
    known = served.state.model.fingerprint
    assert known.parts["images.pil"] == PIL.__version__
    assert known.parts["images.libjpeg_turbo"] == PIL.features.version("libjpeg_turbo")
    for question in ((), (shown(file_of()),)):
        assert http.chat(*question, max_tokens=1).json["system_fingerprint"] == f"imp-{known.digest}"
