"""A selector's online state as bytes that fit into a ConfigMap, and back; never unpickled."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused

MAX_BYTES = 1_000_000
"""Most bytes of the base64 text: a ConfigMap holds 1 MiB, names and all."""


def pack(arrays: Mapping[str, FloatArray]) -> str:
    """Base64 of safetensors; 64-bit numbers, so that a restarted selector chooses exactly as one that was never stopped."""
    text = base64.b64encode(save_tensors({name: np.ascontiguousarray(array) for name, array in arrays.items()})).decode("ascii")
    if len(text) > MAX_BYTES:
        raise ArtifactRefused("TooLarge", f"a checkpoint of {len(text)} bytes does not fit into a ConfigMap")
    return text


def unpack(text: str) -> dict[str, FloatArray]:
    """Finite arrays, or ArtifactRefused; whether they fit the selector is for its `restore` to say."""
    if len(text) > MAX_BYTES:
        raise ArtifactRefused("TooLarge", f"a checkpoint has at most {MAX_BYTES} bytes")
    try:
        arrays = load_tensors(base64.b64decode(text, validate=True))
    except (binascii.Error, SafetensorError, ValueError, KeyError) as error:
        raise ArtifactRefused("CheckpointInvalid", f"a checkpoint that cannot be read: {error}") from error
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.floating) or not np.isfinite(array).all():
            raise ArtifactRefused("CheckpointInvalid", f"{name} in a checkpoint must be finite floating-point numbers")
    return dict(arrays)


def fitting(arrays: Mapping[str, FloatArray], like: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The arrays if they have the names of `like` and its shapes (first axes may differ where it is marked by length 0)."""
    if set(arrays) != set(like):
        raise ArtifactRefused("CheckpointInvalid", f"a checkpoint holds {', '.join(sorted(like))}")
    for name, array in like.items():
        shape, found = array.shape, arrays[name].shape
        same = len(shape) == len(found) and (shape[1:] == found[1:] if shape and shape[0] == 0 else shape == found)
        if not same:
            raise ArtifactRefused("CheckpointInvalid", f"{name} in a checkpoint has shape {list(found)}, wanted {list(shape)}")
    return {name: np.array(array, np.float64) for name, array in arrays.items()}
