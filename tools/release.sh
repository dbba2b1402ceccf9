#!/usr/bin/env bash
# Builds a release of the commit that is checked out, and tries it. CONTRIBUTING.md says what each file is.
#   tools/release.sh VERSION [--out FOLDER] [--check] [--no-try]
# --out: a new folder (default dist). --check: only checks whether VERSION can be released, and prints its notes.
# --no-try: tries nothing. Needs what tools/setup.sh installs, dpkg-dev and PyPI. Takes ten minutes of CPU time.
set -euo pipefail
refuse() {
  echo "tools/release.sh: $1" >&2
  exit 1
}
version=${1:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || refuse "give a version, such as 1.2.3"
shift
out=$PWD/dist check='' try=yes
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$(realpath -m "${2:?--out needs a folder}") && shift ;;
    --check) check=yes ;;
    --no-try) try='' ;;
    *) refuse "there is no option $1: see the head of this file" ;;
  esac
  shift
done
cd "$(dirname "$0")/.."
root=$PWD

# Prints what docs/changelog.md says of the version. Links to pages are left out, for they lead nowhere from here. So are
# changes of behaviour if no version was released before: nobody had it.
notes() {
  local first=''
  [ -n "$(git tag --list 'v*')" ] || first='^### Changed behaviour'
  echo "# attnc $version"
  awk -v heading="^## ${version//./[.]}(,|\$)" -v first="$first" \
    '/^##+ / { skipped = first && $0 ~ first } /^## / { wanted = $0 ~ heading; next } wanted && !skipped' docs/changelog.md |
    sed -E 's/(^|[^!])\[((`[^`]*`|[^][`])*)\]\([^():]*\)/\1\2/g'
}

[ -z "$(git status --porcelain)" ] || refuse "the tree has changes: commit them, or stash them"
source_version=$(grep -oP '#define ATTNC_VERSION_(MAJOR|MINOR|PATCH) \K\d+' include/attnc/version.h | paste -sd.)
[ "$version" = "$source_version" ] || refuse "include/attnc/version.h has $source_version, and $version is to be released"
heading=$(grep -E "^## ${version//./[.]}(,|\$)" docs/changelog.md || true)
case $(grep -c . <<<"$heading") in
  0) refuse "docs/changelog.md has no heading of $version: add \"## $version, <day>\"" ;;
  1) ;;
  *) refuse "docs/changelog.md has several headings of $version: leave one" ;;
esac
for tag in "v$version" "$version"; do
  ! git rev-parse --quiet --verify "refs/tags/$tag" >/dev/null || refuse "the tag $tag exists: a version is released once"
done
if [ -n "$check" ]; then
  notes
  exit
fi
if [ -e "$out" ] && [ -n "$(ls -A "$out")" ]; then refuse "$out has files: remove it, or give --out another folder"; fi

# Files depend on the commit only: on neither clock, umask nor locale, nor on the folder they are built in.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
work=$root/build/release
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC
export CXXFLAGS="-ffile-prefix-map=$work/=" PIP_CONSTRAINT=$root/tools/release/constraints.txt
umask 022
rm -rf "$work"
mkdir -p "$work" "$out"
machine=$(uname -m)
archive() { # FILE FOLDER
  tar --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$work" -c "$2" |
    gzip -9n >"$out/$1"
}

# The sdist: all sources, with the Python project at their root. All else is built from it, so nothing is missing in it.
mkdir "$work/commit"
git archive HEAD | tar -x -C "$work/commit"
sed -e 's|"\.\./\.\./|"|; s|"\.\./\.\."|"."|; s|^wheel.packages = .*|wheel.packages = ["tools/python/attnc"]|' \
  tools/python/pyproject.toml >"$work/commit/pyproject.toml"
python3 -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet scikit-build-core
nvidia=$(echo "$work"/tools/lib/python3*/site-packages)/nvidia/cu13
(cd "$work/commit" && "$work/tools/bin/python3" -c "import scikit_build_core.build as b; b.build_sdist('$out')")
tar -xf "$out/attnc-$version.tar.gz" -C "$work"
cd "$work/attnc-$version"

# The wheel, and in the same build what C and C++ need. The command needs libc only, so `serve` stays out: its HTTP server
# is a package of one Debian.
settings="-DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON"
SKBUILD_CMAKE_ARGS="$settings;-DCUDA_INCLUDE=$nvidia/include;-DNVRTC_INCLUDE=$nvidia/include" \
  tools/python/build_wheel.sh "$out" "$work"
cmake --build "$work/build" --target attnc_library
install=attnc-$version-linux-$machine
cmake --install "$work/build" --prefix "$work/$install" >/dev/null
archive "$install.tar.gz" "$install"
cpack --config tools/release/debian.cmake -B "$work/debian" -D CPACK_PACKAGE_VERSION="$version" \
  -D CPACK_PACKAGE_CONTACT="$(git log -1 --format='%an <%ae>')" -D CPACK_INSTALLED_DIRECTORIES="$work/$install;usr"
cp "$work"/debian/*.deb "$out"

python3 docs/site/build.py --build "$work/docs" --install
python3 docs/site/build.py --build "$work/docs" --attnc "$work/build/attnc"
mv "$work/docs/site" "$work/attnc-$version-site"
archive "attnc-$version-site.tar.gz" "attnc-$version-site"

notes >"$out/RELEASE_NOTES.md"
(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
if [ -n "$try" ]; then
  for suite in bookworm trixie; do
    tools/release/bare_debian.sh "$suite" "$out" . tools/release/try.sh --bare
  done
fi
cat "$out/SHA256SUMS"
echo "$version of $(git log -1 --format=%h) is in $out. What is left to do:"
[[ $heading != *"not released"* ]] || echo "* docs/changelog.md says '${heading#\#\# }': commit the day, and run this again"
compgen -G "LICEN[CS]E*" >/dev/null || echo "* The project has no licence: choose one, commit it, and run this again"
echo "* git tag -a v$version --cleanup=whitespace -F $out/RELEASE_NOTES.md && git push origin v$version"
echo "* Upload the wheel and the sdist to the package index, and the other files to the page of the release"
