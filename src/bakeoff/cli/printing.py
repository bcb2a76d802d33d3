"""What commands print for other programs."""

import json


def print_json(data: object) -> None:
    """Print *data* as indented JSON; dataclasses in it are objects."""
    from dataclasses import asdict

    print(json.dumps(data, indent=2, default=asdict))
