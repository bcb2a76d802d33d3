#!/bin/sh
# Runs a benchmark and prints its summary, for cron:
#   0 2 * * * /path/to/repo/examples/rollouts/nightly.sh configs/nightly.toml >>$HOME/nightly.log 2>&1
#
# Exit code 0: all was run. 3: some could not be run, the summary says which. Anything else: the last
# lines say why. A run that was cut off (a reboot, a full disk) is resumed the next time.
set -u

config=${1:?usage: nightly.sh CONFIG}
root=${BAKEOFF_ROOT:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "$root" || exit 1
python=${PYTHON:-.venv/bin/python}
name=$(sed -n 's/^name *= *"\(.*\)".*/\1/p' "$config" | head -n 1)
name=${name:-$(basename "$config" .toml)}
mark=data/rollouts/temp/unfinished-$(basename "$config" .toml)

rollouts() { "$python" -m bakeoff.frontends.rollouts.command "$@"; }

benchmark() {
    if [ -e "$mark" ]; then
        rollouts run "$config" --resume
        code=$?
        [ $code -eq 1 ] || return $code # 1: it had not even begun
    fi
    touch "$mark" && rollouts run "$config"
}

mkdir -p "$(dirname "$mark")" || exit 1
echo "Starting nightly benchmark: $(date -u +%Y-%m-%dT%H:%MZ) $config"
benchmark
code=$?
case $code in
0 | 3) rm -f "$mark" ;;                  # it came to its end
1 | 2) rm -f "$mark" && exit "$code" ;;  # nothing was begun that could be gone on with
*) exit "$code" ;;                       # cut off: next time it goes on
esac

rollouts summarize "$name" --latest || exit
echo "Benchmark complete, results in data/rollouts/$name"
exit "$code"
