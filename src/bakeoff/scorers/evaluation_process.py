"""Evaluates one prediction inside the grading box.

This file is never imported: `python3 -I -c` runs its source in the box. It loads a task's
`evaluation_metrics.py`, calls its `evaluate(y_true_path, y_pred_path)`, and prints the result as one
line of JSON, prefixed with the token that it read from standard input.
"""

import json
import math
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location


def _call(evaluate: object, truth: str, prediction: str) -> dict[str, object]:
    try:
        score = float(evaluate(truth, prediction))  # type: ignore[operator]
    except BaseException as error:  # noqa: BLE001 -- whatever it raises is what came of it
        return {"error": f"{type(error).__name__}: {error}"[:2000]}
    return {"score": score} if math.isfinite(score) else {"error": f"it returned {score}"}


def _load(path: str) -> object:
    sys.path.insert(0, os.path.dirname(path))  # noqa: PTH120 -- it may import its neighbours
    spec = spec_from_file_location("evaluation_metrics", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.evaluate


def _evaluate_prediction(module: str, truth: str, prediction: str) -> dict[str, object]:
    try:
        evaluate = _load(module)
    except BaseException as error:  # noqa: BLE001 -- an evaluation that cannot be loaded
        return {"broken": f"{type(error).__name__}: {error}"[:2000]}
    if not os.path.lexists(prediction):
        return {"missing": True}
    here = os.path.realpath(os.path.dirname(prediction))  # noqa: PTH120
    if os.path.realpath(prediction) != os.path.join(here, os.path.basename(prediction)):  # noqa: PTH118, PTH119
        return {"error": "it is a link, and not a file of its own", "own": True}
    if not os.path.isfile(prediction):  # noqa: PTH113
        return {"error": "it is no file", "own": True}
    record = _call(evaluate, truth, prediction)
    if "error" in record:
        # the truth as its own prediction: if that fails too, the prediction is not at fault
        record["control"] = _call(evaluate, truth, truth).get("error")
    return record


def main() -> None:
    """Evaluate the prediction and print the result."""
    token = sys.stdin.read()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    record = _evaluate_prediction(*sys.argv[1:4])
    out.write(f"\n{token}{json.dumps(record)}\n")
    out.flush()
    out.close()
    os._exit(0)


if __name__ == "__main__":
    main()
