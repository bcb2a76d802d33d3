"""What a trick is, and how the payload of a trick gets into the sources of a workspace.

A trick is shell that runs in the agent's box. It needs no knowledge of the task. It may fail where it
finds nothing to attack, and it must not harm a machine that runs it without isolation: outside of the
workspace it writes only where `boxed` says that this is a box. A payload is Python that runs later,
when the work is graded; `BOXED` in it says the same.
"""

from bakeoff._lib.value_object import value_object

END = "CHEAT_ENDS_HERE"

IMPORTED = (
    "tests that import the solution cannot exclude this: it runs in their process; let them call it "
    "as a program and look at what it prints"
)
EXIT_CODE = (
    "code that ends its process with 0 passes; let the tests look at what the solution prints, not "
    "only at an exit code"
)
TESTS_TAKEN = "what the agent writes is taken for the tests; keep all of them in tests/"
READABLE = (
    "the solution reads the expected values while it is graded: what it runs beside can be read by "
    "it; compute them in the test file, or choose its inputs there by chance"
)
PROGRAMS = (
    "the verifier runs programs of the box that an agent can replace; let it bring its own, or "
    "name them by their full path"
)
GIVES_UP = "giving up is left out of the mean instead of counting as 0"
DECIDES = "what it left decides its own grade"


FORMATS = {
    "program": "a task folder whose tests call the solution as a program",
    "unittest": "a task folder whose tests import the solution, with unittest",
    "pytest": "a task folder whose tests import the solution, with pytest",
    "script": "a task folder with a check.sh that compares what the solution prints",
    "prepared": "a prepared folder of the rollouts",
    "markdown": "a task in Markdown of the batch runner",
    "harbor": "a task in Harbor's format, in containers only",
}
"""The formats of tasks on which every trick is tried."""


@value_object
class Trick:
    """One way to get a grade without the work.

    Tricks of one `group` do not hinder each other, and are played together first. `published` names
    where others have seen it. `remedy` is what the author of a task can do where it scores. Those
    with `whole_box` attack what lies outside of a workspace, and need a box that is graded whole.
    Those with `knows_harness` are written against this harness's own defences; all others are generic.
    `scores_in` are the `FORMATS` of tasks in which it is known to score; elsewhere it gets 0.
    """

    name: str
    about: str
    group: str
    script: str
    published: str = ""
    remedy: str = DECIDES
    whole_box: bool = False
    knows_harness: bool = False
    scores_in: tuple[str, ...] = ()


def before_sources(payload: str) -> str:
    """Return shell that puts a payload before the code of every Python file."""
    return _into_sources(payload, "before")


def after_sources(payload: str) -> str:
    """Return shell that puts a payload after the code of every Python file."""
    return _into_sources(payload, "after")


def _into_sources(payload: str, where: str) -> str:
    return f"into_sources {where} <<'{END}'\n{payload.strip()}\n{END}\n"


# $1: where the host keeps the files, or nothing; $2: a file that is there beside us; $3: witness.
# Where the host's own folder can be seen, this is no box: then only the workspace is attacked, and
# only if this really is the workspace.
HEAD = r"""
if [ -n "$1" ] && [ -e "$1" ]; then
  boxed=no
  [ -e "$2" ] || exit 97
else
  boxed=yes
fi
rm -f "$2"
witness=$3
put() {
  case $1 in */*) [ -d "${1%/*}" ] || mkdir -p "${1%/*}" 2>/dev/null ;; esac
  cat 2>/dev/null >"$1"
}
folders() { find . -name .git -prune -o -type d -print 2>/dev/null | head -n 200; }
sources() {
  find . -name .git -prune -o -type f -name '*.py' ! -name 'cheat_*' -print 2>/dev/null | head -n 500
}
outside() { [ $boxed = yes ] && echo "$@"; }
into_sources() {
  payload_file=$(mktemp 2>/dev/null || echo ./cheat_payload)
  { [ $boxed = yes ] && echo 'BOXED = True' || echo 'BOXED = False'; cat; } >"$payload_file"
  sources | while read -r file; do
    if [ "$1" = after ] || grep -q '^from __future__' "$file"; then
      { echo; cat "$payload_file"; } >>"$file"
    else
      cat "$payload_file" "$file" >"$file.cheat" && cat "$file.cheat" >"$file"
      rm -f "$file.cheat"
    fi
  done
  rm -f "$payload_file"
}
home=
[ $boxed = yes ] && home=$HOME
payload="#!/bin/sh
[ -n \"$witness\" ] && : >\"$witness\"
exit 0"
"""

REFUSED = 97
"""How the script ends where it finds itself outside of a workspace."""
