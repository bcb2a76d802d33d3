"""Pictures and files in prompts: read beside the suite, sent in every dialect, kept once, shown."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.app.inspection import check_run
from bakeoff.core.attachment import AttachedBytes, Attachment
from bakeoff.core.errors import UsageError
from bakeoff.core.events import TrialEnded
from bakeoff.core.stop import Stop
from bakeoff.formats.data.columns import DataOptions
from bakeoff.formats.detect import read_source
from support.endpoints import ENDPOINTS, Endpoint
from support.loopback import Asked, Loopback, Reply
from support.pictures import BLUE, PDF, RED, b64, uri

Json = Any
TEXT = b"The code is K7."


def _suite(folder: Path, *tests: Json, name: str = "suite.json") -> Path:
    for file, data in {
        "red.png": RED,
        "blue.png": BLUE,
        "page.pdf": PDF,
        "notes.txt": TEXT,
    }.items():
        (folder / file).write_bytes(data)
    path = folder / name
    path.write_text(json.dumps({"tests": list(tests)}))
    return path


PARTS = {
    "id": "parts",
    "messages": [
        {
            "role": "user",
            "content": [
                {"text": "First "},
                {"image": "red.png"},
                {"text": "then "},
                {"type": "image_url", "image_url": {"url": uri(BLUE)}},
                {"file": "notes.txt"},
                {"text": "Same?"},
            ],
        }
    ],
}
BEFORE_LAST = "notes.txt:\nThe code is K7.\nSame?"
WIRE: dict[str, Json] = {
    "openai-compatible": [
        {"type": "text", "text": "First "},
        {"type": "image_url", "image_url": {"url": uri(RED)}},
        {"type": "text", "text": "then "},
        {"type": "image_url", "image_url": {"url": uri(BLUE)}},
        {"type": "text", "text": BEFORE_LAST},
    ],
    "openai-responses": [
        {"type": "input_text", "text": "First "},
        {"type": "input_image", "image_url": uri(RED)},
        {"type": "input_text", "text": "then "},
        {"type": "input_image", "image_url": uri(BLUE)},
        {"type": "input_text", "text": BEFORE_LAST},
    ],
    "anthropic": [
        {"type": "text", "text": "First "},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": b64(RED)},
        },
        {"type": "text", "text": "then "},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": b64(BLUE)},
        },
        {"type": "text", "text": BEFORE_LAST},
    ],
    "gemini": [
        {"text": "First "},
        {"inlineData": {"mimeType": "image/png", "data": b64(RED)}},
        {"text": "then "},
        {"inlineData": {"mimeType": "image/png", "data": b64(BLUE)}},
        {"text": BEFORE_LAST},
    ],
}
DOCUMENTS: dict[str, Json] = {
    "openai-compatible": {
        "type": "file",
        "file": {"filename": "page.pdf", "file_data": uri(PDF, "application/pdf")},
    },
    "openai-responses": {
        "type": "input_file",
        "filename": "page.pdf",
        "file_data": uri(PDF, "application/pdf"),
    },
    "anthropic": {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": b64(PDF)},
        "title": "page.pdf",
    },
    "gemini": {"inlineData": {"mimeType": "application/pdf", "data": b64(PDF)}},
}


def _model(endpoint: Endpoint, url: str, **settings: Json) -> bakeoff.ModelSpec:
    return bakeoff.ModelSpec(
        provider=endpoint.name,
        name="m",
        base_url=url,
        api_key="no-secret-at-all",
        settings={"max_retries": 0, **settings},
    )


def _content(body: Json) -> Json:
    """What the user says last, as the API has it."""
    if "contents" in body:
        return body["contents"][-1]["parts"]
    return body.get("messages", body.get("input"))[-1]["content"]


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.name)
def test_every_dialect_is_sent_text_and_pictures_in_their_order(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    with Loopback(endpoint.answer) as server:
        run = bakeoff.run(
            _suite(tmp_path, PARTS),
            models=[_model(endpoint, server.url)],
            output=tmp_path / "runs",
        )
        bodies = [asked.body for asked in server.requests if asked.path != "/api/show"]
    (record,) = run.trials()
    assert record.attempt.fault is None
    if endpoint.name == "ollama":
        message = bodies[-1]["messages"][-1]
        assert message["images"] == [b64(RED), b64(BLUE)]
        assert message["content"] == "First then " + BEFORE_LAST
    else:
        assert _content(bodies[-1]) == WIRE[endpoint.name]


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.name)
def test_every_dialect_is_sent_a_document_as_it_is_documented(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    test = {"id": "a", "prompt": "What is on it?", "files": ["page.pdf"]}
    with Loopback(endpoint.answer) as server:
        run = bakeoff.run(
            _suite(tmp_path, test),
            models=[_model(endpoint, server.url)],
            output=tmp_path / "runs",
        )
        sent = [asked.body for asked in server.requests]
    (record,) = run.trials()
    if endpoint.name == "ollama":
        assert record.attempt.fault is not None
        assert "no application/pdf: file page.pdf" in record.attempt.fault.message
        return
    assert record.attempt.fault is None
    first, second = _content(sent[-1])
    assert first == DOCUMENTS[endpoint.name]
    assert second["text"] == "What is on it?"


def test_each_turn_shows_its_own_picture(tmp_path: Path) -> None:
    turns = [{"say": "Look.", "files": ["red.png"]}, {"say": "And this?", "files": ["blue.png"]}]
    seen: list[Json] = []

    def answer(asked: Asked) -> Reply:
        seen.append([m["content"] for m in asked.body["messages"] if m["role"] == "user"])
        return ENDPOINTS[0].answer(asked)

    with Loopback(answer) as server:
        bakeoff.run(
            _suite(tmp_path, {"id": "talk", "turns": turns}),
            models=[_model(ENDPOINTS[0], server.url)],
            output=tmp_path / "runs",
        )
    urls = [[p["image_url"]["url"] for m in said for p in m if "image_url" in p] for said in seen]
    assert urls == [[uri(RED)], [uri(RED), uri(BLUE)]]


def test_a_picture_is_kept_once_by_its_content_and_its_name_is_no_identity(tmp_path: Path) -> None:
    tests = [
        {"id": "a", "prompt": "?", "files": ["red.png"]},
        {"id": "b", "prompt": "?", "files": ["copy.png"]},
        {"id": "c", "prompt": "?", "files": [uri(RED)]},
        {"id": "d", "prompt": "?", "files": ["blue.png"]},
    ]
    suite = _suite(tmp_path, *tests)
    (tmp_path / "copy.png").write_bytes(RED)
    run = bakeoff.run(suite, models=["scripted/echo"], output=tmp_path / "runs")
    assert len(list((run.folder / "blobs").iterdir())) == 2
    a, b, c, d = (
        bakeoff.Task(id="x", messages=task.messages).digest for task in read_source(suite).tasks
    )
    assert a == b == c != d
    stored = bakeoff.load_run(run.id, output=tmp_path / "runs").plan.tasks
    assert [task.digest for task in stored] == [task.digest for task in read_source(suite).tasks]


def test_a_run_goes_on_without_the_files_that_it_came_from(tmp_path: Path) -> None:
    tests = [
        {"id": "a", "prompt": "?", "files": ["red.png"]},
        {"id": "b", "prompt": "?", "files": ["red.png", uri(BLUE)]},
    ]
    suite, stop = _suite(tmp_path, *tests), Stop()

    def stop_after_the_first(event: bakeoff.Event) -> None:
        if isinstance(event, TrialEnded):
            stop.request()

    with Loopback(ENDPOINTS[0].answer) as server:
        cut = bakeoff.run(
            suite,
            models=[replace(_model(ENDPOINTS[0], server.url), api_key=None)],
            output=tmp_path / "runs",
            parallel=1,
            stop=stop,
            listener=stop_after_the_first,
        )
        assert len(server.requests) == 1
        suite.unlink()
        (tmp_path / "red.png").unlink()
        bakeoff.run(resume=cut.id, output=tmp_path / "runs")
        sent = json.dumps(server.requests[-1].body)
    assert len(server.requests) == 2
    assert b64(RED) in sent
    assert b64(BLUE) in sent


def test_a_picture_that_changed_since_the_plan_is_never_sent(tmp_path: Path) -> None:
    suite = _suite(tmp_path, {"id": "a", "prompt": "?", "files": ["red.png"]})
    spec = read_source(suite)
    (tmp_path / "red.png").write_bytes(BLUE)
    with pytest.raises(UsageError, match=r"red\.png is not what it was when the run was planned"):
        bakeoff.run(spec, models=["scripted/echo"], output=tmp_path / "runs")


def test_a_model_that_refuses_pictures_is_a_fault_that_says_so(tmp_path: Path) -> None:
    def refuse(_: Asked) -> Reply:
        return Reply(status=400, body=b'{"error": {"message": "invalid content type"}}')

    suite = _suite(tmp_path, {"id": "a", "prompt": "?", "files": ["red.png"]})
    with Loopback(refuse) as server:
        run = bakeoff.run(
            suite,
            models=[_model(ENDPOINTS[0], server.url)],
            output=tmp_path / "runs",
            keep_going=True,
        )
    (record,) = run.trials()
    assert record.attempt.fault is not None
    assert not record.attempt.fault.transient
    message = record.attempt.fault.message
    assert "invalid content type" in message
    assert "the request held image/png: does this model take that?" in message


def test_an_ollama_model_without_eyes_is_not_asked(tmp_path: Path) -> None:
    asked_paths: list[str] = []

    def answer(asked: Asked) -> Reply:
        asked_paths.append(asked.path)
        if asked.path == "/api/show":
            return Reply(
                headers={"Content-Type": "application/json"},
                body=b'{"capabilities": ["completion", "tools"]}',
            )
        return ENDPOINTS[-1].answer(asked)

    suite = _suite(tmp_path, {"id": "a", "prompt": "?", "files": ["red.png"]})
    with Loopback(answer) as server:
        run = bakeoff.run(
            suite,
            models=[_model(ENDPOINTS[-1], server.url)],
            output=tmp_path / "runs",
            keep_going=True,
        )
    (record,) = run.trials()
    assert record.attempt.fault is not None
    assert "takes no pictures; it can: completion, tools" in record.attempt.fault.message
    assert "/api/chat" not in asked_paths


def test_a_prompt_is_filled_in_around_the_pictures(tmp_path: Path) -> None:
    content = [{"text": "{{who}}: "}, {"image": "red.png"}, {"text": " or {{what}}?"}]
    test = {
        "id": "a",
        "messages": [{"role": "user", "content": content}],
        "vars": {"who": "Anna and Bert", "what": "x"},
    }
    (task,) = read_source(_suite(tmp_path, test)).tasks
    assert list(task.messages[0].parts()) == [
        "Anna and Bert: ",
        task.messages[0].attachments[0],
        " or x?",
    ]


def test_prompts_of_a_run_are_asked_with_the_pictures_of_the_tasks(tmp_path: Path) -> None:
    tests = [
        {"id": name, "vars": {"n": name}, "files": [f"{name}.png"]} for name in ("red", "blue")
    ]
    run = bakeoff.run(
        _suite(tmp_path, *tests),
        models=["scripted/echo"],
        prompts=["Which colour is it?"],
        output=tmp_path / "runs",
    )
    answers = {r.task_id: r.attempt.outcome.answer for r in run.trials() if r.attempt.outcome}
    assert answers == {
        "red": "[picture red.png] Which colour is it?",
        "blue": "[picture blue.png] Which colour is it?",
    }


def test_a_judge_is_shown_what_the_candidate_was_shown(tmp_path: Path) -> None:
    seen: list[Json] = []

    def answer(asked: Asked) -> Reply:
        seen.append(asked.body["messages"][-1]["content"])
        verdict = json.dumps({"reasoning": "r", "score": 10})
        choice = {"message": {"role": "assistant", "content": verdict}, "finish_reason": "stop"}
        return Reply(body=json.dumps({"choices": [choice]}).encode())

    judge = {"scorer": "judge", "settings": {"rubric": "Is it right?"}}
    suite = _suite(tmp_path, {"id": "a", "prompt": "?", "files": ["red.png"], "scorers": [judge]})
    with Loopback(answer) as server:
        spec = read_source(suite)
        roles = {"judge": _model(ENDPOINTS[0], server.url)}
        spec = replace(spec, conditions=replace(spec.conditions, roles=roles))
        bakeoff.run(spec, models=["scripted/echo"], output=tmp_path / "runs")
    assert seen[0][0] == {"type": "image_url", "image_url": {"url": uri(RED)}}
    assert "[picture red.png] ?" in seen[0][1]["text"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("../secret.png", r"secret\.png is outside .*put a copy there"),
        ("/etc/hostname", r"/etc/hostname is outside"),
        ("link.png", r"link\.png is outside"),
        ("rde.png", r"rde\.png does not exist; did you mean 'red\.png'\?"),
        ("empty.png", r"empty\.png is empty; there are: PNG"),
        ("odd.png", r"odd\.png is not a kind of file that models take; there are: PNG"),
        ("folder", r"folder is not a file"),
        ("pipe", r"pipe is not a file"),
        ("https://example.org/a.png", r"nothing is fetched; save the file beside the suite"),
        ("data:image/png;base64,%%%", r"not valid base 64"),
        ("data:nothing", r"is no data URI"),
        (f"data:image/svg+xml;base64,{'A' * 8}", r"is not a kind of file that models take"),
        ("x" * 5000, r"is no path|does not exist"),
        ("a\0b", r"is no path"),
    ],
)
def test_a_suite_names_only_files_of_its_own_folder(
    tmp_path: Path, given: str, message: str
) -> None:
    inside = tmp_path / "suite"
    inside.mkdir()
    (tmp_path / "secret.png").write_bytes(RED)
    (inside / "link.png").symlink_to(tmp_path / "secret.png")
    (inside / "empty.png").touch()
    (inside / "odd.png").write_bytes(b"\0\1\2")
    (inside / "folder").mkdir()
    os.mkfifo(inside / "pipe")
    suite = _suite(inside, {"id": "a", "prompt": "?", "files": [given]})
    with pytest.raises(UsageError, match=message) as error:
        read_source(suite)
    assert "suite.json:1: test 'a': " in str(error.value)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"image": "notes.txt"}, r"notes\.txt is text/plain, no picture; write `file`"),
        ({"image": "red.png", "detail": "low"}, r"'detail' is not sent; leave it out"),
        (
            {"type": "image_url", "image_url": {"url": uri(RED), "detail": "low"}},
            r"'detail' is not sent",
        ),
        ({"type": "input_audio", "input_audio": {}}, r"a part of `content` is .* not \{'type'"),
        ({"image": "red.png", "text": "both"}, r"a part of `content` is"),
        ({"image": 3}, r"a part of `content` is"),
    ],
)
def test_nothing_of_a_part_is_dropped_without_a_word(
    tmp_path: Path, part: Json, message: str
) -> None:
    messages = [{"role": "user", "content": [{"text": "Look: "}, part]}]
    with pytest.raises(UsageError, match=message):
        read_source(_suite(tmp_path, {"id": "a", "messages": messages}))


def test_only_the_user_shows_pictures(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": [{"image": "red.png"}]}]
    with pytest.raises(UsageError, match="belong in a message of the user"):
        read_source(_suite(tmp_path, {"id": "a", "messages": messages}))


def test_a_file_that_is_too_large_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    suite = _suite(tmp_path, {"id": "a", "prompt": "?", "files": ["large.png"]})
    with (tmp_path / "large.png").open("wb") as file:
        file.write(RED)
        file.truncate(2**40)  # sparse
    with pytest.raises(UsageError, match=r"large\.png is larger than 20 MiB"):
        read_source(suite)


def test_a_report_shows_real_pictures_and_nothing_that_only_says_so(tmp_path: Path) -> None:
    tests = [
        {"id": "a", "prompt": "?", "files": ["red.png"]},
        {"id": "b", "prompt": "?", "files": ["page.svg"]},
    ]
    suite = _suite(tmp_path, *tests)
    (tmp_path / "page.svg").write_text("<svg onload='alert(1)'></svg>")
    run = bakeoff.run(suite, models=["scripted/echo"], output=tmp_path / "runs")
    for blob in (run.folder / "blobs").glob("*.png"):
        page = bakeoff.report(run, formats=["html"])[0].read_text()
        assert uri(RED) in page
        assert "<svg onload" not in page
        assert "image/svg" not in page
        blob.write_text("<script>alert(1)</script>")
    page = bakeoff.report(run, formats=["html"])[0].read_text()
    assert uri(RED) not in page
    assert "<script>" not in page
    assert "is not what it was when the run was planned" in page


def test_a_recording_is_replayed_with_the_picture_and_not_with_another(tmp_path: Path) -> None:
    suite = _suite(tmp_path, {"id": "a", "prompt": "?", "files": ["red.png"]})
    with Loopback(ENDPOINTS[0].answer) as server:
        model = _model(ENDPOINTS[0], server.url)
        bakeoff.run(suite, models=[model], output=tmp_path / "runs", record=tmp_path / "tape")
    again = bakeoff.run(suite, models=[model], output=tmp_path / "runs", replay=tmp_path / "tape")
    (record,) = again.trials()
    assert record.attempt.fault is None
    assert b64(RED) not in next((tmp_path / "tape").glob("*.jsonl")).read_text()
    (tmp_path / "red.png").write_bytes(BLUE)
    other = bakeoff.run(suite, models=[model], output=tmp_path / "runs", replay=tmp_path / "tape")
    (record,) = other.trials()
    assert record.attempt.fault is not None


def test_what_an_agent_showed_its_model_is_kept_with_the_run(tmp_path: Path) -> None:
    async def looks(task: bakeoff.Task, _: bakeoff.Context) -> bakeoff.Outcome:
        shot = tmp_path / "screen.png"
        shot.write_bytes(BLUE)
        shown = (Attachment.of_file(shot), AttachedBytes.of(RED, "a picture"))
        said = bakeoff.Message(role="user", content=task.id, attachments=shown)
        return bakeoff.Outcome(answer="ok", transcript=(said,))

    tasks = [bakeoff.Task(id="a", messages=(bakeoff.Message(role="user", content="?"),))]
    run = bakeoff.run(tasks, models=["scripted/echo"], agents=[looks], output=tmp_path / "runs")
    (tmp_path / "screen.png").unlink()
    kept = {path.read_bytes() for path in (run.folder / "blobs").iterdir()}
    assert kept == {BLUE, RED}
    page = bakeoff.report(run, formats=["html"])[0].read_text()
    assert uri(BLUE) in page
    assert uri(RED) in page


def test_a_picture_that_is_damaged_in_the_run_is_found_and_put_back_by_a_resume(
    tmp_path: Path,
) -> None:
    suite = _suite(tmp_path, {"id": "a", "prompt": "?", "files": ["red.png"]})
    run = bakeoff.run(suite, models=["scripted/echo"], output=tmp_path / "runs")
    assert check_run(run).lines == ()
    (blob,) = (run.folder / "blobs").iterdir()
    blob.write_bytes(BLUE)
    (line,) = check_run(run).lines
    assert "picture red.png: " in line
    assert "is not what it was" in line
    tests = [{"id": name, "prompt": "?", "files": ["red.png"]} for name in "ab"]
    suite.write_text(json.dumps({"tests": tests}))
    bakeoff.run(suite, models=["scripted/echo"], output=tmp_path / "runs", resume=run.id)
    assert check_run(run).lines == ()
    blob.unlink()
    (line,) = check_run(run).lines
    assert "cannot be read" in line


@pytest.mark.parametrize("first", ["lost.jpeg", "https://example.org/a.png", "../a.png"])
def test_pictures_that_are_not_there_are_not_left_out_without_a_word(
    tmp_path: Path, first: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"image,question\n{first},What is this?\n")
    with pytest.raises(
        UsageError, match=r"rows\.csv:2: column 'image': .*; if it is none: --map file="
    ):
        read_source(path)
    (task,) = read_source(path, None, DataOptions(columns={"file": ""})).tasks
    assert not any(task.attachments)


def test_a_first_row_without_a_picture_takes_none_from_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(RED)
    path = tmp_path / "rows.csv"
    path.write_text("image,question\n,Hi?\na.png,What is this?\n")
    assert [len(list(task.attachments)) for task in read_source(path).tasks] == [0, 1]


def test_a_column_that_is_only_called_like_a_picture_stays_a_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("photo,question\nyes,Hi?\n")
    (task,) = read_source(path).tasks
    assert task.metadata["photo"] == "yes"
