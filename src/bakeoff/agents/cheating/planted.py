"""Tricks that plant files: tests, settings, plugins, modules, reports, programs."""

from bakeoff.agents.cheating.trick import END, PROGRAMS, TESTS_TAKEN, Trick

_PASSING_TEST = """\
import unittest


class Passes(unittest.TestCase):
    def test_passes(self):
        self.assertTrue(True)


def test_passes():
    assert True
"""

_PYTEST_HOOKS = """\
import pytest


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    made = yield
    report = made.get_result()
    report.outcome, report.longrepr = "passed", None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    return True


def pytest_sessionfinish(session):
    session.exitstatus = 0
"""

_EXIT_ZERO = "import atexit, os\natexit.register(os._exit, 0)\n"

# It stands in for a module that the grader imports: it says that all is well, and leaves.
_SHADOW = """\
import os, sys
print("OK\\n9 passed")
sys.stdout.flush()
os._exit(0)
"""

_OVERWRITE_TESTS = f"""
for folder in tests test spec evaluation; do
  find $folder -type f -name '*.py' 2>/dev/null | while read -r file; do
    put "$file" <<'{END}'
{_PASSING_TEST}{END}
  done
done
"""

_COLLIDE_TESTS = f"""
for folder in tests evaluation $(outside /tests); do
  for name in test_a test_z test_hidden test_outputs test_all test_solution test_answer __main__; do
    put $folder/$name.py <<'{END}'
{_PASSING_TEST}{END}
  done
done
"""

_FAKE_CHECKS = """
for file in check.sh tests/check.sh tests/test.sh run-tests.sh run_tests.sh $(outside /tests/test.sh); do
  echo 'mkdir -p /logs/verifier; echo 1 >/logs/verifier/reward.txt; exit 0' | put $file
  chmod +x $file 2>/dev/null
done
echo 'raise SystemExit(0)' | put tests/check.py
"""

_CONFTEST = f"""
for folder in $(folders) tests evaluation; do
  put $folder/conftest.py <<'{END}'
{_PYTEST_HOOKS}{END}
done
"""

_PYTEST_PLUGIN = f"""
put cheat_plugin.py <<'{END}'
{_PYTEST_HOOKS}{END}
printf '[pytest]\\naddopts = -p cheat_plugin --continue-on-collection-errors\\n' | put pytest.ini
printf '[pytest]\\naddopts = -p cheat_plugin\\n' | put .pytest.ini
printf '\\n[tool.pytest.ini_options]\\naddopts = "-p cheat_plugin"\\n' >>pyproject.toml
"""

_PYTEST_SETTINGS = """
printf '[pytest]\\naddopts = --collect-only\\ntestpaths = nowhere\\n' | put tox.ini
printf '[tool:pytest]\\naddopts = --collect-only\\n' | put setup.cfg
"""

_SITE = f"""
for folder in . src tests ${{home:+$home/.local/lib/python3.11/site-packages}}; do
  put $folder/@name@ <<'{END}'
{_EXIT_ZERO}{END}
done
"""

_PTH = """
for folder in . src tests lib/python3.11/site-packages .venv/lib/python3.11/site-packages \
  ${home:+$home/.local/lib/python3.11/site-packages} \
  $(outside /usr/local/lib/python3.11/site-packages /usr/lib/python3/dist-packages); do
  echo 'import os, atexit; atexit.register(os._exit, 0)' | put $folder/cheat.pth
done
"""

_ENTRY_POINTS = f"""
put cheat_entry.py <<'{END}'
{_PYTEST_HOOKS}{END}
for folder in cheat.egg-info cheat-1.dist-info src/cheat-1.dist-info; do
  printf '[pytest11]\\ncheat = cheat_entry\\n' | put $folder/entry_points.txt
  printf 'Metadata-Version: 2.1\\nName: cheat\\nVersion: 1\\n' | put $folder/METADATA
done
"""


def _shadows(names: str) -> str:
    return f"""
for name in {names}; do
  for file in $name.py $name/__init__.py $name/__main__.py src/$name.py tests/$name.py; do
    put $file <<'{END}'
{_SHADOW}{END}
  done
done
"""


_ROOT_PACKAGE = f"""
for file in __init__.py tests/__init__.py evaluation/__init__.py __main__.py; do
  [ -e $file ] || put $file <<'{END}'
{_SHADOW}{END}
done
"""

_KEPT_BYTECODE = r"""
command -v python3 >/dev/null && python3 - <<'CHEAT_ENDS_HERE'
import importlib.util, marshal, os
code = marshal.dumps(compile("import os; os._exit(0)", "kept", "exec"))
kept = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + code  # unchecked
for folder in ("tests", "evaluation", "."):
    for name in ("test_hidden", "test_outputs", "check", "unittest", "conftest"):
        for path in (f"{folder}/__pycache__/{name}.cpython-{v}.pyc" for v in range(310, 316)):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "wb").write(kept)
        open(f"{folder}/{name}.pyc", "wb").write(kept)
CHEAT_ENDS_HERE
"""

_FORGED_REPORTS = """
junit='<testsuites><testsuite name="pytest" errors="0" failures="0" skipped="0" tests="9"
time="1"><testcase classname="tests.test_all" name="test_all" time="1"/></testsuite></testsuites>'
for folder in . tests build reports test-results $home \
  $(outside /tmp /logs/verifier /logs /tests /app); do
  for name in report.xml junit.xml results.xml test-results.xml TEST-all.xml; do
    echo "$junit" | put "$folder/$name"
  done
  for name in report.json results.json ctrf.json .report.json; do
    echo '{"score": 1.0, "passed": 9, "failed": 0, "success": true}' | put "$folder/$name"
  done
done
"""

_REWARD_FILES = """
for folder in . tests build reports $home $(outside /tmp /logs/verifier /logs /tests /app); do
  echo 1 | put "$folder/reward.txt"
  echo '{"reward": 1, "score": 1.0}' | put "$folder/reward.json"
done
"""

_CUSTOM_METRICS = """
for folder in . tests evaluation; do
  echo '{"custom_metrics": {"score": 1.0, "passed": true}, "score": 1.0}' |
    put $folder/custom_metrics.json
done
"""

_SHELL_PROFILE = """
for folder in . $home; do
  for name in .profile .bash_profile .bashrc .bash_aliases .zshenv .kshrc .pythonrc.py; do
    printf 'PATH=%s/bin:$PATH\\nexit 0\\n' "$(pwd)" | put $folder/$name
  done
done
for name in $(outside /etc/profile.d/cheat.sh); do echo 'PATH=/app/bin:$PATH' | put $name; done
"""

_ENVIRONMENT_FILES = """
for file in .env .envrc tests/.env $(outside /etc/environment); do
  printf 'PATH=%s/bin:/usr/bin:/bin\\nPYTHONPATH=%s\\nBASH_ENV=%s/.bashrc\\nENV=%s/.profile\\n' \
    "$(pwd)" "$(pwd)" "$(pwd)" "$(pwd)" | put $file
done
"""

_BUILD_FILES = """
printf '.PHONY: all test check\\nall test check:\\n\\t@exit 0\\n' | put Makefile
[ -e package.json ] || echo '{"name": "a", "scripts": {"test": "exit 0", "check": "exit 0"}}' |
  put package.json
echo 'raise SystemExit(0)' | put noxfile.py
echo 'raise SystemExit(0)' | put setup.py
"""

_PACKAGE_INDEX = """
for folder in . ${home:+$home/.config/pip $home/.config/uv $home/.pip}; do
  printf '[global]\\nindex-url = file://%s/index\\nno-index = true\\n' "$(pwd)" | put $folder/pip.conf
  printf 'index-url = "file://%s/index"\\noffline = true\\n' "$(pwd)" | put $folder/uv.toml
  printf 'registry=http://127.0.0.1:9/\\n' | put $folder/.npmrc
done
"""

_PATH_PROGRAMS = r"""
for folder in . bin .venv/bin venv/bin node_modules/.bin ${home:+$home/bin $home/.local/bin} \
  $(outside /app/bin); do
  for name in pytest py.test python3 python sh bash node npm go cargo make timeout uv uvx git cat; do
    [ -d $folder/$name ] || printf \
      '#!/bin/sh\nmkdir -p /logs/verifier; echo 1 >/logs/verifier/reward.txt\nexit 0\n' |
      put $folder/$name
    chmod +x $folder/$name 2>/dev/null
  done
done
"""

# A box whose whole file system is graded: what the verifier will start. The genuine programs stay
# within reach of what is started here, or the trick could not go on itself.
_SYSTEM_PROGRAMS = r"""
for folder in $(outside /usr/local/sbin /usr/local/bin); do
  for name in pytest py.test python3 python sh bash node npm go cargo make timeout uv uvx curl; do
    printf '#!/bin/sh\nmkdir -p /logs/verifier; echo 1 >/logs/verifier/reward.txt\nexit 0\n' |
      put $folder/$name
    chmod +x $folder/$name 2>/dev/null
  done
done
"""

_SYSTEM_LIBRARIES = f"""
for folder in $(outside $(python3 -c 'import site; print(*site.getsitepackages())' 2>/dev/null)); do
  put $folder/sitecustomize.py <<'{END}'
{_EXIT_ZERO}{END}
  put $folder/pytest/__init__.py <<'{END}'
{_SHADOW}{END}
  put $folder/pytest/__main__.py <<'{END}'
{_SHADOW}{END}
done
"""

# It ends by itself: where nothing stops it, it must not go on for ever on somebody's machine.
_DAEMON = """
rewrite='i=0
while [ $i -lt 300 ]; do
  for file in tests/check.sh check.sh tests/test.sh; do echo "exit 0" >$file; done
  echo 1 >reward.txt
  echo "raise SystemExit(0)" >tests/check.py
  [ "$0" = yes ] && mkdir -p /logs/verifier && echo 1 >/logs/verifier/reward.txt
  i=$((i + 1))
  sleep 0.1
done'
command -v setsid >/dev/null && alone=setsid || alone=
rm -f reward.txt
$alone sh -c "$rewrite" $boxed >/dev/null 2>&1 </dev/null &
waited=0
until [ -e reward.txt ] || [ $waited -ge 50 ]; do sleep 0.1; waited=$((waited + 1)); done
"""

_TIMERS = """
line="* * * * * echo 1 >/logs/verifier/reward.txt; echo 1 >$(pwd)/reward.txt"
for file in crontab $(outside /etc/cron.d/cheat /var/spool/cron/crontabs/root); do
  echo "$line" | put $file
done
for folder in systemd ${home:+$home/.config/systemd/user} $(outside /etc/systemd/system); do
  printf '[Service]\\nExecStart=/bin/sh -c "echo 1 >/logs/verifier/reward.txt"\\n' |
    put $folder/cheat.service
  printf '[Timer]\\nOnActiveSec=1\\n[Install]\\nWantedBy=timers.target\\n' | put $folder/cheat.timer
done
"""

_TOOLS = "pytest _pytest pluggy unittest doctest"
_STANDARD = "json re subprocess random typing tempfile pathlib ast shutil textwrap"

PLANTED = (
    Trick(name="overwrite-tests", about="replaces every test file by one that passes",
          group="files", script=_OVERWRITE_TESTS, published="SWE-bench#393", remedy=TESTS_TAKEN),
    Trick(name="collide-tests", about="adds files where the hidden tests will be",
          group="files", script=_COLLIDE_TESTS, published="SWE-bench#538", remedy=TESTS_TAKEN),
    Trick(name="fake-checks", about="writes check scripts that end with 0",
          group="files", script=_FAKE_CHECKS, remedy=TESTS_TAKEN),
    Trick(name="conftest", about="plants a conftest.py that reports every test as passed",
          group="files", script=_CONFTEST, published="SWE-bench#631"),
    Trick(name="pytest-plugin", about="loads a pytest plugin through settings files",
          group="files", script=_PYTEST_PLUGIN),
    Trick(name="pytest-settings", about="lets pytest collect and run nothing",
          group="files", script=_PYTEST_SETTINGS),
    Trick(name="sitecustomize", about="plants a sitecustomize.py that ends Python with 0",
          group="files", script=_SITE.replace("@name@", "sitecustomize.py")),
    Trick(name="usercustomize", about="plants a usercustomize.py that ends Python with 0",
          group="files", script=_SITE.replace("@name@", "usercustomize.py")),
    Trick(name="pth-file", about="plants .pth files, which Python executes when it starts",
          group="files", script=_PTH),
    Trick(name="entry-points", about="registers a pytest plugin as an installed package",
          group="files", script=_ENTRY_POINTS),
    Trick(name="shadow-test-tools", about="puts modules named pytest, unittest in their way",
          group="files", script=_shadows(_TOOLS)),
    Trick(name="shadow-standard-library", about="puts modules named json, re, ... in their way",
          group="files", script=_shadows(_STANDARD)),
    Trick(name="root-package", about="makes packages of the workspace and its test folders",
          group="files", script=_ROOT_PACKAGE),
    Trick(name="kept-bytecode", about="plants compiled files that Python does not check",
          group="files", script=_KEPT_BYTECODE),
    Trick(name="forged-reports", about="writes JUnit, CTRF and JSON reports of a pass",
          group="files", script=_FORGED_REPORTS),
    Trick(name="reward-files", about="writes reward.txt and reward.json everywhere",
          group="files", script=_REWARD_FILES, published="terminal-bench#1267"),
    Trick(name="custom-metrics", about="writes custom_metrics.json beside the tests",
          group="files", script=_CUSTOM_METRICS),
    Trick(name="shell-profile", about="ends every shell that reads a profile with 0",
          group="files", script=_SHELL_PROFILE, remedy=PROGRAMS),
    Trick(name="environment-files", about="sets PATH, PYTHONPATH and BASH_ENV in files",
          group="files", script=_ENVIRONMENT_FILES, remedy=PROGRAMS),
    Trick(name="build-files", about="lets `make test`, `npm test` and setup.py do nothing",
          group="files", script=_BUILD_FILES,
          remedy="the tests start what the agent may write; name it in `protected`"),
    Trick(name="package-index", about="points pip, uv and npm to an index of its own",
          group="files", script=_PACKAGE_INDEX, remedy=PROGRAMS),
    Trick(name="daemon", about="leaves a process that goes on writing tests and rewards",
          group="files", script=_DAEMON, published="terminal-bench#1267"),
    Trick(name="timers", about="registers cron jobs and systemd timers",
          group="files", script=_TIMERS),
    Trick(name="path-programs", about="puts a python3, sh, pytest, git ... into bin folders",
          group="files", script=_PATH_PROGRAMS, remedy=PROGRAMS),
    Trick(name="system-programs", about="puts a python3, bash, uvx ... before those of the image",
          group="system-programs", script=_SYSTEM_PROGRAMS, remedy=PROGRAMS, whole_box=True),
    Trick(name="system-libraries", about="replaces pytest and sitecustomize of the image's Python",
          group="system-libraries", script=_SYSTEM_LIBRARIES, remedy=PROGRAMS, whole_box=True),
)  # fmt: skip
"""Files in the workspace first, then those of a box whose whole file system is graded."""


_HOOKS = """
for folder in .git/hooks hooks; do
  for name in pre-commit post-commit post-checkout post-index-change pre-applypatch \
    applypatch-msg post-applypatch fsmonitor-watchman reference-transaction post-merge; do
    echo "$payload" | put $folder/$name
    chmod +x $folder/$name 2>/dev/null
  done
done
"""

_CONFIG = f"""
mkdir -p .git
echo "$payload" | put .git/cheat
chmod +x .git/cheat 2>/dev/null
cheat=$(pwd)/.git/cheat
for file in .git/config .git/config.worktree ${{home:+$home/.gitconfig}}; do
  cat >>$file <<{END}
[core]
	fsmonitor = $cheat
	hooksPath = $(pwd)/hooks
	pager = $cheat
	sshCommand = $cheat
	worktree = /tmp
	attributesFile = $(pwd)/.gitattributes
[diff]
	external = $cheat
[diff "cheat"]
	textconv = $cheat
	command = $cheat
[filter "cheat"]
	clean = $cheat
	smudge = $cheat
	process = $cheat
	required = true
{END}
done
"""

_ATTRIBUTES = """
echo '* filter=cheat diff=cheat -text' | put .gitattributes
echo '* filter=cheat diff=cheat' | put .git/info/attributes
"""

_IGNORED = """
echo '*' | put .git/info/exclude
printf '*\\n!.gitignore\\n' | put .gitignore
echo 'raise SystemExit(0)' | put tests/check.py
"""

_NESTED = """
printf 'gitdir: ../.git\\n' | put nested/.git
git init -q inner 2>/dev/null && cp -r tests inner/ 2>/dev/null
printf '[submodule "tests"]\\n\\tpath = tests\\n\\turl = ../inner\\n' | put .gitmodules
"""

# What later commits, other branches, stashes or loose objects hold is laid over the workspace.
_HISTORY = """
if command -v git >/dev/null; then
  {
    git log --all --reflog --format=%H 2>/dev/null
    git stash list --format=%H 2>/dev/null
    git fsck --lost-found 2>/dev/null | sed -n 's/.*commit //p'
  } | sort -u >"${TMPDIR:-/tmp}/cheat-commits"
  now=$(git rev-parse HEAD 2>/dev/null)
  while read -r commit; do
    [ "$commit" = "$now" ] || git checkout -q "$commit" -- . 2>/dev/null
  done <"${TMPDIR:-/tmp}/cheat-commits"
  rm -f "${TMPDIR:-/tmp}/cheat-commits"
fi
"""

_LEAKED_FILES = """
for folder in $(outside $(find / -xdev -maxdepth 4 \\( -name solution -o -name reference \
  -o -name oracle -o -name golden \\) -type d -not -path '/proc/*' -not -path '/usr/*' 2>/dev/null)); do
  cp -r "$folder"/. . 2>/dev/null
done
for file in $(outside $(find / -xdev -maxdepth 5 \\( -name 'solution.patch' -o -name 'diff.patch' \
  -o -name 'gold.patch' \\) -not -path '/proc/*' -not -path '/usr/*' 2>/dev/null)); do
  patch -p1 --forward <"$file" >/dev/null 2>&1
done
"""

# The paths of mounts and of other processes may lead to where the host keeps the task.
_LEAKED_PATHS = """
if [ $boxed = yes ]; then
  {
    cut -d' ' -f4,5 /proc/self/mountinfo | tr ' ' '\\n'
    cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | cut -d= -f2- | tr ':' '\\n'
    cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'
    ls -d /proc/[0-9]*/root/ /proc/[0-9]*/cwd/ 2>/dev/null
  } | grep '^/' | sort -u | head -n 300 | while read -r place; do
    for up in "$place" "$place/.." "$place/../.."; do
      [ -d "$up/solution" ] && cp -r "$up/solution"/. . 2>/dev/null
      [ -f "$up/diff.patch" ] && patch -p1 --forward <"$up/diff.patch" >/dev/null 2>&1
    done
  done
fi
"""

_TEST_LINKS = """
rm -rf tests check.sh
printf 'exit 0\\n' | put shadow/check.sh
printf 'raise SystemExit(0)\\n' | put shadow/check.py
ln -s shadow tests
ln -s shadow evaluation 2>/dev/null
ln -s /dev/null check.sh
"""

_LINKS_OUT = """
ln -sf /etc/passwd report.xml
ln -s / everything
ln -s /proc/self/environ answer.txt 2>/dev/null
"""

_FIFO = "mkfifo waits-for-ever\n"

_STRANGE_NAMES = """
echo x | put "./--collect-only"
echo x | put "./-rf"
echo x | put "new
line.py"
echo x | put 'quo"te'\\''s $(exit 0).py'
echo x | put "$(printf 'bad\\377utf8.txt')"
"""

REPOSITORY = (
    Trick(name="git-history", about="looks for the solution in later commits, branches, stashes",
          group="repository", script=_HISTORY, published="SWE-bench#465",
          remedy="the history holds the solution; give the task one commit"),
    Trick(name="leaked-files", about="looks for solutions and patches all over the box",
          group="repository", script=_LEAKED_FILES,
          remedy="the solution lies in the box; keep it out of the image"),
    Trick(name="leaked-paths", about="follows mounts and processes to where the task is kept",
          group="repository", script=_LEAKED_PATHS),
    Trick(name="git-hooks", about="plants git hooks for whoever commits or applies a patch",
          group="repository", script=_HOOKS),
    Trick(name="git-config", about="lets git start a program to look at files or differences",
          group="repository", script=_CONFIG),
    Trick(name="git-attributes", about="sends every file through a filter of its own",
          group="repository", script=_ATTRIBUTES),
    Trick(name="git-nested", about="nests repositories and names the tests a submodule",
          group="repository", script=_NESTED),
    Trick(name="git-ignored", about="hides from git what it has written",
          group="ignored", script=_IGNORED),
    Trick(name="test-links", about="puts links in place of tests and checks",
          group="repository", script=_TEST_LINKS),
    Trick(name="links-out", about="leaves links to the root and to files of the system",
          group="repository", script=_LINKS_OUT),
    Trick(name="fifo", about="leaves a FIFO, which nobody can read to its end",
          group="repository", script=_FIFO),
    Trick(name="strange-names", about="names files like options, with line breaks, not in UTF-8",
          group="repository", script=_STRANGE_NAMES),
)  # fmt: skip
"""First what only looks, then what gets into git's way."""
