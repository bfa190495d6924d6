"""Charts as SVG without external fonts and scripts: bars from zero, or points on a logarithmic scale. docs: tests/bench/README.md"""
import math
from xml.sax.saxutils import escape

WIDTH, EDGE = 900, 20
BAR, STEP, HEAD = 12, 21, 30
VALUE = 170  # width of the text at the right edge
CUT = 12  # times the longest bar of ours: longer bars of other programs are cut
OURS, RANGE, OTHERS, OTHER_RANGE = "#1f6fb2", "#8fbce6", "#7d8894", "#c8d0d8"
INK, GREY, GRID, BORDER = "#1b1f24", "#59636e", "#dde3e9", "#59636e"


def number(value):
    """Returns the text of a value with about three digits."""
    return f"{value:,.{3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def text(x, y, words, size=12, colour=INK, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{escape(words)}</text>')


def rect(x, y, width, height, colour, round=2):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height}" rx="{round}" fill="{colour}"/>'


def circle(x, y, colour):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>'


def colours(is_ours):
    """Returns the colours of a median and of its range."""
    return (OURS, RANGE) if is_ours else (OTHERS, OTHER_RANGE)


class Bars:
    """Bars from zero; each scene has its own scale. It includes p90, limited to 1.5 times the longest median, because a few turns can
    wait for other processes."""
    note = (f"Blue: our programs. Bars: medians; each scene has its own scale. Light lines: p10 to p90. "
            f"Cut: over {CUT} x the longest blue bar.")
    foot = 10

    def __init__(self, scenes, is_ours, left, width):
        self.is_ours, self.left, self.width = is_ours, left, width

    def begin(self, bars):
        limit = CUT * max([bar.median for bar in bars if self.is_ours(bar.contestant)], default=float("inf"))
        longest = max(bar.median for bar in bars if bar.median <= limit)
        self.end = max(longest, *(min(bar.p90, 1.5 * longest) for bar in bars if bar.median <= limit))

    def place(self, value):
        return self.width * min(value, self.end) / self.end

    def row(self, bar, y):
        median, spread = colours(self.is_ours(bar.contestant))
        low, middle, high = map(self.place, (bar.p10, bar.median, bar.p90))
        yield rect(self.left, y, middle, BAR, median)
        if high > low:
            yield rect(self.left + low, y + BAR / 2 - 2, high - low, 4, spread)
        if bar.median > self.end:
            yield text(self.left + middle - 6, y + BAR - 2, "cut", 10, "#ffffff", "end")

    @staticmethod
    def grid(_top, _bottom):
        """Returns nothing: the figures stand beside the bars."""
        return ()


class Counts(Bars):
    """Bars without a range, on one scale for all scenes."""
    note = "Blue: our programs. Grey: the floor, a static C program for the same work with the kernel."

    def __init__(self, scenes, is_ours, left, width):
        super().__init__(scenes, is_ours, left, width)
        self.end = max(bar.median for bars in scenes.values() for bar in bars)

    def begin(self, bars):
        pass


class Points:
    """Points on one logarithmic scale for all scenes."""
    note = "Blue: our programs. Points: medians, on a logarithmic scale. Light lines: p10 to p90."
    foot = 26

    def __init__(self, scenes, is_ours, left, width):
        self.is_ours, self.left, self.width = is_ours, left, width
        values = [value for bars in scenes.values() for bar in bars for value in (bar.p10, bar.p90)]
        self.low, self.high = math.log10(min(values)) - 0.08, math.log10(max(values)) + 0.08

    def begin(self, bars):
        pass

    def place(self, value):
        return self.left + self.width * (math.log10(value) - self.low) / (self.high - self.low)

    def row(self, bar, y):
        median, spread = colours(self.is_ours(bar.contestant))
        low, high = self.place(bar.p10), self.place(bar.p90)
        yield f'<path d="M{self.left} {y + BAR / 2} H{self.left + self.width}" stroke="{GRID}" stroke-dasharray="1 4"/>'
        yield rect(low, y + BAR / 2 - 2, high - low, 4, spread)
        yield circle(self.place(bar.median), y + BAR / 2, median)

    def grid(self, top, bottom):
        """Yields lines at 1, 2 and 5 of each decade; without 2 and 5 if there are many decades."""
        steps = (1, 2, 5) if self.high - self.low < 3.2 else (1,)
        for decade in range(math.floor(self.low), math.ceil(self.high) + 1):
            for value in (step * 10.0 ** decade for step in steps):
                if self.low <= math.log10(value) <= self.high:
                    x = self.place(value)
                    yield f'<path d="M{x:.1f} {top} V{bottom}" stroke="{GRID}"/>'
                    yield text(x, bottom + 14, f"{value:,g} ms", 11, GREY, "middle")


def chart(title, subtitle, scenes, is_ours, kind=Bars):
    """Returns an SVG. scenes: bars by name of the scene; a bar has contestant, median, p10, p90 in milliseconds, and text()."""
    left = EDGE + 10 + max(6.7 * len(bar.contestant) for bars in scenes.values() for bar in bars)
    drawn = kind(scenes, is_ours, left, WIDTH - left - VALUE - EDGE)
    parts = [text(EDGE, 34, title, 17, weight="bold"), text(EDGE, 55, subtitle, colour=GREY), text(EDGE, 73, kind.note, colour=GREY)]
    rows, top = [], 84
    y = top
    for scene, bars in scenes.items():
        drawn.begin(bars)
        rows.append(text(EDGE, y + 18, scene, 13, weight="bold"))
        y += HEAD
        for bar in bars:
            rows.append(text(left - 10, y + BAR - 2, bar.contestant, anchor="end"))
            rows += drawn.row(bar, y)
            rows.append(text(WIDTH - EDGE, y + BAR - 2, bar.text(), colour=GREY, anchor="end"))
            y += STEP
    parts += [*drawn.grid(top, y), *rows]
    height = y + kind.foot
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="sans-serif">', f"<title>{escape(title)}</title>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" fill="#ffffff" stroke="{BORDER}"/>', *parts, "</svg>", ""])
