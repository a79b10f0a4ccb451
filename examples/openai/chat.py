"""Asks imp through OpenAI's client and prints the answer as it comes.

    python chat.py [BASE_URL [PROMPT [MAX_TOKENS [SECONDS]]]]

Needs `pip install openai`.
"""

import os
import sys

import openai


def chat(base_url: str, prompt: str, max_tokens: int, seconds: float) -> None:
    # The client needs some key. imp checks it only if its settings have tokens.
    with openai.OpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY", "none")) as client:
        model = client.models.list().data[0].id
        stream = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": prompt}],
            temperature=0,  # a field that is not set takes the model's default; zero means zero
            max_completion_tokens=max_tokens,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"time_limit": seconds},  # a field that only imp has
        )
        # Leaving the block early cancels the call, and the server frees its memory.
        with stream:
            for chunk in stream:
                for choice in chunk.choices:
                    print(choice.delta.content or "", end="", flush=True)
                    if choice.finish_reason:
                        print(f"\n[{choice.finish_reason}]", file=sys.stderr)
                if chunk.usage:  # in the last chunk, which has no choices
                    print(f"[{chunk.usage.completion_tokens} tokens]", file=sys.stderr)
    print()


def main(base_url="http://127.0.0.1:8000/v1", prompt="Who are you?", max_tokens="64", seconds="30") -> int:
    try:
        chat(base_url, prompt, int(max_tokens), float(seconds))
    except openai.APIError as error:  # programs test the code
        # A server that cannot be reached gives none.
        print(f"{error.code}: {error.message}" if error.code else error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
