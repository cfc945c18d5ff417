#!/bin/sh
# apt-get with a private state: needs no root, and sees only the Debian suites that it is told.
#
#   apt.sh STATE setup deb|deb-src SUITE...   writes the source list, downloads the indexes
#   apt.sh STATE run ARGS...                  runs `apt-get ARGS...` on them
#   apt.sh STATE unpack FOLDER PACKAGE...     unpacks packages of this machine's own release, without what they need
#
# The archive's address, its proxy and its credentials are the ones that this machine's own apt uses.
set -eu

die() {
  echo "apt.sh: $*" >&2
  exit 1
}

state=$1 verb=$2
shift 2
case $state in
  # apt-get would never end.
  *[[:space:]]*) die "apt-get can't work in a folder with a space in its name: $state" ;;
esac

# The address from which this machine takes its own release's main component.
archive() {
  command -v apt-get >/dev/null || die "apt-get is not on PATH: Debian's archive can't be read on this machine"
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  [ "$(. /etc/os-release && echo "${ID:-}")" = debian ] ||
    die "this machine is not a Debian one, and its package archive has other versions"
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v codename="$codename" '
      $3 == "main" && ($2 == codename || $2 == "stable" || $2 == "testing" || $2 == "sid") { print $1; exit }'
}

case $verb in
  setup)
    type=$1
    shift
    uri=$(archive)
    [ -n "$uri" ] || die "the apt configuration of this machine names no archive with the component 'main'"
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
    : >"$state/status"
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    options=
    [ ! -r "$keyring" ] || options="[signed-by=$keyring]"
    for suite; do
      echo "$type $options $uri $suite main"
    done >"$state/sources.list"
    exec "$0" "$state" run update
    ;;
  run)
    exec apt-get -q \
      -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=- \
      -o Dir::Etc::preferences=- -o Dir::Etc::preferencesparts=- \
      -o Dir::State="$state" -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" \
      -o Dir::Cache="$state/cache" -o Dir::Log="$state" \
      -o Debug::NoLocking=1 -o APT::Sandbox::User= -o APT::Update::Post-Invoke= \
      -o Acquire::Retries=3 -o Acquire::Languages=none "$@"
    ;;
  unpack)
    folder=$1
    shift
    "$0" "$state" setup deb "$(. /etc/os-release && echo "$VERSION_CODENAME")"
    mkdir -p "$state/debs" "$folder"
    (cd "$state/debs" && "$0" "$state" run download "$@")
    for deb in "$state"/debs/*.deb; do
      dpkg-deb -x "$deb" "$folder"
    done
    ;;
  *)
    die "no such verb: $verb"
    ;;
esac
