"""Export of a trained student as the artifact that serves: NAME.safetensors and its card NAME.json."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from tiphys_models.artifacts.files import Parts
from tiphys_models.placement.score_network import INPUTS, ModelCard, ScoreNetwork, check_network, load_network, pack_weights
from tiphys_models.placement.train.rollouts import TRAIN_EPSILON, Student

SCRAPE_WINDOWS_S = [1, 2, 5, 15, 30]
"""Ages of readings in the curriculum."""


def schema_of(inputs: int) -> str:
    """The version of the encoder that gives so many inputs."""
    return next(schema for schema, width in INPUTS.items() if width == inputs)


def to_network(student: Student, name: str, windows_s: list[int], **evidence: Any) -> tuple[ScoreNetwork, bytes, bytes]:
    """The network as it will serve, its card and its weights, having passed the checks of the loader."""
    weights = pack_weights(student.layers)
    card = ModelCard(
        name=name,
        policy="faasrank",
        feature_schema=schema_of(len(student.mean)),
        sha256=sha256(weights).hexdigest(),
        scrape_windows_s=windows_s,
        mean=student.mean.tolist(),
        scale=student.scale.tolist(),
        clip=student.clip,
        epsilon=TRAIN_EPSILON,
        **evidence,
    )
    card_json = card.as_json()
    return check_network(Parts(card_json, weights, name)), card_json, weights


def write_artifact(directory: Path, student: Student, name: str, windows_s: list[int], **evidence: Any) -> ScoreNetwork:
    """Write both files and read them back as a service would."""
    _, card_json, weights = to_network(student, name, windows_s, **evidence)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.safetensors").write_bytes(weights)
    path = directory / f"{name}.json"
    path.write_bytes(card_json)
    return load_network(path)


def to_student(network: ScoreNetwork) -> Student:
    """A student made of an artifact, to go on training."""
    return Student(network.weights, network.mean, network.scale, network.card.clip)
