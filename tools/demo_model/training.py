"""Trains a network in a given number of steps: warm-up, constant rate, linear decay; resumable."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional

from .dataset import Batches
from .network import Network, Shape

WARMUP_STEPS = 100
DECAY_FRACTION = 0.4  # share of all steps at the end, in which the rate falls linearly to zero
MATRIX_RATE, OTHER_RATE = 5e-3, 3e-3
WEIGHT_DECAY = 0.1
MAX_GRADIENT_NORM = 1.0
CHECKPOINT_SECONDS = 60
TAUGHT_SHARE = 0.9  # weight of the teacher's distribution in the loss of a distillation


@dataclass(frozen=True)
class Run:
    """The parameters of a training run; `teacher` makes it a distillation."""

    shape: Shape
    steps: int
    seed: int
    data: Path
    checkpoint: Path
    teacher: Network | None = None


def rate_at(step: int, steps: int) -> float:
    """Returns the factor of the learning rate. Before the decay it ignores `steps`, which a resumed run may change."""
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    return min(warm, max(0.0, (steps - step) / (DECAY_FRACTION * steps)))


def _optimizers(network: Network) -> list[torch.optim.Optimizer]:
    """Returns Muon for the matrices inside the layers, AdamW for the embedding and the norms."""
    matrices = [p for name, p in network.named_parameters() if p.dim() == 2 and not name.startswith("token_embd")]
    others = [p for name, p in network.named_parameters() if p.dim() != 2 or name.startswith("token_embd")]
    return [
        torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.01),
    ]


def _loss(network: Network, teacher: Network | None, windows: torch.Tensor) -> torch.Tensor:
    """Returns cross entropy with the next token; with a teacher, mostly the divergence from its distribution."""
    ids, targets = windows[:, :-1], windows[:, 1:]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(ids)
    logits = logits.float().flatten(0, 1)
    loss = functional.cross_entropy(logits, targets.flatten())
    if teacher is None:
        return loss
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        taught = teacher(ids).float().flatten(0, 1).log_softmax(-1)
    divergence = functional.kl_div(logits.log_softmax(-1), taught, log_target=True, reduction="batchmean")
    return (1 - TAUGHT_SHARE) * loss + TAUGHT_SHARE * divergence


def _average_gradients(network: Network) -> None:
    """Replaces every gradient by its mean over the worker processes, in one exchange."""
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def train(run: Run) -> Network:
    """Trains from the start or the checkpoint. Every worker process calls this and returns the same network."""
    network = Network(run.shape)
    network.initialize(run.seed)
    optimizers = _optimizers(network)
    rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    batches = Batches(run.data, run.seed)
    step, seconds = 0, 0.0
    if run.checkpoint.exists():
        state = torch.load(run.checkpoint, weights_only=True)
        step, seconds = state["step"], state["seconds"]
        network.load_state_dict(state["network"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
    last_save = began = time.monotonic()
    while step < run.steps:
        for optimizer, rate in zip(optimizers, rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * rate_at(step, run.steps)
        windows = torch.from_numpy(batches.at(step, step / run.steps))[dist.get_rank() :: dist.get_world_size()]
        loss = _loss(network, run.teacher, windows)
        loss.backward()
        _average_gradients(network)
        torch.nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        now = time.monotonic()
        if dist.get_rank() == 0 and (step % 20 == 0 or step == run.steps):
            print(f"step {step}/{run.steps} loss {loss.item():.4f} seconds {seconds + now - began:.0f}", flush=True)
        if dist.get_rank() == 0 and (now - last_save > CHECKPOINT_SECONDS or step == run.steps):
            last_save = now
            state = {
                "step": step,
                "seconds": seconds + now - began,
                "network": network.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            }
            partial = run.checkpoint.with_suffix(".partial")
            torch.save(state, partial)
            partial.replace(run.checkpoint)
    return network
