"""What MkDocs does for this site beside converting docs/: README, changelog and contributing are pages, the API reference is generated,
and links to files that are no pages go to the repository."""
import os
import posixpath
import re
import subprocess
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("REGCCRF_PYTHON", "/usr/bin/python3")  # the interpreter that build/python was built for
COPIED = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
CODE_IN_ROW = re.compile(r"`[^`]*`")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)]*)?\)")


def reference(kind):
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "build" / "python"))
    done = subprocess.run([PYTHON, ROOT / "scripts" / "site" / "reference.py", kind], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PluginError(f"the {kind} reference: {done.stderr.strip()}\n`make` builds the package that it is made from")
    return done.stdout


def on_files(files, config):
    pages = {page: (ROOT / path).read_text(encoding="utf-8") for page, path in COPIED.items()}
    pages.update({f"reference/{kind}.md": reference(kind) for kind in ("python", "cpp")})
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """A link is relative to where its file lies in the repository. Files that are pages here keep a link, others lead to the repository."""
    path = page.file.src_uri
    folder = "" if path in COPIED else posixpath.join("docs", posixpath.dirname(path))
    places = {repository: page_ for page_, repository in COPIED.items()}

    def replace(match):
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        there = posixpath.normpath(posixpath.join(folder, target))
        here = places.get(there) or (there[len("docs/"):] if there.startswith("docs/") else None)
        if here and files.get_file_from_path(here):
            return f"[{text}]({posixpath.relpath(here, posixpath.dirname(path) or '.')}{anchor})"
        if not (ROOT / there).exists():
            raise PluginError(f"{path}: there is no {there}, to which a link leads")
        return f"[{text}]({config['repo_url']}/{'tree' if (ROOT / there).is_dir() else 'blob'}/main/{there}{anchor})"

    parts = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.M | re.S)  # code stays as it is
    return "".join(part if i % 2 else rows(LINK.sub(replace, part)) for i, part in enumerate(parts))


def rows(text):
    r"""In the code of a table GitHub needs `\|` for a bar; here it would show the backslash. And a number stays beside its deviation."""
    return "\n".join(row(line) if line.startswith("|") else line for line in text.split("\n"))


def row(line):
    return CODE_IN_ROW.sub(lambda code: code[0].replace("\\|", "|"), line).replace(" ± ", "\u00a0±\u00a0")
