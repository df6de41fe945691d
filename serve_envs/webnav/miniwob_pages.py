"""MiniWoB++'s pages in a browser."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from serve_envs.webnav.browser import Browser

_FOREVER_MS = 2_000_000_000
_QUIET_CSS = "#reward-display, #click-canvas { display: none !important; }"
_BEGIN = """([seed, limit]) => {
  if (window.jQuery) jQuery.fx.off = true;
  core.EPISODE_MAX_TIME = limit;
  Math.seedrandom(seed);
  core.startEpisodeReal();
}"""


class MiniWobPages(Browser):
    """A browser that shows MiniWoB++'s pages.

    Args:
        executable: the browser's program.
    """

    def __init__(self, executable: str) -> None:
        super().__init__(executable)
        package = find_spec("miniwob")
        assert package is not None and package.submodule_search_locations
        self._pages = Path(next(iter(package.submodule_search_locations))) / "html" / "miniwob"

    def begin(self, session: str, page_name: str, seed: int) -> dict[str, Any]:
        """Load a page anew and begin its episode, without its time limit; gives what it shows."""
        page = self.enter(session, (self._pages / f"{page_name}.html").as_uri())
        page.add_style_tag(content=_QUIET_CSS)
        page.evaluate(_BEGIN, [seed, _FOREVER_MS])
        return self.look(session)
