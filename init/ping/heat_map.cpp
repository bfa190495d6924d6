// The report as SVG. A path per layer draws the runs of equal cells as strokes, in units of cells. The paths cover the
// half of the matrix above the diagonal; the other half is their mirror image.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/options.hpp"
#include "base/text.hpp"
#include "init/ping/report.hpp"
#include "init/ping/totals.hpp"

namespace init::ping {
namespace {

constexpr std::size_t kLeft = 56;
constexpr std::size_t kTop = 84;
constexpr std::size_t kPlot = 768;  // pixels of a map of up to 768 members; each further member adds one
constexpr std::size_t kWidestCell = 40;
constexpr std::size_t kNarrowestPage = 660;
constexpr std::size_t kLine = 18;
constexpr std::size_t kLegendColumn = 110;
constexpr std::size_t kShownCauses = 10;
constexpr std::size_t kMostText = 92;  // bytes of a line
constexpr std::size_t kMostGrid = 64;  // members up to which lines separate the cells
constexpr std::size_t kLeastMark = 4;  // pixels of a failed cell, so that one of a million is visible
constexpr std::size_t kTickDistance = 34;

constexpr std::string_view kStyle =
    "text{font:13px system-ui,sans-serif;fill:#1b1f24}.s{font-size:11px}.h{font-size:16px;font-weight:600}"
    ".e{text-anchor:end}.m{text-anchor:middle}.p{fill:#fff}.g{stroke:#fff;stroke-width:.08}.t{stroke:#6b7280}"
    "path{fill:none}.r{fill:#c00}";
constexpr std::string_view kDarkStyle =
    "text{fill:#e6e8eb}.p{fill:#14171a}.g{stroke:#14171a}.t{stroke:#9aa3ad}.r{fill:#ff6b6b}";

// Returns untrusted text as XML, at most kMostText bytes of it.
std::string escaped(std::string_view text) {
  std::string line = base::one_line(text);
  if (line.size() > kMostText) {
    std::size_t end = kMostText;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U)
      --end;
    line = line.substr(0, end) + "...";
  }
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const std::string_view rest = std::string_view(line).substr(i);
    if (rest.starts_with("\xEF\xBF\xBE") || rest.starts_with("\xEF\xBF\xBF")) {  // XML does not allow U+FFFE and U+FFFF
      out += '?';
      i += 2;
    } else if (line[i] == '&' || line[i] == '<' || line[i] == '>') {
      out += line[i] == '&' ? "&amp;" : line[i] == '<' ? "&lt;" : "&gt;";
    } else {
      out += line[i];
    }
  }
  return out;
}

// Returns the width of a cell in pixels.
std::size_t cell_width(std::size_t members) {
  return std::clamp<std::size_t>(kPlot / std::max<std::size_t>(members, 1), 1, kWidestCell);
}

using Paths = std::array<std::string, kLayers>;

// A run of equal cells in a row.
struct Run {
  Layer layer = Layer::kGood;
  std::size_t first = 0;
  std::size_t end = 0;
};

// Returns the runs of equal cells above the diagonal, by row. Good cells are the background, unless the schedule is
// sparse: then most cells have no test.
std::vector<std::vector<Run>> find_runs(const Outcome& outcome) {
  std::vector<std::vector<Run>> rows(outcome.members.size());
  const auto add = [&](std::size_t row, std::size_t column) {
    const Layer layer = worst_rail(outcome, row, column);
    if (layer == Layer::kGood && !outcome.is_sparse()) return;
    std::vector<Run>& runs = rows[row];
    if (!runs.empty() && runs.back().layer == layer && runs.back().end == column)
      ++runs.back().end;
    else
      runs.push_back({layer, column, column + 1});
  };
  for (const auto& [row, column] : outcome.pairs)
    add(row, column);
  for (std::size_t row = 0; row < rows.size() && !outcome.is_sparse(); ++row) {
    for (std::size_t column = row + 1; column < rows.size(); ++column)
      add(row, column);
  }
  return rows;
}

Paths draw_runs(const Outcome& outcome) {
  Paths paths;
  std::size_t row = 0;
  for (const std::vector<Run>& runs : find_runs(outcome)) {
    std::array<std::size_t, kLayers> ends{};  // end of the last run of each layer in this row
    for (const Run& run : runs) {
      const auto index = static_cast<std::size_t>(run.layer);
      paths[index] += ends[index] == 0 ? fmt::format("M{} {}.5h{}", run.first, row, run.end - run.first)
                                       : fmt::format("m{} 0h{}", run.first - ends[index], run.end - run.first);
      ends[index] = run.end;
    }
    ++row;
  }
  return paths;
}

// Returns the matrix in units of cells.
std::string cells_svg(const Outcome& outcome, std::size_t cell, const Paths& paths) {
  const std::size_t members = outcome.members.size();
  std::string text = fmt::format("<g transform=\"translate({} {}) scale({})\">\n", kLeft, kTop, cell);
  if (!outcome.is_sparse())
    text += fmt::format("<path class=\"l0\" d=\"M0 {0}h{1}\" style=\"stroke-width:{1}\"/>\n",
                        static_cast<double>(members) / 2, members);
  text += "<g id=\"half\" shape-rendering=\"crispEdges\">\n";
  // Failures are drawn last, so that untested cells do not hide their edges.
  for (std::size_t i = kLayers; i-- > 0;) {
    if (paths[i].empty()) continue;
    const bool is_small = cell < kLeastMark && static_cast<Layer>(i) != Layer::kUntested && i != 0;
    text += fmt::format("<path class=\"l{}\"{} d=\"{}\"/>\n", i,
                        is_small ? fmt::format(" style=\"stroke-width:{};stroke-linecap:square\"",
                                               static_cast<double>(kLeastMark) / static_cast<double>(cell))
                                 : "",
                        paths[i]);
  }
  text += "</g>\n<use href=\"#half\" transform=\"matrix(0 1 1 0 0 0)\"/>\n";
  std::string grid;
  for (std::size_t i = 0; i <= members && members <= kMostGrid; ++i)
    grid += fmt::format("M{0} 0v{1}M0 {0}h{1}", i, members);
  if (!grid.empty()) text += fmt::format("<path class=\"g\" d=\"{}\"/>\n", grid);
  return text + fmt::format("<path class=\"t\" style=\"stroke-width:{}\" d=\"M0 0L{} {}\"/>\n</g>\n",
                            1.0 / static_cast<double>(cell), members, members);
}

// Returns the distance of two labels in members: 1, 2, 4, 8 and so on, because nodes have as many ranks.
std::size_t tick_step(std::size_t cell) {
  std::size_t step = 1;
  while (step * cell < kTickDistance)
    step *= 2;
  return step;
}

std::string axes_svg(const Outcome& outcome, std::size_t cell) {
  std::string ticks;
  std::string labels;
  const std::size_t step = tick_step(cell);
  for (std::size_t i = 0; i < outcome.members.size(); i += step) {
    const double middle = (static_cast<double>(i) + 0.5) * static_cast<double>(cell);
    const double x = static_cast<double>(kLeft) + middle;
    const double y = static_cast<double>(kTop) + middle;
    ticks += fmt::format("M{} {}v-5M{} {}h-5", x, kTop - 1, kLeft - 1, y);
    labels += fmt::format(
        "<text class=\"s m\" x=\"{0}\" y=\"{1}\">{4}</text><text class=\"s e\" x=\"{2}\" y=\"{3}\">{4}</text>\n", x,
        kTop - 10, kLeft - 10, y + 4, outcome.members[i].rank);
  }
  return fmt::format("<path class=\"t\" d=\"{}\"/>\n<text class=\"s e\" x=\"{}\" y=\"{}\">rank</text>\n{}", ticks,
                     kLeft - 10, kTop - 10, labels);
}

// Marks the ranks that a cause names at the right edge.
std::string marks_svg(const Outcome& outcome, std::size_t cell, const std::vector<Cause>& causes) {
  std::string path;
  for (const Cause& cause : causes) {
    const auto member =
        std::ranges::find(outcome.members, cause.rank, [](const Member& one) { return std::optional(one.rank); });
    if (!cause.rank || cause.kind == Cause::Kind::kLink || member == outcome.members.end()) continue;
    const auto at = static_cast<double>(member - outcome.members.begin());
    path += fmt::format("M{} {}l9 -5v10z", kLeft + cell * outcome.members.size() + 3,
                        static_cast<double>(kTop) + (at + 0.5) * static_cast<double>(cell));
  }
  return path.empty() ? "" : fmt::format("<path class=\"r\" d=\"{}\"/>\n", path);
}

// Returns the layers that occur, several in a line. y: position of the first line; receives that of the last one.
std::string legend_svg(const Paths& paths, std::size_t width, std::size_t& y) {
  std::string text;
  std::size_t x = kLeft;
  for (std::size_t i = 0; i < kLayers; ++i) {
    if (i != 0 && paths[i].empty()) continue;
    if (x + kLegendColumn > width) {
      x = kLeft;
      y += kLine;
    }
    text += fmt::format(
        "<path class=\"l{}\" style=\"stroke-width:12\" d=\"M{} {}h12\"/><text x=\"{}\" y=\"{}\">{}</text>\n", i, x,
        y - 4, x + 18, y, about(static_cast<Layer>(i)).name);
    x += kLegendColumn;
  }
  return text;
}

// y: position of the line before; receives that of the last line.
std::string causes_svg(const std::vector<Cause>& causes, std::size_t& y) {
  std::string text;
  const auto add = [&](std::string_view lines, std::size_t x) {
    for (const std::string_view line : base::split(base::trim(lines), '\n')) {
      y += kLine;
      text += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", x, y, escaped(line));
    }
  };
  y += kLine / 2;
  for (std::size_t i = 0; i < std::min(causes.size(), kShownCauses); ++i) {
    add(base::wrapped(base::one_line(causes[i].message)), kLeft);
    if (!causes[i].remedy.empty()) add(base::wrapped("remedy: " + base::one_line(causes[i].remedy)), kLeft + 16);
  }
  if (causes.size() > kShownCauses) add(fmt::format("and {} more", causes.size() - kShownCauses), kLeft);
  return text;
}

std::string style_svg() {
  std::string light(kStyle);
  std::string dark(kDarkStyle);
  for (std::size_t i = 0; i < kLayers; ++i) {
    const LayerInfo& layer = about(static_cast<Layer>(i));
    light += fmt::format(".l{}{{stroke:{}}}", i, layer.light);
    dark += fmt::format(".l{}{{stroke:{}}}", i, layer.dark);
  }
  return fmt::format("<style>{}@media(prefers-color-scheme:dark){{{}}}</style>\n", light, dark);
}

}  // namespace

std::string svg_report(const Outcome& outcome, const std::vector<Cause>& causes) {
  const std::size_t members = outcome.members.size();
  const std::size_t cell = cell_width(members);
  const std::size_t width = std::max(kNarrowestPage, kLeft + cell * members + 24);
  const Paths paths = draw_runs(outcome);
  const std::string summary = escaped("rdma-ping: " + summary_of(outcome, causes));
  std::size_t y = kTop + cell * members + 30;
  const std::string legend = legend_svg(paths, width, y);
  const std::string lines = causes_svg(causes, y);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
             "role=\"img\">\n"
             "<title>{2}</title>\n"
             "<desc>A cell shows the worst rail between two ranks of {3} that test.</desc>\n{4}"
             "<rect class=\"p\" width=\"100%\" height=\"100%\"/>\n"
             "<text class=\"h\" x=\"16\" y=\"28\">{2}</text>\n"
             "<text class=\"s\" x=\"16\" y=\"46\">Each cell shows the worst rail between two ranks.</text>\n",
             width, y + 24, summary, members, style_svg()) +
         cells_svg(outcome, cell, paths) + axes_svg(outcome, cell) + marks_svg(outcome, cell, causes) + legend + lines +
         "</svg>\n";
}

}  // namespace init::ping
