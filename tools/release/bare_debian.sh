#!/usr/bin/env bash
# Runs a script as root on a bare Debian, in a chroot that is removed afterwards.
#   tools/release/bare_debian.sh SUITE DIST SOURCES SCRIPT...
# The script is of SOURCES, runs there, and gets the folder DIST as its last argument. Needs root and debootstrap, else
# prints SKIPPED. The base system is kept in ~/.cache/attnc-debian.
set -euo pipefail
suite=$1 dist=$(realpath "$2") sources=$(realpath "$3")
shift 3
[ "$(id -u)" = 0 ] || { echo "SKIPPED: Debian $suite: a chroot needs root" && exit; }
command -v debootstrap >/dev/null || { echo "SKIPPED: Debian $suite: debootstrap is not installed" && exit; }
base=${XDG_CACHE_HOME:-$HOME/.cache}/attnc-debian/$suite
if [ ! -e "$base" ]; then
  rm -rf "$base.new"
  mkdir -p "$base.new"
  debootstrap --variant=minbase --include=ca-certificates "$suite" "$base.new" >"$base.log" 2>&1 ||
    { tail -n 5 "$base.log" >&2 && exit 1; }
  mv "$base.new" "$base"
fi
system=$(mktemp -d)
finish() {
  umount --quiet "$system/mnt/dist" "$system/mnt/sources" "$system/dev" "$system/proc" || true
  rm -rf --one-file-system "$system"
}
trap finish EXIT
cp -a "$base/." "$system"
# The network as this machine has it.
for file in /etc/resolv.conf /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
  [ ! -e "$file" ] || cp "$file" "$system$file"
done
mkdir "$system/mnt/dist" "$system/mnt/sources"
mount -t proc proc "$system/proc"
mount --bind /dev "$system/dev"
mount --bind -o ro "$dist" "$system/mnt/dist"
mount --bind -o ro "$sources" "$system/mnt/sources"
chroot "$system" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
  bash -c 'cd /mnt/sources && "$@" /mnt/dist' bash "$@"
