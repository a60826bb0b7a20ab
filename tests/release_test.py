"""scripts/release, in a small repository that is like ours."""
import shutil
import subprocess

import pytest

from needs import ROOT

URL = "https://example.org/owner/regccrf"


def run(folder, *command):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def git(folder, *arguments):
    status, output = run(folder, "git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments)
    assert status == 0, output
    return output


def change(folder, file, old, new):
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    git(folder, "commit", "-q", "-a", "-m", "change")


@pytest.fixture
def repository(tmp_path):
    """A version that can be released."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "1.2.0"\n[project.urls]\nRepository = "{URL}"\n')
    (tmp_path / "CMakeLists.txt").write_text("project(regccrf VERSION 1.2.0 LANGUAGES CXX)\n")
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2026-11-18)\n\n- new\n\n## 1.1.0 (2026-01-01)\n\n- old\n")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "config", "user.name", "A")
    git(tmp_path, "config", "user.email", "a@example.org")
    git(tmp_path, "remote", "add", "origin", "git@example.org:owner/regccrf.git")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "all")
    return tmp_path


def test_makes_a_tag_with_the_changes(repository):
    status, output = run(repository, "scripts/release")
    assert status == 0, output
    message = git(repository, "tag", "--list", "--format=%(contents)", "v1.2.0")
    assert "- new" in message and "- old" not in message
    assert run(repository, "scripts/release", "--check-tag", "v1.2.0")[0] == 0


def test_check_makes_no_tag(repository):
    assert run(repository, "scripts/release", "--check")[0] == 0
    assert git(repository, "tag") == ""


@pytest.mark.parametrize("file, old, new, complaint", [
    ("CMakeLists.txt", "1.2.0", "1.1.0", "CMakeLists.txt has version 1.1.0"),
    ("CITATION.cff", "\nversion: 1.2.0", "\nversion: 1.3.0", "CITATION.cff has version 1.3.0"),
    ("CHANGELOG.md", "1.2.0 (2026-11-18)", "1.2.0 (unreleased)", "put the day of the release"),
    ("CHANGELOG.md", "## 1.2.0 (2026-11-18)", "##", "no heading"),
    ("CHANGELOG.md", "- new\n", "", "says nothing about 1.2.0"),
    ("pyproject.toml", URL, "https://example.org/else/where", "lead astray"),
])
def test_says_what_stands_in_the_way(repository, file, old, new, complaint):
    change(repository, file, old, new)
    status, output = run(repository, "scripts/release")
    assert status == 1 and complaint in output
    assert git(repository, "tag") == ""


def test_wants_a_clean_main_and_a_new_tag(repository):
    git(repository, "tag", "v1.2.0")
    git(repository, "switch", "-q", "-c", "other")
    (repository / "CHANGELOG.md").write_text((repository / "CHANGELOG.md").read_text() + "\n")
    status, output = run(repository, "scripts/release")
    assert status == 1
    assert "not committed" in output and "not the branch main" in output and "there already" in output


def test_a_tag_of_another_version_is_refused(repository):
    status, output = run(repository, "scripts/release", "--check-tag", "v1.3.0")
    assert status == 1 and "expected v1.2.0" in output


def test_our_own_versions_agree():
    output = run(ROOT, "scripts/release", "--check")[1]
    assert "make them the same" not in output
