#!/usr/bin/env python3
"""What tools/release.sh refuses to release, and the notes that it cuts from the changelog. Builds nothing.

  python3 refusals_test.py
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = """#define ATTNC_VERSION_MAJOR 1
#define ATTNC_VERSION_MINOR 2
#define ATTNC_VERSION_PATCH 3
"""
CHANGELOG = """# Changes

## 1.2.30, 2 May

Not this one.

## 1.2.3, 1 May

### Changed behaviour

A change.

### New

* [Masks](masks.md#how) of a [`block[0]` of rows](blocks.md), [blocks](blocks.md), [CMake](https://cmake.org)

## 1.2.2, 30 April

An older one.
"""


class Refusals(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name) / "tree"
        (self.tree / "tools").mkdir(parents=True)
        shutil.copy(ROOT / "tools/release.sh", self.tree / "tools")
        self.write("include/attnc/version.h", VERSION)
        self.write("docs/changelog.md", CHANGELOG)
        self.git("init", "--quiet")
        self.commit()

    def write(self, name, text):
        (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (self.tree / name).write_text(text)

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", self.tree, *arguments], check=True,
                       stdout=subprocess.DEVNULL)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a")

    def release(self, *arguments):
        return subprocess.run([self.tree / "tools/release.sh", *arguments], cwd=self.tree, capture_output=True, text=True)

    def assert_refused(self, text, *arguments):
        done = self.release(*(arguments or ("1.2.3", "--check")))
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn(text, done.stderr)

    def test_notes(self):
        done = self.release("1.2.3", "--check")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        new = "### New\n\n* Masks of a `block[0]` of rows, blocks, [CMake](https://cmake.org)\n\n"
        self.assertEqual(done.stdout, "# attnc 1.2.3\n\n" + new)
        self.git("tag", "v1.2.2")  # now somebody had the behaviour that changed
        done = self.release("1.2.3", "--check")
        self.assertEqual(done.stdout, "# attnc 1.2.3\n\n### Changed behaviour\n\nA change.\n\n" + new)

    def test_changes_of_the_tree(self):
        self.write("docs/new.md", "")
        self.assert_refused("the tree has changes")
        (self.tree / "docs/new.md").unlink()
        self.write("docs/changelog.md", CHANGELOG + "\n")
        self.assert_refused("the tree has changes")

    def test_another_version(self):
        self.assert_refused("version.h has 1.2.3, and 1.2.2 is to be released", "1.2.2", "--check")
        self.assert_refused("give a version, such as 1.2.3", "v1.2.3")

    def test_headings_of_the_changelog(self):
        self.write("docs/changelog.md", CHANGELOG.replace("## 1.2.3,", "## 1x2.3,"))
        self.commit()
        self.assert_refused("docs/changelog.md has no heading of 1.2.3")
        self.write("docs/changelog.md", CHANGELOG.replace("## 1.2.2,", "## 1.2.3,"))
        self.commit()
        self.assert_refused("docs/changelog.md has several headings of 1.2.3")

    def test_tags(self):
        for tag in ("v1.2.3", "1.2.3"):
            self.git("tag", tag)
            self.assert_refused(f"the tag {tag} exists")
            self.git("tag", "--delete", tag)

    def test_options(self):
        self.assert_refused("there is no option --sign", "1.2.3", "--sign")
        self.write(".gitignore", "dist\n")
        self.commit()
        self.write("dist/attnc", "")
        self.assert_refused("dist has files: remove it", "1.2.3")


if __name__ == "__main__":
    if not shutil.which("git"):
        sys.exit(print("SKIPPED: git is not installed"))
    unittest.main()
