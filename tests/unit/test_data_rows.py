"""Files of rows: what is read from each format, and what is said of files that are broken."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bakeoff.core.errors import UsageError
from bakeoff.formats.data.columns import DataOptions
from bakeoff.formats.data.data_set import HashSet
from bakeoff.formats.data.duckdb_rows import sql_filtered
from bakeoff.formats.detect import open_data_set, read_source


def _rows(path: Path) -> list[dict[str, Any]]:
    return [dict(row.values) for row in open_data_set(path).rows()]


def _lines(path: Path) -> list[int]:
    return [row.line for row in open_data_set(path).rows()]


def _file(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'q,a\r\n"Größe\nin m?",ß\r\n\r\n2,3\r\n'),
        ("a.tsv", 'q\ta\n"Größe\nin m?"\tß\n2\t3'),
        ("a.jsonl", '{"q": "Größe\\nin m?", "a": "ß"}\n\n\n{"q": 2, "a": 3}\n'),
        ("a.json", '[{"q": "Größe\\nin m?", "a": "ß"},\n\n\n {"q": 2, "a": 3}]\n'),
    ],
)
def test_rows_and_their_lines(tmp_path: Path, name: str, text: str, encoding: str) -> None:
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path = _file(tmp_path, name, mark + text.encode(encoding))
    assert _rows(path) == [{"q": "Größe\nin m?", "a": "ß"}, {"q": "2", "a": "3"}]
    first = 2 if name.endswith("sv") else 1
    assert _lines(path) == [first, {"a.csv": 5}.get(name, 4)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", r"a\.csv is empty; its first line must name the columns"),
        ("a.jsonl", "", r"a\.jsonl is empty; it must hold one JSON object per line"),
        ("a.csv", "a,b\n1\n", r"a\.csv:2: 1 cell, and the header names 2 columns"),
        ("a.csv", 'a,b\n"x\ny",2\n1,2,3\n', r"a\.csv:4: 3 cells, and the header names 2"),
        ("a.csv", "a,b,a\n1,2,3\n", r"a\.csv:1: columns 1 and 3 are both named 'a'"),
        ("a.csv", ",\n1,2\n", r"a\.csv:1: the header names no column"),
        ("a.csv", 'a,b\n1,2\n"open,2\n3,4\n', r"a\.csv:3: a quote that is opened in this row"),
        ("a.csv", 'a,b\n"x"y,2\n', r"a\.csv:2: not valid CSV: .* write a quote twice"),
        ("a.csv", b"a,b\n1,caf\xe9\n", r"a\.csv:2: not UTF-8 text \(byte 9 is 0xe9\)"),
        ("a.csv", b"a,b\n1,\x00\n", r"a\.csv:2: there is a NUL character"),
        (
            "a.csv",
            "a,b\nß,2\n".encode("utf-16-le"),
            r"a\.csv: this is UTF-16 text without a byte order",
        ),
        ("a.csv", "a,b\n1,2\n".encode("utf-16-le"), r"a\.csv:1: there is a NUL character.*UTF-16"),
        ("a.csv", "a,b\n".encode("utf-32"), r"a\.csv:1: this is UTF-32"),
        ("a.csv", "a,b\n".encode("utf-16") + b"x", r"not valid UTF-16"),
        ("a.jsonl", '{"a": 1}\n{"a": }\n', r"a\.jsonl:2: not valid JSON: Expecting value"),
        ("a.jsonl", '{"a": 1}\n[1]\n', r"a\.jsonl:2: a row must be an object.* not a list"),
        ("a.jsonl", '{"a": 1}\n\n{"a": 1, "a": 2}\n', r"a\.jsonl:3: a key is repeated"),
        ("a.jsonl", '{"a": NaN}\n', r"a\.jsonl:1: .*NaN"),
        ("a.jsonl", b'{"a": "\xff"}\n', r"a\.jsonl:1: not UTF-8 text"),
        ("a.json", '[{"a": 1},\n {"a": 2}\n {"a": 3}]', r"a\.json:3: .*a comma or the end"),
        ("a.json", '[{"a": 1},\n {"a": 2', r"a\.json:2: not valid JSON"),
        ("a.json", '[{"a": 1}] x', r"a\.json:1: .*something follows the end"),
        ("a.json", '[{"a": 1}, 2]', r"a\.json:1: a row must be an object"),
    ],
)
def test_a_broken_file_is_an_error_with_its_line(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        _rows(_file(tmp_path, name, content))


def test_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    assert _rows(_file(tmp_path, "a.csv", "a,b\n")) == []
    assert _rows(_file(tmp_path, "a.json", "[]")) == []


def test_an_index_column_without_a_name_is_left_out(tmp_path: Path) -> None:
    assert _rows(_file(tmp_path, "a.csv", ",q\n0,x\n")) == [{"q": "x"}]


def test_semicolons_are_read_where_the_header_has_no_comma(tmp_path: Path) -> None:
    assert _rows(_file(tmp_path, "a.csv", "q;a\nx;1,5\n")) == [{"q": "x", "a": "1,5"}]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json"])
def test_a_cell_of_ten_megabytes_is_read(tmp_path: Path, name: str) -> None:
    cell = "0123456789\n" * 1_000_000
    text = {
        "a.csv": f'q,a\n"{cell}",1\n',
        "a.jsonl": json.dumps({"q": cell, "a": "1"}),
        "a.json": json.dumps([{"q": cell, "a": "1"}]),
    }[name]
    assert _rows(_file(tmp_path, name, text)) == [{"q": cell, "a": "1"}]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json"])
def test_reading_holds_no_more_than_a_batch_of_rows(tmp_path: Path, name: str) -> None:
    cell = "x" * 200
    text = {
        "a.csv": "q\n" + f"{cell}\n" * 20_000,
        "a.jsonl": f'{{"q": "{cell}"}}\n' * 20_000,
        "a.json": "[" + ",\n".join([f'{{"q": "{cell}"}}'] * 20_000) + "]",
    }[name]
    path = _file(tmp_path, name, text)
    tracemalloc.start()
    count = sum(1 for _ in open_data_set(path).rows())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert peak < len(text) / 4


def test_a_spreadsheets_ways_of_writing_csv_are_read(tmp_path: Path) -> None:
    rows = [{"q": "What, exactly?", "a, b": "2"}, {"q": "Who", "a, b": "3"}]
    path = tmp_path / "a.csv"
    for text in (
        'q;"a, b"\nWhat, exactly?;2\nWho;3\n;\n;\n',
        'sep=;\nq;"a, b"\nWhat, exactly?;2\nWho;3\n',
        "sep=|\r\nq|a, b\r\nWhat, exactly?|2\r\n||||\r\nWho|3\r\n",
    ):
        path.write_bytes(text.encode())
        assert _rows(path) == rows
        assert sum(shape.rows for shape in open_data_set(path).scan()) == 2
    assert _lines(path) == [3, 5]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json"])
def test_a_look_through_a_file_counts_what_is_read_from_it(tmp_path: Path, name: str) -> None:
    texts = {
        "a.csv": 'q,a\n"x\ny",1\n\n2,\n',
        "a.tsv": 'q\ta\n"x\ny"\t1\n\n2\t\n',
        "a.jsonl": '{"q": "x\\ny", "a": 1}\n\n{"q": 2, "a": null}\n{"a": 3}',
        "a.json": '[{"q": "x\\ny", "a": 1},\n{"q": 2, "a": null}, {"a": 3}]',
    }
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        data = open_data_set(_file(tmp_path, name, texts[name].encode(encoding)))
        shapes, rows = data.scan(), list(data.rows())
        assert sum(shape.rows for shape in shapes) == len(rows)
        assert shapes[0].first == rows[0]
        assert {tuple(s.first.values) for s in shapes} == {tuple(row.values) for row in rows}


def test_a_look_through_parquet_counts_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    duckdb.sql(f"COPY (SELECT range AS q FROM range(3000)) TO '{path}' (FORMAT parquet)")
    ((first, many),) = open_data_set(path).scan()
    assert (dict(first.values), many) == ({"q": "0"}, 3000)


def test_a_set_of_hashes_knows_what_it_holds() -> None:
    hashes = HashSet()
    values = [hash(f"id {n}") for n in range(20_000)]
    assert all(hashes.add(value) for value in values)
    assert not any(hashes.add(value) for value in values)
    assert hashes.add(0)
    assert not hashes.add(0)
    assert len(hashes) == 20_001


SPOKEN = [
    {"id": "a", "lang": "de", "level": 3, "text": "it's"},
    {"id": "b", "lang": "fr", "level": 10, "text": ""},
    {"id": "c", "lang": "de", "level": None, "text": ["x", 1]},
]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("level > 2", "ab"),
        ("lang = 'de' AND level IS NOT NULL -- a remark", "a"),
        ("text LIKE '%''%'", "a"),
        ("level IS NULL OR text IS NULL", "bc"),
        ("true) OR (true", "abc"),
    ],
)
def test_a_condition_in_sql_takes_its_rows(
    tmp_path: Path, name: str, condition: str, ids: str
) -> None:
    cells = 'id,lang,level,text\na,de,3,it\'s\nb,fr,10,\nc,de,,"[""x"", 1]"\n'
    lines = "".join(json.dumps(row) + "\n" for row in SPOKEN)
    file = open_data_set(_file(tmp_path, name, cells if name == "a.csv" else lines))
    rows = {row.values["id"]: row for row in file.rows()}
    found = list(sql_filtered(file, condition, "sql").rows())
    assert found == [rows[name] for name in ids]


def test_a_condition_in_sql_holds_for_each_row_of_many(tmp_path: Path) -> None:
    text = "id,level\n" + "".join(f"q{n},{n % 7}\n" for n in range(2500))
    file = sql_filtered(open_data_set(_file(tmp_path, "a.csv", text)), "level = 3", "sql")
    rows = list(file.rows())
    assert [row.values["id"] for row in rows] == [f"q{n}" for n in range(3, 2500, 7)]
    assert [row.line for row in rows][:2] == [5, 12]
    assert sum(shape.rows for shape in file.scan()) == len(rows)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("levle > 2", r"run\.toml:2: `sql`: .*levle.*the columns are: id, level"),
        ("level >", r"run\.toml:2: `sql`: Parser Error"),
        ("level > 99", r"run\.toml:2: `sql` matches none of the rows"),
        ("id IN (SELECT content FROM read_text('/etc/hostname'))", "disabled by configuration"),
        ("1; SET enable_external_access = true", r"run\.toml:2: `sql`: Parser Error"),
    ],
)
def test_what_is_wrong_with_a_condition_in_sql_is_said_with_its_line(
    tmp_path: Path, condition: str, message: str
) -> None:
    _file(tmp_path, "a.csv", "id,level\na,3\nb,4\n")
    run = _file(tmp_path, "run.toml", f'[[data]]\nsql = """{condition}"""\npath = "a.csv"\n')
    with pytest.raises(UsageError, match=message):
        read_source(run, None, DataOptions(own_prompt=False))
