"""Data sets: rows of CSV, TSV, JSON Lines, JSON, Parquet and Hugging Face files as tasks."""
