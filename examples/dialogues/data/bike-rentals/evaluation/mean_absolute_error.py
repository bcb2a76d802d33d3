"""How far the predicted rentals are from the true ones, on average."""

import csv
from pathlib import Path


def evaluate(y_true_path, y_pred_path):
    true, predicted = _rentals(y_true_path), _rentals(y_pred_path)
    if set(true) != set(predicted):
        raise ValueError("the days are not those of the test")
    return sum(abs(true[day] - predicted[day]) for day in true) / len(true)


def _rentals(path):
    with Path(path).open(newline="") as file:
        return {row["day"]: float(row["rentals"]) for row in csv.DictReader(file)}
