"""The stages that make the built-in demo model and its draft."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from .corpus.documents import Part, make_parts
from .dataset import pack, save
from .export import export, read_back
from .golden import write_golden
from .network import DRAFT, TARGET, Network, Shape
from .report import print_report
from .training import Run, train
from .vocabulary import load_vocabulary, train_vocabulary

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = REPOSITORY / "service" / "imp_service" / "models"
GOLDEN = REPOSITORY / "tests" / "data"
FILES = {"target": MODELS / "demo.gguf", "draft": MODELS / "demo-draft.gguf"}
TARGET_SEED, DRAFT_SEED = 1, 2
VOCABULARY_STRIDES = {
    "stories": 12,
    "descriptions": 6,
    "chat": 12,
    "austen": 2,
    "wordnet": 4,
}  # parts not named are left out
ABOUT = {
    "target": ("imp demo", "A tiny language model to try imp with: little stories, simple questions, old novels."),
    "draft": ("imp demo draft", "The draft of imp's demo model: same vocabulary, distilled from it."),
}


def vocabulary_sample(parts: list[Part]) -> Iterator[str]:
    """Yield the text for training the vocabulary: about equal amounts of each source, without special tokens."""
    by_name = {part.name: part for part in parts}
    for name, stride in VOCABULARY_STRIDES.items():
        pieces = [piece for document in by_name[name].train for piece in document]
        for piece in pieces[::stride]:
            yield re.sub(r"<\|\w+\|>", "\n", piece)


def prepare(work: Path) -> None:
    """Fetch and generate the corpus, learn the vocabulary, write the token arrays."""
    work.mkdir(parents=True, exist_ok=True)
    parts = make_parts(work)
    tokenizer = train_vocabulary(vocabulary_sample(parts))
    tokenizer.save(str(work / "tokenizer.json"))
    for part in parts:
        packed = pack(part, tokenizer)
        save(packed, work)
        n_bytes = sum(len(piece.encode()) for document in part.train for piece in document)
        print(f"{part.name}: {n_bytes} bytes, {len(packed.tokens)} tokens")


def trained(shape: Shape, checkpoint: Path) -> Network:
    """Returns the network of a checkpoint."""
    network = Network(shape)
    network.load_state_dict(torch.load(checkpoint, weights_only=True)["network"])
    return network


def train_stage(stage: str, steps: int, work: Path) -> None:
    """Train the target, or distil the draft from the finished target; one thread in each worker process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if stage == "target":
        train(Run(TARGET, steps, TARGET_SEED, work, work / "target.pt"))
    else:
        train(Run(DRAFT, steps, DRAFT_SEED, work, work / "draft.pt", teacher=trained(TARGET, work / "target.pt")))
    dist.destroy_process_group()


def write_sums() -> None:
    """Write the digests of both models next to them; `sha256sum -c` and `imp doctor` read them."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in FILES.values()]
    (MODELS / "SHA256SUMS").write_text("".join(lines), encoding="ascii")


def run(stage: str, work: Path, steps: int | None) -> None:
    """Runs a stage. `steps` is given for the trainings alone."""
    if stage == "prepare":
        prepare(work)
    elif steps is not None:
        train_stage(stage, steps, work)
    elif stage == "export":
        for (name, path), shape in zip(FILES.items(), (TARGET, DRAFT), strict=True):
            export(trained(shape, work / f"{name}.pt"), load_vocabulary(work / "tokenizer.json"), path, *ABOUT[name])
        write_sums()
    elif stage == "golden":
        write_golden(FILES, make_parts(work), load_vocabulary(work / "tokenizer.json"), GOLDEN)
    else:
        networks = {name: read_back(path) for name, path in FILES.items()}
        print_report(networks["target"], networks["draft"], make_parts(work), load_vocabulary(work / "tokenizer.json"))
