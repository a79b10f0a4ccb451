"""imp k8s: Kubernetes manifests on stdout, with resources computed from the model."""

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once, UsageError
from imp_service.cli.failure import CommandError, warning_line
from imp_service.cli.options.settings import (
    add_context_option,
    add_model_option,
    add_set_option,
    context_assignments,
    downloaded_model,
)

if TYPE_CHECKING:
    from imp_service.cli.hub.get import HubModel
    from imp_service.config import Config
    from imp_service.deploy import Base, Fetch, Filling, Rule, Sizing

# Names of pods and ConfigMaps begin with it, and must not exceed the 63 characters of a label.
_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}")
_REPLICAS = re.compile(r"([1-9][0-9]{0,3})(?:-([1-9][0-9]{0,3}))?")
# The addresses of --http: for other pods, and for the containers of the same pod.
HTTP = '["[::]:8000"]'
HTTP_OF_SIDECAR = '["127.0.0.1:8000"]'
EXAMPLES = (
    "imp k8s --http",
    "imp k8s -m hf:Qwen/Qwen3-0.6B-GGUF:Q8_0 --image registry.example/imp:0.1.0",
    "imp k8s --sidecar -m model.gguf --model-claim models --app-image registry.example/app:1",
)


def configure(parser: ArgumentParser) -> None:
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--standalone", action="store_true", help="a separate service (this is the default)")
    kind.add_argument("--sidecar", action="store_true", help="imp as a sidecar in the pod of an application")
    what = (
        "the model file to size for; pods find a file of this name in their volume, or download hf:OWNER/NAME:TYPE, "
        "or a model that is downloaded here, when they start (default: the built-in demo)"
    )
    add_model_option(parser, what, as_word=True)
    add_context_option(parser)
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument(
        "--model-claim",
        metavar="NAME",
        action=Once,
        help="the volume claim that holds the model file (default: …-model)",
    )
    volume.add_argument(
        "--model-image",
        metavar="REF",
        action=Once,
        help="the OCI image that holds the model file, on clusters with image volumes (feature gate ImageVolume)",
    )
    parser.add_argument("--name", action=Once, help="the name of all objects (default: imp, app-with-imp)")
    parser.add_argument("--image", metavar="REF", action=Once, help="imp's image")
    parser.add_argument("--app-image", metavar="REF", action=Once, help="with --sidecar: the application's image")
    parser.add_argument(
        "--replicas",
        metavar="N[-M]",
        action=Once,
        help="a fixed number of pods, or N to M, scaled on waiting requests (default: 1-8; a sidecar: 2)",
    )
    parser.add_argument(
        "--http",
        action="store_true",
        help="also serve OpenAI's API: on port 8000 for pods that may reach gRPC; a sidecar for its own pod",
    )
    add_set_option(parser, "in the pods' imp.conf: paths are the pods' own")
    parser.set_defaults(prog=parser.prog)


def run(arguments: Namespace) -> int:
    from imp_service.config.sources import of_option
    from imp_service.deploy import (
        Filling,
        base_settings,
        egress_rules,
        fill,
        placeholders,
        pod_conf,
        read_base,
        size,
        termination_seconds,
    )

    _check(arguments)
    base = read_base("sidecar" if arguments.sidecar else "standalone")
    http = [of_option("--http", "listen.http", HTTP_OF_SIDECAR if arguments.sidecar else HTTP)] * arguments.http
    config = base_settings(base, [*http, *arguments.assignments, *context_assignments(arguments)])
    _check_assignments(arguments, config)
    http_port = _http_port(arguments, config)
    with _readable_model(arguments) as (model, fetch, inside):
        sizing = size(config, model, inside)
    if not sizing.report.memory.fits:
        raise CommandError("FIELD_INVALID", sizing.report.memory.refusal)
    filling = Filling(
        conf=pod_conf(sizing.config, base.conf),
        resources=sizing.resources,
        termination_seconds=termination_seconds(base, sizing.config),
        model_volume=fetch.volume() if fetch else _model_volume(base, arguments),
        egress=_without_repeats([*egress_rules(sizing.config.settings), *(fetch.egress() if fetch else [])]),
        fetch=fetch,
        name=arguments.name,
        image=arguments.image,
        app_image=arguments.app_image,
        http_port=http_port,
        replicas=_replicas(arguments.replicas),
    )
    texts = fill(base, filling)
    sys.stdout.write("".join(f"# {line}\n" for line in _comments(filling.name or base.name, sizing, filling)))
    sys.stdout.write("".join(f"---\n{text}" for text in texts))
    unnamed = (f"{image} is a placeholder, {option} names yours" for image, option in placeholders(texts).items())
    for warning in (*sizing.report.warnings, *unnamed):
        print(warning_line(warning), file=sys.stderr)
    return 0


def _check(arguments: Namespace) -> None:
    """Checks the form of every argument that becomes part of the manifests."""
    rules = {
        "name": (_NAME, "small letters, digits and '-', at most 40"),
        "model_claim": (_NAME, "small letters, digits and '-', at most 40"),
        "image": (_IMAGE, "an image reference"),
        "app_image": (_IMAGE, "an image reference"),
        "model_image": (_IMAGE, "an image reference"),
        "replicas": (_REPLICAS, "N or N-M"),
    }
    for field, (pattern, expected) in rules.items():
        text = getattr(arguments, field)
        if text is not None and pattern.fullmatch(text) is None:
            raise UsageError(arguments.prog, f"--{field.replace('_', '-')}: found {text}, expected {expected}")
    replicas = _replicas(arguments.replicas)
    if replicas is not None and replicas[0] > replicas[1]:
        raise UsageError(arguments.prog, f"--replicas: found {arguments.replicas}, expected the lesser number first")
    if arguments.sidecar and replicas is not None and replicas[0] != replicas[1]:
        raise UsageError(arguments.prog, "--replicas: a range with --sidecar, expected one number")
    if arguments.app_image is not None and not arguments.sidecar:
        raise UsageError(arguments.prog, "--app-image: given without --sidecar, expected --sidecar too")
    if arguments.model is None and (arguments.model_image or arguments.model_claim):
        raise UsageError(arguments.prog, "--model-image, --model-claim: given without --model, expected --model too")


def _replicas(text: str | None) -> tuple[int, int] | None:
    found = _REPLICAS.fullmatch(text) if text is not None else None
    return (int(found[1]), int(found[2] or found[1])) if found else None


def _check_assignments(arguments: Namespace, config: "Config") -> None:
    """Refuses --set for ports, which the bases define, and for the path of a model that is not given."""
    from imp_service.config.tree import origin_at

    for name in ("grpc", "health", "metrics"):
        if origin_at(config.tree, ("listen", name)).source == "--set":
            raise UsageError(arguments.prog, f"--set listen.{name}: the bases define the ports of the manifests")
    if arguments.model is None and origin_at(config.tree, ("model", "path")).source == "--set":
        raise UsageError(arguments.prog, "--set model.path: given without --model, expected a file to size for")


def _http_port(arguments: Namespace, config: "Config") -> int | None:
    """The port of HTTP that other pods reach. A sidecar may serve its own pod alone."""
    from imp_service.config.address import Address
    from imp_service.config.tree import origin_at

    where = "--set listen.http"
    if arguments.http and origin_at(config.tree, ("listen", "http")).source == "--set":
        raise UsageError(arguments.prog, f"{where}: given together with --http, expected one of them")
    addresses = [Address(text) for text in config.settings.listen.http]
    reached = [address for address in addresses if not address.is_local]
    for address in addresses:
        if address.is_local and not arguments.sidecar:
            raise UsageError(arguments.prog, f"{where}: {address.text}: no other pod reaches it, expected [::]:PORT")
        if address.socket_path is None and address.port == 0:
            raise UsageError(arguments.prog, f"{where}: {address.text}: expected a port, which the Service needs")
    if len(reached) > 1:
        raise UsageError(arguments.prog, f"{where}: found {len(reached)} ports, expected one")
    return reached[0].port if reached else None


@contextmanager
def _readable_model(arguments: Namespace) -> "Iterator[tuple[str | None, Fetch | None, str | None]]":
    """The path of a model whose header can be read, the pods' download of it, and its path in their volume.

    Of a model of a hub only headers are read. With a claim or an image the pods download nothing.
    """
    with _of_hub(arguments.model or "") as (reference, model):
        if model is None:
            yield arguments.model, None, None
            return
        from imp_service.cli.hub.hub import other_endpoint
        from imp_service.deploy import Fetch

        inside = "" if model.choice.name == "." else model.choice.files[0].name
        fetch = Fetch(reference, model.commit, model.choice.n_bytes, other_endpoint())
        yield str(model.path), None if arguments.model_claim or arguments.model_image else fetch, inside


@contextmanager
def _of_hub(word: str) -> "Iterator[tuple[str, HubModel | None]]":
    """What pods download for a word that names a model of a hub, or a downloaded one; no model for other words."""
    from imp_service.cli.hub.reference import PREFIX

    if not word.startswith(PREFIX):
        found = downloaded_model(word)
        yield "" if found is None else str(found.reference), found
        return
    from imp_service.cli.hub.remote import current_model

    with current_model(word) as model:
        yield word.removeprefix(PREFIX), model


def _without_repeats(rules: "list[Rule]") -> "list[Rule]":
    return [rule for i, rule in enumerate(rules) if rule not in rules[:i]]


def _model_volume(base: "Base", arguments: Namespace) -> dict[str, object] | None:
    """The source of the volume; None without a model file."""
    if arguments.model is None:
        return None
    if arguments.model_image is not None:
        return {"image": {"reference": arguments.model_image, "pullPolicy": "IfNotPresent"}}
    claim = arguments.model_claim or f"{arguments.name or base.name}-model"
    return {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}


def _comments(name: str, sizing: "Sizing", filling: "Filling") -> list[str]:
    """`name` is that of the objects."""
    from imp_service.cli.output import bytes_text, memory_text

    memory = sizing.report.memory
    settings = sizing.config.settings
    is_claim = "persistentVolumeClaim" in (filling.model_volume or {})
    fetch = filling.fetch
    has_projector = sizing.report.vision is not None and (settings.model.path or "").endswith(".gguf")
    beside = " and its projector" if has_projector else ""
    hint = ["The cache is for 4 sequences of full length: -c N and --set kv.bytes=SIZE make it smaller."]
    return [
        *([f"OpenAI's API: http://{name}:{filling.http_port}/v1 in this namespace."] if filling.http_port else []),
        f"Memory: {', '.join(f'{name} {memory_text(n_bytes)}' for name, n_bytes in memory.items.items())};",
        f"in all {memory_text(memory.total_bytes)}, for sequences of up to {memory.context} tokens.",
        *(hint if sizing.is_cache_auto else []),
        *(
            [f"The model's claim must hold the file {settings.model.path}{beside}, mounted at /model."]
            if is_claim
            else []
        ),
        *(
            [
                f"Each pod downloads {fetch.reference} when it starts: {bytes_text(fetch.n_bytes)}.",
                "For many pods, fill a claim once and name it with --model-claim.",
                "For a private model, create a Secret hf-token with the key token.",
            ]
            if fetch
            else []
        ),
        *(["Spans need an image that was built with EXTRAS=otel."] if settings.tracing.endpoint else []),
        f"CPUs: {sizing.threads} compute threads, and one for the service.",
    ]
