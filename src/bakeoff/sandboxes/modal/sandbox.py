"""The Modal sandbox: boxes in the cloud (extra `modal`).

The folder of a box is copied there when it opens and back when it stops; mounts are copied too. The
gateway of this machine cannot be reached from there, so external agent programs do not work on
Modal; agents whose model is called from here, such as `shell`, do, and so does grading. Modal
enforces the limits of memory and processors, but not of processes.
"""

import asyncio
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakeoff._lib import process_identity
from bakeoff._lib.digest import digest
from bakeoff._lib.process import run_to_completion
from bakeoff.core.errors import SandboxError, UsageError, boundary
from bakeoff.core.sandbox import Box, BoxSpec
from bakeoff.core.workspace import Image, Network
from bakeoff.sandboxes.host.imageless import WHOLE_BOX
from bakeoff.sandboxes.modal.box import ModalBox
from bakeoff.sandboxes.modal.sdk import ModalBoxSpec, Remote, Sdk, unavailable_reason

_KIND = {"bakeoff": "box"}
_CREATE_S = 900.0
_NOT_IN_A_TAG = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(kw_only=True)
class Modal:
    """Opens boxes on Modal under one app.

    A box lives at most `lifetime_s`, whatever happens to this machine. `add_python` is the version
    to add to images without Python, which Modal may require.
    """

    app: str = "bakeoff"
    default_image: str = "python:3.11-slim"
    lifetime_s: int = 4 * 3600
    add_python: str | None = None
    name: str = field(default="modal", init=False)
    isolates: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self._sdk = Sdk(self.app)
        self._images: dict[str, Any] = {}
        self._lock = asyncio.Lock()

    @staticmethod
    def available() -> str | None:
        """Return None where the SDK is installed and has a token, else what to do."""
        return unavailable_reason()

    async def image(self, image: Image | None) -> str:
        """Build the image on Modal, and return a name for it."""
        image_spec = image or Image(name=self.default_image)
        key = image_spec.name or f"bakeoff-{digest(image_spec.identity())}"
        async with self._lock:
            if key not in self._images:
                definition = self._define_image(image_spec)
                try:
                    await self._sdk.build(definition)
                except Exception as error:
                    raise UsageError(f"Modal cannot make the image {key!r}: {error}") from error
                self._images[key] = definition
        return key

    def _define_image(self, image: Image) -> Any:
        if image.context is None:
            name = image.name or self.default_image
            return self._sdk.image_by_name(name, add_python=self.add_python)
        folder = Path(image.context.path, image.context.subdir or "").resolve()
        dockerfile = folder / image.dockerfile
        if image.context.commit is not None or not dockerfile.is_file():
            raise UsageError(f"there is no {dockerfile} to build an image from")
        return self._sdk.image_from_dockerfile(
            dockerfile, folder, left_out=image.left_out, add_python=self.add_python
        )

    def check_network(self, network: Network) -> None:
        """Refuse a list of hosts: the allow-list proxy cannot run on Modal."""
        if not isinstance(network, bool) and network:
            raise UsageError(
                "a box on Modal cannot be held to a list of hosts; write network = true or false, "
                "or choose another sandbox: --sandbox docker"
            )

    async def open(self, spec: BoxSpec) -> Box:
        """Return a box on Modal that has a copy of the folder of *spec*."""
        _check(spec)
        self.check_network(spec.network)
        key = spec.image or await self.image(None)
        if key not in self._images:
            key = await self.image(Image(name=key))
        box_spec = ModalBoxSpec(
            image=self._images[key],
            lifetime_s=self.lifetime_s,
            block_network=not spec.network,
            memory_mb=spec.limits.memory_mb,
            cpus=spec.limits.cpus,
            tags={**_KIND, "owner": process_identity.current(), "label": _tag(spec.label)},
        )
        remote = await self._create(box_spec)
        box = ModalBox(remote, spec, tag=f"{process_identity.current()}-{secrets.token_hex(4)}")
        try:
            await box.send()
        except BaseException:
            await box.close()
            raise
        return box

    async def _create(self, box_spec: ModalBoxSpec) -> Remote:
        """Create a box; the request is not cancelled, because the box would keep running unnoticed."""
        created: list[Remote] = []

        async def create() -> None:
            with boundary(SandboxError, "modal"):
                async with asyncio.timeout(_CREATE_S):
                    created.append(await self._sdk.create(box_spec))

        try:
            await run_to_completion(create())
        except BaseException:
            for remote in created:
                await remote.terminate()
            raise
        return created[0]

    async def reap(self) -> Sequence[str]:
        """End the boxes whose owners are dead."""
        lines = []
        with boundary(SandboxError, "modal"):
            async for remote in self._sdk.running(_KIND):
                tag = (await remote.tags()).get("owner", "")
                if process_identity.is_dead(tag):
                    await remote.terminate()
                    lines.append(f"a box on Modal of {tag}")
        return lines

    async def close(self) -> None:
        """Do nothing: nothing is held for the whole run."""


def _check(spec: BoxSpec) -> None:
    if spec.gateway is not None:
        raise UsageError(
            "an agent that is a program of its own reaches its model through the gateway on this "
            "machine, which boxes on Modal cannot; use --sandbox docker, or the agent shell"
        )
    if spec.folder is None:
        raise UsageError(WHOLE_BOX)
    for mount in spec.mounts:
        if mount.writable:
            raise UsageError(f"{mount.target} cannot be written back from Modal: --sandbox docker")


def _tag(label: str) -> str:
    return _NOT_IN_A_TAG.sub("-", label)[:60] or "none"
