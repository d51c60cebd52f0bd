"""A hook of MkDocs: files outside `docs/` that its pages link to become part of the site."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\]\(\.\./([^)#\s]+)(#[^)\s]*)?\)")
FOLDER = "repository"  # of the site, where they go


def on_files(files: Any, config: Any) -> Any:
    """Add every file that a page links to outside of `docs/`, and those that such pages link to."""
    waiting = {path for page in Path(config.docs_dir).glob("*.md") for path, _ in OUTSIDE.findall(page.read_text())}
    done: set[str] = set()
    while waiting:
        path = waiting.pop()
        done.add(path)
        if not (ROOT / path).is_file():
            continue
        files.append(_published(path, config))
        if path.endswith(".md"):
            waiting |= set(_linked(path)) - done
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to those files, by their place in the site."""
    source = page.file.src_uri
    if not source.startswith(f"{FOLDER}/"):
        return OUTSIDE.sub(rf"]({FOLDER}/\1\2)", markdown)
    here, up = posixpath.dirname(source.removeprefix(f"{FOLDER}/")), "../" * source.count("/")

    def moved(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(here, match[1]))
        inside = path.removeprefix("docs/") if path.startswith("docs/") else f"{FOLDER}/{path}"
        return f"]({up}{inside}{match[2] or ''})" if (ROOT / path).is_file() else f"]({up}index.md)"

    return re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)", moved, markdown)


def _published(path: str, config: Any) -> Any:
    text = path.endswith((".md", ".py"))
    return File.generated(
        config,
        f"{FOLDER}/{path}",
        **({"content": (ROOT / path).read_text()} if text else {"abs_src_path": str(ROOT / path)}),
    )


def _linked(path: str) -> list[str]:
    """Files of the repository that a page links to."""
    here = posixpath.dirname(path)
    links = re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", (ROOT / path).read_text())
    found = [posixpath.normpath(posixpath.join(here, link)) for link in links]
    return [each for each in found if not each.startswith("docs/")]
