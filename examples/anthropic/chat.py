"""Asks imp through Anthropic's client and prints the answer as it comes.

    python chat.py [BASE_URL [PROMPT [MAX_TOKENS [SECONDS]]]]

Needs `pip install anthropic`.
"""

import os
import sys

import anthropic


def chat(base_url: str, prompt: str, max_tokens: int, seconds: float) -> None:
    # The client needs some key. imp checks it only if its settings have tokens.
    with anthropic.Anthropic(base_url=base_url, api_key=os.environ.get("ANTHROPIC_API_KEY", "none")) as client:
        stream = client.messages.stream(
            model="",  # the served model
            messages=[{"role": "user", "content": prompt}],
            max_tokens=max_tokens,
            # A field that is not set takes the model's default; zero means zero. Only imp has the limit of time.
            extra_body={"temperature": 0, "time_limit": seconds},
        )
        # Leaving the block early cancels the call, and the server frees its memory.
        with stream as events:
            for text in events.text_stream:
                print(text, end="", flush=True)
            message = events.get_final_message()
    print(f"\n[{message.stop_reason}]\n[{message.usage.output_tokens} tokens]", file=sys.stderr)
    print()


def main(base_url="http://127.0.0.1:8000", prompt="Who are you?", max_tokens="64", seconds="30") -> int:
    try:
        chat(base_url, prompt, int(max_tokens), float(seconds))
    except anthropic.APIStatusError as error:  # programs test the type
        print(f"{error.type}: {error.body['error']['message']}", file=sys.stderr)
        return 1
    except anthropic.APIError as error:  # a server that cannot be reached
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
