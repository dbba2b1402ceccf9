#!/usr/bin/env python3
"""Takes pictures of all pages of the built site in headless Chromium, and looks for pages that are too wide.

  screenshots.py SITE OUT [--pages PATTERN ...]     SITE is build/site

Each page is shown in two widths, light and dark: OUT/PAGE.WIDTH.SCHEME.png. A page that scrolls sideways, an image that
does not load, a request to another host and an error of a script are findings; exit code 1 if there are some. It needs
Chromium and the package playwright; it prints SKIPPED without them. No test runs it: the pictures are for people.
"""

import argparse
import fnmatch
import functools
import http.server
import pathlib
import shutil
import sys
import threading

WIDTHS = (390, 1280)
HIGHEST = 6000  # pixels of a picture


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--pages", nargs="+", default=["*"])
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if not chromium or not sync_playwright:
        print("SKIPPED: chromium and the package playwright are needed")
        return 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=arguments.site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f"http://127.0.0.1:{server.server_port}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    pages = [path.relative_to(arguments.site).as_posix() for path in sorted(arguments.site.rglob("*.html"))]
    pages = [page for page in pages if any(fnmatch.fnmatch(page, pattern) for pattern in arguments.pages)]
    findings = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            for width in WIDTHS:
                context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
                tab = context.new_page()
                at = [""]
                note = lambda what: findings.append(f"{at[0]} {width} {scheme}: {what}")
                tab.on("pageerror", lambda error: note(f"script: {error}"))
                tab.on("request", lambda request: None if request.url.startswith((host, "data:", "blob:")) else
                       note(f"asks another host: {request.url}"))
                tab.on("requestfailed", lambda request: note(f"not loaded: {request.url}"))
                tab.on("response", lambda answer: note(f"{answer.status}: {answer.url}")
                       if answer.status >= 400 else None)
                for page in pages:
                    at[0] = page
                    tab.goto(f"{host}/{page}", wait_until="load")
                    wide = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                    if wide > 0:
                        note(f"{wide} pixels too wide")
                    height = tab.evaluate("document.documentElement.scrollHeight")
                    tab.set_viewport_size({"width": width, "height": min(height, HIGHEST)})
                    name = page.removesuffix(".html").replace("/", "-")
                    tab.screenshot(path=arguments.out / f"{name}.{width}.{scheme}.png")
                    tab.set_viewport_size({"width": width, "height": 900})
                context.close()
        browser.close()
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
