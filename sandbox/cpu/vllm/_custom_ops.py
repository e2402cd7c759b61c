"""Rotary position embedding in plain torch.

Where SGLang finds neither CUDA nor its kernels for CPUs it takes this one operation from vLLM, which would
bring a second engine into the environment.
"""

from __future__ import annotations

import torch


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> None:
    """Rotate query and key in place, each of shape (tokens, heads * head_size)."""
    cos, sin = cos_sin_cache[positions.flatten()].float().unsqueeze(1).chunk(2, dim=-1)
    for states in (query, key):
        if states is not None:
            heads = states.view(positions.numel(), -1, head_size)
            rotated = heads[..., : 2 * cos.shape[-1]]  # a model may rotate only the first part of each head
            rotated.copy_(_rotate(rotated.float(), cos, sin, is_neox))


def _rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, is_neox: bool) -> torch.Tensor:
    """Turn pairs of numbers by an angle: pairs from two halves (GPT-NeoX) or neighbours (GPT-J)."""
    if is_neox:
        first, second = states.chunk(2, dim=-1)
    else:
        first, second = states[..., ::2], states[..., 1::2]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat(turned, dim=-1) if is_neox else torch.stack(turned, dim=-1).flatten(-2)
