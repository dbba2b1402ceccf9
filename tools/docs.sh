#!/usr/bin/env bash
# Builds the documentation site into build/site. Installs mkdocs-material and its friends into the build folder.
#   tools/docs.sh [--serve]
# The command must be built: the reference of its options is made from it. --serve shows the site at localhost:8000.
set -euo pipefail
site=$(dirname "$0")/../docs/site/build.py
python3 "$site" --install
exec python3 "$site" "$@"
