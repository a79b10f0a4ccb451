"""Prints the numbers of the model card: bits per byte of each held-out part, the draft's agreement, sample answers."""

import torch
from tokenizers import Tokenizer

from .corpus.documents import Part
from .evaluation import agreement, bits_per_byte, greedy, nats
from .golden import PROMPTS, chat_prompt
from .network import Network
from .vocabulary import END_OF_TEXT, TURN_END, special_id

QUESTIONS = [
    "Hello", "What is imp?", "Who are you?", "What is 3 plus 4?", "What is 12 + 5?", "Tell me a story",
    "Give me a JSON object describing a cat", "What is the capital of France?", "What color is the sky?", "Count to 10",
    "Tell me a story about a fox named Rusty", "How are you?", "What can you do?", "What is a cat?",
]  # fmt: skip
PROMPT_TOKENS, CONTINUED_TOKENS = 24, 48
MAX_DOCUMENTS = 40  # prompts of each part for the agreement


def print_report(target: Network, draft: Network, parts: list[Part], tokenizer: Tokenizer) -> None:
    end_of_text, turn_end = (special_id(tokenizer, token) for token in (END_OF_TEXT, TURN_END))
    for part in parts:
        encoded = [tokenizer.encode(document).ids for document in part.held_out]
        n_bytes = sum(len(document.encode()) for document in part.held_out)
        totals = [sum(nats(network, ids, end_of_text) for ids in encoded) for network in (target, draft)]
        scores = [bits_per_byte(total, n_bytes) for total in totals]
        prompts = [ids[at : at + PROMPT_TOKENS] for ids in encoded for at in range(0, len(ids), 1000)]
        full = torch.tensor([ids for ids in prompts if len(ids) == PROMPT_TOKENS][:MAX_DOCUMENTS])
        agreed = agreement(target, draft, full, CONTINUED_TOKENS)
        print(
            f"{part.name}: {n_bytes} bytes held out, bits per byte: target {scores[0]:.3f}, draft {scores[1]:.3f}; "
            f"greedy agreement {agreed:.1%} over {full.shape[0]} prompts"
        )
    for text in [*PROMPTS, *map(chat_prompt, QUESTIONS)]:
        result = greedy(target, tokenizer.encode(text).ids, 220, (end_of_text, turn_end))
        print(f"--- {text!r}\n{tokenizer.decode(result.output, skip_special_tokens=False)}")
