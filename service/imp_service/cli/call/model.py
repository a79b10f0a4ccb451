"""imp call info, load and health: show the model, the load of the server, and whether it is ready."""

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from imp_service.cli.options.connection import connect

if TYPE_CHECKING:
    from imp_service.pb.model_pb2 import GetModelInfoResponse, GetServerInfoResponse


NOT_SERVING = 69


def configure_info(parser: ArgumentParser) -> None:
    parser.add_argument("--config", action="store_true", help="print the server's configuration too")
    parser.add_argument("--parts", action="store_true", help="print the parts of the fingerprint too")
    parser.set_defaults(run_method=_info)


def configure_load(parser: ArgumentParser) -> None:
    parser.set_defaults(run_method=_load)


def configure_health(parser: ArgumentParser) -> None:
    parser.add_argument(
        "service",
        metavar="SERVICE",
        nargs="?",
        default="",
        help="such as imp.v1.InferenceService, or liveness (default: the whole server)",
    )
    parser.set_defaults(run_method=_health)


def _info(arguments: Namespace) -> int:
    from imp_service.cli.output import write_message, write_table
    from imp_service.pb.model_pb2 import GetModelInfoRequest, GetServerInfoRequest
    from imp_service.pb.model_pb2_grpc import ModelServiceStub

    with connect(arguments) as connection:
        stub = ModelServiceStub(connection.channel)
        server = connection.unary(stub.GetServerInfo, GetServerInfoRequest())
        model = connection.unary(stub.GetModelInfo, GetModelInfoRequest())
    if arguments.json:
        write_message(model)
        write_message(server)
        return 0
    write_table(sys.stdout, (), [*_model_rows(model), *_server_rows(server)])
    if arguments.parts:
        write_table(sys.stdout, (), sorted(server.fingerprint_parts.items()))
    if arguments.config:
        from google.protobuf.json_format import MessageToJson

        sys.stdout.write(MessageToJson(server.config, indent=2, ensure_ascii=False) + "\n")
    return 0


def _load(arguments: Namespace) -> int:
    from imp_service.cli.output import write_message, write_table
    from imp_service.cli.utilization_text import load_rows
    from imp_service.pb.model_pb2 import GetLoadRequest
    from imp_service.pb.model_pb2_grpc import ModelServiceStub

    with connect(arguments) as connection:
        load = connection.unary(ModelServiceStub(connection.channel).GetLoad, GetLoadRequest()).load
    if arguments.json:
        write_message(load)
    else:
        write_table(sys.stdout, (), load_rows(load))
    return 0


def _health(arguments: Namespace) -> int:
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
    from grpc_health.v1.health_pb2_grpc import HealthStub

    from imp_service.cli.output import write_message

    with connect(arguments) as connection:
        request = HealthCheckRequest(service=arguments.service)
        check = HealthStub(connection.channel).Check  # type: ignore[attr-defined]  # the package has no types
        response = connection.unary(check, request)
    if arguments.json:
        write_message(response)
    else:
        sys.stdout.write(HealthCheckResponse.ServingStatus.Name(response.status) + "\n")
    return 0 if response.status == HealthCheckResponse.SERVING else NOT_SERVING


def _model_rows(model: "GetModelInfoResponse") -> list[tuple[str, str]]:
    from imp_service.api.shown import count_text
    from imp_service.cli.sampling_text import sampling_line

    names = ", ".join((model.model, *model.aliases))
    yes_no = {True: "yes", False: "no"}
    return [
        ("model", names),
        ("architecture", model.architecture),
        ("weights", f"{count_text(model.parameters)} parameters, {model.weight_format}"),
        ("sha256", model.weights_sha256 or "not known yet"),
        ("context", f"{model.max_context_tokens} tokens, vocabulary {model.vocab_size}"),
        ("chat template", yes_no[model.chat_template != ""]),
        ("sampling", sampling_line(model.default_sampling, model.default_sampling_origins)),
        ("constraints", ", ".join(model.constraints) or "none"),
        ("logits", yes_no[model.supports_logits]),
        ("embeddings", _embeddings_text(model)),
        ("rerank", yes_no[model.embeddings.reranks]),
        ("infill", yes_no[model.supports_infill]),
        ("budget", f"{yes_no[model.supports_reasoning_budget]}, of reasoning"),
        ("decisions", yes_no[model.supports_decisions]),
    ]


def _embeddings_text(model: "GetModelInfoResponse") -> str:
    if not model.supports_embeddings:
        return "no"
    made = model.embeddings
    prompts = f", prompts {', '.join(made.prompt_names)}" if made.prompt_names else ""
    return f"{made.dimensions} dimensions, {made.pooling} of at most {made.max_tokens} tokens{prompts}"


def _server_rows(server: "GetServerInfoResponse") -> list[tuple[str, str]]:
    threads = f"{server.threads} thread{'s' if server.threads != 1 else ''}"
    return [
        ("server", f"imp {server.version}{f' ({server.revision})' if server.revision else ''}"),
        ("API", f"imp.v1, revision {server.api_revision}"),
        ("instance", server.instance_id),
        ("started", server.start_time.ToJsonString()),
        ("device", f"{server.device}: {', '.join(server.device_names)}; {threads}"),
        ("cache", f"{server.kv_blocks} blocks of {server.kv_block_tokens} tokens"),
        ("fingerprint", server.fingerprint),
        ("at once", f"{server.max_running} running, {server.max_waiting} waiting"),
    ]
