// The page: curves with their controls, light and dark colours, printing, and the search.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;

  const { size, digits, time, plain, lost, VIEWS, span, powers, decades } = collbench;

  // ---- shown lines ----
  const logy = Object.fromEntries(Object.entries(VIEWS).map(([name, view]) => [name, view.log]));
  const hidden = new Set();
  let figure, view = "bandwidth", where = "", zoom = null, bus = true, lines = [], place = null;

  // Plotly's names of Matplotlib's markers.
  const SYMBOLS = { "o": "circle", "s": "square", "D": "diamond", "d": "diamond-tall", "P": "cross", "X": "x", "p": "pentagon",
    "v": "triangle-down", "^": "triangle-up", "<": "triangle-left", ">": "triangle-right", "*": "star", "h": "hexagon2" };
  data.figures.forEach((each, number) => each.lines.forEach((line, order) => {
    line.id = `${number}-${order}`;
    line.symbol = (SYMBOLS[line.marker] || "circle") + (line.open ? "-open" : "");
    line.library = data.libraries.includes(line.name) ? null : each.lines.find((other) =>
      other.run === line.run && other.predicted === line.predicted && data.libraries.includes(other.name));
    const run = each.lines.some((other) => other.run !== line.run) ? `, ${data.runs[line.run].label}` : "";
    const mixed = each.lines.some((other) => other.run === line.run && !other.expected && other.predicted !== line.predicted);
    line.label = line.name + (line.expected ? ", expected" : mixed && line.predicted ? ", predicted" : "") + run;
  }));

  const machine = (line) => data.runs[line.run].machine;
  const chosen = () => figure.lines.filter((line) => !where || machine(line) === where);
  const visible = () => lines.filter((line) => !hidden.has(line.id));
  const drawable = (line, i) => VIEWS[view].at(line, i, bus)[0] > 0;
  const points = (line) => line.sizes.map((_, i) => i).filter((i) => drawable(line, i));

  // Whether the line has a gap at a point, since its time or, as a ratio, that of the library is uncertain.
  const gap = (line, i) => lost(line, i) || (view === "ratio" && line.library && lost(line.library, line.library.sizes.indexOf(line.sizes[i])));

  function words(line, i) {
    const [middle, low, high] = VIEWS[view].at(line, i, bus), write = VIEWS[view].write;
    const band = low && high ? `${line.predicted ? "nine in ten" : "95 % interval"}: ${write(low)} - ${write(high)}` : "no interval";
    const also = view === "latency" ? [] : [`time: ${time(line.seconds[i])}`];
    return [line.label, `${size(line.sizes[i])}: ${write(middle)}`, band, ...also, line.checks[line.check_of[i]]];
  }

  // ---- drawing ----
  function axes(xrange, yrange, narrow) {
    const xlog = $("logx").checked, ylog = logy[view];
    const xticks = powers(xrange, xlog, narrow ? 4 : 8), yticks = decades(yrange, ylog, narrow ? 6 : 8);
    const write = { bandwidth: (value) => digits(value, 6), latency: (value) => value ? time(value) : "0" }[view] || VIEWS[view].write;
    const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
    const common = { gridcolor: color("--grid"), linecolor: color("--line"), zerolinecolor: color("--line"), tickmode: "array", automargin: true };
    return {
      xaxis: { ...common, type: xlog ? "log" : "linear", range: xrange, tickvals: xticks, ticktext: xticks.map(size),
        showgrid: false, showline: true, ticks: "outside", tickcolor: color("--line"), title: { text: "message size", standoff: 8 } },
      yaxis: { ...common, type: ylog ? "log" : "linear", range: yrange, tickvals: yticks, ticktext: yticks.map((each) => plain(write(each))),
        title: { text: VIEWS[view].title(bus), standoff: 12 } },
    };
  }

  function shade() {
    return root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }
  function traces() {
    const bands = [], curves = [];
    for (const line of visible()) {
      const places = line.sizes.map((_, i) => i).filter((i) => drawable(line, i) || gap(line, i));
      const color = line[shade()], x = places.map((i) => line.sizes[i]), values = places.map((i) => VIEWS[view].at(line, i, bus));
      // Measured bands end at twice and half of the median, as in plots/curves.py.
      const widest = line.predicted ? Infinity : 2, ends = values.map(([middle, low, high]) => [Math.max(low, middle / widest), Math.min(high, middle * widest)]);
      for (const known of stretches(places.map((i, at) => !gap(line, i) && values[at][1] > 0 && values[at][2] > 0))) {
        bands.push({ x: [...known.map((i) => x[i]), ...known.map((i) => x[i]).reverse()],
          y: [...known.map((i) => ends[i][0]), ...known.map((i) => ends[i][1]).reverse()],
          fill: "toself", fillcolor: color, opacity: line.predicted && !line.expected ? 0.06 : 0.18, line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false, uid: `band-${line.id}-${known[0]}` });
      }
      const curve = { x, name: plain(line.label), text: places.map((i) => drawable(line, i) ? words(line, i).map(plain).join("<br>") : ""), hoverinfo: "text" };
      const marker = { color, symbol: line.symbol, size: 8, line: { color, width: 1.4 } };
      curves.push({ ...curve, y: values.map((value, at) => gap(line, places[at]) ? null : value[0]), uid: `line-${line.id}`, mode: "lines+markers",
        line: { color, width: line.width, dash: line.dash }, marker });
      if (line.unsure.length) {
        curves.push({ ...curve, y: values.map((value, at) => lost(line, places[at]) ? value[0] : null), uid: `unsure-${line.id}`, mode: "markers",
          marker: { ...marker, symbol: `${line.symbol.replace("-open", "")}-open` }, showlegend: false });
      }
    }
    return [...bands, ...curves];
  }
  // The places of each unbroken part with two points or more.
  function stretches(whole) {
    const parts = [[]];
    whole.forEach((inside, at) => inside ? parts.at(-1).push(at) : parts.push([]));
    return parts.filter((part) => part.length > 1);
  }
  function extent() {
    const shown = visible(), all = shown.flatMap((line) => points(line).filter((i) => !gap(line, i)).map((i) => [line.sizes[i], VIEWS[view].at(line, i, bus)[0]]));
    if (!all.length) return [[0, 1], [0, 1]];
    const y = all.map((each) => each[1]);
    return [span(all.map((each) => each[0]), $("logx").checked), span(view === "ratio" ? [...y, 1] : y, logy[view])];
  }
  // Draw into an element; `narrow` as on a phone, `more` overrides the page's layout.
  function drawn(box, narrow, more = {}) {
    const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
    bus = lines.every((line) => line.factor > 0);
    const [xrange, yrange] = zoom || extent();
    const empty = visible().some((line) => points(line).length) ? [] : [{ text: "nothing is shown", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5, font: { size: 16 } }];
    const one = view === "ratio" ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: color("--soft"), width: 1, dash: "dot" } }] : [];
    const layout = {
      ...axes(xrange, yrange, narrow), annotations: empty, shapes: one, showlegend: false, hovermode: "closest", dragmode: narrow ? false : "zoom",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: narrow ? 8 : 20, r: narrow ? 14 : 28, t: 24, b: 56 },
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 12 : 13, color: color("--ink") },
      hoverlabel: { bgcolor: color("--card"), bordercolor: color("--line"), font: { color: color("--ink"), size: 13 }, align: "left" }, ...more,
    };
    const config = { displayModeBar: false, displaylogo: false, responsive: !more.width, showLink: false, plotlyServerURL: "", topojsonURL: "", doubleClick: false, scrollZoom: false };
    return Plotly.react(box, traces(), layout, config);
  }
  const caption = () => `${figure.title}: ${VIEWS[view].title(bus)}`;
  function draw() {
    const plot = $("plot");
    drawn(plot, plot.clientWidth < 560);
    $("drawn").textContent = caption();
    $("here").href = `#${figure.anchors[view]}`;
    plot.setAttribute("aria-label", `${caption()} by message size, ${visible().length} curves`);
  }
  function redraw() { zoom = null; place = null; legend(); draw(); }

  // ---- the legend: a button for each curve ----
  const SVG = "http://www.w3.org/2000/svg";
  const SHAPES = { circle: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", square: "M-3.6,-3.6h7.2v7.2h-7.2z", diamond: "M0,-5L4.6,0L0,5L-4.6,0z",
    "diamond-tall": "M0,-5L3,0L0,5L-3,0z", "triangle-up": "M0,-4.8L4.6,3.6H-4.6z", "triangle-down": "M0,4.8L4.6,-3.6H-4.6z",
    "triangle-left": "M-4.8,0L3.6,-4.6V4.6z", "triangle-right": "M4.8,0L-3.6,-4.6V4.6z", cross: "M-1.5,-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    x: "M-4.5,-2.4L-2.4,-4.5L0,-2.1L2.4,-4.5L4.5,-2.4L2.1,0L4.5,2.4L2.4,4.5L0,2.1L-2.4,4.5L-4.5,2.4L-2.1,0z",
    pentagon: "M0,-4.8L4.6,-1.5L2.8,3.9H-2.8L-4.6,-1.5z", hexagon2: "M-4.8,0L-2.4,-4.2H2.4L4.8,0L2.4,4.2H-2.4z",
    star: "M0,-5.4L1.3,-1.8L5.1,-1.7L2.1,0.7L3.2,4.4L0,2.2L-3.2,4.4L-2.1,0.7L-5.1,-1.7L-1.3,-1.8z" };
  const DASHES = { dash: "5,3", dashdot: "6,2,1.5,2", dot: "1.5,2.5", longdash: "9,3" };
  function swatch(line) {
    const make = (name, parts) => Object.entries(parts).reduce((made, [key, value]) => (made.setAttribute(key, value), made), document.createElementNS(SVG, name));
    const color = line[shade()], open = line.symbol.endsWith("-open");
    const drawn = make("svg", { width: 34, height: 14, viewBox: "-17 -7 34 14", "aria-hidden": "true" });
    drawn.append(make("path", { d: "M-17,0H17", stroke: color, "stroke-width": line.width, "stroke-dasharray": DASHES[line.dash] || "none", fill: "none" }),
      make("path", { d: SHAPES[line.symbol.replace("-open", "")] || SHAPES.circle, stroke: color, "stroke-width": 1.3, fill: open ? "var(--card)" : color }));
    return drawn;
  }
  function button(text, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.append(text);
    made.addEventListener("click", act);
    return made;
  }
  function legend() {
    const box = $("legend"), runs = [...new Set(lines.map((line) => line.run))];
    box.replaceChildren();
    for (const run of runs) {
      if (runs.length > 1) {
        const head = document.createElement("h3");
        head.textContent = `${data.runs[run].label}, ${data.runs[run].status}: ${data.runs[run].machine}`;
        box.append(head);
      }
      for (const line of lines.filter((each) => each.run === run)) {
        const made = button(line.label.replace(`, ${data.runs[run].label}`, ""), () => {
          if (!hidden.delete(line.id)) hidden.add(line.id);
          made.setAttribute("aria-pressed", String(!hidden.has(line.id)));
          place = null;
          draw();
        });
        made.prepend(swatch(line));
        made.dataset.line = line.id;
        made.setAttribute("aria-pressed", String(!hidden.has(line.id)));
        box.append(made);
      }
    }
    const all = document.createElement("div");
    all.className = "all no-print";
    all.append(button("All", () => { lines.forEach((line) => hidden.delete(line.id)); redraw(); focusAll(0); }),
      button("None", () => { lines.forEach((line) => hidden.add(line.id)); redraw(); focusAll(1); }));
    box.append(all);
  }
  const focusAll = (number) => document.querySelectorAll("#legend .all button")[number].focus();

  // ---- controls ----
  function options(select, box, names) {
    select.replaceChildren(...names.map(([value, text]) => new Option(text, value)));
    box.hidden = names.length < (select.id === "where" ? 3 : 2);
  }
  function choose(number) {
    figure = data.figures[number];
    where = "";
    const machines = [...new Set(figure.lines.map(machine))];
    options($("where"), $("machine-box"), [["", "all"], ...machines.map((each) => [each, each])]);
    narrowed();
  }
  const radio = (name) => document.querySelector(`input[name="view"][value="${name}"]`);
  function offer(name, there, reason) {
    radio(name).disabled = !there;
    radio(name).parentElement.title = there ? "" : reason;
  }
  // A link to a figure chooses its operation and view; the browser scrolls to it.
  function follow() {
    const wanted = decodeURIComponent(location.hash.slice(1));
    data.figures.forEach((each, number) => Object.entries(each.anchors).forEach(([name, place]) => {
      if (place !== wanted) return;
      view = name;
      radio(view).checked = true;
      $("operation").value = String(number);
      choose(number);
    }));
  }
  function narrowed() {
    lines = chosen();
    const compared = lines.some((line) => line.library && line.sizes.some((each) => line.library.sizes.includes(each)));
    offer("ratio", compared, "no library and hand-written implementation have a common size here");
    offer("bandwidth", "bandwidth" in figure.anchors, "its messages have no size");
    if (radio(view).disabled) view = ["bandwidth", "latency"].find((name) => !radio(name).disabled);
    radio(view).checked = true;
    $("bandwidth-name").textContent = lines.every((line) => line.factor > 0) ? "Bus bandwidth" : "Bandwidth";
    axis();
    redraw();
  }
  function axis() {
    $("logy").checked = logy[view];
    $("logy-name").textContent = VIEWS[view].short;
  }

  // ---- curves with the keyboard: along one, and from one to another ----
  function walk(event) {
    const shown = visible().filter((line) => points(line).length);
    const along = { ArrowRight: 1, ArrowLeft: -1 }[event.key], across = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!shown.length || !(along || across)) return;
    event.preventDefault();
    let [curve, bytes] = place || [0, null];
    if (place && across) curve = (curve + across + shown.length) % shown.length;
    const line = shown[curve], places = points(line);
    let at = places.findIndex((i) => line.sizes[i] >= bytes);
    at = bytes === null ? 0 : at < 0 ? places.length - 1 : at;
    if (place && along) at = Math.min(Math.max(at + along, 0), places.length - 1);
    place = [curve, line.sizes[places[at]]];
    const wanted = `${lost(line, places[at]) ? "unsure" : "line"}-${line.id}`, number = $("plot").data.findIndex((trace) => trace.uid === wanted);
    Plotly.Fx.hover("plot", [{ curveNumber: number, pointNumber: $("plot").data[number].x.indexOf(place[1]) }]);
    $("point").textContent = words(line, places[at]).join("; ");
  }

  function chart() {
    $("chart").hidden = false;
    options($("operation"), $("operation-box"), data.figures.map((each, number) => [number, each.title]));
    $("operation").addEventListener("change", () => choose(Number($("operation").value)));
    $("where").addEventListener("change", () => { where = $("where").value; narrowed(); });
    document.querySelectorAll('input[name="view"]').forEach((input) => input.addEventListener("change", () => {
      view = input.value;
      axis();
      redraw();
    }));
    $("logx").addEventListener("change", redraw);
    $("logy").addEventListener("change", () => { logy[view] = $("logy").checked; redraw(); });
    $("reset").addEventListener("click", () => { zoom = null; draw(); });
    choose(0);
    follow();
    addEventListener("hashchange", follow);
    $("plot").on("plotly_relayout", (change) => {
      if (!("xaxis.range[0]" in change || "yaxis.range[0]" in change)) return;
      const { xaxis, yaxis } = $("plot").layout;
      zoom = [[...xaxis.range], [...yaxis.range]];
      draw();
    });
    $("plot").on("plotly_doubleclick", () => { zoom = null; draw(); });
    $("plot").addEventListener("keydown", walk);
    matchMedia("(max-width: 560px)").addEventListener("change", draw);
  }

  // ---- light and dark ----
  function paint(theme) {
    if (theme) root.dataset.theme = theme;
    const dark = shade() === "dark";
    $("theme").textContent = dark ? "Light" : "Dark";
    $("theme").setAttribute("aria-label", dark ? "Change to light colours" : "Change to dark colours");
    if (figure) { legend(); draw(); }
  }
  $("theme").addEventListener("click", () => paint(shade() === "dark" ? "light" : "dark"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paint());

  // ---- print: every operation, in both quantities, as wide as a page ----
  const PRINTED = 6, WIDTH = 680;
  const height = () => 290 + 20 * Math.ceil(visible().length / 2); // two figures to a page, with their legends
  function print() {
    const shown = { figure, view, lines, zoom };
    zoom = null;
    for (const each of data.figures.slice(0, PRINTED)) {
      if (each !== shown.figure) lines = each.lines;
      else lines = shown.lines;
      figure = each;
      for (view of ["bandwidth", "latency"].filter((name) => name in figure.anchors)) {
        const box = document.createElement("figure"), title = document.createElement("figcaption"), plot = document.createElement("div");
        box.append(title, plot);
        $("printed").append(box);
        drawn(plot, false, { width: WIDTH, height: height(), showlegend: true, legend: { orientation: "h", y: -0.22 } });
        title.textContent = caption();
      }
    }
    ({ figure, view, lines, zoom } = shown);
    const left = data.figures.length - PRINTED;
    if (left > 0) $("printed").append(`${left} more operations are in the page, but not printed.`);
  }
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    paint("light");
    if (figure) print();
  });
  addEventListener("afterprint", () => {
    if (figure) $("printed").replaceChildren();
    if (before) return paint(before);
    delete root.dataset.theme;
    paint();
  });

  // ---- the table's search ----
  const all = document.querySelector("#rows caption").textContent; // common text of all rows
  const rows = [...document.querySelectorAll("#rows tbody tr")].map((row) => {
    const texts = [...row.cells].flatMap((cell) => [...cell.childNodes].map((node) => node.textContent));
    return [row, [all, ...texts].join(" ").toLowerCase()];
  });
  $("search").addEventListener("input", () => {
    const wanted = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const [row, text] of rows) {
      row.hidden = !wanted.every((word) => text.includes(word));
      left += row.hidden ? 0 : 1;
    }
    $("count").textContent = left === rows.length ? `${left.toLocaleString("en")} rows` : `${left.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  });

  // The library runs as a separate script element, whose hash the page's policy has.
  function unpack() {
    const packed = Uint8Array.from(atob($("library").textContent), (each) => each.charCodeAt(0));
    const made = document.createElement("script");
    made.textContent = new TextDecoder().decode(fflate.inflateSync(packed));
    document.head.append(made);
  }
  if (data.figures.length) {
    unpack();
    chart();
  }
  paint();
})();
