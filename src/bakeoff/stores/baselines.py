"""Baselines: names of runs that others are measured against, in a file beside the runs."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from bakeoff._lib.files import write_atomic
from bakeoff.core.errors import UsageError

BASELINES = "baselines.json"


def read_baselines(output: Path) -> dict[str, str]:
    """Return the run of every baseline in *output*, by name."""
    path = output / BASELINES
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UsageError(
            f"{path} cannot be read as baselines ({error}); remove it and set them again with: "
            "bakeoff baseline set NAME RUN"
        ) from error


def write_baselines(known: Mapping[str, str], output: Path) -> None:
    """Write the baselines of *output*."""
    path = output / BASELINES
    try:
        write_atomic(path, msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
