#!/bin/sh
# Installs the Debian packages that the tests of boxes use: real engines, not stand-ins. Where that
# cannot be done, it says so in one line and the tests that need them skip (in CI they fail).
set -eu

wanted="bubblewrap slirp4netns iproute2 containernetworking-plugins podman runc docker.io busybox-static mmdebstrap chromium git strace"

command -v dpkg-query >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 || {
    echo "tests: no apt-get here; tests of boxes need: $wanted"
    exit 0
}
missing=""
for package in $wanted; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
[ "$(id -u)" = 0 ] || {
    echo "tests: not root; install by hand: apt-get install --no-install-recommends$missing"
    exit 0
}
echo "tests: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# A service that a package brings is not started: the tests start engines of their own. The choice
# is ours only where nobody has made one.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
{ apt-get -qq update && apt-get -qq install --yes --no-install-recommends $missing; } >/dev/null || {
    echo "tests: apt-get could not install$missing; what needs them is skipped"
}
