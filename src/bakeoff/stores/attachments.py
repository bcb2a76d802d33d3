"""The pictures and files of a run: kept once each, by their content, in the folder of the run."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bakeoff._lib import files
from bakeoff._lib.files import write_atomic
from bakeoff.core.attachment import AttachedBytes, Attachment
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.task import Task
from bakeoff.stores.ledger_writer import BLOBS
from bakeoff.stores.writing import writing_to


class AttachmentStore:
    """Keeps the content of attachments in a run's *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / BLOBS
        self._whole: set[str] = set()  # those that are known to be here

    def keep(self, attachment: Attachment) -> None:
        """Copy the content of *attachment* here, unless it is here already and whole."""
        if attachment.blob in self._whole:
            return
        if self.damage_of(attachment) is not None:
            path, data = self._folder / attachment.blob, attachment.read()
            with writing_to(path):
                files.make_folder(self._folder, durable=True)
                write_atomic(path, data)
        self._whole.add(attachment.blob)

    def damage_of(self, attachment: Attachment) -> str | None:
        """Return why the content of *attachment* cannot be had from here; None where it can."""
        try:
            self.kept(attachment).read()
        except UsageError as error:
            return str(error)
        return None

    def damages(self, attachments: Iterable[Attachment]) -> list[str]:
        """Return a line for each of *attachments* whose content is lost or is not what it was."""
        by_blob = {attachment.blob: attachment for attachment in attachments}
        found = ((each.label, self.damage_of(each)) for each in by_blob.values())
        return [f"{label}: {why}" for label, why in found if why is not None]

    def keep_said(self, attachment: Attachment) -> None:
        """Copy the content of *attachment* of a transcript here; an agent may have removed it since."""
        if isinstance(attachment, AttachedBytes) or Path(attachment.path).is_file():
            self.keep(attachment)

    def kept(self, attachment: Attachment) -> Attachment:
        """Return *attachment* with the copy that is kept here as its file."""
        return Attachment(
            media_type=attachment.media_type,
            digest=attachment.digest,
            size=attachment.size,
            name=attachment.name,
            at=attachment.at,
            path=str(self._folder / attachment.blob),
        )

    def task(self, task: Task) -> Task:
        """Return *task* with the copies that are kept here."""
        return task.with_attachments(self.kept) if any(task.attachments) else task

    def outcome(self, outcome: Outcome) -> Outcome:
        """Return *outcome* with the copies that are kept here."""
        if not any(message.attachments for message in outcome.transcript):
            return outcome
        transcript = (message.with_attachments(self.kept) for message in outcome.transcript)
        return replace(outcome, transcript=tuple(transcript))
