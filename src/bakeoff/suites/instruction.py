"""What the agent of a coding task is told."""

from pathlib import Path

from bakeoff.core.errors import UsageError

INSTRUCTION = "instruction.md"


def read_instruction(folder: Path) -> str:
    """Return the instruction in *folder*."""
    file = folder / INSTRUCTION
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}; write the agent's instructions into it"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text (byte {error.start})") from error
    if not text.strip():
        raise UsageError(f"{file} is empty; write the agent's instructions into it")
    return text
