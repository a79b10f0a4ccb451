"""Generates token by token: every step is the client's own, which may look at each token and choose another.

python steps.py [TARGET [PROMPT [STEPS]]]
"""

import sys

import imp_client


def main(target: str = "127.0.0.1:50051", prompt: str = "Once upon a time", steps: str = "16") -> int:
    # The session's tokens stay in the server's cache. The end of the block frees them.
    with imp_client.connect(target, timeout=30) as model, model.open(temperature=0) as session:
        try:
            output = session.prefill(prompt)
            print(output.text, end="", flush=True)
            for _ in range(int(steps) - 1):
                if output.eos:
                    break
                # Without tokens it evaluates the one that was sampled last.
                output = session.decode_step()
                print(output.text, end="", flush=True)
            print()
            # What two writers of one session see: the position is not what the second one believes.
            try:
                session.decode_step([1], position=1)
            except imp_client.StateError as error:
                print(f"{error.reason}: {error.message}", file=sys.stderr)
        except imp_client.Error as error:
            print(f"\n{error.reason}: {error.message}", file=sys.stderr)
            return 1
        print(f"[{session.position} tokens held]", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
