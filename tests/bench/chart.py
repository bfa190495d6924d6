"""Horizontal bars with their spread, as an SVG without external fonts and scripts. docs: tests/bench/README.md"""
from xml.sax.saxutils import escape

WIDTH, EDGE = 900, 16
BAR, STEP, HEAD = 14, 21, 26
VALUE = 165  # width of the text after a bar
CUT = 12  # times the longest bar of ours: longer bars of other programs are cut
OURS, OTHERS, INK, GREY = "#1f6fb2", "#a9b4c0", "#1b1f24", "#59636e"


def number(value):
    """Returns the text of a value with about three digits."""
    return f"{value:,.{3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def text(x, y, words, size=12, colour=INK, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{escape(words)}</text>')


def rect(x, y, width, height, colour):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height}" fill="{colour}"/>'


def bar_parts(bar, y, left, width, end, is_ours):
    """Yields a bar, a line from p10 to p90, and the text of both. end: the milliseconds of the whole width."""
    place = lambda value: width * min(value, end) / end  # noqa: E731
    middle = y + BAR / 2
    words = f"{number(bar.median)} ms, cut" if bar.median > end else bar.text()
    yield text(left - 8, middle + 4, bar.contestant, anchor="end")
    yield rect(left, y, place(bar.median), BAR, OURS if is_ours else OTHERS)
    yield rect(left + place(bar.p10), middle - 1, place(bar.p90) - place(bar.p10), 2, INK)
    yield text(left + max(place(bar.median), place(bar.p90)) + 8, middle + 4, words)


def scale(bars, is_ours):
    """Returns the milliseconds of the whole width. It includes p90, limited to 1.5 times the longest median, because a few turns can
    wait for other processes."""
    limit = CUT * max([bar.median for bar in bars if is_ours(bar.contestant)], default=float("inf"))
    longest = max(bar.median for bar in bars if bar.median <= limit)
    return max(longest, *(min(bar.p90, 1.5 * longest) for bar in bars if bar.median <= limit))


def chart(title, subtitle, scenes, is_ours):
    """Returns an SVG. scenes: bars by name of the scene; a bar has contestant, median, p10, p90 in milliseconds, and text()."""
    left = EDGE + 8 + max(6.3 * len(bar.contestant) for bars in scenes.values() for bar in bars)
    width = WIDTH - left - VALUE
    note = (f"Bars are medians, lines go from p10 to p90. Each scene has its own scale. "
            f"Bars over {CUT} x the longest blue one are cut.")
    parts = [text(EDGE, 30, title, 17, weight="bold"), text(EDGE, 50, subtitle, colour=GREY), text(EDGE, 67, note, colour=GREY)]
    y = 84
    for scene, bars in scenes.items():
        parts.append(text(EDGE, y + 16, scene, 13, weight="bold"))
        y += HEAD
        for bar in bars:
            parts += bar_parts(bar, y, left, width, scale(bars, is_ours), is_ours(bar.contestant))
            y += STEP
    y += 6
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" role="img" '
        'font-family="sans-serif">',
        f'<title>{escape(title)}</title>', '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>", ""])
