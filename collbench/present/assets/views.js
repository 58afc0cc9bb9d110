"use strict";
// Values and texts of points in the three views, and ticks of axes.
const collbench = (() => {
  // ---- text of sizes, times and rates, as collbench/units.py writes them ----
  const digits = (value, count) => String(Number(value.toPrecision(count)));
  function size(bytes) {
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (bytes < 1024) return `${digits(bytes, 4)} ${unit}`;
      bytes /= 1024;
    }
    return `${digits(bytes, 4)} TiB`;
  }
  function time(seconds) {
    for (const [scale, unit] of [[1e-9, "ns"], [1e-6, "us"], [1e-3, "ms"]]) {
      if (seconds < 999.5 * scale) return `${digits(seconds / scale, 3)} ${unit}`;
    }
    return `${digits(seconds, 3)} s`;
  }
  const rate = (value) => `${value.toFixed(value < 0.1 ? 4 : value < 10 ? 3 : 1)} GB/s`;
  const ratio = (value) => `${digits(value, 3)}x`;
  // Escape texts of run files, since Plotly interprets some HTML.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // A point that its line leaves out: other programs disturbed it, or its interval is over 100 % (`unsure` in results/base.py).
  const lost = (line, place) => line.unsure.includes(place);

  // ---- the three views: from seconds of a point to its value; a band's ends swap where more is better ----
  // `bus`: whether bandwidth is that of the bus, which ranks on one device do not have.
  const bandwidth = (line, place, seconds, bus) => line.sizes[place] * (bus ? line.factor : 1) / seconds / 1e9;
  const VIEWS = {
    bandwidth: {
      title: (bus) => `${bus ? "bus" : "algorithm"} bandwidth (GB/s)`, short: "bandwidth", log: true, write: rate,
      at: (line, i, bus) => [line.seconds, line.high, line.low].map((each) => each[i] && bandwidth(line, i, each[i], bus)),
    },
    latency: {
      title: () => "time per operation", short: "time", log: true, write: time,
      at: (line, i) => [line.seconds[i], line.low[i], line.high[i]],
    },
    ratio: {
      title: () => "times as fast as the library", short: "ratio", log: true, write: ratio,
      at: (line, i) => {
        const other = line.library, j = other ? other.sizes.indexOf(line.sizes[i]) : -1;
        if (j < 0 || lost(line, i) || lost(other, j)) return [null, null, null];
        const known = line.high[i] && other.high[j];
        return [other.seconds[j] / line.seconds[i],
          known ? other.low[j] / line.high[i] : null, known ? other.high[j] / line.low[i] : null];
      },
    },
  };

  // ---- axes: ticks for the visible range ----
  function span(values, log) {
    let low = Math.min(...values), high = Math.max(...values);
    if (!log) return [0, high * 1.06 || 1];
    if (low === high) [low, high] = [low / 2, high * 2];
    const room = Math.log10(high / low) * 0.04;
    return [Math.log10(low) - room, Math.log10(high) + room];
  }
  function powers(range, log, room) {
    const [low, high] = log ? range.map((each) => 10 ** each) : range;
    if (!log) {
      const step = 2 ** Math.ceil(Math.log2(Math.max(high - low, 1e-9) / room));
      return several(Math.ceil(low / step), Math.floor(high / step), (each) => each * step);
    }
    const first = Math.ceil(Math.log2(low)), last = Math.floor(Math.log2(high));
    const step = [1, 2, 4, 5, 10, 20].find((each) => (last - first) / each < room) || 20;
    return several(Math.ceil(first / step), Math.floor(last / step), (each) => 2 ** (each * step));
  }
  function decades(range, log, room) {
    if (!log) {
      const least = Math.max(range[1] - range[0], 1e-12) / room, power = 10 ** Math.floor(Math.log10(least));
      const step = power * [1, 2, 5, 10].find((each) => each * power >= least);
      return several(Math.ceil(range[0] / step), Math.floor(range[1] / step), (each) => Number((each * step).toPrecision(12)));
    }
    const width = range[1] - range[0];
    const parts = width < 1 ? [1, 1.5, 2, 3, 4, 5, 7] : width < 2.5 ? [1, 2, 5] : [1];
    const step = Math.max(1, Math.ceil(width / room));
    return several(Math.floor(range[0] / step), Math.ceil(range[1] / step), (each) => each * step)
      .flatMap((each) => parts.map((part) => Number((part * 10 ** each).toPrecision(12))));
  }
  const several = (first, last, make) => Array.from({ length: Math.min(Math.max(last - first + 1, 0), 60) }, (_, i) => make(first + i));

  return { size, time, digits, plain, lost, VIEWS, span, powers, decades };
})();
