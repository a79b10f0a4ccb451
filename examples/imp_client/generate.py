"""Generates text with imp's Python client and prints it as it comes.

python generate.py [TARGET [PROMPT [MAX_TOKENS [DEADLINE_SECONDS]]]]

TARGET is host:port or unix:///path.
"""

import sys

import imp_client


def generate(target: str, prompt: str, max_tokens: int, deadline: float) -> None:
    # TLS and a token: connect(target, ca="ca.pem", token="…").
    with imp_client.connect(target) as model:
        # The deadline travels with the call: when it passes, the server stops its work, too. It also stops if the
        # generation is closed or dropped, or this process ends.
        generation = model.generate(prompt, temperature=0, max_tokens=max_tokens, timeout=deadline)
        for reply in generation:
            if isinstance(reply, imp_client.Started):
                print(f"[{model.name}, seed {reply.seed}]", file=sys.stderr)
            print(reply.text, end="", flush=True)
        result = generation.result()
        print(f"\n[{result.finish_reason}, {result.usage.output_tokens} tokens]", file=sys.stderr)


def explain(error: imp_client.Error) -> str:
    """Returns the reason (which programs test), every field that is wrong, and when to try again."""
    lines = [f"{error.reason}: {error.message}"]
    if isinstance(error, imp_client.FieldsInvalid):
        lines += [f"  {violation.path}: {violation.message}" for violation in error.violations]
    if error.retry_after is not None:
        lines.append(f"  the same call may succeed in {error.retry_after:g} s")
    return "\n".join(lines)


def main(
    target: str = "127.0.0.1:50051", prompt: str = "Once upon a time", max_tokens: str = "64", deadline: str = "30"
) -> int:
    try:
        generate(target, prompt, int(max_tokens), float(deadline))
    except imp_client.Error as error:
        print(f"\n{explain(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
