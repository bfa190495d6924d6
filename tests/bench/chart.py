"""Horizontal bars with their spread, as an SVG that needs no fonts or scripts of others. docs: tests/bench/README.md"""
from xml.sax.saxutils import escape

WIDTH, EDGE = 900, 16
BAR, STEP, HEAD, AXIS = 14, 21, 26, 28
VALUE = 165  # what stands behind a bar
CUT = 12  # times the longest of ours: others that are longer than that are cut
OURS, OTHERS, INK, GREY, GRID = "#1f6fb2", "#a9b4c0", "#1b1f24", "#59636e", "#e3e7eb"


def scale(bars, is_ours):
    """Where the axis ends: with the spread, unless that is of a few runs that waited for something else."""
    ours = max([bar.median for bar in bars if is_ours(bar.contestant)], default=float("inf"))
    drawn = [bar for bar in bars if bar.median <= CUT * ours]
    longest = max(bar.median for bar in drawn)
    return max(longest, *(min(bar.p90, 1.5 * longest) for bar in drawn)) or 1e-3


def ticks(end):
    """Four to eight round numbers from 0 to the end."""
    step = 1e-6
    factors = (2, 2.5, 2)
    for turn in range(100):
        if end / step <= 8:
            break
        step *= factors[turn % 3]
    return [step * number for number in range(int(end / step) + 1)]


def number(value):
    """Three digits or so."""
    return f"{value:,.{3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


class Svg:
    def __init__(self):
        self.parts = []
        self.y = 0

    def text(self, x, y, words, size=12, colour=INK, anchor="start", weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
                          f'font-weight="{weight}" paint-order="stroke" stroke="#ffffff" stroke-width="3">{escape(words)}</text>')

    def line(self, x1, y1, x2, y2, colour=INK, width=1.0):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
                          f'stroke-width="{width}"/>')

    def rect(self, x, y, width, height, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height}" fill="{colour}"/>')

    def whole(self, title):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.y:.0f}" '
                f'viewBox="0 0 {WIDTH} {self.y:.0f}" role="img" font-family="sans-serif">\n'
                f'<title>{escape(title)}</title>\n<rect width="100%" height="100%" fill="#ffffff"/>\n' +
                "\n".join(self.parts) + "\n</svg>\n")


def grid(svg, left, width, end, top):
    """What stands behind a scene that has been drawn."""
    lines = Svg()
    for tick in ticks(end):
        x = left + width * tick / end
        lines.line(x, top, x, svg.y, GRID)
    lines.line(left, top, left, svg.y, GREY)
    return lines.parts


def draw_axis(svg, left, width, end):
    for tick in ticks(end):
        svg.text(left + width * tick / end, svg.y + 14, f"{tick:g}", 11, GREY, "middle")
    svg.text(left + width + 14, svg.y + 14, "ms", 11, GREY)
    svg.y += AXIS


def draw_bar(svg, bar, left, width, end, colour):
    top, middle = svg.y, svg.y + BAR / 2
    svg.text(left - 8, middle + 4, bar.contestant, anchor="end")
    words = f"{number(bar.median)} ms ({number(bar.p10)}–{number(bar.p90)})"
    if bar.median > end:
        svg.rect(left, top, width, BAR, colour)
        for shift in (0, 6):
            x = left + width - 24 + shift
            svg.line(x, top + BAR + 1, x + 5, top - 1, "#ffffff", 2.5)
        svg.text(left + width + 8, middle + 4, f"{number(bar.median)} ms, cut")
    else:
        svg.rect(left, top, width * bar.median / end, BAR, colour)
        low, high = left + width * bar.p10 / end, left + width * min(bar.p90, end) / end
        svg.line(low, middle, high, middle)
        for x in (low, high) if bar.p90 <= end else (low,):
            svg.line(x, middle - 4, x, middle + 4)
        svg.text(max(high, left + width * bar.median / end) + 8, middle + 4, words)
    svg.y += STEP


def chart(title, subtitle, groups, is_ours):
    """groups: (scene, bars); a bar has contestant, median, p10, p90 in milliseconds."""
    everything = [bar for _, bars in groups for bar in bars]
    ends = [scale(bars, is_ours) for _, bars in groups]
    shared = max(ends) <= 3 * min(ends)
    left = EDGE + 8 + max(6.3 * len(bar.contestant) for bar in everything)
    width = WIDTH - left - VALUE
    svg = Svg()
    svg.text(EDGE, 30, title, 17, weight="bold")
    notes = ["Bars are medians, lines go from p10 to p90"]
    if any(bar.median > end for (_, bars), end in zip(groups, ends) for bar in bars):
        notes.append(f"bars over {CUT} x the longest blue one are cut")
    if not shared:
        notes.append("each scene has its own scale")
    svg.text(EDGE, 50, subtitle, 12, GREY)
    svg.text(EDGE, 67, "; ".join(notes) + ".", 12, GREY)
    svg.y = 84
    behind = []
    for (scene, bars), end in zip(groups, ends):
        end = max(ends) if shared else end
        svg.text(EDGE, svg.y + 16, scene, 13, weight="bold")
        svg.y += HEAD
        top = svg.y - 3
        for bar in bars:
            draw_bar(svg, bar, left, width, end, OURS if is_ours(bar.contestant) else OTHERS)
        behind += grid(svg, left, width, end, top)
        if not shared or scene == groups[-1][0]:
            draw_axis(svg, left, width, end)
    svg.y += 6
    svg.parts = behind + svg.parts
    return svg.whole(title)
