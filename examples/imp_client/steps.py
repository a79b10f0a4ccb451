"""Generates one token per call. The program sees each token and may choose another.

python steps.py [TARGET [PROMPT [STEPS]]]
"""

import sys

import imp_client


def main(target: str = "127.0.0.1:50051", prompt: str = "Once upon a time", steps: str = "16") -> int:
    # The session's tokens stay in the server's cache until the end of the block.
    with imp_client.connect(target, timeout=30) as model, model.open(temperature=0) as session:
        try:
            output = session.prefill(prompt)
            print(output.text, end="", flush=True)
            for _ in range(int(steps) - 1):
                if output.eos:
                    break
                # Evaluates the token that was sampled last, because it sends no other.
                output = session.decode_step()
                print(output.text, end="", flush=True)
            print()
            # A second writer of the session is refused, because its position is out of date.
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
