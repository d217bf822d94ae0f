#!/usr/bin/env python3
"""Records `umbel demo` in a terminal of 88 × 24, and writes the README's picture, docs/demo.svg.

    cargo build --release -p umbel && bench/recording.py [target/release/umbel]

Needs tmux. The picture plays the recording where a viewer animates SVG, and is its end elsewhere.
"""

import html
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 88, 24
CHARACTER, LINE, BORDER = 8.4, 18, 14
HOLD_S = 6  # for which the end is shown
EVERY_S = 0.4
STYLE = """text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#d6d6d6}
.bar{fill:#5fbf77}.prompt{fill:#8ab4f8}.f{visibility:hidden}"""


def tmux(*words):
    return subprocess.run(["tmux", "-L", "umbel-recording", *words], check=True,
                          capture_output=True, text=True).stdout


def record(umbel):
    """Screens with the times at which they came, each once, and the duration of all."""
    command = f"PS1='$ ' PATH={umbel.parent}:$PATH bash --norc -i"
    tmux("new-session", "-d", "-x", f"{COLUMNS}", "-y", f"{ROWS}", command)
    try:
        time.sleep(1)
        tmux("send-keys", f"clear; {umbel.name} demo", "Enter")
        begin, frames = time.monotonic(), []
        while time.monotonic() - begin < 300:
            time.sleep(EVERY_S)
            screen = tmux("capture-pane", "-p").rstrip("\n").split("\n")
            if not frames or frames[-1][1] != screen:
                frames.append((time.monotonic() - begin, screen))
            if len(screen) > 3 and screen[-1].strip() == "$":
                frames[-1] = (frames[-1][0], screen[:-1])
                first = [f"$ {umbel.name} demo"]
                return [(0, first), *((at, first + screen) for at, screen in frames)]
        sys.exit("it does not end")
    finally:
        subprocess.run(["tmux", "-L", "umbel-recording", "kill-server"], capture_output=True)


def lines(screen):
    for number, line in enumerate(screen):
        text = html.escape(line.rstrip()).replace(" ", "\u00a0")
        if not text:
            continue
        if text.startswith("$"):
            text = f'<tspan class="prompt">{text}</tspan>'
        for first, last in bars(text):
            text = f'{text[:first]}<tspan class="bar">{text[first:last]}</tspan>{text[last:]}'
        yield f'<text x="{BORDER}" y="{BORDER + LINE * (number + 0.8):g}">{text}</text>'


def bars(text):
    """The one run of blocks in a line, if it has any."""
    marks = [place for place, c in enumerate(text) if c in "█▉▊▋▌▍▎▏━"]
    return [(marks[0], marks[-1] + 1)] if marks else []


def picture(frames):
    total = frames[-1][0] + HOLD_S
    width = COLUMNS * CHARACTER + 2 * BORDER
    height = max(len(screen) for _, screen in frames) * LINE + 2 * BORDER
    style, groups = [STYLE], []
    for number, (start, screen) in enumerate(frames):
        end = frames[number + 1][0] if number + 1 < len(frames) else total
        first, last = 100 * start / total, 100 * end / total
        style.append(f"@keyframes k{number}{{0%{{visibility:hidden}}{first:.2f}%{{visibility:visible}}"
                     f"{last:.2f}%{{visibility:hidden}}100%{{visibility:hidden}}}}"
                     if last < 100 else
                     f"@keyframes k{number}{{0%{{visibility:hidden}}{first:.2f}%{{visibility:visible}}"
                     f"100%{{visibility:visible}}}}")
        style.append(f".k{number}{{animation:k{number} {total:.1f}s step-end infinite}}")
        kind = "" if number + 1 == len(frames) else "f "
        groups.append(f'<g class="{kind}k{number}">{"".join(lines(screen))}</g>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 {width:g} {height:g}">',
        "<title>umbel demo</title>", f"<style>{''.join(style)}</style>",
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#1c1f24"/>', *groups, "</svg>",
    ]) + "\n"


if __name__ == "__main__":
    program = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/umbel").resolve()
    (ROOT / "docs/demo.svg").write_text(picture(record(program)))
