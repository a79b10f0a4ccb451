"""The application that Ray Serve runs: one deployment of replicas."""

from collections.abc import Mapping
from importlib.util import find_spec

from ray import serve
from ray.serve.config import RequestRouterConfig

from imp_service.config import Config, ConfigError, read_settings
from imp_service.config.tree import KeyOrigin, origin_at
from imp_service.ray_app.replica import Replica

# Sections about imp's own listeners: Ray's proxy has its own.
_LISTENER_SECTIONS = ("listen", "tls", "auth", "keepalive", "connection")
# Sends requests of one session to one replica, by the header x-session-id.
_BY_SESSION = "ray.serve.experimental.consistent_hash_router"
_AFFINITIES = ("none", "session")
# Further calls, such as reads, while all places of generations are taken.
_READS = 64


def application(arguments: Mapping[str, object]) -> serve.Application:
    """`model`: a path; `config`: an imp.conf; `replicas`: their number; `affinity`: "none" or "session".

    Any other name is a key of imp.conf.
    """
    options = dict(arguments)
    affinity = str(options.pop("affinity", "none"))
    n_replicas = int(str(options.pop("replicas", 1)))
    path = str(options.pop("config")) if "config" in options else None
    assignments = [f"{'model.path' if name == 'model' else name}={value}" for name, value in options.items()]
    config = read_settings(path, assignments)
    _refuse_listener_sections(config)
    settings = config.settings
    deployment = serve.deployment(
        Replica,
        name="imp",
        num_replicas=n_replicas,
        # The engine queues and refuses requests itself, so Ray must not hold them back.
        max_ongoing_requests=settings.scheduler.max_running + settings.scheduler.max_waiting + _READS,
        graceful_shutdown_timeout_s=settings.drain.grace.total_seconds(),
        **_routing(affinity),
        ray_actor_options={"num_cpus": settings.device.threads if isinstance(settings.device.threads, int) else 1},
    )
    return deployment.bind(path, assignments)


def _routing(affinity: str) -> Mapping[str, RequestRouterConfig]:
    """How Ray chooses the replica of a request: by load unless `affinity` says otherwise."""
    if affinity not in _AFFINITIES:
        raise ConfigError("affinity", f"found {affinity!r}, expected one of {', '.join(_AFFINITIES)}")
    if affinity == "none":
        return {}
    if not _exists(_BY_SESSION):
        raise ConfigError("affinity", "found session, but this release of Ray has no router by sessions; 2.60 has")
    router = RequestRouterConfig(request_router_class=f"{_BY_SESSION}:ConsistentHashRouter")
    return {"request_router_config": router}


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package does not exist either
        return False


def _refuse_listener_sections(config: Config) -> None:
    for section in _LISTENER_SECTIONS:
        origin: KeyOrigin = origin_at(config.tree, (section,))
        if origin.source != "default":
            raise ConfigError(origin.where((section,)), "Ray's proxy listens instead of imp, expected no such section")
