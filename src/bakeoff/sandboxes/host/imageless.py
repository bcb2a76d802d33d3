"""Refusals of sandboxes that are not containers: images and whole-box changes."""

from bakeoff.core.errors import SandboxError, UsageError
from bakeoff.core.sandbox import BoxSpec
from bakeoff.core.workspace import Image

WHOLE_BOX = "a whole-box task needs a container: --sandbox docker"


def refuse_image(image: Image | None, *, sandbox: str) -> None:
    """Raise where a task needs an image."""
    if image is not None:
        image_name = image.name or f"what {image.dockerfile} builds"
        raise UsageError(
            f"the task needs a container ({image_name}), which {sandbox} is not; "
            "choose one with: --sandbox docker (or --sandbox podman)"
        )


def refuse_whole_box(spec: BoxSpec) -> None:
    """Raise where a box starts from an image, or from the change of one."""
    if spec.image is not None or spec.archive is not None:
        raise SandboxError(WHOLE_BOX)
