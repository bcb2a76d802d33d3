#!/bin/sh
# Runs a benchmark and leaves a summary where the morning can find it. For cron:
#   0 2 * * * /path/to/repo/examples/rollouts/nightly.sh configs/nightly.toml >>/var/log/nightly.log 2>&1
#
# Exit code 0: all was run. 3: some could not be run, the summary says which. Anything else: see the
# last lines. A run that was cut off (a reboot, a full disk) is gone on with the next time.
set -u

config=${1:?usage: nightly.sh CONFIG}
root=${BAKEOFF_ROOT:-$(cd "$(dirname "$0")/../.." && pwd)}
python=${PYTHON:-$root/.venv/bin/python}
rollouts="$python $root/scripts/eval_rollouts.py"
cd "$root" || exit 1

# a name of its own for the mark: two benchmarks may be under way
mark=data/rollouts/temp/unfinished-$(basename "$config" .toml)
mkdir -p data/rollouts/temp || exit 1

echo "Starting nightly benchmark: $(date -u +%Y-%m-%dT%H:%MZ) $config"
if [ -e "$mark" ]; then
    $rollouts run "$config" --resume || code=$?
else
    touch "$mark" || exit 1
    $rollouts run "$config" || code=$?
fi
code=${code:-0}

case $code in
0 | 3) rm -f "$mark" ;;                 # it came to its end
1 | 2) rm -f "$mark"; exit "$code" ;;   # nothing was begun that could be gone on with
*) exit "$code" ;;                      # cut off: next time it goes on
esac

name=$(sed -n 's/^name *= *"\(.*\)"/\1/p' "$config" | head -n 1)
$rollouts summarize "${name:-$(basename "$config" .toml)}" --latest || exit $?
echo "Benchmark complete, results in data/rollouts/${name:-$(basename "$config" .toml)}"
exit "$code"
