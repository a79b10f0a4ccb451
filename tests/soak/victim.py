"""A client that reads four long streams until it is killed: `python -m soak.victim ADDRESS`."""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from support.calls.wire import ask


def main() -> None:
    """Prints `reading` when every stream has begun."""
    stub = InferenceServiceStub(grpc.insecure_channel(sys.argv[1]))
    request = ask("Once upon a time", 400)
    request.stop.ignore_eos = True
    streams = [stub.Generate(request) for _ in range(4)]
    for stream in streams:
        next(stream)
    print("reading", flush=True)
    with ThreadPoolExecutor(len(streams)) as pool:
        list(pool.map(list, streams))
    sys.stdin.read()


if __name__ == "__main__":
    main()
