"""Embeds texts through OpenAI's client and prints how similar each is to the first.

    python embed.py [BASE_URL [TEXT ...]]

Needs `pip install openai`, and a server of a model that makes vectors.
"""

import os
import sys

import openai

TEXTS = ("It is cold today.", "The weather is freezing.", "He drove to the stadium.")


def embed(base_url: str, texts: list[str]) -> None:
    with openai.OpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY", "none")) as client:
        model = client.models.list().data[0].id
        vectors = [each.embedding for each in client.embeddings.create(model=model, input=texts).data]
    for text, vector in zip(texts, vectors, strict=True):
        similarity = sum(a * b for a, b in zip(vector, vectors[0], strict=True))  # vectors have length 1
        print(f"{similarity:.4f}  {text}")


def main(base_url="http://127.0.0.1:8000/v1", *texts) -> int:
    try:
        embed(base_url, list(texts or TEXTS))
    except openai.APIError as error:
        # Programs test the code. A server that cannot be reached gives none.
        print(f"{error.code}: {error.message}" if error.code else error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
