"""The files of an agent benchmark and of a dialogue, read: what they mean, and what is wrong in them."""

import tomllib
from pathlib import Path

import pytest

from bakeoff.app import read
from bakeoff.core.errors import UsageError
from bakeoff.core.task import Task
from bakeoff.formats.agent_bench import AgentBench, read_bench
from bakeoff.formats.dialogue import read_cases
from support.agent_benches import write_agent, write_base, write_bench, write_case

ROOT = Path(__file__).parents[2]


def bench(folder: Path, base: str, **agents: str) -> AgentBench:
    write_bench(folder, ["a", "b"])
    path = folder / "base.toml"
    path.write_text(base)
    (folder / "agent_configs").mkdir()
    for name, text in (agents or {"one": 'model = "gpt-5"'}).items():
        (folder / "agent_configs" / f"{name}.toml").write_text(text)
    return read_bench(path)


LEAST = '[llm]\nmodel = "gpt-5-mini"\n[benchmark]\nbenchmark_dir = "bench"\n'


def test_what_is_left_out_has_the_documented_defaults(tmp_path: Path) -> None:
    found = bench(tmp_path, LEAST)
    table = found.base.benchmark
    assert (table.max_workers, table.max_turns, table.user_type) == (8, 20, "user")
    assert found.run_spec.parallel == 8
    (first, _) = found.run_spec.tasks
    assert first.dialogue is not None
    assert (first.dialogue.objective, first.dialogue.knowledge) == ("want a", "known of a")
    assert first.dialogue.reference == "insight of a"
    assert first.workspace is None
    assert first.messages == ()
    roles = found.run_spec.conditions.roles
    assert set(roles) == {"instructor", "supervisor"}
    assert roles["instructor"].parameters == {"temperature": 0.4}
    assert roles["instructor"].settings == {"max_retries": 3, "retry_delay_s": 2.0}
    (pairing, _) = found.run_spec.pairings
    assert (pairing.agent.name, pairing.model.label) == ("direct", "one")


def test_roles_inherit_and_may_have_their_own(tmp_path: Path) -> None:
    text = (
        '[llm]\nmodel = "base"\napi_base = "http://127.0.0.1:1/v1"\napi_key = "k"\nrpm = 30\n'
        "temperature = 0.1\n"
        '[user]\ntemperature = 0.9\nsystem_prompt = "Be Ann."\n'
        '[gatekeeper]\nmodel = "other"\napi_base = "http://127.0.0.1:2/v1"\nadaptive_rate_limit = false\n'
        '[rpm_per_model]\nm = 12\n[benchmark]\nbenchmark_path = "bench"\n'
    )
    found = bench(tmp_path, text, one='model = "m"\nrpm = 7', two='model = "m"')
    roles = found.run_spec.conditions.roles
    person, watcher = roles["instructor"], roles["supervisor"]
    assert (person.name, person.api_key, person.parameters["temperature"]) == ("base", "k", 0.9)
    assert (watcher.name, watcher.base_url) == ("other", "http://127.0.0.1:2/v1")
    assert watcher.api_key is None  # a key goes nowhere but to its own address
    assert watcher.settings["adaptive"] is False
    assert watcher.settings["rpm"] == 30
    assert found.run_spec.tasks[0].dialogue.instructor_prompt == "Be Ann."
    assert [a.model.settings["rpm"] for a in found.agents] == [7, 12]


def test_a_model_that_nobody_has_to_reach_has_no_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    text = '[llm]\nmodel = "embedded"\n[benchmark]\nbenchmark_dir = "bench"\n'
    found = bench(tmp_path, text, a='model = "mine:model"', b='model = "embedded"\nmax_tokens = 9')
    specs = [*found.run_spec.conditions.roles.values(), *(a.model for a in found.agents)]
    assert [spec.settings for spec in specs] == [{}] * 4
    assert found.agents[1].model.parameters == {"temperature": 0.4, "max_tokens": 9}


def test_agents_say_what_they_are(tmp_path: Path) -> None:
    found = bench(
        tmp_path, LEAST,
        a='model = "m"\nframework = "pure-model"', b='model = "m"\nrun_code = true',
        c='model = "m"\nframework = "shell"\n[settings]\nsteps = 3', d='framework = "nop"',
        sample_agent_config="nonsense =",
    )  # fmt: skip
    assert [(a.id, a.agent.name) for a in found.agents] == [
        ("a", "direct"), ("b", "code-session"), ("c", "shell"), ("d", "nop"),
    ]  # fmt: skip
    assert found.agents[2].agent.settings == {"steps": 3}
    assert all(task.workspace is not None for task in found.run_spec.tasks)  # somebody needs a box


def test_twins_are_two_candidates_and_the_first_stays_who_it_was(tmp_path: Path) -> None:
    (tmp_path / "both").mkdir()
    (tmp_path / "alone").mkdir()
    found = bench(tmp_path / "both", LEAST, a='model = "m"', b='model = "m"')
    (alone,) = bench(tmp_path / "alone", LEAST, a='model = "m"').agents
    first, second = found.agents
    assert first.agent.identity() == alone.agent.identity()
    assert first.agent.identity() != second.agent.identity()


def test_a_case_with_data_hides_the_truth_and_shows_the_datasets(tmp_path: Path) -> None:
    write_bench(tmp_path, [])
    write_case(tmp_path / "bench", "d", data=True, gatekeeper_reference="the plan")
    (tmp_path / "bench" / "meta_info" / "benchmark_list.json").unlink()
    write_base(tmp_path, "http://127.0.0.1:9/v1")
    write_agent(tmp_path, "one", "http://127.0.0.1:9/v1", run_code=True)
    (task,) = read_bench(tmp_path / "base_config.toml").run_spec.tasks
    assert task.workspace is not None
    assert [tree.at for tree in task.workspace.shown] == ["/app/datasets"]
    assert [tree.at for tree in task.workspace.hidden] == ["/bakeoff/ground_truth", "/bakeoff/evaluation"]  # fmt: skip
    (scorer,) = task.scorers
    assert scorer.settings == {
        "module": "/bakeoff/evaluation/evaluation_metrics.py",
        "truth": "/bakeoff/ground_truth/truth.csv",
        "baseline": 2.0,
        "higher_is_better": False,
        "best": 0.0,
    }
    assert task.dialogue is not None
    assert task.dialogue.supervision == "the plan"
    assert "numbers.csv" in task.messages[0].content
    assert "truth" not in task.messages[0].content


def test_datasets_may_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "sets" / "a").mkdir(parents=True)
    (tmp_path / "sets" / "a" / "x.csv").write_text("1")
    found = bench(tmp_path, LEAST + 'dataset_dir = "sets"\n')
    first, second = found.run_spec.tasks
    assert first.workspace is not None
    assert second.workspace is None


def test_a_folder_of_dialogues_is_a_benchmark_too(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "long.toml").write_text('objective = "x"\nmax_turns = 30')
    (tmp_path / "cases" / "short.toml").write_text(
        'objective = "y"\nmax_turns = 3\ninstructor_prompt = "Be Bob."\n[roles]\ninstructor = "gpt-4"'
    )
    (tmp_path / "cases" / "bits.json").write_text('{"objective": "z", "shards": ["s"]}')
    text = LEAST.replace('"bench"', '"cases"') + '[instructor]\nsystem_prompt = "Be Ann."\n'
    found = bench(tmp_path, text, one='model = "m"\nrun_code = true').run_spec
    told = {task.id: task.dialogue for task in found.tasks if task.dialogue}
    assert {case: d.max_turns for case, d in told.items()} == {"bits": 20, "long": 20, "short": 3}
    assert {case: d.mode for case, d in told.items()}["bits"] == "shard_user"
    assert [told[case].instructor_prompt for case in ("long", "short")] == ["Be Ann.", "Be Bob."]
    assert found.conditions.roles["instructor"].name == "gpt-5-mini"  # the same for all cases
    assert all(task.workspace is not None for task in found.tasks)  # somebody runs code
    (tmp_path / "base.toml").write_text(
        text.replace("[instructor]", 'test_cases = ["bits"]\n[instructor]')
    )
    assert [task.id for task in read_bench(tmp_path / "base.toml").run_spec.tasks] == ["bits"]


def test_requests_a_minute_are_found_with_and_without_the_provider(tmp_path: Path) -> None:
    table = '[rpm_per_model]\n"x:y" = 9\n"openai/gpt-5" = 4\n'
    found = bench(tmp_path, LEAST + table, a='model = "ollama/x:y"', b='model = "openai/gpt-5"',
                  c='model = "openai/other"')  # fmt: skip
    assert [agent.model.settings.get("rpm") for agent in found.agents] == [9, 4, None]


def test_agents_that_do_not_say_whether_they_run_code_do_as_the_base_file_says(
    tmp_path: Path,
) -> None:
    text = LEAST.replace("[benchmark]", "run_code = true\n[benchmark]")
    found = bench(tmp_path, text, a='model = "m"', b='model = "m"\nrun_code = false')
    assert [agent.agent.name for agent in found.agents] == ["code-session", "direct"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[llm]\nmodell = "x"\n[benchmark]\nbenchmark_dir = "bench"', r"base.toml:2: unknown key 'modell'"),
        ('[llm]\nmodel = "x"\n[benchmark]\n', "benchmark_dir"),
        (LEAST + 'benchmark_path = "bench"', "are the same: write one of them"),
        (LEAST + 'user_type = "person"', "user_type"),
        (LEAST + 'user_type = "shard_user"', r"shards.md cannot be read"),
        (LEAST + 'dataset_dir = "none"', "there is no such folder of datasets"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        bench(tmp_path, text)


def test_a_baseline_that_failed_is_refused(tmp_path: Path) -> None:
    write_bench(tmp_path, ["d"], data=True)
    path = tmp_path / "bench/storage/d/evaluation/numeric_baseline.json"
    path.write_text('{"score": 1, "success": false}')
    write_base(tmp_path, "http://127.0.0.1:9/v1")
    write_agent(tmp_path, "one", "http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match="the baseline itself failed"):
        read_bench(tmp_path / "base_config.toml")


def one_case(folder: Path, text: str, ending: str = "toml") -> Task:
    path = folder / f"case.{ending}"
    path.write_text(text)
    (task,) = read_cases(path).tasks
    return task


def test_a_dialogue_is_one_line_in_a_file(tmp_path: Path) -> None:
    for ending, text in (("toml", 'objective = "x"'), ("json", '{"objective": "x"}')):
        task = one_case(tmp_path, text, ending)
        assert task.id == "case"
        assert task.dialogue is not None
        assert (task.dialogue.objective, task.dialogue.max_turns) == ("x", 20)
        assert task.workspace is None


def test_the_front_door_knows_dialogues_by_what_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "a.toml").write_text('objective = "x"\nexpected = 5')
    (tmp_path / "cases" / "b.json").write_text('{"objective": "y", "shards": ["s"]}')
    (tmp_path / "run.toml").write_text('suites = ["cases", "cases/../c.toml"]\nmodels = ["gpt-5"]')
    (tmp_path / "c.toml").write_text('objective = "z"')
    assert [t.id for t in read(tmp_path / "cases", {}).tasks] == ["a", "b"]
    assert [t.id for t in read(tmp_path / "run.toml", {}).tasks] == ["a", "b", "c"]
    (task,) = read(tmp_path / "c.toml", {"limits.time_s": "5"}).tasks
    assert task.id == "c"
    assert read(tmp_path / "cases", {}).tasks[0].scorers[0].name == "numeric"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('objective = "x"\nknowlege = "y"', r"case.toml:2: unknown key 'knowlege'; did you mean"),
        ('objective = "x"\ndatasets = "none"', r"case.toml:2: key 'datasets': .* is not a folder"),
        (
            'objective = "x"\nshards = ["a"]\nreference = "r"',
            "a dialogue with shards has no reference",
        ),
        ('objective = "x"\nmax_turns = 0', "max_turns"),
        ('objective = "x"\n[evaluation]\nmetrics = "m.py"\ntruth = "t.csv"', "m.py is not a file"),
    ],
)
def test_a_mistake_in_a_dialogue_is_told_with_its_line(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        one_case(tmp_path, text)


def test_the_identity_of_a_task_without_a_dialogue_is_what_it_was() -> None:
    plain = Task(id="t", messages=())
    assert "dialogue" not in plain.identity()


@pytest.mark.parametrize(
    "name", ["sample_base_config.toml", "agent_configs/sample_agent_config.toml"]
)
def test_the_samples_are_valid_also_with_every_comment_taken_away(
    tmp_path: Path, name: str
) -> None:
    text = (ROOT / name).read_text()
    lines = [
        line[2:] if line.startswith("# ") and _is_setting(line[2:]) else line
        for line in text.splitlines()
    ]
    everything = "\n".join(lines).replace('system_prompt = """How', 'system_prompt = "How').replace(
        "go;", 'go"'
    )  # fmt: skip
    for sample in (text, everything):
        data = tomllib.loads(sample)
        assert data
        if name.startswith("sample_base"):
            path = tmp_path / "base.toml"
            path.write_text(sample.replace('"examples/', f'"{ROOT}/examples/')
                            .replace('dataset_dir = "datasets"', ""))  # fmt: skip
            agent = tmp_path / "one.toml"
            agent.write_text('model = "gpt-5"\nrun_code = true')
            assert read_bench(path, agent).run_spec.tasks
        else:
            agent = tmp_path / "two.toml"
            agent.write_text(sample)
            base = tmp_path / "base2.toml"
            base.write_text(f'[llm]\nmodel = "x"\n[benchmark]\nbenchmark_dir = "{ROOT}/examples/dialogues/bench"')  # fmt: skip
            assert read_bench(base, agent).agents


def _is_setting(line: str) -> bool:
    code, _, _ = line.partition("#")
    return line[:1] == "[" or (" = " in code and not line[0].isupper())
